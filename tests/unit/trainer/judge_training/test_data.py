"""Data sets of labels and verdicts in the database, on both databases, and of files; splits and mixtures."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Level, Ordinal, Rubric
from rubricsvc.core.verdict import Label, Reason, Verdict
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.services.local import LocalService
from rubricsvc.store import completions, jobs, judges, labels, leases, rubrics
from rubricsvc.store.session import Database
from tests.config_page import DOCS, check_default, fields, kind, table_rows
from tests.rows import item_result
from trainer.judge_training.config import (
    FileData,
    JudgeTrainConfig,
    LabelData,
    QuestionData,
    SplitConfig,
    VerdictData,
    load_config,
)
from trainer.judge_training.data import (
    EXAMPLE,
    Dataset,
    Example,
    Target,
    labelled_examples,
    load_dataset,
    merge,
    questions,
    read_questions,
    split,
)
from trainer.judge_training.training import mix

A, B = Criterion(key="a", text="Says a."), Criterion(key="b", text="Says b.")
CHECKED = Criterion(key="short", text="Is short.", check=Check(name="max_words", args={"n": 5}))
RUBRIC = Rubric(criteria=(A, B, CHECKED))
LEVELS = Ordinal(levels=(Level(label="poor", value=0), Level(label="fair", value=0.5), Level(label="good", value=1)))


@pytest.fixture
def filled(each_db: Database) -> Database:
    """A prompt, three completions and two rubrics: ``r`` and, with another wording of ``b``, its second version."""
    with each_db.write() as session:
        prompt = completions.add_prompt(session, Prompt.of("Why?"))
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


def labels_of(db: Database, **filters: Any) -> Dataset:
    return load_dataset(LabelData(kind="labels", name="labels", **filters), lambda: LocalService(db))


def verdicts_of(db: Database, judge: str, **filters: Any) -> Dataset:
    return load_dataset(VerdictData(kind="verdicts", name="v", judge=judge, **filters), lambda: LocalService(db))


def values(found: Dataset) -> list[tuple[str, dict[str, float]]]:
    return [(one.completion.text, {t.criterion.text: round(t.value, 6) for t in one.targets}) for one in found.examples]


def test_load_labels_averages_people_and_counts_what_is_left_out(filled: Database) -> None:
    label(filled, 1, 1, ann__a=1.0, bob__a=0.0, ann__b=1.0, bob__b=None, ann__overall=0.5)
    label(filled, 2, 1, ann__a=0.0, ann__short=1.0)
    found = labels_of(filled)
    assert values(found) == [("text 1", {"Says a.": 0.5, "Says b.": 1.0}), ("text 2", {"Says a.": 0.0})]
    assert (found.contradictions, +found.left_out) == (1, {"null": 1, "overall": 1, "checked": 1})
    assert {(one.source, one.completion.policy) for one in found.examples} == {("labels", "p")}


def test_load_verdicts_are_calibrated_probabilities_with_levels(filled: Database) -> None:
    with filled.write() as session:
        graded = Rubric(criteria=(Criterion(key="a", text="How good?", scale=LEVELS), B, CHECKED))
        rubric_id = rubrics.add(session, graded, name="graded").id
    first = [
        Verdict.scored("a", 0.6, probability=0.6, levels={"poor": 0.2, "fair": 0.4, "good": 0.4}),
        Verdict.scored("b", 1.0, probability=0.9, calibrated=0.7),
        Verdict.scored("short", 1.0),
    ]
    second = [Verdict.failed("a", Reason.TIMEOUT), Verdict.abstained("b")]
    score(filled, Judge(name="j", model="m"), rubric_id, {1: first, 2: second})
    found = verdicts_of(filled, "j")
    graded_target, binary = found.examples[0].targets
    assert (graded_target.value, graded_target.levels) == (0.6, {"poor": 0.2, "fair": 0.4, "good": 0.4})
    assert (binary.value, binary.levels) == (0.7, None)
    assert found.left_out == {"checked": 1, "failed": 1, "abstained": 1}


def test_load_verdicts_rejects_teachers_without_usable_verdicts(filled: Database) -> None:
    cases = [("failing", InvalidError), ("compares", InvalidError), ("no", NotFoundError)]
    for judge, error in cases:
        score(filled, Judge(name="failing", model="m"), 1, {1: [Verdict.failed("a", Reason.TIMEOUT)]})
        score(filled, Judge(name="compares", model="m", mode="comparative"), 1, {1: [Verdict.scored("a", 1.0)]})
        with pytest.raises(error):
            verdicts_of(filled, judge)


def test_read_questions_reads_examples_as_json(tmp_path: Path) -> None:
    target = Target(Criterion(key="a", text="How?", scale=LEVELS), 0.5, "f", "v", {"fair": 1.0})
    made = [Example(Prompt.of("Why?", reference="So."), Completion(text=""), (target,), "made", "g")]
    path = tmp_path / "q.jsonl"
    line = EXAMPLE.dump_json(made[0], exclude_none=True) + b"\n"
    path.write_bytes(line)
    assert list(read_questions(path)) == made
    path.write_bytes(line + b"{}\n")
    with pytest.raises(InvalidError, match=r"q\.jsonl:2"):
        list(read_questions(path))


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def row(answer: str, asked: str, label: str) -> dict[str, Any]:
    return {"prompt": f"Q: Why is the sky blue?\nA: {answer}\n{asked}:", "completion": label}


def test_merge_joins_two_files_on_question_and_answer(tmp_path: Path) -> None:
    true = written(tmp_path / "truth.jsonl", row("Air scatters it.", "True", " yes"), row("Paint.", "True", " no"))
    helpful = written(tmp_path / "info.jsonl", row("Paint.", "Helpful", " yes"))
    merged = merge(chain(labelled_examples(true), labelled_examples(helpful)))
    got = [(e.completion.text, {t.criterion.key: t.value for t in e.targets}) for e in merged.examples]
    assert got == [("Air scatters it.", {"true": 1.0}), ("Paint.", {"true": 0.0, "helpful": 1.0})]
    assert {example.source for example in merged.examples} == {"truthfulqa"}


def test_merge_of_the_published_files_has_the_known_duplicates(shared_data: Path) -> None:
    folder = shared_data / "truthfulqa_human"
    truth, info = (list(labelled_examples(folder / f"finetune_{name}.jsonl")) for name in ("truth", "info"))
    merged = [merge(examples) for examples in (truth, info)]
    assert len(truth) == len(info) == 15_837
    assert [len(one.examples) for one in merged] == [12_936, 12_936]
    assert [(one.duplicates, one.contradictions) for one in merged] == [(2_901, 18), (2_901, 33)]
    both = merge(chain(truth, info))
    assert len(both.examples) == 12_936 and all(len(example.targets) == 2 for example in both.examples)
    assert len({example.split_group for example in both.examples}) == 576


SHARES = SplitConfig(test=0.2, validation=0.2)


def example(prompt: str, completion: str, *criteria: str, value: float = 1.0, group: str = "") -> Example:
    targets = tuple(Target(Criterion(key=text, text=text), value) for text in criteria or ("a",))
    return Example(Prompt.of(prompt), Completion(text=completion), targets, "s", group)


def answers(prompts: int, each: int = 5) -> list[Example]:
    return [example(f"question {p}", f"answer {p}.{c}", value=c % 2) for p in range(prompts) for c in range(each)]


def families(examples: list[Example]) -> set[str]:
    return {target.family_name for _, target in questions(examples)}


def test_split_keeps_the_answers_of_a_prompt_together_and_is_stable() -> None:
    (few, _), (many, left_out) = split(answers(100), SHARES, 1), split(answers(200), SHARES, 1)
    groups = [{one.split_group for one in part} for part in many.values()]
    assert sum(map(len, groups)) == 200 and left_out == 0
    assert list(map(len, groups)) == pytest.approx([120, 40, 40], abs=20)
    for name, part in few.items():
        assert {one.content for one in part} <= {one.content for one in many[name]}
    assert {one.split_group for one in split(answers(200), SHARES, 2)[0]["test"]} != groups[2]


def test_split_holds_families_out_of_train_and_validation() -> None:
    made = [example(f"q{n}", "x", "a", "b", value=n // 2 % 2) for n in range(400)]
    parts, left_out = split(made, SplitConfig(test=0.2, validation=0.1, held_out=("b",)))
    train, validation, test = parts.values()
    assert families(train) == families(validation) == {"a"} and families(test) == {"a", "b"}
    assert left_out == len(train) + len(validation)


def test_split_rejects_unknown_names_and_shares() -> None:
    cases = [(SplitConfig(test=0.6, validation=0.4), "split.test"), (SplitConfig(held_out=("b",)), "split.held_out")]
    for config, path in cases:
        with pytest.raises(InvalidError) as caught:
            split(answers(3), config)
        assert caught.value.path == path


def test_split_names_a_part_or_class_that_is_too_small() -> None:
    with pytest.raises(InvalidError) as caught:
        split([example(f"q{n}", "x") for n in range(400)], SHARES)
    assert caught.value.path == "split" and caught.value.message.endswith("are needed, 10 of each class")
    with pytest.raises(InvalidError) as caught:
        split(answers(200), SplitConfig(test=0.2, validation=0.001))
    assert "raise split.validation" in caught.value.hint


SOURCES = {"a": range(10), "b": range(100, 105), "unused": range(3)}
WEIGHTS = {"a": 3.0, "b": 1.0, "unused": 0.0}


def test_mix_draws_by_weight_and_every_example_once_an_epoch() -> None:
    drawn = list(islice(mix(SOURCES, WEIGHTS, 0), 40))
    for start in range(0, 40, 8):
        assert sum(one >= 100 for one in drawn[start : start + 8]) == 2
    assert Counter(one for one in drawn if one < 100) == dict.fromkeys(range(10), 3)


JUDGE: dict[str, Any] = {"name": "j", "engine": "transformers_local", "model": "m"}
LABELS: dict[str, Any] = {"kind": "labels", "name": "people"}
CHECKS: dict[str, Any] = {"kind": "questions", "name": "made", "path": "made.jsonl"}
MEMBERS = [JUDGE, JUDGE | {"name": "k"}]


def config(judge: dict[str, Any], *data: dict[str, Any]) -> JudgeTrainConfig:
    return JudgeTrainConfig.model_validate({"judge": JUDGE | judge, "data": data, "out": "out"})


def test_config_refuses_judges_that_cannot_be_trained() -> None:
    cases = [
        {"mode": "comparative"}, {"mode": "trajectory"}, {"mode": "panel", "model": "", "members": MEMBERS},
        {"mode": "cascade", "model": "", "members": MEMBERS, "band": [0.2, 0.8]}, {"engine": "openai_http"},
        {"adapter": "folder"}, {"mode": "written"},
    ]  # fmt: skip
    for judge in cases:
        with pytest.raises(ValidationError) as caught:
            config(judge, LABELS)
        assert [error["loc"] for error in caught.value.errors()] == [("judge",)]


def test_config_needs_a_weight_and_different_names() -> None:
    for changes in [{"weight": 0}, {"name": "people", "weight": 1}]:
        with pytest.raises(ValidationError) as caught:
            config({}, LABELS | {"weight": 0}, CHECKS | changes)
        assert [error["loc"] for error in caught.value.errors()] == [("data",)]


@pytest.mark.parametrize(("model", "is_folder"), [("base", True), ("hub/name", False), ("embedded", False)])
def test_load_config_finds_the_models_folder_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, is_folder: bool
) -> None:
    for name in ("conf/base", "conf/embedded", "base"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "conf/mine.toml").write_text(
        f'judge = {{name = "j", engine = "transformers_local", model = "{model}"}}\n'
        'data = [{kind = "labels", name = "people"}]\n'
    )
    monkeypatch.chdir(tmp_path)
    loaded = load_config(Path("conf/mine.toml"))
    assert loaded.judge.model == (str(tmp_path / "conf/base") if is_folder else model)


ROWS = table_rows((DOCS / "judge-training.md").read_text(encoding="utf-8").partition("## Reference")[2])
INGREDIENTS = (FileData, QuestionData, LabelData, VerdictData)
FIELDS = dict(fields(JudgeTrainConfig, replaced={"judge": None, "data": None}))
OF_DATA = {
    f"data.{name}": field
    for name, field in chain.from_iterable(one.model_fields.items() for one in INGREDIENTS)
    if name not in ("kind", "license")
}


def test_page_lists_every_field() -> None:
    assert set(ROWS) == {*FIELDS, *OF_DATA, "judge", "data", "data.kind", "data.license"}
    assert all(meaning.strip() for *_, meaning in ROWS.values())


def test_page_has_types_and_defaults() -> None:
    for name, field in (FIELDS | OF_DATA).items():
        shown, default, _ = ROWS[name]
        assert shown == kind(field.annotation, field.metadata), name
        check_default(field, default, required="`judges/NAME`" if name == "out" else "required")


def test_page_lists_every_kind_of_data() -> None:
    kinds = [kind(one.model_fields["kind"].annotation, []) for one in INGREDIENTS]
    assert ROWS["data.kind"][0] == " or ".join(kinds)
