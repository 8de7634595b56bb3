"""Calls to a judge: which criteria they ask about, in which words, and what the verdicts of all modes share.

Untrusted text stands between fences that do not occur in it, and quotes are found in it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from hashlib import sha256
from html import unescape
from itertools import accumulate, chain, count
from pathlib import Path
from typing import Any, TypeVar

import json5
from pydantic import BaseModel, ConfigDict

from rubricsvc.core import strict_json
from rubricsvc.core.judge import Judge, Thinking
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Level, Numeric, Ordinal, Rubric
from rubricsvc.core.untrusted import INVISIBLE, CleanText, clean, nfkc
from rubricsvc.core.validation_messages import error_text
from rubricsvc.core.verdict import RAW_CHARS, Evidence, Reason, Verdict
from rubricsvc.errors import InvalidError, cut
from workers.engines.base import THINKING_CHARS, Failure, Question, Reply
from workers.reasoning import REASONING_MARKS, marks_of, split_reasoning


def fence(name: str, text: str) -> str:
    """Return ``text`` between two marks with a number that is derived from it and does not occur in it.

    The number depends on this text alone, so that all questions about a completion, and all completions of a prompt,
    share the same bytes. A writer cannot know it, since writing it down would change it.
    """
    seeds = chain([text], (f"{attempt}\n{text}" for attempt in count(1)))
    number = next(number for seed in seeds if (number := sha256(seed.encode()).hexdigest()[:8]) not in text)
    return f"<{name}-{number}>\n{text}\n</{name}-{number}>"


def fence_in(mark: str, text: str) -> str:
    """Return ``text`` between two marks, each longer than any run of the mark's character in it, as in CommonMark.

    A mark of one character repeated: two or three tokens instead of twenty, and the same ones around most texts.
    """
    longest = max(map(len, re.findall(f"{re.escape(mark[0])}+", text)), default=0)
    mark = mark[0] * max(len(mark), longest + 1)
    return f"{mark}\n{text}\n{mark}"


def fence_all(name: str, texts: Sequence[str]) -> list[str]:
    """Return the texts, each fenced as by `fence`, so that none contains a mark of any other.

    The numbers are derived from all texts in any order: the writer of one cannot know the marks.
    """
    everything = "\n".join(sorted(texts))
    for attempt in count():
        seeds = [f"{place} {attempt}\n{everything}" for place in range(len(texts))]
        numbers = [sha256(seed.encode()).hexdigest()[:8] for seed in seeds]
        if len(set(numbers)) == len(texts) and not any(number in everything for number in numbers):
            break
    return [f"<{name}-{number}>\n{text}\n</{name}-{number}>" for number, text in zip(numbers, texts, strict=True)]


_TYPOGRAPHY = str.maketrans(
    dict.fromkeys('\u2018\u2019\u201a\u201b\u2032\u2039\u203a\u00b4\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb"', "'")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("*_`#~>|\\[]")  # marks of Markdown
)
_MARKUP = re.compile(
    r"(?<=\])\([^()\s]*\)|</?(?:b|i|u|em|strong|code|a|p|br|li|ul|ol|sup|sub|span|div|h[1-6])\b[^<>\n]*>"
)


class QuoteIndex:
    """A text in which quotes are located, ignoring whitespace; each quote is one search.

    A quote that does not occur as it is may differ in presentation: case, Unicode form, typography, markup. ``shown``
    is the cleaned text; offsets are in ``original``, and the quote is cut out of it.
    """

    def __init__(self, shown: str, original: str) -> None:
        self._shown, self._original = shown, original
        words = [word.span() for word in re.finditer(r"\S+", shown)]
        self._text = " ".join(shown[start:end] for start, end in words)
        self._starts = [start for start, _ in words]  # of each word in shown, and in the joined text
        self._joined = list(accumulate((end - start + 1 for start, end in words), initial=0))
        # the number of shown characters before each hidden one
        self._hidden = [match.start() - i for i, match in enumerate(INVISIBLE.finditer(original))]

    def locate(self, quote: str) -> Evidence:
        """Return the quote as it stands in the original, with the offsets of its first occurrence, if any."""
        words = " ".join(quote.split())
        if words and (at := self._text.find(words)) >= 0:
            places = []
            for place in (at, at + len(words) - 1):  # of the first and the last character
                word = bisect_right(self._joined, place) - 1
                places.append(self._starts[word] + place - self._joined[word])
        else:
            characters, in_shown = self._presentation
            folded = _folded(quote)[0].strip()
            if (at := characters.find(folded)) < 0:  # a judge may add quotation marks
                at = characters.find(folded := folded.strip(" '"))
            if not folded or at < 0:
                return Evidence(quote=quote)
            places = [in_shown[at], in_shown[at + len(folded) - 1]]
        start, last = (place + bisect_right(self._hidden, place) for place in places)
        return Evidence(quote=self._original[start : last + 1], start=start, end=last + 1)

    _presentation = cached_property[tuple[str, list[int]]](lambda self: _folded(self._shown))


def _folded(text: str) -> tuple[str, list[int]]:
    """Return a text without presentation, blanks as single spaces, and the place of each of its characters."""
    characters, places, parts = [" "], [0], dict[str, str]()
    for character in set(text):
        plain = unicodedata.normalize("NFKD", character.translate(_TYPOGRAPHY)).translate(_TYPOGRAPHY)
        parts[character] = re.sub(r"\s", " ", plain.casefold())
    markup = {place for span in _MARKUP.finditer(text) for place in range(*span.span())}
    for place, character in enumerate(text):
        for part in parts[character] if place not in markup else " ":
            if part != " " or characters[-1] != " ":
                characters.append(part)
                places.append(place)
    return "".join(characters), places


_MIN_RUN = 4  # words of a text that may not all stand together in the instructions
_MIN_LONG = 5  # words of a placeholder that may neither occur in a longer text nor, with some words changed, be it
_MIN_RATIO = 0.65  # similarity in words (Ratcliff and Obershelp) of a placeholder with some words changed
_EXAMPLE = re.compile(r'"(\w+)": \[?<([^<>]+)>')
_WORD = re.compile(r"[^\W_]+")
_DIGITS = {"zero": "0", "one": "1", "two": "2"}


class TemplateWords:
    """The words of instructions, and of the placeholder of each field in their example of a reply."""

    def __init__(self, text: str) -> None:
        self._instructions = f" {' '.join(_words(text))} "
        self._placeholders = {field: _words(placeholder) for field, placeholder in _EXAMPLE.findall(text)}

    def repeated_by(self, field: str, text: str) -> bool:
        """Return whether a field's text repeats the instructions, or the field's name or placeholder.

        Case, punctuation, blanks and the spelling of digits do not count.
        """
        words, placeholder = _words(text), self._placeholders.get(field, [])
        if len(words) < 2:
            return words == [field]
        whole = f" {' '.join(words)} "
        if words == placeholder[: len(words)] or (len(words) >= _MIN_RUN and whole in self._instructions):
            return True
        if len(placeholder) < _MIN_LONG:
            return False
        if f" {' '.join(placeholder)} " in whole:
            return True
        if len(words) > 2 * len(placeholder):
            return False
        matcher = SequenceMatcher(None, words, placeholder, autojunk=False)
        return matcher.quick_ratio() >= _MIN_RATIO and matcher.ratio() >= _MIN_RATIO


def _words(text: str) -> list[str]:
    if not text.isascii():
        text = nfkc(clean(text).text)
    return [_DIGITS.get(word, word) for word in _WORD.findall(text.casefold())]


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
        quotable: What a verdict may be quoted from; by default the text.
    """

    text: str
    note: str
    completion: str
    original: str
    quotable: str | None = None

    @cached_property
    def untrusted(self) -> tuple[str, str]:
        """What a verdict may be quoted from: its letters and digits, and all of it without blanks."""
        text = (self.text or self.completion) if self.quotable is None else self.quotable
        return _letters(text), "".join(text.split())

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

    def shared(
        self, prompt: Prompt, completion: str, answer: CleanText | None = None, passages: Sequence[str] = ()
    ) -> SharedPrompt:
        """Return the shared prompt about a completion, with the passages of its criteria if they stand before it.

        Where there is an ``answer``, cleaned and fenced already, it stands in the completion's place.
        """
        shown = completion
        if answer is None:
            cleaned_answer = clean(completion)
            shown = cleaned_answer.text
            answer = CleanText(self.fenced("completion", shown, answer=True), cleaned_answer.note)
        cleaned = {"prompt": clean(prompt.text), "completion": answer}
        if prompt.reference is not None:
            cleaned["reference"] = clean(prompt.reference)
        if prompt.documents:
            documents = (f"[{document.id}] {document.title}\n{document.text}" for document in prompt.documents)
            cleaned["documents"] = clean("\n\n".join(documents))
        if passages:
            cleaned["passages"] = clean(numbered(passages))
        values = {n: text.text if text is answer else self.fenced(n, text.text) for n, text in cleaned.items()}
        paragraphs = [paragraph for paragraph in self.paragraphs if all(name in values for name in paragraph.names)]
        used = {name for paragraph in paragraphs for name in paragraph.names}
        notes = [f"{name}: {text.note}" for name, text in cleaned.items() if text.note and name in used]
        text = "".join(paragraph.fill(values) + "\n\n" for paragraph in paragraphs)
        return SharedPrompt(text, "; ".join(notes), shown, completion)

    @cached_property
    def words(self) -> TemplateWords:
        """The words of the instructions, which are no answer."""
        sections = [self.texts[name].text for name in ("criterion", "criteria") if name in self.texts]
        return TemplateWords("\n".join([self.system, *sections]))

    def fenced(self, name: str, text: str, *, answer: bool = False) -> str:
        """Return untrusted text between marks that do not occur in it; under a blank ``answer`` stands a note."""
        fenced = fence_in(self.mark, text) if self.mark else fence(name, text)
        return f"{fenced}\n{self.empty}" if answer and not text.strip() else fenced

    def fill(self, section: str, values: dict[str, str]) -> str:
        """Return a section, filled.

        Raises:
            InvalidError: The template has no such section.
        """
        if section not in self.texts:
            raise InvalidError(
                f"template {self.name!r} has no section {section!r}, which this criterion or judge needs",
                path="judge.template",
            )
        return self.texts[section].fill(values)


