"""Replies that repeat the words of the judge's template in place of an answer."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.untrusted import CleanText, QuoteIndex, clean, fence, fence_in
from rubricsvc.errors import InvalidError, cut

_MIN_RUN = 4
"""Words of a text that may not all stand together in the instructions."""
_MIN_LONG = 5
"""Words of a placeholder that may neither occur in a longer text nor, with some words changed, be the text."""
_MIN_RATIO = 0.65
"""Similarity in words (Ratcliff and Obershelp) from which a text is a placeholder with some words changed."""
_EXAMPLE = re.compile(r'"(\w+)": \[?<([^<>]+)>')
_WORD = re.compile(r"[^\W_]+")
_DIGITS = {"zero": "0", "one": "1", "two": "2"}


class TemplateWords:
    """The words of instructions, and of the placeholder of each field in their example of a reply."""

    def __init__(self, text: str) -> None:
        self._instructions = _joined(_words(text))
        self._placeholders = {field: _words(placeholder) for field, placeholder in _EXAMPLE.findall(text)}

    def repeated_by(self, field: str, text: str) -> bool:
        """Return whether a field's text repeats the instructions, or the field's name or placeholder.

        Case, punctuation, blanks and the spelling of digits do not count.
        """
        words, placeholder = _words(text), self._placeholders.get(field, [])
        if len(words) < 2:
            return words == [field]
        if words == placeholder[: len(words)] or (len(words) >= _MIN_RUN and _joined(words) in self._instructions):
            return True
        if len(placeholder) < _MIN_LONG:
            return False
        if _joined(placeholder) in _joined(words):
            return True
        if len(words) > 2 * len(placeholder):
            return False
        matcher = SequenceMatcher(None, words, placeholder, autojunk=False)
        return matcher.quick_ratio() >= _MIN_RATIO and matcher.ratio() >= _MIN_RATIO


def _words(text: str) -> list[str]:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", clean(text).text)
    return [_DIGITS.get(word, word) for word in _WORD.findall(text.casefold())]


def _joined(words: list[str]) -> str:
    return f" {' '.join(words)} "


_DOCUMENTS = "_documents"
_FOLDER = Path(__file__).parent / "prompts"
_HEADING = re.compile(r"^=== (\w+) ===$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


class TextTemplate:
    """A text with ``{placeholders}``, split once so that filling is a join."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = _PLACEHOLDER.split(text)
        self.names = self._parts[1::2]

    def fill(self, values: dict[str, str]) -> str:
        """Return the text with its placeholders filled."""
        parts = self._parts.copy()
        parts[1::2] = [values[name] for name in self.names]
        return "".join(parts)


