"""The sets and the tables of ``make bench-judge-training``, on small sets of the same form."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bench import judge_report, judge_sets
from bench.bench_judge_training import Measured, arguments, judges_of, measure
from bench.judge_sets import SETS, read_set, sampled
from bench.judge_tests import COUNTING, TESTS, JudgeTest, Recipe, Source, View, contrary
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import TRAINED, UNTRAINED
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Ordinal
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import UnavailableError
from tests.instant_engine import InstantEngine
from tests.unit.trainer.judge_training.made import question
from trainer.judge_training.config import JudgeTrainConfig, SplitConfig
from trainer.judge_training.data.files import examples_of_file
from trainer.judge_training.examples import Example, Target
from trainer.judge_training.splits import split
from workers.engines.base import Failure, Reply
from workers.engines.base import Question as Asked
from workers.engines.local.weights import SHIPPED

JUDGE = Judge(name="j", engine="instant", model="m")


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder of sets that have the files and fields of the public ones."""
    pair = {"input": "Name a colour.", "output_1": "Red.", "output_2": "A dog.", "label": 1}
    for part in ("Natural", "Adversarial/Neighbor"):
        folder = tmp_path / "llmbar" / "LLMBar" / part
        folder.mkdir(parents=True)
        (folder / "dataset.json").write_text(json.dumps([pair, pair | {"input": "Name a pet.", "label": 2}]))
    said = [f"Q: Why {word(n)} {word(n + 1)}?\nA: {' '.join(word(n + i) for i in range(3, 9))}.\n" for n in range(60)]
    for file, asked in (("truth", "True"), ("info", "Helpful")):
        rows = [{"prompt": f"{one}{asked}:", "completion": (" yes", " no")[n % 3 == 0]} for n, one in enumerate(said)]
        write(tmp_path / "truthfulqa_human" / f"finetune_{file}.jsonl", [*rows, rows[0]])
    tasks = [
        {
            "task": "t",
            "capability": "c",
            "input": f"Do {n}.",
            "reference_answer": f"Done {word(n)}, as {word(n + 9)} asked.",
        }
        | {"score_rubric": {"criteria": f"Is {n} done?"}}
        for n in range(3)
    ]
    write(tmp_path / "biggen_bench" / "instances.jsonl", [*tasks, tasks[0] | {"capability": "multilingual"}])
    properties = [{"criterion": f"Names {n}.", "evidence": [f"Quote {n}.", "More."]} for n in range(2)]
    config = {"other_properties": [*properties, {"criterion": "Has no evidence.", "evidence": []}]}
    rubric = {"initial_prompt": "Which?", "metric_config": {"config": config}}
    write(tmp_path / "scholarqabench" / "rubrics.jsonl", [rubric])
    folder = tmp_path / "llm_rubric" / "real_data"
    write(folder / "one.jsonl", [])
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello [1]"}]
    (folder / "real_data.json").write_text(json.dumps([{"_id": "a", "topic": "tea", "messages": talk}]))
    head, row = "text_id\t" + "\t".join(f"Q{n}" for n in range(9)), "a\t4\t1\t0\t3\t2\t4\t4\t4\t4"
    (folder / "human_judges_real_convs_FIXED_ANON.tsv").write_text(f"{head}\n{row}\n")
    return tmp_path


def word(number: int) -> str:
    return f"{chr(97 + number % 26) * 3}{number}"


def values(examples: Iterable[Example]) -> list[tuple[str, str, float]]:
    return [(one.completion.text, target.criterion.text, target.value) for one in examples for target in one.targets]


def test_read_set_labels_the_better_of_a_pair(data: Path) -> None:
    labels = [(one.prompt.text, one.completion.text, one.targets[0].value) for one in read_set("llmbar_natural", data)]
    assert labels == [
        ("Name a colour.", "Red.", 1.0),
        ("Name a colour.", "A dog.", 0.0),
        ("Name a pet.", "Red.", 0.0),
        ("Name a pet.", "A dog.", 1.0),
    ]


def test_read_set_biggen_has_own_and_other_reference_answers(data: Path) -> None:
    examples = read_set("biggen", data)
    assert len(examples) == 6 and sum(one.targets[0].value for one in examples) == 3
    assert ("Done bbb1, as kkk10 asked.", "Is 0 done?", 0.0) in values(examples)