def load(judge: Judge) -> JudgeTemplate:
    """Return the judge's template: the file that it names, or that of its mode and its options."""
    name = judge.effective_comparison.kind if judge.mode == "comparative" else judge.mode
    return read(judge.template or (f"{name}_written" if writes(judge) and name != "written" else name))


def writes(judge: Judge) -> bool:
    """Return whether verdicts on single completions, pairs or steps are written."""
    written = {"comparative": judge.effective_comparison.written, "trajectory": judge.effective_trajectory.written}
    return written.get(judge.mode, judge.mode == "written")


@lru_cache(maxsize=512)
def inner_judge(judge: Judge) -> Judge:
    """Return the judge that is asked about each pair of a comparison or each step of a trajectory."""
    fields = {"mode": "written" if writes(judge) else "readout", "template": load(judge).name}
    return judge.model_copy(update={**fields, "comparison": None, "trajectory": None})


@lru_cache
def read(name: str) -> JudgeTemplate:
    """Return the template of this name (a file's stem, with or without ``_documents``), read once per process."""
    path = _FOLDER / f"{name.removesuffix(_DOCUMENTS)}.txt"
    known = sorted(file.stem + end for file in _FOLDER.glob("*.txt") for end in ("", _DOCUMENTS))
    if name not in known:
        raise InvalidError(
            f"unknown template {cut(repr(name), 80)}", hint=f"use one of {', '.join(known)}", path="judge.template"
        )
    content = path.read_bytes()
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


