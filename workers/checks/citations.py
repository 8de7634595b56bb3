"""The documents that a completion may cite: those of its prompt, and those that it opened in its trajectory."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from difflib import SequenceMatcher
from itertools import pairwise
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall, is_error, tool_results
from rubricsvc.core.strict_json import json_of
from workers.checks.markdown import AFTER, BEFORE, BRACKETS, CODE_SPAN, QUOTATION, QUOTED, paragraphs, plain, sentences
from workers.checks.registry import Args, CheckResult
from workers.repetitions import WORD, is_long, words_of

_ID = re.compile(r"[\w.:/#@-]+")
PART_SEPARATOR = "\n␞\n"  # no quotation spans it, so that a policy cannot splice a sentence from parts of its choice


def sources(prompt: Prompt, completion: Completion) -> dict[str, str]:
    """Return the text of each document by id. A quotation must stand in one of the parts that were opened.

    Opened is a document in the result of a tool: the result of the tool ``open`` for the document that its argument
    ``id`` names, and no other, and any other result that is JSON with the strings ``id`` and ``text``, or a list of
    such. A result that is empty, JSON with an ``error``, or any other JSON object opens nothing. Only ``open`` adds to
    a document of the prompt: a tool that echoes its arguments must not.
    """
    texts = defaultdict[str, list[str]](list)
    for document in prompt.documents:
        texts[document.id].append(document.text)
    given = set(texts)
    for call, result in tool_results(completion.messages):
        for name, text in _documents(call, result):
            if name not in given or (call and call.name == "open"):
                texts[name].append(text)
    return {name: PART_SEPARATOR.join(parts) for name, parts in texts.items()}


def _documents(call: ToolCall | None, result: Message) -> Iterator[tuple[str, str]]:
    content = json_of(result.content)
    if is_error(content):
        return
    opened = None
    if call and call.name == "open" and isinstance(arguments := json_of(call.arguments), dict):
        opened = arguments.get("id") if isinstance(arguments.get("id"), str) else None
    entries = content if isinstance(content, list) else [content]
    documents = [entry for entry in entries if isinstance(entry, dict)]
    documents = [entry for entry in documents if all(isinstance(entry.get(key), str) for key in ("id", "text"))]
    if opened is not None:  # a document whose text looks like another document is not that one
        documents = [entry for entry in documents if entry["id"] == opened]
    if documents:
        yield from ((entry["id"], entry["text"]) for entry in documents)
    elif opened is not None and result.content.strip() and not isinstance(content, dict):
        yield opened, result.content


def cited_ids(text: str, known: Collection[str]) -> set[str]:
    """Return the ids in brackets: ``[id]``, ``[a, b]`` and ``[a; b]``; those in code, links and subscripts are none."""
    ids = set[str]()
    for inside in BRACKETS.findall(CODE_SPAN.sub(" ", text)):
        parts = [inside] if inside in known else map(str.strip, re.split("[,;]", inside))
        ids |= {part for part in parts if part in known or _ID.fullmatch(part)}
    return ids


def report_citations(text: str, known: Collection[str]) -> set[str]:
    """Return the ids that a text cites; in quotations brackets with an unknown id are the source's own."""
    prose = "\n".join(paragraphs(text))
    return cited_ids(QUOTED.sub(" ", prose), known) | (cited_ids(prose, known) & set(known))


class Cites(Args):
    """``min``: distinct documents to cite for full credit."""

    min: int = Field(default=1, ge=1)


def cites(completion: Completion, prompt: Prompt, args: Cites) -> float:
    """Return min(1, cited/min) × cited/(cited + unknown), over distinct ids.

    Citations are ``[id]``, ``[a, b]`` and ``[a; b]``. Code, links and subscripts (``a[i]``) are not.
    """
    known = sources(prompt, completion).keys()
    named = report_citations(completion.text, known)
    cited = len(named & known)
    return min(1.0, cited / args.min) * cited / len(named) if named else 0.0


class Quotes(Args):
    """``min``: true quotations for full credit. ``words``: shorter passages in quotation marks do not count.

    ``passages``: what must be quoted, in place of ``min``.
    ``cited``: a passage must occur in half or more of the documents that are cited with it: in its sentence, else in
    its paragraph. Otherwise in any document.
    """

    min: int = Field(default=1, ge=1)
    words: int = Field(default=4, ge=1)
    passages: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(default=None, min_length=1)
    cited: bool = True


