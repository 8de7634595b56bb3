"""What rubrics are generated from, as it is read from the database."""

import pytest

from rubricsvc.core.generation import AuthoringTask, Generation, Specification
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.verdict import Label
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.services import rubrics as generating
from rubricsvc.store import completions, labels, rubrics
from rubricsvc.store.generation import inputs_of_prompt
from rubricsvc.store.session import Database
from tests.rows import RUBRIC


@pytest.fixture
def prompt(each_db: Database) -> int:
    with each_db.write() as session:
        return completions.add_prompt(session, Prompt.of("Why?"), external_id="why").id


def add(db: Database, prompt: int, *texts: str, **fields: object) -> list[int]:
    with db.write() as session:
        made = (Completion.model_validate({"text": text, **fields}) for text in texts)
        return completions.add_many(session, ((prompt, one) for one in made))


def label(db: Database, prompt: int, values: dict[int, float]) -> None:
    with db.write() as session:
        rubric = rubrics.add(session, RUBRIC, name="r", prompt_id=prompt).id
        given = [
            (id_, rubric, Label(criterion="overall", annotator="ann", value=value)) for id_, value in values.items()
        ]
        labels.add_many(session, given)


def task(db: Database, prompt: int, **settings: object) -> AuthoringTask:
    with db.write() as session:
        generation = generating.prepared(session, Generation.model_validate(settings))
        return inputs_of_prompt(session, prompt, generation)


def sides(found: AuthoringTask) -> tuple[list[str], list[str]] | None:
    if found.contrast is None:
        return None
    return [one.text for one in found.contrast.better], [one.text for one in found.contrast.worse]


def test_contrast_takes_two_policies(each_db: Database, prompt: int) -> None:
    add(each_db, prompt, "good", "both", " ", policy="new")
    add(each_db, prompt, "bad", "both", policy="old")
    settings = {"method": "contrastive", "better": "new", "worse": "old"}
    found = task(each_db, prompt, **settings)
    assert sides(found) == (["good"], ["bad"]) and found.own is not None and found.own.text == "good"
    assert task(each_db, prompt, **settings | {"worse": "none"}).contrast is None


def test_contrast_takes_labels_and_leaves_every_other_to_the_gate(each_db: Database, prompt: int) -> None:
    ids = add(each_db, prompt, *(f"answer {n}" for n in range(12)))
    label(each_db, prompt, {id_: n / 20 for n, id_ in enumerate(ids[:4])})
    assert sides(task(each_db, prompt, method="contrastive")) == (["answer 3", "answer 2"], ["answer 0", "answer 1"])
    label(each_db, prompt, {id_: n / 20 for n, id_ in enumerate(ids)})
    found = task(each_db, prompt, method="contrastive")
    assert sides(found) == (["answer 11", "answer 9", "answer 7"], ["answer 1", "answer 3", "answer 5"])
    measured = {one.text for one, _ in found.labelled}
    assert len(measured) == 6 and not measured & {"answer 11", "answer 1"}


def test_prepared_stores_the_specification_once_by_its_digest(each_db: Database, prompt: int) -> None:
    given = {"method": "principles", "specification": {"name": "house", "text": "Be brief."}}
    with each_db.write() as session:
        first, again = (generating.prepared(session, Generation.model_validate(given)) for _ in range(2))
    assert first == again and first.specification is not None and first.specification.text is None
    digest = first.specification.digest or ""
    with each_db.read() as session:
        assert completions.keep_text(session, digest=digest).content == "Be brief."
        with pytest.raises(NotFoundError):
            completions.keep_text(session, digest="0" * 64)
    found = task(each_db, prompt, method="principles", specification={"name": "house", "digest": digest})
    assert found.specification == Specification(name="house", text="Be brief.")


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"method": "principles"}, "specification"),
        ({"method": "principles", "specification": {"name": "a", "digest": "0" * 64}}, "specification"),
        ({"specification": {"name": "a", "text": "b"}}, "specification"),
        ({"method": "contrastive", "better": "a"}, "worse"),
        ({"method": "traces", "better": "a", "worse": "b"}, "better"),
        ({"gate_judge": "unknown"}, "gate_judge"),
    ],
)
def test_prepared_refuses_options(db: Database, settings: dict[str, object], path: str) -> None:
    with db.write() as session, pytest.raises(InvalidError) as caught:
        generating.prepared(session, Generation.model_validate(settings))
    assert caught.value.path == path
