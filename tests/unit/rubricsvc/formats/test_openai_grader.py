"""OpenAI's graders as rubrics."""

import json
from pathlib import Path

import pytest

from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Numeric, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.formats import load
from rubricsvc.formats.openai_grader import parse
from rubricsvc.formats.writing import plain
from rubricsvc.graders.model import rubric_of
from tests.unit.rubricsvc.formats.invalid import errors_of

ASKED = [{"role": "user", "content": "Is {{sample.output_text}} right? It is {{item.answer}}."}]
STRING = {
    "type": "string_check",
    "name": "the same",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}
SIMILAR = {
    "type": "text_similarity",
    "name": "near",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "evaluation_metric": "fuzzy_match",
    "pass_threshold": 0.8,
}
SCORE = {"type": "score_model", "name": "how good", "model": "gpt-x", "input": ASKED, "range": [1, 5]}
LABEL = {
    "type": "label_model",
    "name": "which",
    "model": "gpt-x",
    "input": ASKED,
    "labels": ["right", "wrong", "half"],
    "passing_labels": ["right", "half"],
}
PYTHON = {
    "type": "python",
    "name": "code",
    "source": "def grade(sample, item):\n    return 1.0",
    "image_tag": "2025-05-08",
}
MULTI = {
    "type": "multi",
    "name": "all",
    "graders": {"same": STRING, "good": SCORE},
    "calculate_output": "0.5 * same + good ^ 2",
}
ALL = (STRING, SIMILAR, SCORE, LABEL, PYTHON, MULTI)