def quotes(completion: Completion, prompt: Prompt, args: Quotes) -> CheckResult:
    """Return min(1, true/min) × true/all, over distinct passages in quotation marks and block quotes.

    With ``passages`` the first factor is the mean share of their words that one true quotation has in a row.

    A passage is true where it occurs word for word in the document that is cited with it, or, so that a list of
    citations does not find it a source, in half of them. White space, case, the shape
    of quotation marks and dashes, and punctuation at the ends of a passage do not matter.
    """
    known = {name: plain(text) for name, text in sources(prompt, completion).items()}
    true, false = set[str](), dict[str, str]()
    for quoted, ids in _quoted(completion.text, known):
        passage = plain(quoted).strip(" .,;:…'")
        if len(words_of(passage)) >= args.words:
            among = known.keys() & (ids if args.cited else known)
            whole = re.compile(f"{BEFORE}{re.escape(passage)}{AFTER}")  # words: “art of war” is not in “start of war”
            places = sum(passage in known[name] and whole.search(known[name]) is not None for name in among)
            if places and (2 * places >= len(ids) or not args.cited):
                true.add(passage)
            else:
                false[passage] = "not in the document cited" if ids else "no document cited"
    count = len(true | false.keys())
    lines = [f"{problem}: {passage[:120]}" for passage, problem in sorted(false.items()) if passage not in true]
    shares = list[float]()
    for words in (WORD.findall(plain(passage)) for passage in args.passages or ()):
        matchers = (SequenceMatcher(None, words, WORD.findall(one), autojunk=False) for one in true)
        run = max((matcher.find_longest_match().size for matcher in matchers), default=0)
        shares.append(run / len(words) if words and run >= min(args.words, len(words)) else 0.0)
    first = fmean(shares) if shares else min(1.0, len(true) / args.min)
    value = first * len(true) / count if count else 0.0
    return CheckResult(value, "\n".join([f"{len(true)} of {count} quoted passages", *lines[:20]]))


