"""Checks against the prompt's documents: ``cites``, ``quotes`` and ``supported``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from pydantic import Field

from rubricsvc.core.prompt import Completion, Document, Prompt
from workers.checks.markdown import without_blocks
from workers.checks.registry import Args, CheckResult, check
from workers.checks.text import SENTENCE_END

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_BRACKETS = re.compile(r"(?<![\w)\]])\[([^\[\]\n]{1,200})\](?!\()")
_ID = re.compile(r"[\w.:/#@-]+")
_OPEN, _PART, _CLOSE = "\ue000\ue001\ue002"  # of block quotes: characters that mean nothing
_MARKS = (f"{_OPEN}…{_CLOSE}", "“…”", '"…"', "«…»", "»…«", "„…[“”]", "‚…‘")
_QUOTED = re.compile(
    "|".join(f"{one}([^{one}{other.strip('[]')}]+){other}" for one, other in (m.split("…") for m in _MARKS))
)
_STOPS = ".!?…"
_SENTENCE = re.compile(r"[.!?…][\"'”’)]*(?:\s*\[[^\[\]\n]{1,200}\])*\.?(?=\s+([^\W\d_]))|\n(?=\s*(?:[-*+•]|\d+[.)])\s)")
"""Its end with the citations that stand after it, where no small letter follows; an item of a list begins one."""
_MARKER = re.compile(r" {0,3}>(?!>)(?:[ \t]*>)*")  # not >>>, which is Python's prompt
_DASHES = ("—", "–", "--")
_LEADING = re.compile(r"\s*(?:\[[^\[\]\n]{1,200}\][ \t]*)+")
_WORD = re.compile(r"\w+")
_TYPOGRAPHY = str.maketrans("‘’‚“”„«»–—\u00a0", '\'\'\'"""""-- ')


class Cites(Args):
    """``min``: different documents to be cited, for full credit."""

    min: int = Field(default=1, ge=1)


@check("cites", Cites)
def cites(completion: Completion, prompt: Prompt, args: Cites) -> float:
    """Documents are cited as ``[id]`` (``[a, b]`` and ``[a; b]`` too), and every id is one of the prompt's documents.

    The value is min(1, cited/min) × cited/(cited + foreign), over different ids. Code, links and subscripts (``a[i]``)
    are not citations.
    """
    known = {document.id for document in prompt.documents}
    named = _named(_CODE.sub(" ", completion.text), known)
    cited = len(named & known)
    return min(1.0, cited / args.min) * cited / len(named) if named else 0.0


def _named(text: str, known: set[str]) -> set[str]:
    return {name for inside in _BRACKETS.findall(text) for name in _ids(inside, known)}


def _ids(inside: str, known: set[str]) -> list[str]:
    if inside in known:
        return [inside]
    parts = [part.strip() for part in re.split("[,;]", inside)]
    return [part for part in parts if part in known or _ID.fullmatch(part)]


class Quotes(Args):
    """``min``: quotations wanted, for full credit. ``words``: shorter passages in quotation marks do not count.

    ``cited``: a passage must stand in a document that is cited with it: in its sentence, or else after or before it in
    its paragraph. Without that, in any document of the prompt.
    """

    min: int = Field(default=1, ge=1)
    words: int = Field(default=4, ge=1)
    cited: bool = True


@check("quotes", Quotes, version=4)
def quotes(completion: Completion, prompt: Prompt, args: Quotes) -> CheckResult:
    """Quoted passages stand, word for word, in the document that is cited with them.

    Quoted is what stands in double quotation marks (“…”, "…", «…», »…«, „…“), in ‚…‘, and in block quotes; code is not.
    Blanks, capitals, the shape of quotation marks and dashes, and punctuation at the passage's ends do not matter. The
    value is min(1, true/min) × true/all, over different passages of at least ``words`` words.
    """
    known = {document.id: _document(document) for document in prompt.documents}
    found = {(_plain(said).strip(" .,;:…\"'"), ids) for said, ids in _quoted(completion.text, set(known))}
    asked = [(passage, ids if args.cited else known) for passage, ids in found if len(passage.split()) >= args.words]
    passages = {passage for passage, _ in asked}
    true = {passage for passage, ids in asked if any(_stands_in(known[id_], passage) for id_ in ids if id_ in known)}
    bare = passages - {passage for passage, ids in asked if ids}
    why = {
        passage: "no document is cited with it" if passage in bare else "it does not stand there"
        for passage in sorted(passages - true)
    }
    lines = [f"{reason}: {passage[:120]}" for passage, reason in why.items()]
    value = min(1.0, len(true) / args.min) * len(true) / len(passages) if passages else 0.0
    return CheckResult(value, "\n".join([f"{len(true)} of {len(passages)} quoted passages", *lines[:20]]))


