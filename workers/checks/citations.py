"""Checks of citations against `sources`, given or opened: ``cites``, ``quotes`` and ``supported``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import pairwise

from pydantic import Field

from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.markdown import tokens
from workers.checks.registry import Args, CheckResult, check
from workers.checks.sources import sources

_INLINE_CODE = re.compile(r"`[^`\n]*`")
_BRACKETS = re.compile(r"(?<![\w)\]])\[([^\[\]\n]{1,200})\](?!\()")
_ID = re.compile(r"[\w.:/#@-]+")
_QUOTED = re.compile('“([^“”]+)”|"([^"]+)"|«([^«»]+)»|»([^»«]+)«|„([^„“”]+)[“”]|‚([^‚‘]+)‘')
_QUOTATION = "\ue000"  # in the place of one: a character that means nothing
_CITATIONS = r"(?:\s*\[[^\[\]\n]{1,200}\])*+"
_SENTENCE = re.compile(rf"[.!?…][\"'”’)]*{_CITATIONS}\.?(?=\s+([^\s\ue000])|\Z)|[。！？]{_CITATIONS}|\n(?=- )")
"""Its end, with the citations after it; unless a small letter, a digit or a quotation follows. List items end too."""
_ATTRIBUTION = re.compile(r"^\s*(?:—|–|--|\[)", re.MULTILINE)
_WORD = re.compile(r"\w+")
_TYPOGRAPHY = str.maketrans('"‘’‚“”„«»–—\u00a0', "'''''''''-- ")


class Cites(Args):
    """``min``: distinct documents to cite for full credit."""

    min: int = Field(default=1, ge=1)


@check("cites", Cites, version=4)
def cites(completion: Completion, prompt: Prompt, args: Cites) -> float:
    """Return min(1, cited/min) × cited/(cited + unknown), over distinct ids.

    Citations are ``[id]``, ``[a, b]`` and ``[a; b]``. Code, links and subscripts (``a[i]``) are not.
    """
    known = sources(prompt, completion).keys()
    named = _cited_ids("\n".join(_paragraphs(completion.text)), known)
    cited = len(named & known)
    return min(1.0, cited / args.min) * cited / len(named) if named else 0.0


def _cited_ids(text: str, known: Collection[str]) -> set[str]:
    ids = set[str]()
    for inside in _BRACKETS.findall(_INLINE_CODE.sub(" ", text)):
        parts = [inside] if inside in known else map(str.strip, re.split("[,;]", inside))
        ids |= {part for part in parts if part in known or _ID.fullmatch(part)}
    return ids


def _paragraphs(text: str) -> list[str]:
    """Return the prose without headings and code, each with its lists and with the block quotes after it in “…”."""
    paragraphs, depth, end, heading = [""], 0, -1, False
    for token in tokens(text):
        depth += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if token.type in ("inline", "html_block") and not heading and depth < 3:  # >>> is Python's prompt
            content = _quotation(token.content) if depth else token.content
            start, stop = token.map or (0, 0)
            if depth or start < end or (paragraphs[-1].endswith("”") and _ATTRIBUTION.match(content)):
                paragraphs[-1] += f" {content}"
            elif start == end:
                paragraphs[-1] += f"\n- {content}"
            else:
                paragraphs.append(content)
            end = stop
        heading = token.type == "heading_open" and token.markup.startswith("#")
    return paragraphs


def _quotation(block: str) -> str:
    """Return a paragraph of a block quote in “…”, from a dash or a citation on its source."""
    if block.startswith("[!"):  # a note or a warning, as GitHub writes them
        return ""
    attribution = _ATTRIBUTION.search(block)
    start = attribution.start() if attribution else len(block)
    passage = block[:start].translate(_TYPOGRAPHY).strip()
    return f"“{passage}” {block[start:]}".strip() if passage else block


def _sentences(paragraph: str) -> Iterator[str]:
    following = ((match.end(), match[1] or "") for match in _SENTENCE.finditer(paragraph))
    ends = [end for end, first in following if not first.islower() and not first.isdigit()]
    return (paragraph[start:end] for start, end in pairwise([0, *ends, len(paragraph)]))


class Quotes(Args):
    """``min``: true quotations for full credit. ``words``: shorter passages in quotation marks do not count.

    ``cited``: a passage must occur in a document that is cited with it: in its sentence, else in its paragraph.
    Otherwise in any document.
    """

    min: int = Field(default=1, ge=1)
    words: int = Field(default=4, ge=1)
    cited: bool = True


@check("quotes", Quotes, version=7)
def quotes(completion: Completion, prompt: Prompt, args: Quotes) -> CheckResult:
    """Return min(1, true/min) × true/all, over distinct passages in quotation marks and block quotes.

    A passage is true where it occurs word for word in a document that is cited with it. White space, case, the shape
    of quotation marks and dashes, and punctuation at the ends of a passage do not matter.
    """
    known = {name: _plain(text) for name, text in sources(prompt, completion).items()}
    true, false = set[str](), dict[str, str]()
    for quoted, ids in _quoted(completion.text, known):
        passage = _plain(quoted).strip(" .,;:…'")
        if len(passage.split()) >= args.words:
            if any(_occurs_in(known[name], passage) for name in known.keys() & (ids if args.cited else known)):
                true.add(passage)
            else:
                false[passage] = "not in the document cited" if ids else "no document cited"
    count = len(true | false.keys())
    lines = [f"{problem}: {passage[:120]}" for passage, problem in sorted(false.items()) if passage not in true]
    value = min(1.0, len(true) / args.min) * len(true) / count if count else 0.0
    return CheckResult(value, "\n".join([f"{len(true)} of {count} quoted passages", *lines[:20]]))


def _quoted(text: str, known: Collection[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield each quotation with the ids that are cited on one side of it in its sentence, or else in its paragraph."""
    for paragraph in _paragraphs(text):
        passages = iter([_split_tail(match)[0] for match in _QUOTED.finditer(paragraph)])
        prose = _QUOTED.sub(lambda match: _QUOTATION + _split_tail(match)[1], paragraph)
        anywhere = _cited_ids(prose, known)
        for sentence in _sentences(prose):
            gaps = [_cited_ids(gap, known) for gap in sentence.split(_QUOTATION)]
            leads, trails = bool(gaps[0]), bool(gaps[-1])
            for before, after in pairwise(gaps):
                near = before | after if leads and trails else (before or after) if leads else (after or before)
                yield next(passages), near or anywhere


