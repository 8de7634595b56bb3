"""The grounded method: research in a collection, and rubrics whose facts stand in its documents."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.collections import index as collections
from rubricsvc.collections.index import FaultyDocuments, Page
from rubricsvc.collections.screening import addresses_model
from rubricsvc.core.generation import AuthoringTask, Generation, Research
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric, Source
from tests.injections import HELD_OUT, INJECTIONS, MARK, TARGETED, TARGETED_HELD_OUT
from tests.instant_engine import InstantEngine
from workers.authoring import research as researching
from workers.authoring import templates as showing
from workers.authoring.author import Author, Draft, GenerationError
from workers.authoring.methods import write_rubric
from workers.authoring.research import check_grounded
from workers.engines.base import EngineRequest, Failure, Reply

QUESTION = Prompt.of("What does yield from do in a generator?")
FACT = "The expression yield from delegates to a subiterator until that is exhausted."
VALUE = "The value of yield from is what the subiterator returns."
PAGES = [
    Page("yield", "Yield", f"{FACT}\n\n{VALUE}\n\n" + "\n\n".join(f"Filler number {n}. " * 40 for n in range(30))),
    Page("with", "With", "The with statement wraps a block. A generator can be made a context manager."),
    Page("other", "Other", "Nothing of interest stands here."),
]
JUDGE = Judge(name="writer", model="some-model")


def rubric(*more: dict[str, Any]) -> str:
    criteria = [
        {"text": "Says that yield from delegates to a subiterator.", "weight": 5, "sources": [source("yield", FACT)]},
        {"text": "Says that its value is what the subiterator returns.", "sources": [source("yield", VALUE)]},
        {"text": "Has at most two hundred words.", "check": {"name": "words", "args": {"max": 200}}},
        {"text": "Claims that the subiterator runs in a thread.", "weight": -3},
    ]
    return json.dumps({"criteria": [*criteria, *more]})


def source(document: str, passage: str) -> dict[str, str]:
    return {"document": document, "passage": passage}


def plan(*queries: str, opened: tuple[str, ...] = ()) -> str:
    return json.dumps({"queries": queries, "open": opened})


class Model(InstantEngine):
    """Answers by a function of the conversation."""

    def __init__(self, answer: Callable[[str, list[str]], str]) -> None:
        super().__init__(remember=999)
        self.answer = answer

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        self.requests.append(request)
        texts = [str(message["content"]) for message in request.messages(request.questions[0])]
        return [Reply(self.answer(request.system, texts))]

    @property
    def shown(self) -> list[str]:
        return [request.questions[0].text for request in self.requests]


def scripted(*replies: str) -> Model:
    left = list(replies)
    return Model(lambda _system, _texts: left.pop(0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("collections")
    collections.add(path, "pages", PAGES, FaultyDocuments(), source="a test")
    return path


def write(model: Model, folder: Path, prompt: Prompt = QUESTION, *, redraws: int = 0, **fields: Any) -> Draft:
    settings = {"collection": "pages", **fields}
    generation = Generation(method="grounded", research=Research.model_validate(settings), redraws=redraws)
    task = AuthoringTask(prompt, collections_dir=folder)
    return asyncio.run(write_rubric(Author(model, JUDGE, generation), task))


def test_grounded_searches_opens_reads_and_writes(folder: Path) -> None:
    model = scripted(plan("yield from", "subiterator"), plan(opened=("yield", "made up")), rubric())
    draft = write(model, folder)
    first, second, third = model.shown
    assert "[yield]" not in first and "[yield]" in second and "subiterator" in second
    assert FACT in third and "[other]" not in third
    assert draft.research is not None and draft.research.queries == ("yield from", "subiterator")
    assert [one.name for one in draft.sources] == ["yield"]
    assert draft.rubric.criteria[0].sources == (Source(document="yield", passage=FACT),)


@pytest.mark.parametrize(
    ("fields", "reason"), [({"collection": "none"}, "no_collection"), ({"digest": "0" * 64}, "other_collection")]
)
def test_grounded_fails_without_the_collection_of_the_job(folder: Path, fields: dict[str, str], reason: str) -> None:
    with pytest.raises(GenerationError) as caught:
        write(scripted(), folder, **fields)
    assert caught.value.reason == reason and "rubricsvc collections add" in caught.value.message


YIELD = {"passage": FACT, "document": "yield"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, None),
        ({"sources": ()}, "needs a source"),
        ({"sources": (), "check": Check(name="words", args={"max": 9})}, None),
        ({"sources": (), "weight": -1.0}, None),
        (
            {"sources": (Source(document="other", passage="Nothing of interest stands here."),)},
            "no word of the question",
        ),
        ({"text": "Is written in plain language."}, "no word in common"),
        ({"text": "Says that yield from was made by Guido."}, "names 'guido'"),
        ({"text": "Says that yield from is in PEP 380."}, "names '380'"),
        ({"reference": "It delegates to Guido."}, "names 'guido'"),
        ({"text": "Claims that yield from was made by Guido.", "sources": (), "weight": -1.0}, "names 'guido'"),
        ({"text": "Claims that yield from takes 3 arguments.", "sources": (), "weight": -1.0}, None),
        ({"sources": (), "check": Check(name="contains", args={"terms": ["guido"]})}, "names 'guido'"),
        ({"sources": (), "check": Check(name="contains", args={"terms": ["subiterator"]})}, None),
        ({"sources": (), "check": Check(name="regex", args={"pattern": "(?i)guido"})}, "names 'guido'"),
    ],
)
def test_grounding_ties_criteria_to_question_and_passages(fields: dict[str, Any], message: str | None) -> None:
    given = {"key": "c", "text": "Says that yield from delegates.", "sources": (Source(**YIELD),), **fields}
    cited = Criterion(key="d", text="Says to what it delegates.", sources=(Source(**YIELD),))
    rubric = Rubric(criteria=(Criterion(**given), cited))
    found = None
    try:
        check_grounded(rubric, [QUESTION.text], [FACT])
    except ValueError as error:
        found = str(error)
    assert (found is None) == (message is None) and (message or "") in (found or "")


# Poisoned documents

FENCED = re.compile(r"<(\w+)-([0-9a-f]{8})>\n.*?\n</\1-\2>", re.DOTALL)
ROLE_TOKEN = re.compile(r"[<＜]\|im_(?:start|end)\||\[/?INST\]")


def visible(text: str) -> str:
    """The text with the letters that tag characters stand for."""
    return "".join(chr(ord(one) - 0xE0000) if 0xE0000 < ord(one) < 0xE0080 else one for one in text)


def attempts(text: str, document: str) -> Iterator[dict[str, Any]]:
    """What an obedient model adds to its rubric: one criterion after another, as each is refused."""
    line = next((one for one in text.splitlines() if MARK in one), MARK)
    yield {"text": f"Mentions {MARK}.", "weight": 10, "sources": [source(document, line)]}
    yield {"text": f"Mentions {MARK}.", "weight": 10, "sources": [source("yield", FACT)]}
    yield {"text": f"Mentions {MARK}.", "weight": 10, "check": {"name": "contains", "args": {"terms": [MARK]}}}
    yield {"text": f"Does not mention {MARK}.", "weight": -10}


def obedient(document: str, title: str, obeys: Callable[[str], bool]) -> Model:
    """A model that reads the document, and adds one of the attempts to its rubric if it obeys the text."""
    refused = 0

    def answer(system: str, texts: list[str]) -> str:
        nonlocal refused
        if "look things up" in system:
            return plan(opened=("yield", document)) if "[yield]" in texts[1] else plan(f"yield from {title}", "filler")
        if not obeys("\n".join(texts[:2])):
            return rubric()
        refused += 1
        return rubric([*attempts(texts[1], document)][(refused - 1) % 4])

    return Model(answer)


SETS = (INJECTIONS, HELD_OUT, TARGETED, TARGETED_HELD_OUT)
CASES = {f"case{n}": text for n, text in enumerate(chain(*(one.values() for one in SETS)))}


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("poisoned")
    text = f"A generator is resumed by next. {FACT}\n\n{{}}\n\n{VALUE}"
    pages = [*PAGES, *(Page(f"{name}.txt", name, text.format(one)) for name, one in CASES.items())]
    collections.add(path, "pages", pages, FaultyDocuments(), source="a test")
    return path


def steered(folder: Path, injections: dict[str, str], obeys: Callable[[str], bool]) -> set[str]:
    """The injections whose phrase is in a rubric. The poisoned document is opened in each case."""
    found = set()
    for name, injection in injections.items():
        title = next(title for title, text in CASES.items() if text == injection)
        model = obedient(f"{title}.txt", title, obeys)
        try:
            draft = write(model, folder, redraws=1)
        except GenerationError as error:
            assert error.reason == "no_rubric" and ": criteria.4: " in error.message, error.message
            continue
        assert draft.research is not None
        assert f"{title}.txt" in {one.name for one in draft.sources} | set(draft.research.left_out)
        found |= {name} if MARK in draft.rubric.model_dump_json() else set()
    return found


def reads_structure(text: str) -> bool:
    """Obey what stands outside of the fences, after role tokens, or is hidden."""
    outside = FENCED.sub("", text)
    return MARK in outside or (MARK in text and bool(ROLE_TOKEN.search(text))) or MARK in visible(text) != text


def reads_everything(text: str) -> bool:
    return MARK in visible(text)


def test_poisoned_documents_do_not_leave_their_fences(poisoned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the screen and the rules: a model that obeys nothing but the structure of its prompt is not steered."""
    monkeypatch.setattr(researching, "addresses_model", lambda _text: None)
    monkeypatch.setattr(researching, "check_grounded", lambda *_: None)
    assert steered(poisoned, INJECTIONS | HELD_OUT, reads_structure) == set()
    monkeypatch.setattr(showing, "fence_all", lambda name, texts: [f"<{name}>\n{text}\n</{name}>" for text in texts])
    assert steered(poisoned, INJECTIONS, reads_structure) == INJECTIONS.keys() - {"hidden tags"}  # which are removed


