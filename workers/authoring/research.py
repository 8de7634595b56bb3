"""Grounded rubrics: the model searches a collection of documents, reads, and writes criteria that cite passages.

The model writes queries, sees what they find, opens documents and may ask again. Whatever it replies, the research
ends: without a query the question is searched for, and without an opened document the best ones are read. Rules then
tie the criteria to the question and to the passages: they are about words, so that a text that sways the generator
cannot put a phrase of its own into a rubric; it would have to be on the subject of a question that its writer does not
know.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from pydantic import BaseModel, ConfigDict, ValidationError

from rubricsvc.collections.index import Collection, Part, SearchHit
from rubricsvc.collections.screening import addresses_model
from rubricsvc.core import strict_json
from rubricsvc.core.base import storable
from rubricsvc.core.generation import NO_RUBRIC, AuthoringTask, Research, ResearchNotes, SourceText
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Ordinal, Rubric
from rubricsvc.errors import RubricsvcError, cut
from rubricsvc.lint.duplicates import content_words, named_words
from workers.authoring.author import Author, Draft, GenerationError, rubric_reader, sha256_of
from workers.authoring.templates import SMALL_MODELS, documents_of, read, shown, shown_all
from workers.engines.base import Question

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
        found = await investigate(author, task.prompt, collection, research)
    if not found.shown:
        queries = ", ".join(map(repr, found.notes.queries))
        raise GenerationError(NOTHING_FOUND, f"no document of {research.collection!r} has a word of {queries}")
    own = documents_of(task.prompt)
    values = {"prompt": shown("question", task.prompt.text), "pages": shown_all("document", found.shown | own)}
    subject, documents = [task.prompt.text, *found.first_queries], [*found.readable.values(), *own.values()]
    parse = rubric_reader("grounded", found.readable | own)

    def reader(text: str, truncated: bool) -> Rubric:
        rubric = parse(text, truncated)
        check_grounded(rubric, subject, documents)
        return rubric

    draft = await author.write("grounded", values, found.readable | own, reader=reader)
    of_prompt = tuple(source for source in draft.sources if source.name in own)
    of_collection = tuple(source for source in found.sources if source.name not in own)
    return replace(draft, sources=of_collection + of_prompt, research=found.notes)


def _open(task: AuthoringTask, research: Research) -> Collection:
    """Return the collection that the job was submitted for, or raise a GenerationError."""
    name = research.collection
    if task.collections_dir is None:
        raise GenerationError(NO_COLLECTION, "this worker has no folder of collections")
    try:
        collection = Collection(task.collections_dir, name)
    except RubricsvcError as error:
        fix = f"add it on this worker: rubricsvc collections add {name} PATH; then retry the job"
        raise GenerationError(NO_COLLECTION, f"{error}; {fix}") from error
    if research.digest not in (None, collection.digest):
        wanted = (research.digest or "")[:12]
        fix = f"add the job's documents: rubricsvc collections add {name} PATH --replace; then retry the job"
        message = f"collection {name!r} has the digest {collection.digest[:12]} on this worker, not {wanted}; {fix}"
        with collection:  # which closes it
            raise GenerationError(OTHER_COLLECTION, message)
    return collection


ROUNDS = 3
HITS = 8  # documents that are shown for a query
SNIPPET_CHARS = 300
MAX_QUERY_CHARS = 300
MAX_TRIED = 50  # parts of a document among which one is looked for that may be shown
_GAP = "\n␞\n"  # between parts that are not adjacent, so that no passage spans them


class _Plan(BaseModel):
    """What to do next, in the model's words."""

    model_config = ConfigDict(extra="ignore")

    queries: list[str] = []
    open: list[str] = []


@dataclass
class Findings:
    """What was read, with notes of what was looked for; ``first_queries`` were written before anything was read.

    ``shown`` are the documents as the generator sees them, with marks where parts are left out; ``readable`` the same
    without the marks: what passages may be cited from.
    """

    notes: ResearchNotes
    first_queries: tuple[str, ...]
    shown: dict[str, str]
    readable: dict[str, str]
    sources: list[SourceText]


async def investigate(author: Author, prompt: Prompt, collection: Collection, research: Research) -> Findings:
    """Return what the model finds and reads in the collection."""
    asked: dict[str, list[SearchHit]] = {}
    opened: dict[str, None] = {}
    first: tuple[str, ...] = ()
    for turn in range(ROUNDS):
        plan = await _plan(author, prompt, asked, opened, research)
        found = {hit.id for hits in asked.values() for hit in hits}
        opened |= dict.fromkeys(id_ for id_ in plan.open if id_ in found)
        written = dict.fromkeys(" ".join(query.split())[:MAX_QUERY_CHARS] for query in plan.queries)
        queries = [query for query in written if query and query not in asked][: research.queries - len(asked)]
        if turn == 0:
            first = tuple(queries)
            queries = queries or [prompt.text]
        if not queries:
            break
        for query in queries:  # ids and titles are shown too
            hits = [one for one in collection.search(query, HITS) if not addresses_model(f"{one.id}\n{one.title}")]
            asked[query] = hits
    scores: defaultdict[str, float] = defaultdict(float)  # reciprocal rank fusion (Cormack et al. 2009)
    for hits in asked.values():
        for rank, hit in enumerate(hits):
            scores[hit.id] += 1 / (60 + rank)
    chosen = list(opened or sorted(scores, key=lambda id_: (-scores[id_], id_)))[: research.documents]
    shown_texts, readable, sources, withheld = _read(collection, chosen, " ".join(asked), research.characters)
    notes = ResearchNotes(
        collection=research.collection,
        digest=collection.digest,
        queries=tuple(storable(cut(query, MAX_QUERY_CHARS)) for query in asked),
        left_out=tuple(id_ for id_ in chosen if id_ not in shown_texts),
        withheld=withheld,
    )
    return Findings(notes, first, shown_texts, readable, sources)