def test_read_set_scholarqa_has_quotes_of_own_and_other_criteria(data: Path) -> None:
    assert sorted(values(read_set("scholarqa", data))) == [
        ("Quote 0.\nMore.", "Names 0.", 1.0),
        ("Quote 0.\nMore.", "Names 1.", 0.0),
        ("Quote 1.\nMore.", "Names 0.", 0.0),
        ("Quote 1.\nMore.", "Names 1.", 1.0),
    ]


def test_read_set_llm_rubric_has_ordinal_labels_of_the_questions_that_apply(data: Path) -> None:
    (dialogue,) = read_set("llm_rubric", data)
    assert {target.family: target.value for target in dialogue.targets} == pytest.approx(
        {"Q0": 1, "Q1": 0, "Q3": 2 / 3, "Q4": 1 / 3, "Q5": 1, "Q6": 1, "Q7": 1, "Q8": 1}
    )
    assert all(isinstance(target.criterion.scale, Ordinal) for target in dialogue.targets)
    assert dialogue.completion.text == "[user]\nHi\n\n[assistant]\nHello [1]"


def test_read_set_refuses_an_absent_set(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        read_set("gsm8k", tmp_path)


def test_sampled_keeps_pairs_whole_and_counts_long_ones(data: Path) -> None:
    examples = read_set("llmbar_natural", data)
    taken, left_out = sampled(examples, 3, paired=True)
    assert len(taken) == 2 and len({one.prompt.text for one in taken}) == 1 and left_out == 0
    assert sampled(examples, 4, paired=True, longest=18) == (examples[2:], 2)  # "Name a colour." with "A dog." has 20


def test_export_files_are_read_by_a_training(data: Path, tmp_path: Path) -> None:
    tables = list(judge_sets.export(tmp_path / "out", data, ["truthfulqa", *SETS]))
    entries = tomllib.loads("\n".join(tables))["data"]
    assert [one["name"] for one in entries] == [
        "truthfulqa", "llmbar_natural", "llmbar_adversarial", "llm_rubric", "biggen", "scholarqa",
    ]  # fmt: skip
    for entry in entries:
        name = entry["name"]
        before = judge_sets.truthfulqa(data) if name == "truthfulqa" else read_set(name, data)
        after = list(examples_of_file(entry["path"], entry["format"], name))
        assert values(after) == values(before)
        assert [one.targets[0].criterion.question for one in after] == [
            one.targets[0].criterion.question for one in before
        ]


def test_truthfulqa_test_has_none_of_the_questions_that_the_recipe_trains_on(data: Path) -> None:
    recipe = Recipe(SplitConfig(test=0.3, validation=0.1), seed=3)
    made = TESTS["truthfulqa"](Source(data, recipe))
    assert made.test and {recipe.side(one.split_group) for one in made.test} == {"test"}
    assert {recipe.side(one.split_group) for one in made.train} == {"train"}
    assert [view.target for view in made.views] == [0.95, 0.82]


def test_truthfulqa_test_by_completion_has_seen_questions_only(data: Path) -> None:
    made = TESTS["truthfulqa"](Source(data, Recipe(SplitConfig(by="completion", test=0.3))))
    assert made.test == []  # each question has one answer
    assert [view.measure for view in made.views] == ["accuracy", "accuracy"]


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("truthfulqa", Recipe(SplitConfig(by="criterion"))),  # it trains on all prompts that have no held-out criterion
        ("says_that", Recipe(SplitConfig(by="completion"))),
        ("swapped", Recipe(SplitConfig(by="source"))),
        ("checks", Recipe(SplitConfig(held_out=()))),
    ],
)
def test_tests_refuse_a_recipe_that_trains_on_them(data: Path, name: str, recipe: Recipe) -> None:
    with pytest.raises(UnavailableError):
        TESTS[name](Source(data, recipe))


def test_checks_test_has_held_out_families_only(data: Path) -> None:
    made = TESTS["checks"](Source(data, Recipe(SplitConfig(test=0.3, held_out=("greeting", "mentions"))), scale=0.03))
    assert {target.family for one in made.test for target in one.targets} <= {"greeting", "mentions"}
    trained = {target.family for one in made.train for target in one.targets}
    assert trained and trained.isdisjoint({"greeting", "mentions", *COUNTING})