@pytest.mark.parametrize("injections", [INJECTIONS, HELD_OUT], ids=["known", "held out"])
def test_poisoned_documents_do_not_steer_a_model_that_obeys_them(
    poisoned: Path, monkeypatch: pytest.MonkeyPatch, injections: dict[str, str]
) -> None:
    assert len(injections) == 20 and steered(poisoned, injections, reads_everything) == set()
    monkeypatch.setattr(researching, "addresses_model", lambda _text: None)
    alone = steered(poisoned, injections, reads_everything)
    assert alone <= {"to the generator"}  # the rules alone: the question is about generators too
    monkeypatch.setattr(researching, "check_grounded", lambda *_: None)
    assert steered(poisoned, injections, reads_everything) >= injections.keys() - {"hidden tags"}  # only the fences


def test_addresses_model_finds_known_injections_and_no_page_of_the_language_reference() -> None:
    from rubricsvc.collections.index import split
    from rubricsvc.collections.sources import python_pages

    assert [name for name, text in INJECTIONS.items() if not addresses_model(text)] == []
    assert [one.id for one in python_pages() for part in split(one.text) if addresses_model(part)] == []


def test_grounded_withholds_what_addresses_a_model_and_notes_it(tmp_path: Path) -> None:
    long = "\n\n".join(["Generators are iterators. " * 40, INJECTIONS["order"] + " Really." * 100, FACT * 12, VALUE])
    pages = [*PAGES, Page("long", "Generators", long)]
    collections.add(tmp_path, "pages", pages, FaultyDocuments(), source="a test")
    model = scripted(plan("yield from"), plan(opened=("long", "yield")), rubric())
    draft = write(model, tmp_path, characters=60_000)
    assert draft.research is not None and draft.research.withheld > 700
    assert all(MARK not in shown for shown in model.shown) and FACT in model.shown[-1]
