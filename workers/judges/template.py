"""Judge prompts: text files in ``prompts/``, and the one pass that fills them.

A file is a note to its reader, then sections, each under a line ``=== name ===``::

    system    who the judge is
    shared    the task, then the completion, in this order; the same bytes for every criterion
    empty     what is said under an empty completion
    binary, ordinal, numeric    how one criterion of that scale is put
    criterion the end of the prompt, with one criterion in it
    criteria  the same with several (written judges only)
    reference, passages    what stands before a criterion that has such of its own; left out, such a criterion fails
    repair    what is said to a reply that cannot be read (written judges only; without it nothing is said)
    entry     how one of several things in the place of the completion is put: an answer beside others, a step. A
              template that has it needs those scales only that its judge asks on

``{prompt} {reference} {documents} {completion}`` stand in ``shared``; they come cleaned and fenced. A paragraph of
``shared`` that names ``{reference}`` or ``{documents}`` is left out where the prompt has none. Documents are long, and
shown only by the template that is named for them: ``readout_documents`` is ``readout.txt`` with that paragraph,
``readout`` without. ``{id} {criterion} {levels} {low} {high}`` stand in a scale's section, ``{criteria} {ids}`` in the
next two, ``{id}`` and the section's own name in ``reference`` and ``passages``, ``{error} {ids}`` in ``repair``,
``{id} {completion}`` in ``entry``.
Substitution is one pass: braces in what is filled in stay as they are. The SHA-256 of the file is part of every
verdict's fingerprint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.errors import InvalidError, cut
from workers.judges.untrusted import Clean, Passages, clean, fence

_DOCUMENTS = "_documents"
_FOLDER = Path(__file__).parent / "prompts"
_HEADING = re.compile(r"^=== (\w+) ===$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_SCALE = frozenset({"id", "criterion", "levels", "low", "high"})
_ALLOWED = {
    "system": frozenset[str](),
    "shared": frozenset({"prompt", "reference", "documents", "completion"}),
    "empty": frozenset[str](),
    "binary": _SCALE,
    "ordinal": _SCALE,
    "numeric": _SCALE,
    "criterion": frozenset({"criteria", "ids"}),
    "criteria": frozenset({"criteria", "ids"}),
    "reference": frozenset({"id", "reference"}),
    "passages": frozenset({"id", "passages"}),
    "repair": frozenset({"error", "ids"}),
    "entry": frozenset({"id", "completion"}),
}
_SCALES = {"binary", "ordinal", "numeric"}
_OPTIONAL = {"criteria", "reference", "passages", "repair", "entry"}


class Text:
    """A text with ``{placeholders}``, split once so that filling is a join."""

    def __init__(self, text: str) -> None:
        self._parts = _PLACEHOLDER.split(text)
        self.names = self._parts[1::2]

    def fill(self, values: dict[str, str]) -> str:
        parts = self._parts.copy()
        parts[1::2] = [values[name] for name in self.names]
        return "".join(parts)


def sections(text: str) -> dict[str, str]:
    """The named sections of a prompt file, without blank lines around them."""
    parts = _HEADING.split(text)
    return {name: body.strip("\n") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


@dataclass(frozen=True)
class Shown:
    """What every criterion's question begins with. ``note`` says what was cleaned out of the untrusted text.

    ``completion`` is the completion's text as the judge sees it, ``original`` as it was given.
    """

    text: str
    note: str
    completion: str
    original: str

    @cached_property
    def passages(self) -> Passages:
        """The completion, to look quotes up in."""
        return Passages(self.completion, self.original)


@dataclass(frozen=True)
class Template:
    """A judge's prompt. ``digest`` is the SHA-256 of its file; what is shown of it depends on its ``name`` too."""

    name: str
    digest: str
    system: str
    empty: str
    paragraphs: tuple[Text, ...]
    texts: dict[str, Text]

    def shared(self, prompt: Prompt, completion: Completion) -> Shown:
        """The task and the completion, fenced."""
        text = clean(completion.text)
        fenced = self.marked_empty(fence("completion", text.text), text.text)
        return self.around(prompt, Clean(fenced, text.note), text.text, completion.text)

    def around(self, prompt: Prompt, answer: Clean, shown: str, original: str) -> Shown:
        """The task, fenced, and in the completion's place ``answer``, which is cleaned and fenced already."""
        cleaned = {"prompt": clean(prompt.text), "completion": answer}
        if prompt.reference is not None:
            cleaned["reference"] = clean(prompt.reference)
        if prompt.documents:
            cleaned["documents"] = _documents(prompt)
        values = {n: text.text if text is answer else fence(n, text.text) for n, text in cleaned.items()}
        paragraphs = [paragraph for paragraph in self.paragraphs if all(name in values for name in paragraph.names)]
        used = {name for paragraph in paragraphs for name in paragraph.names}
        notes = [f"{name}: {text.note}" for name, text in cleaned.items() if text.note and name in used]
        text = "".join(paragraph.fill(values) + "\n\n" for paragraph in paragraphs)
        return Shown(text, "; ".join(notes), shown, original)

    @property
    def shows_several(self) -> bool:
        """Whether it puts several things in the completion's place."""
        return "entry" in self.texts

    def marked_empty(self, fenced: str, text: str) -> str:
        """What is fenced, with a word under it where it is empty."""
        return fenced if text.strip() else f"{fenced}\n{self.empty}"

    def fill(self, section: str, values: dict[str, str]) -> str:
        """A scale's section or one of the last two, filled."""
        if section not in self.texts:
            raise InvalidError(f"template {self.name!r} has no section {section!r}, which this judge needs")
        return self.texts[section].fill(values)