def _split_tail(quotation: re.Match[str]) -> tuple[str, str]:
    """Split the citations at the end of a quotation, within the quotation marks, or its full stop, from the passage."""
    text = inside = quotation[quotation.lastindex or 0]
    while (bare := text.rstrip(" .,;\n\t")).endswith("]") and (start := bare.rfind("[")) > 0:
        text = bare[:start]
    return text, inside[len(text) :] or (inside[-1] if inside[-1] in ".!?…" else "")


def _occurs_in(text: str, passage: str) -> bool:
    """Return whether whole words match: ``art of war`` does not occur in ``the start of war``."""
    return passage in text and re.search(rf"(?<!\w){re.escape(passage)}(?!\w)", text) is not None


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


@check("supported", Supported, version=4)
def supported(completion: Completion, prompt: Prompt, args: Supported) -> CheckResult:
    """Return the share of sentences with citations that all resolve, over ``min``.

    Headings and code are no sentences. Whether the document supports the sentence is for a judge to decide.
    """
    known = {name: set(_WORD.findall(_plain(text))) for name, text in sources(prompt, completion).items()}
    every = [sentence for paragraph in _paragraphs(completion.text) for sentence in _sentences(paragraph)]
    checked = [sentence for sentence in every if len(_BRACKETS.sub(" ", sentence).split()) >= args.words]
    unmet = [sentence for sentence in checked if not _is_supported(sentence, known, args.overlap)]
    met = len(checked) - len(unmet)
    lines = [f"without support: {sentence.strip()[:120]}" for sentence in unmet[:20]]
    value = min(1.0, met / len(checked) / args.min) if checked else 0.0
    return CheckResult(value, "\n".join([f"{met} of {len(checked)} sentences", *lines]))


def _is_supported(sentence: str, known: dict[str, set[str]], overlap: float) -> bool:
    named = _cited_ids(sentence, known)
    if not named or not named <= known.keys():
        return False
    words = [word for word in _WORD.findall(_plain(_BRACKETS.sub(" ", sentence))) if len(word) > 3]
    cited = set().union(*(known[name] for name in named))
    return sum(word in cited for word in words) >= overlap * len(words)
