"""Research in a collection of documents before a rubric is written: queries, documents that are opened, what is read.

The model writes queries, sees what they find, opens documents and may ask again. Whatever it replies, the research
ends: without a query the question is searched for, and without an opened document the best ones are read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, ValidationError

from rubricsvc.collections import Collection, Part, SearchHit
from rubricsvc.collections.screening import addresses_model
from rubricsvc.core import strict_json
from rubricsvc.core.base import storable
from rubricsvc.core.generation import Research, ResearchNotes, SourceText
from rubricsvc.core.prompt import Prompt
from workers.authoring.author import Author, sha256_of
from workers.authoring.methods.shown import shown, shown_all

ROUNDS = 3
HITS = 8
"""Documents that are shown for a query."""
SNIPPET_CHARS = 300
MAX_QUERY_CHARS = 300
MAX_TRIED = 50
"""Parts of a document among which one is looked for that may be shown."""
_GAP = "\n␞\n"
"""Between parts that are not adjacent, so that no passage spans them."""


class _Plan(BaseModel):
    """What to do next, in the model's words."""

    model_config = ConfigDict(extra="ignore")

    queries: list[str] = []
    open: list[str] = []


@dataclass(frozen=True)
class Findings:
    """What was read.

    Attributes:
        shown: The documents as the generator sees them, with marks where parts are left out.
        readable: The same without the marks: what passages may be cited from.
        first_queries: The queries that were written before anything was read.
    """

    shown: dict[str, str]
    readable: dict[str, str]
    sources: tuple[SourceText, ...]
    first_queries: tuple[str, ...]
    notes: ResearchNotes


async def investigate(author: Author, prompt: Prompt, collection: Collection, research: Research) -> Findings:
    """Return what the model finds and reads in the collection.

    Raises:
        GenerationError: The model cannot be asked.
    """
    asked: dict[str, Sequence[SearchHit]] = {}
    opened: dict[str, None] = {}
    first: tuple[str, ...] = ()
    for turn in range(ROUNDS):
        plan = await _plan(author, prompt, asked, opened, research)
        found = {hit.id for hits in asked.values() for hit in hits}
        opened |= dict.fromkeys(id_ for id_ in plan.open if id_ in found)
        queries = [query for query in _distinct(plan.queries) if query not in asked][: research.queries - len(asked)]
        if turn == 0:
            first = tuple(queries)
            queries = queries or [prompt.text]
        if not queries:
            break
        asked |= {query: _safe(collection.search(query, HITS)) for query in queries}
    chosen = list(opened or _best(asked.values()))[: research.documents]
    read = _read(collection, chosen, " ".join(asked), research.characters)
    notes = ResearchNotes(
        collection=research.collection,
        digest=collection.digest,
        queries=tuple(storable(_cut(query, MAX_QUERY_CHARS)) for query in asked),
        left_out=tuple(id_ for id_ in chosen if id_ not in read.shown),
        withheld=read.withheld,
    )
    return Findings(read.shown, read.readable, tuple(read.sources), first, notes)


async def _plan(
    author: Author,
    prompt: Prompt,
    asked: Mapping[str, Sequence[SearchHit]],
    opened: Mapping[str, None],
    research: Research,
) -> _Plan:
    left = research.queries - len(asked)
    values = {
        "prompt": shown("question", prompt.text),
        "limits": f"You may write {left} more queries, and open {research.documents} documents in all.",
    }
    if asked:
        hits = {hit.id: hit for found in asked.values() for hit in found}
        values["queries"] = shown("queries", "\n".join(asked))
        values["results"] = shown_all("result", {id_: _snippet(hit) for id_, hit in hits.items()}) or "nothing"
    if opened:
        values["opened"] = shown("opened", "\n".join(opened))
    return _read_plan(await author.ask("research", values))


def _read_plan(reply: str) -> _Plan:
    """Return the JSON object in a reply; nothing to do where there is none."""
    found = re.search(r"\{.*\}", reply, re.DOTALL)
    try:
        return _Plan.model_validate(strict_json.parse(found[0])) if found else _Plan()
    except (ValidationError, ValueError):
        return _Plan()


def _distinct(queries: Sequence[str]) -> list[str]:
    short = (" ".join(query.split())[:MAX_QUERY_CHARS] for query in queries)
    return [query for query in dict.fromkeys(short) if query]


def _safe(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Return the documents whose id and title do not address a model."""
    return [hit for hit in hits if not addresses_model(f"{hit.id}\n{hit.title}")]


def _snippet(hit: SearchHit) -> str:
    text = "(withheld)" if addresses_model(hit.text) else _cut(" ".join(hit.text.split()), SNIPPET_CHARS)
    return f"{hit.title}\n{text}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _best(found: Iterable[Sequence[SearchHit]]) -> list[str]:
    """Return the documents of several result lists, best first, by reciprocal rank fusion (Cormack et al. 2009)."""
    scores: defaultdict[str, float] = defaultdict(float)
    for hits in found:
        for rank, hit in enumerate(hits):
            scores[hit.id] += 1 / (60 + rank)
    return sorted(scores, key=lambda id_: (-scores[id_], id_))


@dataclass
class _Read:
    """What is shown of the documents; see `Findings`."""

    shown: dict[str, str] = field(default_factory=dict)
    readable: dict[str, str] = field(default_factory=dict)
    sources: list[SourceText] = field(default_factory=list)
    withheld: int = 0


def _read(collection: Collection, ids: Sequence[str], query: str, most: int) -> _Read:
    """Return the parts of the documents that match the query best, up to ``most`` characters; of each one at least one.

    Parts that address a model are left out. Only parts for which there is room are screened.
    """
    ranked = collection.ranked_parts(query, ids)
    by_document = {id_: [part for part in ranked if part.document == id_][:MAX_TRIED] for id_ in ids}
    withheld: set[Part] = set()
    chosen: set[Part] = set()
    room = most

    def take(part: Part) -> bool:
        nonlocal room
        if part in chosen or part in withheld or len(part.text) > room:
            return False
        harmless = addresses_model(part.text) is None
        (chosen if harmless else withheld).add(part)
        room -= len(part.text) * harmless
        return harmless

    for id_ in ids:
        any(map(take, by_document[id_]))  # the best one
    for part in ranked:
        take(part)
    read = _Read(withheld=sum(len(part.text) for part in withheld))
    for id_ in ids:
        if parts := sorted((part for part in chosen if part.document == id_), key=lambda part: part.start):
            text = collection.open(id_).text
            omitted = len(text) - sum(len(part.text) for part in parts)
            read.shown[id_] = _joined(parts, len(text))
            read.readable[id_] = _GAP.join(_runs(parts))
            read.sources.append(SourceText(name=id_, digest=sha256_of(text), omitted=omitted or None))
    return read


def _runs(parts: Sequence[Part]) -> list[str]:
    """Return the texts of parts, adjacent ones joined."""
    runs: list[str] = []
    end = -1
    for part in parts:
        if part.start == end:
            runs[-1] += part.text
        else:
            runs.append(part.text)
        end = part.start + len(part.text)
    return runs


def _joined(parts: Sequence[Part], length: int) -> str:
    """Return the texts of parts with a mark where characters of the document are left out."""
    shown, end = "", 0
    for part in parts:
        shown += _mark(part.start - end) + part.text
        end = part.start + len(part.text)
    return (shown + _mark(length - end)).strip()


def _mark(characters: int) -> str:
    return f"\n[… {characters} characters left out …]\n" if characters else ""