PAIR = Ordinal(
    levels=(
        Level(label="answer A", value=1.0),
        Level(label="answer B", value=0.0),
        Level(label="tie", value=0.5, text="it fits both equally well"),
    )
)
"""The scale of a pair in `comparative`; values are those of the completion shown first."""


@dataclass(frozen=True, slots=True)
class AskedCriterion:
    """A criterion in a call. ``id`` is its number in the call, short enough for a judge to repeat."""

    criterion: Criterion
    id: str


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """A question and the criteria that its reply must answer.

    Attributes:
        asked: The criteria, in the order of their ids.
        question: What the engine is asked.
        values: Value of each of the question's labels, in [0, 1].
        note: What was cleaned out of the criteria.
        levels: Name of each label in the rubric.
    """

    asked: tuple[AskedCriterion, ...]
    question: Question
    values: tuple[float, ...] = ()
    note: str = ""
    levels: tuple[str, ...] = ()

    def failed(
        self,
        reason: Reason,
        detail: str,
        reply: Reply,
        shown: SharedPrompt,
        *,
        only: AskedCriterion | None = None,
        **fields: Any,
    ) -> list[Verdict]:
        """Return a failed verdict, with ``fields`` set, on each criterion of this call, or on one of them.

        It keeps the reply as it came; after a repair, with the first reply before it.
        """
        first = f"{cut(reply.first_text, RAW_CHARS)}\n\n(reply after one repair:)\n\n" if reply.first_text else ""
        common = {**self.common_fields(reply, shown, detail), "raw": first + reply.text, **fields}
        return [Verdict.failed(one.criterion.key, reason, **common) for one in ([only] if only else self.asked)]

    def common_fields(self, reply: Reply, shown: SharedPrompt, detail: str = "") -> dict[str, Any]:
        """Return what a verdict of any mode keeps of a reply: the notes, its thinking, and the usage."""
        return {
            "detail": join_notes(detail, reply.note, shown.note, self.note),
            "thinking": reply.thinking or None,
            "usage": reply.usage,
            "latency_s": reply.latency_s,
        }