def test_load_notes_templates_that_can_hardly_mean_what_they_say(tmp_path: Path) -> None:
    def asked(text: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": text}]

    score = {key: value for key, value in SCORE.items() if key != "range"}
    cases: list[tuple[dict[str, object], str]] = [
        (STRING | {"input": "{sample.output_text}"}, "plain text|completion"),
        (SCORE | {"input": asked("Is {{item.answer}} right?")}, "completion"),
        (SCORE | {"input": asked("{{sample.output_text}} {{item.anser}}")}, "item.anser"),
        (score | {"input": asked("Rate {{sample.output_text}} from 1 to 10.")}, "up to 10"),
        (MULTI | {"graders": {"same": STRING, "good": LABEL | {"input": asked("Right?")}}}, "good: the completion"),
        (SCORE | {"input": asked("{{sample.output_text}} <item.answer> ${ item.answer[0] }}")}, "answer is|[0] is"),
        (SCORE | {"input": [{"role": "system", "content": "{{sample.output_text}}"}]}, "role user"),
        (STRING | {"reference": "'{{item.answer}}' "}, "quotes around"),
        (SIMILAR | {"reference": "{{sample.output_text}}"}, "same"),
        (PYTHON | {"source": "def grade(sample: dict) -> float:\n    return 1.0"}, "grade(sample, item)"),
    ]
    for grader, expected in [*cases, *((one, "") for one in ALL)]:
        path = tmp_path / "grader.jsonl"
        path.write_text(json.dumps({"item": {"answer": "x"}, "grader": grader}))
        notes = [note.message for note in load(path).notes if note.code == "template"]
        parts = expected.split("|") if expected else []
        assert len(notes) == len(parts) and all(one in note for one, note in zip(parts, notes, strict=True)), notes


def worth(rubric: Rubric, **values: float) -> float | None:
    return reward(rubric, [Verdict.scored(key, value) for key, value in values.items()]).value


def test_read_makes_a_rubric_of_each_grader(tmp_path: Path) -> None:
    for grader in ALL:
        path = tmp_path / "grader.json"
        path.write_text(json.dumps(grader, indent=1))
        for records in (load(path, format="openai_grader"), load(path)):
            (record,) = records
            assert record.rubric == rubric_of(parse(grader))
            assert (record.prompt, record.name) == (None, grader["name"])
        path.write_text(json.dumps(plain(record)))
        assert load(path, format="native")[0].rubric == record.rubric


def test_rubric_of_converts_each_part() -> None:
    kinds = {grader["type"]: rubric_of(parse(grader)).criteria[0] for grader in ALL}
    assert [kinds[kind].kind for kind in ("string_check", "text_similarity", "python")] == ["checked"] * 3
    assert kinds["score_model"].scale == Numeric(low=1, high=5)
    question = kinds["label_model"].custom_prompt
    assert question is not None
    assert (question.labels, question.passing, question.model) == (
        ("right", "wrong", "half"),
        ("right", "half"),
        "gpt-x",
    )


def test_rubric_of_gives_the_reward_of_the_grader() -> None:
    assert worth(rubric_of(parse(SCORE)), **{"how good": 0.75}) == 4.0
    assert worth(rubric_of(parse(STRING)), **{"the same": 1.0}) == 1.0
    assert worth(rubric_of(parse(MULTI)), same=1.0, good=0.5) == 9.5


def test_parse_accepts_any_definition_of_grade() -> None:
    for source in [
        "grade = lambda sample, item: 1.0",
        "if True:\n    def grade(sample, item): return 1.0",
        "from somewhere import score as grade",
        "from somewhere import *",
        "raise SystemExit  # nothing of it is run\nasync def grade(sample, item): ...",
    ]:
        assert rubric_of(parse({**PYTHON, "source": source})).criteria[0].check is not None


def test_read_makes_prompts_of_items(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    item = {"messages": [{"role": "user", "content": "2 + 2?"}], "answer": "4"}
    lines = [{"item": item, "grader": STRING, "model_sample": "4", "id": 7}, item, {"item": {"n": 1}, "grader": PYTHON}]
    path.write_text("\n".join(map(json.dumps, lines)))
    first, second, third = load(path, format="openai_grader")
    assert first.prompt == second.prompt and first.prompt is not None and first.prompt.item == item
    assert first.prompt.text == "2 + 2?"
    assert (first.id, first.completions[0].text) == ("7", "4")
    assert first.rubric is not None and second.rubric is None
    assert third.prompt is not None and third.prompt.text == '{"n": 1}'


def test_parse_rejects_invalid_graders_with_their_path(tmp_path: Path) -> None:
    for grader, path in [
        ({**STRING, "type": "vibe_check"}, "type"),
        ({"name": "x"}, "type"),
        ({**STRING, "input": "{{item.a + 1}}"}, "input"),
        ({**STRING, "input": "{{item.answer"}, "input"),
        ({**STRING, "reference": "{{secrets.key}}"}, "reference"),
        ({**STRING, "operation": "regex"}, "operation"),
        ({**STRING, "input": 1}, "input"),
        ({**STRING, "input": "x" * 256_001}, "input"),
        ({**STRING, "refrence": "x"}, "refrence"),
        ({**SIMILAR, "evaluation_metric": "vibes"}, "evaluation_metric"),
        ({**SCORE, "range": [1, 1]}, "range"),
        ({**SCORE, "range": [-1e308, 1e308]}, "range"),
        ({**SCORE, "input": []}, "input"),
        ({**SCORE, "input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({**SCORE, "input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({**LABEL, "passing_labels": ["fine"]}, ""),
        ({**LABEL, "labels": ["a", "a"]}, ""),
        ({**LABEL, "labels": ["right", " "]}, ""),
        ({**PYTHON, "source": ""}, "source"),
        ({**PYTHON, "source": "#" * 256_001}, "source"),
        ({**PYTHON, "source": "def grade(:"}, "source"),
        ({**PYTHON, "source": "x = 1"}, "source"),
        ({**PYTHON, "source": "class A:\n    def grade(self, item): return 1"}, "source"),
        ({**PYTHON, "source": "grade = " + "-" * 200_000 + "1"}, "source"),
        ({**MULTI, "calculate_output": "same + bad"}, "calculate_output"),
        ({**MULTI, "calculate_output": "same.__class__"}, "calculate_output"),
        ({**MULTI, "graders": {"same": MULTI}}, "graders.same.type"),
        ({**MULTI, "graders": {"same": {**STRING, "type": "vibes"}}}, "graders.same.type"),
        ({**MULTI, "graders": {"same": {"name": "x"}}}, "graders.same.type"),
        ({**MULTI, "graders": {"same": {**STRING, "input": "{{x}}"}}}, "graders.same.input"),
        ({**MULTI, "graders": {}}, "graders"),
        ({**MULTI, "graders": {f"g{n}": STRING for n in range(101)}}, "graders"),
    ]:
        with pytest.raises(InvalidError) as error:
            parse(grader)
        field = f"grader.{path}" if path else "grader"
        assert error.value.path == field
        file = tmp_path / "bad.jsonl"
        file.write_text(json.dumps({"grader": grader, "item": {}}))
        assert errors_of(file, "openai_grader")[0][2] == field