def _quoted(text: str, known: Collection[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield each quotation with the ids that are cited on one side of it in its sentence, or else in its paragraph."""
    for paragraph in paragraphs(text):
        passages, prose, end = list[str](), "", 0
        for match in QUOTED.finditer(paragraph):
            text = inside = match[match.lastindex or 0]
            while (bare := text.rstrip(" .,;\n\t")).endswith("]") and (start := bare.rfind("[")) > 0:
                text = bare[:start]  # the citations at the end, within the quotation marks, are not of the passage
            tail = inside[len(text) :] or (inside[-1] if inside[-1] in ".!?…" else "")
            passages.append(text)
            prose += paragraph[end : match.start()] + QUOTATION + tail
            end = match.end()
        prose, rest = prose + paragraph[end:], iter(passages)
        anywhere = cited_ids(prose, known)
        for sentence in sentences(prose):
            gaps = [cited_ids(gap, known) for gap in sentence.split(QUOTATION)]
            leads, trails = bool(gaps[0]), bool(gaps[-1])
            for before, after in pairwise(gaps):
                near = before | after if leads and trails else (before or after) if leads else (after or before)
                yield next(rest), near or anywhere


class Supported(Args):
    """``min``: the share of sentences for full credit. ``words``: shorter sentences need no support.

    ``overlap``: the share of a sentence's words of over three letters that must occur in the cited documents.
    """

    min: float = Field(default=1.0, gt=0.0, le=1.0)
    words: int = Field(default=5, ge=1)
    overlap: float = Field(default=0.0, ge=0.0, le=1.0)


def supported(completion: Completion, prompt: Prompt, args: Supported) -> CheckResult:
    """Return the share of sentences with citations that all resolve, over ``min``.

    Headings and code are no sentences. Whether the document supports the sentence is for a judge to decide.
    """
    known = {name: set(WORD.findall(plain(text))) for name, text in sources(prompt, completion).items()}
    every = [sentence for paragraph in paragraphs(completion.text) for sentence in sentences(paragraph)]
    checked = [sentence for sentence in every if len(words_of(BRACKETS.sub(" ", sentence))) >= args.words]
    unmet = []
    for sentence in checked:
        named = cited_ids(sentence, known)
        words = list(filter(is_long, WORD.findall(plain(BRACKETS.sub(" ", sentence)))))
        cited = set[str]().union(*(known.get(name, ()) for name in named))
        found = sum(word in cited for word in words) >= args.overlap * len(words)
        if not named or not named <= known.keys() or not found:
            unmet.append(sentence)
    met = len(checked) - len(unmet)
    lines = [f"without support: {sentence.strip()[:120]}" for sentence in unmet[:20]]
    value = min(1.0, met / len(checked) / args.min) if checked else 0.0
    return CheckResult(value, "\n".join([f"{met} of {len(checked)} sentences", *lines]))


Id = Annotated[str, Field(min_length=1)]
Pages = tuple[Annotated[tuple[Id, ...], Field(min_length=1)], ...]
_PAGES = TypeAdapter(Annotated[Pages, Field(min_length=1)])


class CitesPages(Args):
    """``pages``: the documents that answer, alternatives together, by default ``pages`` of the prompt's item.

    ``measure``: recall, precision, or f1, their harmonic mean.
    """

    pages: Pages | None = Field(default=None, min_length=1)
    measure: Literal["f1", "recall", "precision"] = "f1"


def cites_pages(completion: Completion, prompt: Prompt, args: CitesPages) -> CheckResult:
    """Return recall and precision of the citations, over distinct ids; alternatives count once.

    A citation is right where the document answers and is one of the `sources`, given or opened. The document that the
    prompt shows (``source`` of its item) is not counted.
    """
    item = prompt.item or {}
    if args.pages is None and "pages" not in item:
        raise ValueError("nothing to compare with: set `pages`, or the pages of the prompt's item")
    pages = args.pages or _PAGES.validate_python(item["pages"])
    known = sources(prompt, completion).keys()
    named = report_citations(completion.text, known) - {item.get("source")}
    found = sum(not named.isdisjoint(known & set(alternatives)) for alternatives in pages)
    wrong = sorted(named - (known & {id_ for alternatives in pages for id_ in alternatives}))
    missing = [alternatives[0] for alternatives in pages if named.isdisjoint(known & set(alternatives))]
    recall, precision = found / len(pages), found / (found + len(wrong)) if found else 0.0
    f1 = 2 * recall * precision / (recall + precision) if found else 0.0
    lines = [f"{found} of {len(pages)} pages, {len(wrong)} other citations"]
    lines += [f"not cited: {id_}" for id_ in missing[:20]] + [f"other: {id_[:120]}" for id_ in wrong[:20]]
    return CheckResult({"f1": f1, "recall": recall, "precision": precision}[args.measure], "\n".join(lines))


class Mentions(Args):
    """``terms``: what must be named. ``words``: other words that a sentence needs for each. ``case``: match case."""

    terms: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    words: int = Field(default=1, ge=0)
    case: bool = True


def mentions(completion: Completion, prompt: Prompt, args: Mentions) -> CheckResult:
    """Return the share of terms that occur, as whole words, in a sentence.

    A sentence with fewer other words than ``words`` for each term and each code span counts in proportion: a list of
    terms says nothing about them. Headings, code blocks and citations are no sentences.
    """
    flags = re.NOFLAG if args.case else re.IGNORECASE
    patterns = {term: re.compile(f"{BEFORE}{re.escape(term)}{AFTER}", flags) for term in args.terms}
    credit = dict.fromkeys(args.terms, 0.0)
    every = (sentence for paragraph in paragraphs(completion.text) for sentence in sentences(paragraph))
    for sentence in (BRACKETS.sub(" ", sentence) for sentence in every):
        present = [term for term, pattern in patterns.items() if pattern.search(sentence)]
        rest = re.sub("|".join(pattern.pattern for pattern in patterns.values()), " ", sentence, flags=flags)
        others = len(WORD.findall(CODE_SPAN.sub(" ", rest)))
        needed = args.words * max(len(present), len(CODE_SPAN.findall(sentence)))
        share = min(1.0, others / needed) if needed else 1.0
        credit |= {term: max(credit[term], share) for term in present}
    lines = [f"missing: {term[:120]}" for term, share in credit.items() if not share][:20]
    lines += [f"in a list of terms only: {term[:120]}" for term, share in credit.items() if 0 < share < 1][:20]
    full = sum(share == 1.0 for share in credit.values())
    return CheckResult(sum(credit.values()) / len(credit), "\n".join([f"{full} of {len(credit)} terms", *lines]))


class Copied(Args):
    """``max``: copied words that cost nothing. ``run``: so many words in a row are copied where a source has them."""

    max: int = Field(default=100, ge=0)
    run: int = Field(default=8, ge=2, le=100)


def copied(completion: Completion, prompt: Prompt, args: Copied) -> CheckResult:
    """Return 0 up to ``max`` copied words, quoted or not, and 1 from twice as many on; linear between.

    Copied from are the `sources`. Case, punctuation and citations do not matter.
    """
    words = WORD.findall(plain(BRACKETS.sub(" ", completion.text)))
    starts: dict[tuple[str, ...], list[int]] = {}
    for start, run in enumerate(zip(*(words[n:] for n in range(args.run)), strict=False)):
        starts.setdefault(run, []).append(start)
    places = set[int]()
    for text in sources(prompt, completion).values():
        own = WORD.findall(plain(text))
        for run in zip(*(own[n:] for n in range(args.run)), strict=False):
            places.update(at for start in starts.pop(run, ()) for at in range(start, start + args.run))
    value = min(1.0, max(0, len(places) - args.max) / max(args.max, 1))
    return CheckResult(value, f"{len(places)} of {len(words)} words are copied")