def composition(judge: Judge, rubric: Rubric) -> list[tuple[Criterion, ...]]:
    """Return which judged criteria share a call, in the rubric's order; those that are asked alone are left out."""
    criteria = [c for c in rubric.criteria if c.check is None and not c.asked_alone]
    size = (judge.criteria_per_call or max(len(criteria), 1)) if writes(judge) else 1
    return [tuple(criteria[start : start + size]) for start in range(0, len(criteria), size)]


def join_notes(*notes: str | None) -> str | None:
    """Return the notes that are not empty as one, or None."""
    return "; ".join(filter(None, notes)) or None


def numbered(passages: Sequence[str]) -> str:
    """Return passages, each under its number."""
    return "\n\n".join(f"[{n}] {text}" for n, text in enumerate(passages, start=1))


def render_criterion(asked: AskedCriterion, template: JudgeTemplate, levels: str) -> CleanText:
    """Return the criterion in the template's section for its scale, after its reference and passages.

    Rubrics may be imported or generated, so their text is cleaned too.
    """
    scale = asked.criterion.scale
    text, clean_levels = clean(asked.criterion.text), clean(levels)
    low, high = (f"{scale.low:g}", f"{scale.high:g}") if isinstance(scale, Numeric) else ("", "")
    values = {"id": asked.id, "criterion": text.text, "levels": clean_levels.text, "low": low, "high": high}
    note = join_notes(text.note, clean_levels.note)
    # the reference and the passages belong to the question, so that all questions share the completion
    passages = clean(numbered(asked.criterion.passages or ()))
    grounds = {"reference": clean(asked.criterion.reference or ""), "passages": passages}
    rendered = [
        template.fill(name, {"id": asked.id, name: template.fenced(name, text.text)}) + "\n\n"
        for name, text in grounds.items()
        if text.text
    ]
    notes = [f"{name} of {asked.id}: {text.note}" for name, text in grounds.items() if text.note]
    note = join_notes(f"criterion {asked.id}: {note}" if note else "", *notes) or ""
    return CleanText("".join(rendered) + template.fill(scale.kind, values), note)


T = TypeVar("T")

_DECODER = json.JSONDecoder(object_pairs_hook=strict_json.unique_keys, strict=False)
_ERROR_CHARS = 500
_BRACE = re.compile(r"[{}]")
_OBJECT_START = re.compile(r"""\{\s*(?:["'}]|//|/\*|[A-Za-z_]\w+\s*:)""")
_MAX_OBJECTS = 100  # in one reply, broken ones included; each is read to its end, and all must be cheap together
_JSON5_CHARS, _MAX_JSON5_TRIES = 8000, 2  # its parser takes up to 0.5 s for so many characters
_PYTHON_CONSTANT = re.compile(
    r"""\"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\b(?:True|False|None)\b""", re.DOTALL
)  # texts in quotes match too