def _quoted(text: str, known: set[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """The quotations, each with the ids that are cited at its end, in its sentence, or else in its paragraph."""
    for paragraph in re.split(r"\n\s*\n", _blocks_in_marks(without_blocks(text))):
        found = list(_QUOTED.finditer(paragraph))
        edges = [0, *(edge for match in found for edge in match.span()), len(paragraph)]
        gaps = [_gap(paragraph, edges[n], edges[n + 1], known) for n in range(0, len(edges), 2)]
        for number, (match, beside) in enumerate(zip(found, _beside(gaps), strict=True)):
            said, within = _without_tail(match[match.lastindex or 0])
            ids = _named(within, known) or beside or gaps[number + 1].all or gaps[number].all
            yield from ((part, frozenset(ids)) for part in said.split(_PART))


@dataclass(frozen=True, slots=True)
class _Gap:
    """The ids between two quotations: ``all``, those ``after`` the first in its sentence, ``before`` the next in its.

    ``parts``: a sentence ends here.
    """

    all: set[str]
    after: set[str]
    before: set[str]
    parts: bool


def _gap(paragraph: str, start: int, end: int, known: set[str]) -> _Gap:
    closed = paragraph[max(0, start - 2) : start][:1]  # “It is so.” ends a sentence within its marks
    text = (closed if closed in _STOPS else "") + paragraph[start:end]
    ends = [match.end() for match in _SENTENCE.finditer(text) if not (match[1] or "").islower()]
    first, last = (ends[0], ends[-1]) if ends else (len(text), 0)
    return _Gap(_named(text, known), _named(text[:first], known), _named(text[last:], known), bool(ends))


def _beside(gaps: list[_Gap]) -> Iterator[set[str]]:
    """For each quotation the ids on that side of it where its sentence has them: before its first, after its last, or
    on both."""
    start = 0
    for end in range(1, len(gaps)):
        if gaps[end].parts or end == len(gaps) - 1:
            leads, trails = bool(gaps[start].before), bool(gaps[end].after)
            for number in range(start, end):
                before, after = gaps[number].before, gaps[number + 1].after
                yield before | after if leads and trails else (before or after) if leads else (after or before)
            start = end


def _without_tail(said: str) -> tuple[str, str]:
    """A passage, and the citations that stand at its end within the quotation marks."""
    text = said
    while (bare := text.rstrip(" .,;\n\t")).endswith("]") and (start := bare.rfind("[")) > 0:
        text = bare[:start]
    return text, said[len(text) :]


def _blocks_in_marks(text: str) -> str:
    """Markdown's block quotes as quotations in the paragraph before them, with the source that follows them."""
    lines: list[str] = []
    for quoted, some in groupby(text.split("\n"), key=lambda line: _MARKER.match(line) is not None):
        part = "\n".join(some)
        if quoted:
            while lines and not lines[-1].strip():
                lines.pop()
            part = _in_marks(part)
        elif lines and lines[-1].endswith(_CLOSE) and part.lstrip().startswith((*_DASHES, "[")):
            part = part.lstrip()
        lines += part.split("\n")
    return "\n".join(lines)


def _in_marks(block: str) -> str:
    """A block quote between marks of its own, its paragraphs parted; lines from a dash on are its source."""
    lines = [_MARKER.sub("", line).strip() for line in block.split("\n")]
    if lines[0].startswith("[!"):  # a note or a warning, as GitHub writes them
        return ""
    end = next((at for at, line in enumerate(lines) if line.startswith(_DASHES)), len(lines))
    parts = re.split("\n\n+", "\n".join(lines[:end]).strip())
    source = " ".join(lines[end:])
    return f"{_OPEN}{_PART.join(parts)}{_CLOSE}" + (f" {source}" if source else "")


def _stands_in(text: str, passage: str) -> bool:
    """Word for word: ``art of war`` does not stand in ``the start of war``."""
    whole = rf"(?<!\w){re.escape(passage)}(?!\w)"
    return passage in text and re.search(whole, text) is not None


def _plain(text: str) -> str:
    return " ".join(text.translate(_TYPOGRAPHY).casefold().split())


class Supported(Args):
    """``min``: the share of sentences wanted, for full credit. ``words``: shorter sentences are not asked for support.

    ``overlap``: the share of a sentence's longer words (over three letters) that the cited documents must have.
    """

    min: float = Field(default=1.0, gt=0.0, le=1.0)
    words: int = Field(default=5, ge=1)
    overlap: float = Field(default=0.0, ge=0.0, le=1.0)


@check("supported", Supported)
def supported(completion: Completion, prompt: Prompt, args: Supported) -> CheckResult:
    """The share of sentences with support: with a citation, every one of which is a document of the prompt.

    Headings and code are no sentences. Whether the document says what the sentence says is for a judge to find out.
    """
    known = {document.id: set(_WORD.findall(_document(document))) for document in prompt.documents}
    asked = [said for said in _sentences(completion.text) if len(_BRACKETS.sub(" ", said).split()) >= args.words]
    met = [said for said in asked if _is_supported(said, known, args.overlap)]
    share = len(met) / len(asked) if asked else 0.0
    bare = [f"without support: {said.strip()[:120]}" for said in asked if said not in met]
    return CheckResult(min(1.0, share / args.min), "\n".join([f"{len(met)} of {len(asked)} sentences", *bare[:20]]))


def _is_supported(sentence: str, known: dict[str, set[str]], overlap: float) -> bool:
    named = _named(sentence, set(known))
    if not named or not named <= known.keys():
        return False
    words = [word for word in _WORD.findall(_plain(_BRACKETS.sub(" ", sentence))) if len(word) > 3]
    there = set().union(*(known[id_] for id_ in named))
    return not words or sum(word in there for word in words) >= overlap * len(words)


def _sentences(text: str) -> list[str]:
    """Sentences, each with the citations that stand right after its full stop."""
    prose = "\n".join("" if line.lstrip().startswith("#") else line for line in _CODE.sub(" ", text).split("\n"))
    found: list[str] = []
    for piece in SENTENCE_END.split(prose):
        late = _LEADING.match(piece)
        if late and found:
            found[-1] += late[0]
            piece = piece[late.end() :]  # noqa: PLW2901 - the rest of it
        found.append(piece)
    return found


@lru_cache(maxsize=256)
def _document(document: Document) -> str:
    return _plain(document.text)
