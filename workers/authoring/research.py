"""Grounded rubrics: the model searches a collection of documents, reads, and writes criteria that cite passages.

The model writes queries, sees what they find, opens documents and may ask again. Whatever it replies, the research
ends: without a query the question is searched for, and without an opened document the best ones are read. Rules then
tie the criteria to the question and to the passages: they are about words, so that a text that sways the generator
cannot put a phrase of its own into a rubric; it would have to be on the subject of a question that its writer does not
know.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from pydantic import BaseModel, ConfigDict, ValidationError

from rubricsvc.collections import Collection, Part, SearchHit, open_collection
from rubricsvc.collections.screening import addresses_model
from rubricsvc.core import strict_json
from rubricsvc.core.base import storable
from rubricsvc.core.generation import NO_RUBRIC, AuthoringTask, Research, ResearchNotes, SourceText
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Ordinal, Rubric
from rubricsvc.errors import RubricsvcError, cut
from rubricsvc.lint.duplicates import content_words, named_words
from workers.authoring.author import Author, Draft, GenerationError, rubric_reader, sha256_of
from workers.authoring.templates import SMALL_MODELS, documents_of, shown, shown_all

NO_COLLECTION = "no_collection"
OTHER_COLLECTION = "other_collection"
NOTHING_FOUND = "nothing_found"


async def grounded(author: Author, task: AuthoringTask) -> Draft:
    """Return a rubric whose criteria cite passages of the collection that the settings name."""
    if author.judge.model in SMALL_MODELS:
        message = f"the model {author.judge.model!r} cannot write JSON; name a judge with another model"
        raise GenerationError(NO_RUBRIC, message)
    research = author.generation.research or Research(collection="")
    with _open(task, research) as collection:
        _check_digest(collection, research)
        found = await investigate(author, task.prompt, collection, research)
    if not found.shown:
        queries = ", ".join(map(repr, found.notes.queries))
        raise GenerationError(NOTHING_FOUND, f"no document of {research.collection!r} has a word of {queries}")
    own = documents_of(task.prompt)
    values = {"prompt": shown("question", task.prompt.text), "pages": shown_all("document", found.shown | own)}
    grounding = Grounding([task.prompt.text, *found.first_queries], [*found.readable.values(), *own.values()])
    read = rubric_reader("grounded", found.readable | own)

    def reader(text: str, truncated: bool) -> Rubric:
        rubric = read(text, truncated)
        grounding.check(rubric)
        return rubric

    draft = await author.write("grounded", values, found.readable | own, reader=reader)
    of_prompt = tuple(source for source in draft.sources if source.name in own)
    of_collection = tuple(source for source in found.sources if source.name not in own)
    return replace(draft, sources=of_collection + of_prompt, research=found.notes)


def _open(task: AuthoringTask, research: Research) -> Collection:
    name = research.collection
    if task.collections_dir is None:
        raise GenerationError(NO_COLLECTION, "this worker has no folder of collections")
    try:
        return open_collection(task.collections_dir, name)
    except RubricsvcError as error:
        fix = f"add it on this worker: rubricsvc collections add {name} PATH; then retry the job"
        raise GenerationError(NO_COLLECTION, f"{error}; {fix}") from error


def _check_digest(collection: Collection, research: Research) -> None:
    """Raise a GenerationError unless the collection is the one that the job was submitted for."""
    if research.digest not in (None, collection.digest):
        name, wanted = research.collection, (research.digest or "")[:12]
        fix = f"add the job's documents: rubricsvc collections add {name} PATH --replace; then retry the job"
        message = f"collection {name!r} has the digest {collection.digest[:12]} on this worker, not {wanted}; {fix}"
        raise GenerationError(OTHER_COLLECTION, message)


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
    """Return what the model finds and reads in the collection."""
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


_QUESTION_WORDS = frozenset(
    {"what", "why", "how", "whom", "you", "your", "we", "our", "i", "me", "my", "please", "about", "before", "after"}
    | {"between", "give", "compare"}
)
_UNSPACED = re.compile("([\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])")


class Grounding:
    """The rules, for a question and what was read about it.

    - A criterion with a positive weight that no check decides cites a passage.
    - A passage has a word of the subject: the question, and the queries that were written before anything was read.
    - A criterion has a word of its passages.
    - What it names (names, numbers, code, terms of a check) is in its passages, in the subject, or in two of the
      documents. A fault may name what any passage of the rubric names, and any number.
    """

    def __init__(self, subject: Iterable[str], documents: Iterable[str]) -> None:
        self._subject = _words(subject) - _QUESTION_WORDS
        counts = Counter(chain.from_iterable(_words([text]) for text in documents))
        self._common = {word for word, count in counts.items() if count > 1}

    def check(self, rubric: Rubric) -> None:
        """Raise a ValueError at the first criterion that breaks a rule."""
        cited = _words(passage for one in rubric.criteria for passage in _passages(one))
        for number, criterion in enumerate(rubric.criteria):
            if message := self._broken(criterion, cited):
                raise ValueError(f"criteria.{number}: {message}")

    def _broken(self, criterion: Criterion, cited: set[str]) -> str | None:
        passages = list(_passages(criterion))
        own = _words(passages)
        if criterion.weight > 0 and not criterion.check and not passages:
            return "needs a source: the passage of a document that states the fact"
        for passage in passages:
            if not _words([passage]) & self._subject:
                return f"the passage {cut(repr(passage), 80)} has no word of the question: quote one that is about it"
        if passages and not _words([criterion.text]) & own:
            return "the text and its passages have no word in common: cite the passage that states the fact"
        named = set().union(*(_names(text) for text in _texts(criterion)))
        if criterion.weight < 0:
            named = {name for name in named if not any(map(str.isdigit, name))}
        free = criterion.weight < 0 or criterion.check is not None
        unsupported = sorted(named - self._subject - self._common - (cited if free else own))
        if unsupported:
            return f"names {unsupported[0]!r}, which is in no passage that it cites, nor in the question"
        return None


def _passages(criterion: Criterion) -> Iterator[str]:
    return (source.passage for source in criterion.sources or () if source.passage)


def _texts(criterion: Criterion) -> Iterator[str]:
    """Yield the texts that a judge reads. The terms of a check are made to look like names."""
    yield criterion.text
    yield criterion.reference or ""
    if isinstance(criterion.scale, Ordinal):
        for level in criterion.scale.levels:
            yield level.text
    arguments = criterion.check.args if criterion.check else {}
    terms = arguments.get("terms", ())
    for term in (*(terms if isinstance(terms, list | tuple) else ()), arguments.get("pattern")):
        if isinstance(term, str):
            yield " ".join(f". {word.upper()}" for word in re.findall(r"[^\W\d_]{4,}", term))


def _names(text: str) -> set[str]:
    """Return what a text names; a single letter or character names nothing."""
    return {name for name in named_words(_spaced(text)) if len(name) > 1 or name.isdigit()}


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in content_words(_spaced(text))}


def _spaced(text: str) -> str:
    """Return the text with spaces between the characters of scripts that have none between words."""
    return _UNSPACED.sub(r" \1 ", text)
