"""Checks of citations against `sources`, given or opened: ``cites``, ``quotes`` and ``supported``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.markdown import without_blocks
from workers.checks.registry import Args, CheckResult, check
from workers.checks.sources import sources
from workers.checks.text import SENTENCE_END

_INLINE_CODE = re.compile(r"`[^`\n]*`")
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
    """``min``: distinct documents to cite for full credit."""

    min: int = Field(default=1, ge=1)


@check("cites", Cites, version=3)
def cites(completion: Completion, prompt: Prompt, args: Cites) -> float:
    """Return min(1, cited/min) × cited/(cited + unknown), over distinct ids.

    Citations are ``[id]``, ``[a, b]`` and ``[a; b]``. Code, links and subscripts (``a[i]``) are not.
    """
    known = sources(prompt, completion).keys()
    named = _cited_ids(_without_code(completion.text), known)
    cited = len(named & known)
    return min(1.0, cited / args.min) * cited / len(named) if named else 0.0


def _cited_ids(text: str, known: Collection[str]) -> set[str]:
    return {name for inside in _BRACKETS.findall(text) for name in _ids(inside, known)}


def _ids(inside: str, known: Collection[str]) -> list[str]:
    if inside in known:
        return [inside]
    parts = [part.strip() for part in re.split("[,;]", inside)]
    return [part for part in parts if part in known or _ID.fullmatch(part)]


class Quotes(Args):
    """``min``: true quotations for full credit. ``words``: shorter passages in quotation marks do not count.

    ``cited``: a passage must occur in a document that is cited with it: in its sentence, else after or before it in
    its paragraph. Otherwise in any document.
    """

    min: int = Field(default=1, ge=1)
    words: int = Field(default=4, ge=1)
    cited: bool = True


@check("quotes", Quotes, version=6)
def quotes(completion: Completion, prompt: Prompt, args: Quotes) -> CheckResult:
    """Return min(1, true/min) × true/all, over distinct passages in quotation marks and block quotes.

    A passage is true where it occurs word for word in a document that is cited with it. White space, case, the shape
    of quotation marks and dashes, and punctuation at the ends of a passage do not matter.
    """
    known = {name: _plain(text) for name, text in sources(prompt, completion).items()}
    quoted = {(_plain(passage).strip(" .,;:…\"'"), ids) for passage, ids in _quoted(completion.text, set(known))}
    checked = [(passage, ids if args.cited else known) for passage, ids in quoted if len(passage.split()) >= args.words]
    passages = {passage for passage, _ in checked}
    true = {passage for passage, ids in checked if any(_occurs_in(known[id_], passage) for id_ in ids if id_ in known)}
    cited = {passage for passage, ids in checked if ids}
    lines = [
        f"{'not in the document cited' if passage in cited else 'no document cited'}: {passage[:120]}"
        for passage in sorted(passages - true)
    ]
    value = min(1.0, len(true) / args.min) * len(true) / len(passages) if passages else 0.0
    return CheckResult(value, "\n".join([f"{len(true)} of {len(passages)} quoted passages", *lines[:20]]))


def _quoted(text: str, known: set[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each quotation with the ids that are cited at its end, in its sentence, or else in its paragraph."""
    for paragraph in re.split(r"\n\s*\n", _blocks_in_marks(without_blocks(text))):
        matches = list(_QUOTED.finditer(paragraph))
        edges = [0, *(edge for match in matches for edge in match.span()), len(paragraph)]
        gaps = [_gap(paragraph, edges[n], edges[n + 1], known) for n in range(0, len(edges), 2)]
        for number, (match, beside) in enumerate(zip(matches, _ids_in_sentence(gaps), strict=True)):
            passage, tail = _split_tail(match[match.lastindex or 0])
            ids = _cited_ids(tail, known) or beside or gaps[number + 1].all or gaps[number].all
            yield from ((part, frozenset(ids)) for part in passage.split(_PART))


class _Gap(NamedTuple):
    """The ids between two quotations: all, those in the sentence of the first, those in the sentence of the next."""

    all: set[str]
    after: set[str]
    before: set[str]
    ends_sentence: bool


def _gap(paragraph: str, start: int, end: int, known: set[str]) -> _Gap:
    closed = paragraph[max(0, start - 2) : start][:1]  # “It is so.” ends a sentence within its marks
    text = (closed if closed in _STOPS else "") + paragraph[start:end]
    ends = [match.end() for match in _SENTENCE.finditer(text) if not (match[1] or "").islower()]
    first, last = (ends[0], ends[-1]) if ends else (len(text), 0)
    return _Gap(_cited_ids(text, known), _cited_ids(text[:first], known), _cited_ids(text[last:], known), bool(ends))


