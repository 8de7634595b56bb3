"""Prompts with rubrics, made of a collection without a model: what answers them is known exactly.

To add a capability, write a function that yields tasks of a library, and name it in `Capability` and `CAPABILITIES`.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, cast

from pydantic import JsonValue

from rubricsvc.collections.index import Collection, NearCopies, Page, split
from rubricsvc.collections.screening import addresses_model
from rubricsvc.core.prompt import Document, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric, Source

LEADS = 2  # paragraphs among whose first sentences the one is that says what a page is about
MAX_COPIED = 50  # words that a report may copy, besides the passages that answer
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*“])")
_NO_PROSE = re.compile(r"::=|^\s*(?:>>>|\+-|\||```|#{1,6} |[*-] )|^([*=~^#-])\1{2,}[ \t]*$", re.MULTILINE)
_POINTING = re.compile(r"(?:This|These|The following|They|It|See|To|In this|For)\b")
_WORD = re.compile(r"\w{3,}")
_INNER_QUOTES = str.maketrans(dict.fromkeys('"“”„«»', "'"))

OnPage = Callable[[int, int], None]  # receives how many pages of how many a capability has read


class Task(NamedTuple):
    """A prompt with its rubric. ``pages`` are ids of the documents that answer it: alternatives together.

    ``source`` is the id of a document that the prompt shows without its links, and that is not attached to it.
    """

    id: str
    prompt: Prompt
    rubric: Rubric
    pages: tuple[tuple[str, ...], ...]
    source: str | None = None


class Library:
    """The pages of a collection, with what tasks are made of."""

    def __init__(self, collection: Collection, on_page: OnPage = lambda _done, _total: None) -> None:
        """Read all pages of a collection."""
        self.collection, self._on_page = collection, on_page
        self.pages: Mapping[str, Page] = {id_: collection.open(id_) for id_ in collection.ids()}
        self._joined = {id_: " ".join(page.text.split()) for id_, page in self.pages.items()}

    def pages_with(self, passage: str) -> tuple[str, ...]:
        """Return the pages with a passage, the shortest first: chapters may repeat their sections."""
        words = " ".join(passage.split())
        found = [id_ for id_, text in self._joined.items() if words in text]
        return tuple(sorted(found, key=lambda id_: (len(self._joined[id_]), id_)))

    def shuffled(self, rng: random.Random) -> Iterator[Page]:
        """Yield all pages in a random order."""
        ids = sorted(self.pages)
        rng.shuffle(ids)
        for number, id_ in enumerate(ids):
            self._on_page(number, len(ids))
            yield self.pages[id_]

    def prompt(
        self, capability: str, text: str, reference: str, pages: Iterable[tuple[str, ...]], source: str | None = None
    ) -> Prompt:
        """Return a prompt that names the collection, the documents that answer it, and the one that it shows."""
        item: dict[str, JsonValue] = {"capability": capability, "collection": self.collection.name}
        item |= {"digest": self.collection.digest, "pages": cast("JsonValue", [list(one) for one in pages])}
        item |= {"source": source} if source is not None else {}
        return Prompt.of(text, reference=reference, tags=(capability,), item=item)


def prose(text: str) -> Iterator[list[str]]:
    """Yield the sentences of each paragraph of prose, on one line each; empty where one cannot stand by itself.

    It needs enough words, and an end.
    """
    for paragraph in _PARAGRAPH.split(text):
        if not _NO_PROSE.search(paragraph) and not paragraph.startswith(("  ", "\t")):
            sentences = _SENTENCE.split(" ".join(paragraph.split()))
            whole = (len(one.split()) >= 8 and len(one) <= 400 and one.endswith((".", ":")) for one in sentences)
            yield [one * complete for one, complete in zip(sentences, whole, strict=True)]


def fact(key: str, text: str, passage: str, document: str, *, weight: float = 2.0) -> Criterion:
    """Return a criterion for a judge about a fact, which quotes the passage that states it.

    The passage is no evidence of the criterion: a judge would find in it what the completion does not say.
    """
    return Criterion(key=key, text=text, weight=weight, sources=(Source(document=document, passage=passage),))


def cites(pages: Sequence[Iterable[str]], titles: Iterable[str], *, required: bool = True) -> Criterion:
    """Return a criterion that a check decides: these documents, given or opened, are cited, and no others.

    If it is required, a report without them gets no reward: a judge may find in it what it does not say.
    """
    alternatives = [list(one) for one in pages]
    named = (
        f"“{title}” ({' or '.join(f'[{id_}]' for id_ in one)})" for title, one in zip(titles, alternatives, strict=True)
    )
    text = f"Cites {' and '.join(named)}, which it was given or has opened, and nothing else."
    check = Check(name="cites_pages", args={"pages": [[*one] for one in alternatives]})
    return Criterion(key="cites", text=text, weight=2.0, required=required, check=check)


def quotes(passages: Iterable[str]) -> Criterion:
    """Return a criterion that a check decides: these passages are quoted, each with its document."""
    check = Check(name="quotes", args={"passages": [*passages]})
    text = "Quotes what answers word for word, with the page that it is from."
    return Criterion(key="quotes", text=text, weight=3.0, check=check)


def faults(passages: Iterable[str]) -> tuple[Criterion, ...]:
    """Return the faults, which checks decide, that leave a report without a reward; it may quote these passages."""
    words = MAX_COPIED + sum(len(passage.split()) for passage in passages)
    found = {
        "copied": ("Copies its sources at length.", Check(name="copied", args={"max": words})),
        "invented": ("Claims actions that never happened.", Check(name="invented_actions", args={})),
    }
    fields: dict[str, Any] = {"weight": -5.0, "required": True}
    return tuple(Criterion(key=key, text=text, check=check, **fields) for key, (text, check) in found.items())


def quotation(passage: str, document: str) -> str:
    """Return a passage in quotation marks, those in it as apostrophes, with its citation."""
    return f"“{passage.translate(_INNER_QUOTES)}” [{document}]"


def attach(task: Task, library: Library, count: int, rng: random.Random) -> Task:
    """Return the task with ``count`` documents in its prompt: those that answer it, and others that are like them."""
    gold = [alternatives[0] for alternatives in task.pages]
    known = {id_ for alternatives in task.pages for id_ in alternatives} | {task.source}
    found = (hit.id for hit in library.collection.search(task.prompt.text, count + len(known)))
    chosen = [*dict.fromkeys(gold), *(id_ for id_ in found if id_ not in known)][: max(count, len(set(gold)))]
    rng.shuffle(chosen)
    pages = (library.pages[id_] for id_ in chosen)
    documents = tuple(Document(id=page.id, title=page.title, text=page.text) for page in pages)
    return task._replace(prompt=task.prompt.model_copy(update={"documents": documents}))


MAX_LINKS = 8
MIN_WORDS = 15  # words of a section for each link: fewer are a list of links
GAP = "[…]"


def find_links(library: Library, rng: random.Random) -> Iterator[Task]:
    """Yield a task for each section, whose links are removed, to find their targets; checks decide everything."""
    copies = NearCopies(library.collection)  # they are withheld from a policy that is shown a section of a page
    for page in library.shuffled(rng):
        start, withheld = 0, copies.of(page.id)
        for number, text in enumerate(split(page.text), start=1):
            links: dict[tuple[int, int], tuple[str, ...]] = {}  # targets by the place in the section
            for link in sorted(page.links):
                if start <= link.start and link.end <= start + len(text) and link.target not in withheld:
                    place = (link.start - start, link.end - start)
                    links[place] = (*links.get(place, ()), link.target)
            start += len(text)
            shown, last = "", 0
            for first, end in links:
                shown, last = shown + text[last:first] + GAP, end
            shown = (shown + text[last:]).strip()
            if not 1 <= len(links) <= MAX_LINKS or len(shown.split()) < MIN_WORDS * len(links):
                continue
            ranked = (sorted(one, key=lambda id_: (len(library.pages[id_].text), id_)) for one in links.values())
            targets = tuple(dict.fromkeys(map(tuple, ranked)))
            titles = [library.pages[alternatives[0]].title for alternatives in targets]
            question = (
                f"The section below is of the page “{page.title}”. Its links to other pages are replaced by {GAP}. Find"
                " the pages that it links to, say for each what the section takes from it, and cite each one as [id],"
                f" in brackets of its own.\n\n{shown}"
            )
            cited = (f"“{title}” [{one[0]}]" for title, one in zip(titles, targets, strict=True))
            reference = f"The section links to {', '.join(cited)}."
            prompt = library.prompt("find-links", question, reference, targets, page.id)
            rubric = Rubric(criteria=(cites(targets, titles, required=False), *faults([])))
            yield Task(f"find-links-{page.id}-{number}", prompt, rubric, targets, source=page.id)


MAX_NOTES = 8
_NOTE = re.compile(
    r"\b(?:New|Added|Changed|Deprecated|Removed) (?:in|since) version (\d+(?:\.\d+)*):\s+\S.{10,600}?(?=\n\s*\n|\Z)",
    re.DOTALL,
)
_PRODUCT = r"(?:the )?(?:PostgreSQL|SQLite|Git|Python|MySQL|MariaDB|Linux|GCC)"
_SINCE = r"(?:as of|since|prior to|before|starting (?:in|with)|beginning (?:in|with)|versions? before|releases? before)"
_PROSE = re.compile(
    rf"\b{_SINCE}\s+(?:{_PRODUCT}\s+(?:versions?\s+|releases?\s+)?|(?:versions?|releases?)\s+)v?(\d+(?:\.\d+)*)(?![\w.]*\w)",
    re.IGNORECASE,
)
_CODE = re.compile(r"`([^`\n]{2,40})`")


def changes(library: Library, rng: random.Random) -> Iterator[Task]:
    """Yield a task for each page and version, of the notes on it (“Changed in version 3.8: …”, “As of PostgreSQL 14”).

    Of pages that repeat each other's notes it is one for the shortest.
    """
    done: set[tuple[str, ...]] = set()
    for page in library.shuffled(rng):
        by_version: dict[str, dict[str, None]] = {}
        for match in _NOTE.finditer(page.text):
            by_version.setdefault(match[1], {})[" ".join(match[0].split())] = None
        for sentence in filter(None, chain.from_iterable(prose(page.text))):
            if len(versions := _PROSE.findall(sentence)) == 1:
                by_version.setdefault(versions[0], {})[sentence] = None
        for version, notes in ((version, tuple(found)) for version, found in by_version.items()):
            first, *others = (library.pages_with(note) for note in notes)
            alternatives = tuple(id_ for id_ in first if all(id_ in other for other in others))
            if len(notes) > MAX_NOTES or alternatives[:1] != (page.id,) or (version, *notes) in done:
                continue
            done.add((version, *notes))
            question = (
                f"What is new, changed or deprecated in version {version} in what the page “{page.title}” describes?"
                " Name everything that the documentation names, and nothing of other versions. Quote the notes on it in"
                " quotation marks, and cite the page as [id]."
            )
            texts = [f"Says what this note says: “{note}”" for note in notes]
            stated = [fact(f"note-{n + 1}", text, notes[n], page.id) for n, text in enumerate(texts)]
            terms: list[JsonValue] = [*dict.fromkeys(term for note in notes for term in _CODE.findall(note))]
            if terms:
                check = Check(name="mentions", args={"terms": terms})
                text = f"Names {', '.join(map(str, terms))}."
                stated.append(Criterion(key="terms", text=text, weight=2.0, check=check))
            wrong = f"Presents a change as one of version {version} that its note says is of another version."
            criteria = (
                *stated,
                Criterion(key="other-version", text=wrong, weight=-3.0),
                quotes(notes),
                cites([alternatives], [page.title]),
                *faults(notes),
            )
            reference = " ".join(quotation(note, page.id) for note in notes)
            prompt = library.prompt("changes", question, reference, [alternatives])
            yield Task(f"changes-{page.id}-{version}", prompt, Rubric(criteria=criteria), (alternatives,))


MIN_TERM_CHARS = 3
_DEFINES = re.compile(r"\b(?:is|are|was|means?|refers? to|consists? of|denotes?|describes?)\b")
_DANGLING = re.compile(r"\b(?:following|below|above)\b", re.IGNORECASE)


def define(library: Library, rng: random.Random) -> Iterator[Task]:
    """Yield a task for each page that begins with a sentence that says what its title is, and for terms of an index.

    A term is taken if a page that the index names for it says “TERM is …”.
    """
    for page in library.shuffled(rng):
        defined = {sentence: term for term, sentence in _of_terms(page)}
        leads = islice(filter(None, (one[0] for one in prose(page.text[:5000]))), LEADS)
        lead = next((sentence for sentence in leads if not _POINTING.match(sentence)), "")  # complete by itself
        of_lead, of_title = ({word.casefold() for word in _WORD.findall(text)} for text in (lead, page.title))
        if of_lead & of_title and _DEFINES.search(lead) and not _DANGLING.search(lead):
            defined = {lead: page.title} | defined
        for sentence, term in defined.items():
            alternatives = library.pages_with(sentence)
            if alternatives[:1] != (page.id,):
                continue
            question = (
                f"What does “{term}” mean in these documents? Quote the sentence that defines it in quotation marks,"
                " explain it in your own words, and cite the page as [id]."
            )
            criteria = (
                fact("definition", f"Says what this sentence says: “{sentence}”", sentence, page.id, weight=3.0),
                Criterion(key="explains", text="Explains the definition in words of its own.", weight=2.0),
                quotes([sentence]),
                cites([alternatives], [page.title]),
                *faults([sentence]),
            )
            prompt = library.prompt("define", question, quotation(sentence, page.id), [alternatives])
            name = page.id if term == page.title else f"{page.id}-{term}"
            yield Task(f"define-{name}", prompt, Rubric(criteria=criteria), (alternatives,))


def _of_terms(page: Page) -> Iterator[tuple[str, str]]:
    """Yield the terms by which an index leads to a page, each with the sentence of the page that defines it."""
    names = {term.casefold(): term for term in page.terms if term != page.title and len(term) >= MIN_TERM_CHARS}
    if not names:
        return
    named = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    verbs = r"(?:is|are|means?|refers? to|consists? of|denotes?)"
    defines = re.compile(rf"(?:(?:An?|The) )?({named})s? {verbs} ", re.IGNORECASE)
    for sentence in filter(None, chain.from_iterable(prose(page.text))):
        match = defines.match(sentence)
        if match and not _DANGLING.search(sentence) and (term := names.pop(match[1].casefold(), None)):
            yield term, sentence


Capability = Literal["find-links", "changes", "define"]


class Synthesis(NamedTuple):
    """The function that yields tasks of a capability, and what of a collection they are made of."""

    tasks: Callable[[Library, random.Random], Iterator[Task]]
    made_of: str


CAPABILITIES: dict[Capability, Synthesis] = {
    "find-links": Synthesis(find_links, "sections of prose with links to other pages"),
    "changes": Synthesis(changes, "notes such as “Changed in version 3.8: …”"),
    "define": Synthesis(define, "a first sentence that has a word of the title"),
}


def synthesize(
    collection: Collection,
    capabilities: Iterable[Capability] = tuple(CAPABILITIES),
    *,
    limit: int | None = None,
    documents: int = 0,
    seed: int = 0,
    on_page: OnPage = lambda _done, _total: None,
) -> Iterator[Task]:
    """Yield tasks of a collection, up to ``limit`` for each capability, the same ones for the same seed.

    A task is left out if its prompt or one of its criteria addresses a model: they may quote a document, and the policy
    and a judge read them. So many ``documents`` are attached to each prompt: those that answer it, and similar ones.
    """
    library, prompts = Library(collection, on_page), set[str]()

    def is_new(task: Task) -> bool:
        known = task.prompt.text in prompts
        prompts.add(task.prompt.text)
        texts = (task.prompt.text, *(criterion.text for criterion in task.rubric.criteria))
        return not known and not any(map(addresses_model, texts))

    for name in capabilities:
        rng = random.Random(f"{seed} {name}")
        for task in islice(filter(is_new, CAPABILITIES[name].tasks(library, rng)), limit):
            yield attach(task, library, documents, random.Random(f"{seed} {task.id}")) if documents else task
