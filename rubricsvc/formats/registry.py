"""The formats by name: those that are mapping files, and those that need code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rubricsvc.formats import mapping, native, openai_grader, trees
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import Entry, Record


@dataclass(frozen=True)
class Format:
    """How a format is read: ``read`` yields the valid records of a file, and adds the errors to ``file.errors``.

    A record with all fields of one of the lists in ``fields`` has this format.
    """

    read: Callable[[InputFile], Iterator[Record]]
    fields: tuple[str, ...] = ()
    matches: Callable[[Any], bool] = lambda _: False

    def identifies(self, first: Any) -> bool:
        """Return whether a file with this first record has this format."""
        given = set(first) if isinstance(first, dict) else set()
        return any(given.issuperset(names.split()) for names in self.fields) or self.matches(first)


def _by_entry(read: Callable[[Entry], Iterator[Record]]) -> Callable[[InputFile], Iterator[Record]]:
    return lambda file: file.parse(read)


_BENCH = ("criterions dimension_weight", "topic language prompt", "article prompt")
_OPENAI = ("item grader", "testing_criteria", "reinforcement type", "type input", "type source", "type graders")
_CODE = {
    "native": Format(_by_entry(native.read), ("prompt completions",), native.matches),
    "openai_grader": Format(_by_entry(openai_grader.read), _OPENAI),
    "paperbench": Format(_by_entry(trees.read_paperbench), ("requirements weight sub_tasks",)),
    "deep_research_bench": Format(trees.read_deep_research_bench, _BENCH),
    "deep_research_bench_en": Format(partial(trees.read_deep_research_bench, language="en")),
    "deep_research_bench_zh": Format(partial(trees.read_deep_research_bench, language="zh")),
}


class _Formats(Mapping[str, Format | mapping.Reader]):
    """All formats; a mapping file is read when its format is first used."""

    def __init__(self) -> None:
        self._names = list(dict.fromkeys([*_CODE, *mapping.builtin_names()]))

    def __getitem__(self, name: str) -> Format | mapping.Reader:
        if name not in self._names:
            raise KeyError(name)
        return _CODE[name] if name in _CODE else mapping.Reader(mapping.builtin(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


FORMATS = _Formats()