def _ids_in_sentence(gaps: list[_Gap]) -> Iterator[set[str]]:
    """Yield for each quotation the ids on the side of it where its sentence has them: before, after, or both."""
    start = 0
    for end in range(1, len(gaps)):
        if gaps[end].ends_sentence or end == len(gaps) - 1:
            leads, trails = bool(gaps[start].before), bool(gaps[end].after)
            for number in range(start, end):
                before, after = gaps[number].before, gaps[number + 1].after
                yield before | after if leads and trails else (before or after) if leads else (after or before)
            start = end


def _split_tail(quoted: str) -> tuple[str, str]:
    """Split the citations at the end of a quotation, within the quotation marks, from the passage."""
    text = quoted
    while (bare := text.rstrip(" .,;\n\t")).endswith("]") and (start := bare.rfind("[")) > 0:
        text = bare[:start]
    return text, quoted[len(text) :]


def _blocks_in_marks(text: str) -> str:
    """Put block quotes between marks, in the paragraph before them, with the source that follows them."""
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
    """Return a block quote between marks, its paragraphs separated; lines from a dash on are its source."""
    lines = [_MARKER.sub("", line).strip() for line in block.split("\n")]
    if lines[0].startswith("[!"):  # a note or a warning, as GitHub writes them
        return ""
    end = next((at for at, line in enumerate(lines) if line.startswith(_DASHES)), len(lines))
    parts = re.split("\n\n+", "\n".join(lines[:end]).strip())
    source = " ".join(lines[end:])
    return f"{_OPEN}{_PART.join(parts)}{_CLOSE}" + (f" {source}" if source else "")


def _occurs_in(text: str, passage: str) -> bool:
    """Return whether whole words match: ``art of war`` does not occur in ``the start of war``."""
    whole = rf"(?<!\w){re.escape(passage)}(?!\w)"
    return passage in text and re.search(whole, text) is not None


@lru_cache(maxsize=256)  # the documents of a prompt are read for each of its completions
def _plain(text: str) -> str:
    return " ".join(text.translate(_TYPOGRAPHY).casefold().split())


class Supported(Args):
    """``min``: the share of sentences for full credit. ``words``: shorter sentences need no support.

    ``overlap``: the share of a sentence's words of over three letters that must occur in the cited documents.
    """

    min: float = Field(default=1.0, gt=0.0, le=1.0)
    words: int = Field(default=5, ge=1)
    overlap: float = Field(default=0.0, ge=0.0, le=1.0)


@check("supported", Supported, version=3)
def supported(completion: Completion, prompt: Prompt, args: Supported) -> CheckResult:
    """Return the share of sentences with citations that all resolve, over ``min``.

    Headings and code are no sentences. Whether the document supports the sentence is for a judge to decide.
    """
    known = {name: set(_WORD.findall(_plain(text))) for name, text in sources(prompt, completion).items()}
    every = _sentences(completion.text)
    checked = [sentence for sentence in every if len(_BRACKETS.sub(" ", sentence).split()) >= args.words]
    unmet = [sentence for sentence in checked if not _is_supported(sentence, known, args.overlap)]
    met = len(checked) - len(unmet)
    lines = [f"without support: {sentence.strip()[:120]}" for sentence in unmet[:20]]
    value = min(1.0, met / len(checked) / args.min) if checked else 0.0
    return CheckResult(value, "\n".join([f"{met} of {len(checked)} sentences", *lines]))


def _is_supported(sentence: str, known: dict[str, set[str]], overlap: float) -> bool:
    named = _cited_ids(sentence, set(known))
    if not named or not named <= known.keys():
        return False
    words = [word for word in _WORD.findall(_plain(_BRACKETS.sub(" ", sentence))) if len(word) > 3]
    cited = set().union(*(known[id_] for id_ in named))
    return not words or sum(word in cited for word in words) >= overlap * len(words)


def _without_code(text: str) -> str:
    return _INLINE_CODE.sub(" ", without_blocks(text))


def _sentences(text: str) -> list[str]:
    """Split prose into sentences, each with the citations right after its full stop."""
    prose = "\n".join("" if line.lstrip().startswith("#") else line for line in _without_code(text).split("\n"))
    sentences: list[str] = []
    for piece in SENTENCE_END.split(prose):
        citations = _LEADING.match(piece)
        if citations and sentences:
            sentences[-1] += citations[0]
            sentences.append(piece[citations.end() :])
        else:
            sentences.append(piece)
    return sentences
