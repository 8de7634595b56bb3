"""Examples of labels and verdicts in the database, on both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rubricsvc.core.calibration import Calibration, Curve
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import Label
from rubricsvc.core.panel import aggregate, resolve_cascade
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Level, Ordinal, Rubric
from rubricsvc.core.verdict import Evidence, Reason, Verdict
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.services import training_data
from rubricsvc.services.training_data import TrainingData
from rubricsvc.store import completions, jobs, judges, labels, leases, prompts, rubrics
from rubricsvc.store.session import Database
from tests.rows import item_result
from trainer.judge_training.data.labels import examples_of_labels
from trainer.judge_training.data.verdicts import examples_of_verdicts
from trainer.judge_training.examples import Example, merge

A, B = Criterion(key="a", text="Says a."), Criterion(key="b", text="Says b.")
CHECKED = Criterion(key="short", text="Is short.", check=Check(name="max_words", args={"n": 5}))
RUBRIC = Rubric(criteria=(A, B, CHECKED))
LEVELS = Ordinal(levels=(Level(label="poor", value=0), Level(label="fair", value=0.5), Level(label="good", value=1)))


@pytest.fixture
def filled(each_db: Database) -> Database:
    """A prompt, three completions and two rubrics: ``r`` and, with another wording of ``b``, its second version."""
    with each_db.write() as session:
        prompt = prompts.add(session, Prompt.of("Why?"))
        completions.add_many(session, [(prompt.id, Completion(text=f"text {n}", policy="p")) for n in (1, 2, 3)])
        rubrics.add(session, RUBRIC, name="r", prompt_id=prompt.id)
        heavier = A.model_copy(update={"weight": 3.0})
        rubrics.add(session, Rubric(criteria=(heavier, Criterion(key="b", text="Says b well."))), name="r")
    return each_db


def label(db: Database, completion_id: int, rubric_id: int, **values: float | None) -> None:
    """Store labels ``annotator__criterion=value``."""
    given = []
    for name, value in values.items():
        annotator, key = name.split("__")
        given.append((completion_id, rubric_id, Label(criterion=key, annotator=annotator, value=value)))
    with db.write() as session:
        labels.add_many(session, given)


def score(db: Database, judge: Judge, rubric_id: int, found: Mapping[int, Sequence[Verdict]], way: str = "") -> int:
    """Let a judge score completions, by id, under a rubric; return the job."""
    with db.write() as session:
        judge_id, rubric = judges.add(session, judge).id, rubrics.get(session, rubric_id).value
        job = jobs.submit(session, judge_id=judge_id, items=[(id_, rubric_id) for id_ in found], key=judge.name + way)
        taken = leases.claim(session, judge_id, limit=10, worker="w", seconds=60)
        results = [item_result(one, rubric, found[one.completion_id], way=judge.name + way) for one in taken]
        leases.record(session, results)
        return job.id


def values(examples: Sequence[Example]) -> list[tuple[str, dict[str, float]]]:
    return [(one.completion.text, {t.criterion.text: round(t.value, 6) for t in one.targets}) for one in examples]


def test_examples_of_labels_average_people_and_count_what_is_left_out(filled: Database) -> None:
    label(filled, 1, 1, ann__a=1.0, bob__a=0.0, ann__b=1.0, bob__b=None, ann__overall=0.5)
    label(filled, 2, 1, ann__a=0.0, ann__short=1.0)
    left_out = Counter[str]()
    merged = merge(examples_of_labels(TrainingData(filled), left_out=left_out))
    assert values(merged.examples) == [("text 1", {"Says a.": 0.5, "Says b.": 1.0}), ("text 2", {"Says a.": 0.0})]
    assert (merged.contradictions, +left_out) == (1, {"null": 1, "overall": 1, "checked": 1})
    assert {(one.source, one.completion.policy) for one in merged.examples} == {("labels", "p")}


def test_examples_of_labels_filter_by_rubric_annotator_and_job(filled: Database) -> None:
    label(filled, 1, 1, ann__a=1.0, bob__a=0.0, ann__b=1.0)
    label(filled, 2, 2, ann__b=0.0)
    job = score(filled, Judge(name="j", model="m"), 2, {2: [Verdict.scored("a", 1.0), Verdict.scored("b", 1.0)]})
    data, left_out = TrainingData(filled), Counter[str]()
    newest = list(examples_of_labels(data, rubric_refs=["r"], left_out=left_out))
    assert values(merge(newest).examples) == [("text 1", {"Says a.": 0.5}), ("text 2", {"Says b well.": 0.0})]
    assert +left_out == {"other_question": 1}, "version 2 words b otherwise, and asks the same a"
    assert values(list(examples_of_labels(data, annotators=["bob"]))) == [("text 1", {"Says a.": 0.0})]
    assert values(list(examples_of_labels(data, job_id=job))) == [("text 2", {"Says b well.": 0.0})]


def test_examples_of_labels_take_the_newest_label_of_a_question(filled: Database) -> None:
    label(filled, 1, 1, ann__a=0.0)
    label(filled, 1, 2, ann__a=1.0)
    left_out = Counter[str]()
    (example,) = examples_of_labels(TrainingData(filled), left_out=left_out)
    assert (example.targets[0].value, left_out["superseded"]) == (1.0, 1)


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ({"annotators": ["nemo"]}, InvalidError),
        ({"rubric_refs": ["none"]}, NotFoundError),
        ({"job_id": 9}, NotFoundError),
    ],
)
def test_examples_of_labels_reject_filters_without_labels(
    filled: Database, filters: dict[str, Any], error: type[Exception]
) -> None:
    label(filled, 1, 1, ann__a=0.0)
    with pytest.raises(error):
        list(examples_of_labels(TrainingData(filled), **filters))


def test_examples_are_read_in_pages(filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_data, "PAGE", 2)
    for completion_id in (1, 2, 3):
        label(filled, completion_id, 1, ann__a=1.0)
    score(filled, Judge(name="j", model="m"), 2, {n: [Verdict.scored("a", n / 4)] for n in (1, 2, 3)})
    data = TrainingData(filled)
    assert len(list(examples_of_labels(data))) == 3
    assert [one.targets[0].value for one in examples_of_verdicts(data, "j")] == [0.25, 0.5, 0.75]


def test_examples_of_verdicts_are_calibrated_probabilities_with_levels(filled: Database) -> None:
    with filled.write() as session:
        graded = Rubric(criteria=(Criterion(key="a", text="How good?", scale=LEVELS), B, CHECKED))
        rubric_id = rubrics.add(session, graded, name="graded").id
    quotes = (Evidence(quote="text", start=0, end=4), Evidence(quote="invented"))
    first = [
        Verdict.scored("a", 0.6, probability=0.6, levels={"poor": 0.2, "fair": 0.4, "good": 0.4}),
        Verdict.scored("b", 1.0, probability=0.9, calibrated=0.7, rationale="so", evidence=quotes),
        Verdict.scored("short", 1.0),
    ]
    second = [Verdict.failed("a", Reason.TIMEOUT), Verdict.abstained("b")]
    score(filled, Judge(name="j", model="m"), rubric_id, {1: first, 2: second})
    left_out = Counter[str]()
    (example,) = examples_of_verdicts(TrainingData(filled), "j", left_out=left_out)
    graded_target, binary = example.targets
    assert (graded_target.value, graded_target.levels) == (0.6, {"poor": 0.2, "fair": 0.4, "good": 0.4})
    assert (binary.value, binary.levels, binary.rationale, binary.evidence) == (0.7, None, "so", ("text",))
    assert (example.source, left_out) == ("j", {"checked": 1, "failed": 1, "abstained": 1})


def test_examples_of_verdicts_are_the_newest_or_those_of_a_job(filled: Database) -> None:
    judge = Judge(name="j", model="m")
    first = score(filled, judge, 1, {1: [Verdict.scored("a", 0.1)]}, "first")
    score(filled, judge, 1, {1: [Verdict.scored("a", 0.9)]}, "second")
    score(filled, Judge(name="k", model="n"), 1, {1: [Verdict.scored("a", 0.5)]})
    data = TrainingData(filled)
    assert [one.targets[0].value for one in examples_of_verdicts(data, "j")] == [0.9]
    assert [one.targets[0].value for one in examples_of_verdicts(data, "j", job_id=first)] == [0.1]
    with pytest.raises(InvalidError) as caught:
        list(examples_of_verdicts(data, "k", job_id=first))
    assert caught.value.path == "job"


WEAK = Judge(name="weak", model="w", calibration=Calibration(families={"binary": Curve(method="platt", slope=0.0)}))
STRONG = Judge(name="strong", model="s")
CASCADE = Judge(name="both", engine="none", mode="cascade", members=(WEAK, STRONG), band=(0.2, 0.8))
PANEL = Judge(name="panel", engine="none", mode="panel", members=(WEAK, STRONG))


def test_examples_of_a_cascade_are_of_its_last_step_or_of_a_member(filled: Database) -> None:
    unsure = Verdict.scored("a", 0.6, probability=0.6)
    sure, strong = Verdict.scored("a", 0.1, probability=0.1), Verdict.scored("a", 0.95, probability=0.95)
    failed = Verdict.failed("a", Reason.TIMEOUT)
    found = {
        1: [resolve_cascade({"weak": unsure, "strong": strong})],
        2: [resolve_cascade({"weak": sure})],
        3: [resolve_cascade({"weak": unsure, "strong": failed})],
    }
    score(filled, CASCADE, 1, found)

    def of(member: str | None) -> tuple[list[float], Counter[str]]:
        left_out = Counter[str]()
        examples = examples_of_verdicts(TrainingData(filled), "both", member=member, left_out=left_out)
        return [one.targets[0].value for one in examples], left_out

    assert of(None) == ([0.95, 0.1], {"failed": 1})
    assert of("strong") == ([0.95], {"not_asked": 1, "failed": 1})
    assert of("weak") == ([0.5, 0.5, 0.5], {}), "votes are stored before the member's calibration"


def test_examples_of_a_panel_are_aggregated_verdicts_or_nested_votes(filled: Database) -> None:
    given = {"weak": Verdict.scored("a", 0.0), "strong": Verdict.scored("a", 1.0, rationale="so")}
    panel = aggregate(A, given, "mean")
    last = STRONG.model_copy(update={"name": "last"})
    outer = Judge(name="outer", engine="none", mode="cascade", members=(PANEL, last), band=(0.2, 0.3))
    score(filled, outer, 1, {1: [resolve_cascade({"panel": panel})]})
    data = TrainingData(filled)
    (whole,), (member,) = examples_of_verdicts(data, "outer"), examples_of_verdicts(data, "outer", member="strong")
    assert (whole.targets[0].value, member.targets[0].value, member.targets[0].rationale) == (0.5, 1.0, "so")


def test_examples_of_verdicts_reject_teachers_without_usable_verdicts(filled: Database) -> None:
    score(filled, CASCADE, 1, {1: [Verdict.failed("a", Reason.TIMEOUT)]})
    score(filled, Judge(name="compares", model="m", mode="comparative"), 1, {1: [Verdict.scored("a", 1.0)]})
    data = TrainingData(filled)
    for judge, member, path in (("both", None, "judge"), ("both", "nemo", "member"), ("compares", None, "judge")):
        with pytest.raises(InvalidError) as caught:
            list(examples_of_verdicts(data, judge, member=member))
        assert caught.value.path == path
    with pytest.raises(NotFoundError):
        list(examples_of_verdicts(data, "missing"))