async def _plan(
    author: Author,
    prompt: Prompt,
    asked: Mapping[str, Sequence[SearchHit]],
    opened: Mapping[str, None],
    research: Research,
) -> _Plan:
    """Return what the model wants to do next; nothing where its reply has no JSON object."""
    left = research.queries - len(asked)
    values = {
        "prompt": shown("question", prompt.text),
        "limits": f"You may write {left} more queries, and open {research.documents} documents in all.",
    }
    if asked:
        snippets = {}
        for hit in chain.from_iterable(asked.values()):
            text = "(withheld)" if addresses_model(hit.text) else cut(" ".join(hit.text.split()), SNIPPET_CHARS)
            snippets[hit.id] = f"{hit.title}\n{text}"
        values["queries"] = shown("queries", "\n".join(asked))
        values["results"] = shown_all("result", snippets) or "nothing"
    if opened:
        values["opened"] = shown("opened", "\n".join(opened))
    template = read("research")
    reply = await author.ask(template, Question(template.question(values)))
    found = re.search(r"\{.*\}", reply.text, re.DOTALL)
    try:
        return _Plan.model_validate(strict_json.parse(found[0])) if found else _Plan()
    except (ValidationError, ValueError):
        return _Plan()


def _read(
    collection: Collection, ids: Sequence[str], query: str, most: int
) -> tuple[dict[str, str], dict[str, str], list[SourceText], int]:
    """Return what is read of the documents: `Findings.shown`, ``readable``, ``sources``, and characters withheld.

    Those are the parts that match the query best, up to ``most`` characters; of each document at least one. Parts that
    address a model are left out. Only parts for which there is room are screened.
    """
    ranked = collection.ranked_parts(query, ids)
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
        any(map(take, [part for part in ranked if part.document == id_][:MAX_TRIED]))  # the best one
    for part in ranked:
        take(part)
    shown_texts, readable, sources = dict[str, str](), dict[str, str](), list[SourceText]()
    for id_ in ids:
        parts = sorted((part for part in chosen if part.document == id_), key=lambda part: part.start)
        if not parts:
            continue
        text, marked, passages, end = collection.open(id_).text, "", "", 0
        for part in parts:
            if part.start != end:
                marked += f"\n[… {part.start - end} characters left out …]\n"
                passages += _GAP if passages else ""
            marked, passages, end = marked + part.text, passages + part.text, part.start + len(part.text)
        omitted = len(text) - sum(len(part.text) for part in parts)
        marked += f"\n[… {len(text) - end} characters left out …]\n" if end != len(text) else ""
        shown_texts[id_], readable[id_] = marked.strip(), passages
        sources.append(SourceText(name=id_, digest=sha256_of(text), omitted=omitted or None))
    return shown_texts, readable, sources, sum(len(part.text) for part in withheld)


_QUESTION_WORDS = frozenset(
    "what why how whom you your we our i me my please about before after between give compare".split()  # noqa: SIM905
)
_UNSPACED = re.compile("([\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])")
"""Characters of scripts that have no spaces between words: each is read as a word."""


def check_grounded(rubric: Rubric, subject: Iterable[str], documents: Iterable[str]) -> None:
    """Check a rubric by the rules for a question and what was read about it.

    - A criterion with a positive weight that no check decides cites a passage.
    - A passage has a word of the subject: the question, and the queries that were written before anything was read.
    - A criterion has a word of its passages.
    - What it names (names, numbers, code, terms of a check) is in its passages, in the subject, or in two of the
      documents. A fault may name what any passage of the rubric names, and any number.

    Raises:
        ValueError: A criterion breaks a rule.
    """
    asked = _words(subject) - _QUESTION_WORDS
    counts = Counter(chain.from_iterable(_words([text]) for text in documents))
    known = asked | {word for word, count in counts.items() if count > 1}
    cited = [[source.passage for source in one.sources or () if source.passage] for one in rubric.criteria]
    for number, (criterion, passages) in enumerate(zip(rubric.criteria, cited, strict=True)):
        own, path = _words(passages), f"criteria.{number}"
        if criterion.weight > 0 and not criterion.check and not passages:
            raise ValueError(f"{path}: needs a source: the passage of a document that states the fact")
        if other := next((passage for passage in passages if not _words([passage]) & asked), None):
            problem = "has no word of the question: quote one that is about it"
            raise ValueError(f"{path}: the passage {cut(repr(other), 80)} {problem}")
        if passages and not _words([criterion.text]) & own:
            problem = "the text and its passages have no word in common"
            raise ValueError(f"{path}: {problem}: cite the passage that states the fact")
        texts = (named_words(_UNSPACED.sub(r" \1 ", text)) for text in _judged_texts(criterion))
        named = {name for name in chain.from_iterable(texts) if len(name) > 1 or name.isdigit()}
        if criterion.weight < 0:
            named = {name for name in named if not any(map(str.isdigit, name))}
        free = criterion.weight < 0 or criterion.check is not None
        allowed = known | (_words(chain.from_iterable(cited)) if free else own)
        if unsupported := sorted(named - allowed):
            problem = "which is in no passage that it cites, nor in the question"
            raise ValueError(f"{path}: names {unsupported[0]!r}, {problem}")


def _judged_texts(criterion: Criterion) -> Iterator[str]:
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


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in content_words(_UNSPACED.sub(r" \1 ", text))}