class ReplyError(ValueError):
    """A reply that fails its call for a reason, but for the part in ``content``, by id, of all but its ``open_ids``."""

    def __init__(self, reason: Reason, message: str, content: Any = None, open_ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reason, self.content, self.open_ids = reason, content or {}, open_ids


class ReplyModel(BaseModel):
    """Base of the JSON objects that a judge writes: strict types; unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A reply with its thinking in a field of its own; what its mode parsed, or why all or some is missing."""

    reply: Reply
    content: Any = None
    error: ReplyError | None = None


def parse_reply(reply: Reply, thinking: Thinking | None, parse: Callable[[str], object]) -> ParsedReply:
    """Parse a written reply, thinking included.

    ``parse`` returns the content of the text, or raises a `ReplyError` or, for ``unparseable``, any ValueError.
    """
    reply = split_thinking(reply, thinking)
    if reply.error:
        return ParsedReply(reply, error=ReplyError(Reason.TRUNCATED, reply.error))
    try:
        return ParsedReply(reply, parse(reply.text))
    except ReplyError as error:
        return ParsedReply(reply, error.content, error)
    except ValueError as error:
        return ParsedReply(reply, error=ReplyError(Reason.UNPARSEABLE, error_text(error)))


def split_thinking(reply: Reply, thinking: Thinking | None) -> Reply:
    """Return the reply with its thinking in a field of its own.

    Thinking ends at the last closing mark: what it quotes before that is part of it. The opening mark may be missing,
    since many chat templates write it themselves. The marks are the judge's, or any that begin the reply. The result
    has an ``error`` if the reply was cut off, or if the server counted more thinking than the budget.
    """
    own = ((thinking.opens, thinking.closes),) if thinking else ()
    opens, closes = marks_of(reply.text, (*own, *REASONING_MARKS))
    before, after = split_reasoning(reply.text, opens, closes, in_code=True)
    unclosed = opens in (after or before.rpartition(closes)[2]).split("{", 1)[0]
    before, after = (reply.text, "") if unclosed else (before.removesuffix(closes), after)
    text = "\n".join(filter(None, (reply.thinking, before.strip().removeprefix(opens).strip())))
    error = ""
    if reply.truncated or unclosed:
        where = "inside its thinking" if text and not after else "before its verdict"
        error = f"the reply was cut off {where}; raise the judge's max_tokens"
    elif thinking and (reply.thinking_tokens or 0) > thinking.budget_tokens:
        error = f"{reply.thinking_tokens:.0f} thinking tokens exceed the budget of {thinking.budget_tokens}"
    return replace(reply, text=after, thinking=text[:THINKING_CHARS], error=error)


def repair_call(
    call: JudgeCall, parsed: ParsedReply, template: JudgeTemplate, build: Callable[..., JudgeCall]
) -> JudgeCall | None:
    """Return the call that sends a reply back with its error, about the ids that it leaves open; None for no repair.

    A truncated reply would be truncated again. The text stays the first, which is cached; ``build`` makes the schema.
    """
    error = parsed.error
    if (
        error is None
        or error.reason is Reason.TRUNCATED
        or not (parsed.reply.text.strip() and template.texts.get("repair"))
    ):
        return None
    asked = tuple(one for one in call.asked if one.id in error.open_ids) or call.asked
    values = {"error": clean(str(error)[:_ERROR_CHARS]).text, "ids": ", ".join(one.id for one in asked)}
    turns = (clean(parsed.reply.text).text, template.fill("repair", values))
    schema = call.question.schema if asked == call.asked else build(asked, template).question.schema
    return replace(call, asked=asked, question=replace(call.question, schema=schema, turns=turns))


def merge_repaired(first: ParsedReply, second: ParsedReply) -> ParsedReply:
    """Return what a reply and its repair answer together."""
    if first.error is None or not first.error.content:
        return second
    content, error = {**first.error.content, **(second.content or {})}, second.error
    return ParsedReply(second.reply, content, error and ReplyError(error.reason, str(error), content))


def with_repaired_reply(first: Reply, second: Reply | Failure) -> Reply:
    """Return the reply after its repair, with usage and latency of both; the first one where the repair failed."""
    if isinstance(second, Failure):
        note = join_notes(first.note, f"repair failed: {second.reason} {second.detail}") or ""
        return replace(first, note=note)
    return replace(second.after(first, "repaired once"), first_text=first.text)


def object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def parse_items(
    text: str, items: Callable[[dict[str, Any]], list[T]], claim: Callable[[T], tuple[str, object]]
) -> list[T]:
    """Return what the JSON object says that ends a reply; code fences and words may surround it.

    An object before it that says something else is a contradiction: one of the two may be quoted from the completion.

    Args:
        text: The reply without its thinking.
        items: Returns what an object says, or raises a ValueError if it has another form.
        claim: Returns what an item decides, and what it says of it.
    """
    *earlier, last = (value for value, _ in json_objects(text))
    final = items(last)
    decided = dict(map(claim, final))
    for value in earlier:
        try:
            before = dict(map(claim, items(value)))
        except ValueError:  # an object of another form says nothing
            continue
        if changed := [id_ for id_ in decided if id_ in before and before[id_] != decided[id_]]:
            raise ReplyError(Reason.CONTRADICTORY, f"the reply has two verdicts on {', '.join(changed)}")
    return final


_ESCAPE = re.compile(r"(?<!\\)\\+(?:u([0-9a-fA-F]{4})|[nrtbf])")
_LONG_FIELD = 12  # letters and digits, those of its name included
_FORCED = ("criterion", "id", "evidence")  # fields that a schema may have added to what is quoted
_DECIDING = ("verdict", "result", "score")  # alone they stand in texts about verdicts


def is_quoted(text: str, shown: SharedPrompt, passages: Iterable[str] = ()) -> bool:
    """Return whether the JSON object that ends a reply, or an entry of it, stands in what was shown: a quote.

    So do its fields in any spelling where a reason among them is long: the judge may leave some out, or add some.
    """
    with suppress(ValueError):
        value, source = json_objects(text)[-1]
        letters, unspaced = shown.untrusted
        letters += "".join(map(_letters, passages))
        entries = [one for many in value.values() if isinstance(many, list) for one in many if isinstance(one, dict)]
        for entry in (value, *entries):
            fields = list(_fields("", entry))
            has_reason = any(len(text) >= _LONG_FIELD for name, text in fields if name not in _DECIDING)
            if has_reason and all(text in letters for _, text in fields):
                return True
        return "".join(source.split()) in unspaced
    return False


def _fields(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the name of each field in a JSON value that is not empty, and the letters and digits of name and value."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key not in _FORCED:
                yield from _fields(key, one)
    elif isinstance(value, list):
        for one in value:
            yield from _fields(name, one)
    elif value not in ("", None):
        yield name, _letters(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")


def _letters(text: str) -> str:
    plain = _ESCAPE.sub(lambda escape: chr(int(escape[1] or "20", 16)), unescape(unescape(text)))
    return "".join(_words(plain))


def json_objects(text: str) -> list[tuple[dict[str, Any], str]]:
    """Return the JSON objects of a reply with their sources; the last is whole, and other braces may follow it.

    An object inside a broken one does not count. JSON with the common slips of models is read as JSON5. A name of
    one letter is that of a set, {x : x > 2}, which is no object.
    """
    objects: list[tuple[dict[str, Any], str]] = []
    message, depth, position, count, tries, complete = "no JSON object ends the reply", 0, 0, 0, 0, False
    while (brace := _BRACE.search(text, position)) is not None:
        position = brace.end()
        if brace.group() == "}":
            depth = max(0, depth - 1)
            continue
        if _OBJECT_START.match(text, brace.start()) is None:
            depth += 1
            continue
        if count == _MAX_OBJECTS:
            raise ValueError(f"more than {_MAX_OBJECTS} JSON objects; {message}")
        count, complete = count + 1, False
        try:
            try:
                value, position = _DECODER.raw_decode(text, brace.start())
            except ValueError:
                if depth or tries == _MAX_JSON5_TRIES:
                    raise
                tries += 1
                value, position = _read_json5(text, brace.start())
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
        except ValueError as error:
            message = f"broken JSON: {error}" if depth == 0 else message
            depth += 1
            continue
        if depth == 0:
            objects.append((value, text[brace.start() : position]))
            complete = True
    if not complete:
        raise ValueError(message)
    return objects


def _read_json5(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON5 object at ``start``, in which Python's constants count as JSON's, and its end."""
    constants = {"True": "true", "False": "false", "None": "null"}
    window = _PYTHON_CONSTANT.sub(lambda token: constants.get(token[0], token[0]), text[start : start + _JSON5_CHARS])
    value, error, end = json5.parse(window, consume_trailing=False, allow_duplicate_keys=False, strict=False)
    if error is not None:
        raise ValueError(error)
    return value, start + end