def test_swapped_tests_have_own_and_other_answers(data: Path) -> None:
    for name in ("swapped", "swapped_elsewhere"):
        made = TESTS[name](Source(data, Recipe(SplitConfig(test=0.3)), scale=0.1))
        assert {target.value for one in made.test for target in one.targets} == {0.0, 1.0}


@pytest.mark.parametrize(("variant", "kept"), [("stated", True), ("negated", True), ("absent", False), ("", False)])
def test_contrary_leaves_out_other_statements(variant: str, kept: bool) -> None:
    assert contrary(question(1.0, variant=variant)) is kept


def measured(answer: Any, labels: Iterable[tuple[str, float]], **fields: Any) -> Measured:
    examples = [
        Example(Prompt.of(f"p{n}"), Completion(text=f"c{n}"), (Target(Criterion(key="k", text=text), value),), "s")
        for n, (text, value) in enumerate(labels)
    ]
    test = JudgeTest("t", "made", examples, (View("all", target=0.9, other=True, **fields),))
    engines = {UNTRAINED: (InstantEngine(unsure), JUDGE), TRAINED: (InstantEngine(answer), JUDGE)}
    return asyncio.run(measure(engines, test))


def unsure(_: Asked) -> Failure:
    return Failure(Reason.NO_ANSWER, "no label")


def reply(asked: Asked) -> Reply | Failure:
    if "broken" in asked.text:
        return Failure(Reason.TOO_LONG, "too long")
    met = 0.8 if "is met" in asked.text else 0.2
    return Reply(label_mass={"Yes": met, "No": 0.9 - met})


def test_measure_scores_the_judge_beside_baselines_and_counts_failures() -> None:
    labels = [("It is met.", 1.0), ("It is not so.", 0.0)] * 6
    found = measured(reply, [*labels, ("It is broken.", 0.0)])
    assert found.questions == 13 and dict(found.failed) == {"too_long": 1}
    assert found.answer_mass == pytest.approx(0.9)
    ((_, table),) = found.tables
    rows = {row.scorer: row for row in table.whole}
    assert list(rows) == ["majority", "length, raw", "overlap, raw", "prompt overlap, raw", UNTRAINED, TRAINED]
    assert rows[TRAINED].n == 13 and rows[TRAINED]["auroc"].value == 1.0
    assert rows[TRAINED]["accuracy"].value == pytest.approx(12 / 13)  # the failure counts as 0.5
    assert rows[UNTRAINED].n == 13 and rows[UNTRAINED]["auroc"].value == 0.5
    assert rows["majority"]["auroc"].value == 0.5
    (goal, sets, each, *_) = judge_report.summary(TRAINED, found.tables, None)
    assert (goal.row, goal.met) == ("all", True)
    assert sets.met and "1 of 1" in sets.reached and each.met


def test_judges_of_reads_an_adapter_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "judge.yaml"
    file.write_text("{name: mine, engine: openai_http, model: m, endpoint: {base_url: http://127.0.0.1:1/v1}}")

    def judges(*options: str) -> dict[str, Judge]:
        return judges_of(arguments().parse_args(options))

    assert {name: one.name for name, one in judges("--judge-file", str(file)).items()} == {TRAINED: "mine"}
    shipped = judges("--embedded")
    assert [one.adapter for one in shipped.values()] == [None, "embedded"]
    assert {one.template for one in shipped.values()} == {"readout_short"}  # as it was trained to be asked
    assert list(judges("--embedded", "--trained-only")) == [TRAINED]
    own = judges("--adapter", str(SHIPPED))[TRAINED]
    assert (own.model, own.template, own.adapter) == ("embedded", "readout_short", str(SHIPPED))


def test_recipe_of_a_configuration_divides_as_the_training_does(data: Path) -> None:
    config = JudgeTrainConfig.model_validate(
        {
            "judge": JUDGE.model_copy(update={"engine": "transformers_local"}),
            "data": [{"kind": "labels", "name": "people"}],
            "out": data,
            "seed": 5,
            "split": {"test": 0.3, "validation": 0.1},
        }
    )
    examples = judge_sets.truthfulqa(data)
    parts = split(examples, config.split.by, test=0.3, validation=0.1, seed=5)
    assert Recipe.of(config).parts(examples) == (parts.train, parts.test)