def _documents(prompt: Prompt) -> Clean:
    return clean("\n\n".join(f"[{document.id}] {document.title}\n{document.text}" for document in prompt.documents))


def load(judge: Judge) -> Template:
    """The judge's template: the file that it names, or the one of its mode.

    Raises:
        InvalidError: there is no such template.
    """
    return read(judge.template or name_of(judge))


def name_of(judge: Judge) -> str:
    """The template of the judge's mode, and of how it compares or follows."""
    if judge.mode == "comparative":
        how = judge.effective_comparison
        return f"{how.kind}_written" if how.written else how.kind
    return "trajectory_written" if judge.mode == "trajectory" and judge.effective_trajectory.written else judge.mode


@lru_cache
def read(name: str) -> Template:
    """The template of this name (a file's stem, with or without ``_documents``), read once a process."""
    path = _FOLDER / f"{name.removesuffix(_DOCUMENTS)}.txt"
    known = sorted(file.stem + end for file in _FOLDER.glob("*.txt") for end in ("", _DOCUMENTS))
    if name not in known:
        raise InvalidError(
            f"no judge template {cut(repr(name), 80)}", hint=f"there are {', '.join(known)}", path="judge.template"
        )
    return parse(name, path.read_bytes())


def parse(name: str, content: bytes) -> Template:
    """A template out of its file's bytes.

    Raises:
        InvalidError: a section is missing or foreign, or holds a placeholder that has no business there.
    """
    found = sections(content.decode())
    needed = _ALLOWED.keys() - _OPTIONAL - (_SCALES if "entry" in found else set())
    if not found.keys() <= _ALLOWED.keys() or not needed <= found.keys():
        raise InvalidError(f"template {name!r} has sections {sorted(found)}", hint=f"it needs {sorted(_ALLOWED)}")
    texts = {section: Text(body) for section, body in found.items()}
    for section, text in texts.items():
        foreign = sorted(set(text.names) - _ALLOWED[section])
        if foreign:
            raise InvalidError(f"template {name!r}, section {section}: no placeholder {{{foreign[0]}}} here")
    order = texts["shared"].names
    if "prompt" not in order or order[-1] != "completion":
        raise InvalidError(f"template {name!r}: shared must show {{prompt}} and, last, {{completion}}")
    paragraphs = [Text(paragraph) for paragraph in re.split(r"\n{2,}", found["shared"])]
    return Template(
        name=name,
        digest=sha256(content).hexdigest(),
        system=found["system"],
        empty=found["empty"],
        paragraphs=tuple(text for text in paragraphs if name.endswith(_DOCUMENTS) or "documents" not in text.names),
        texts=texts,
    )