def sections(text: str) -> dict[str, str]:
    """Return the sections of a prompt file by name, without surrounding blank lines."""
    parts = _HEADING.split(text)
    return {name: body.strip("\n") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


@dataclass(frozen=True)
class SharedPrompt:
    """The part of a prompt that all questions share.

    Attributes:
        text: The task and the completion.
        note: What was cleaned out of the untrusted text.
        completion: The completion as the judge sees it.
        original: The completion as it was given.
    """

    text: str
    note: str
    completion: str
    original: str

    @cached_property
    def quotes(self) -> QuoteIndex:
        """The index of the completion for quotes."""
        return QuoteIndex(self.completion, self.original)


@dataclass(frozen=True)
class JudgeTemplate:
    """A judge's prompt. ``digest`` is the SHA-256 of its file; the ``name`` decides whether documents are shown."""

    name: str
    digest: str
    system: str
    empty: str
    paragraphs: tuple[TextTemplate, ...]
    texts: dict[str, TextTemplate]
    mark: str = ""

    def shared(self, prompt: Prompt, completion: Completion) -> SharedPrompt:
        """Return the shared prompt about a completion."""
        text = clean(completion.text)
        fenced = self.mark_empty(self.fenced("completion", text.text), text.text)
        return self.render(prompt, CleanText(fenced, text.note), text.text, completion.text)

    def render(self, prompt: Prompt, answer: CleanText, completion: str, original: str) -> SharedPrompt:
        """Return the shared prompt with ``answer``, cleaned and fenced already, in the completion's place."""
        cleaned = {"prompt": clean(prompt.text), "completion": answer}
        if prompt.reference is not None:
            cleaned["reference"] = clean(prompt.reference)
        if prompt.documents:
            documents = (f"[{document.id}] {document.title}\n{document.text}" for document in prompt.documents)
            cleaned["documents"] = clean("\n\n".join(documents))
        values = {n: text.text if text is answer else self.fenced(n, text.text) for n, text in cleaned.items()}
        paragraphs = [paragraph for paragraph in self.paragraphs if all(name in values for name in paragraph.names)]
        used = {name for paragraph in paragraphs for name in paragraph.names}
        notes = [f"{name}: {text.note}" for name, text in cleaned.items() if text.note and name in used]
        text = "".join(paragraph.fill(values) + "\n\n" for paragraph in paragraphs)
        return SharedPrompt(text, "; ".join(notes), completion, original)

    @property
    def shows_several(self) -> bool:
        """Whether it shows several texts in the completion's place."""
        return "entry" in self.texts

    @cached_property
    def words(self) -> TemplateWords:
        """The words of the instructions, which are no answer."""
        sections = [self.texts[name].text for name in ("criterion", "criteria") if name in self.texts]
        return TemplateWords("\n".join([self.system, *sections]))

    def fenced(self, name: str, text: str) -> str:
        """Return untrusted text between marks that do not occur in it."""
        return fence_in(self.mark, text) if self.mark else fence(name, text)

    def mark_empty(self, fenced: str, text: str) -> str:
        """Return the fenced text, with a note under it where ``text`` is blank."""
        return fenced if text.strip() else f"{fenced}\n{self.empty}"

    def fill(self, section: str, values: dict[str, str]) -> str:
        """Return a section, filled."""
        if section not in self.texts:
            raise InvalidError(
                f"template {self.name!r} has no section {section!r}, which this criterion or judge needs",
                path="judge.template",
            )
        return self.texts[section].fill(values)


def load(judge: Judge) -> JudgeTemplate:
    """Return the judge's template: the file that it names, or that of its mode."""
    return read(judge.template or default_template(judge))


def default_template(judge: Judge) -> str:
    """Return the name of the template for the judge's mode and its options."""
    name = judge.effective_comparison.kind if judge.mode == "comparative" else judge.mode
    return f"{name}_written" if writes(judge) and name != "written" else name


def writes(judge: Judge) -> bool:
    """Return whether verdicts on single completions, pairs or steps are written."""
    written = {"comparative": judge.effective_comparison.written, "trajectory": judge.effective_trajectory.written}
    return written.get(judge.mode, judge.mode == "written")


@lru_cache(maxsize=512)
def inner_judge(judge: Judge) -> Judge:
    """Return the judge that is asked about each pair of a comparison or each step of a trajectory."""
    mode = "written" if writes(judge) else "readout"
    template = judge.template or default_template(judge)
    return judge.model_copy(update={"mode": mode, "template": template, "comparison": None, "trajectory": None})


@lru_cache
def read(name: str) -> JudgeTemplate:
    """Return the template of this name (a file's stem, with or without ``_documents``), read once per process."""
    path = _FOLDER / f"{name.removesuffix(_DOCUMENTS)}.txt"
    known = sorted(file.stem + end for file in _FOLDER.glob("*.txt") for end in ("", _DOCUMENTS))
    if name not in known:
        raise InvalidError(
            f"unknown judge template {cut(repr(name), 80)}",
            hint=f"use one of {', '.join(known)}",
            path="judge.template",
        )
    return parse(name, path.read_bytes())


def parse(name: str, content: bytes) -> JudgeTemplate:
    """Parse a template from its file's bytes."""
    bodies = sections(content.decode())
    texts = {section: TextTemplate(body) for section, body in bodies.items()}
    paragraphs = [TextTemplate(paragraph) for paragraph in re.split(r"\n{2,}", bodies["shared"])]
    return JudgeTemplate(
        name=name,
        digest=sha256(content).hexdigest(),
        system=bodies["system"],
        empty=bodies["empty"],
        paragraphs=tuple(text for text in paragraphs if name.endswith(_DOCUMENTS) or "documents" not in text.names),
        texts=texts,
        mark=bodies.get("fence", ""),
    )
