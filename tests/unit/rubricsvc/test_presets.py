"""The presets load, have checks and pitfalls, and belong to a prompt that is given."""

from __future__ import annotations

from collections import Counter
from io import BytesIO
from pathlib import Path

import pytest

from rubricsvc import presets
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Ordinal
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats import InputFile, load, stream
from rubricsvc.lint import lint
from workers import checks
from workers.authoring.planted_faults import faults_by_rule, good_examples

PROMPTS = ["Why?", "a: 'b' \"c\" # d\n- e\n", "-", "{x}", "é\u2028x", "1"]


@pytest.mark.parametrize("name", presets.NAMES)
def test_presets_load_lint_clean_and_pay_nothing_for_an_empty_completion(name: str, tmp_path: Path) -> None:
    file = tmp_path / "rubric.yaml"
    file.write_text(presets.text(name), encoding="utf-8")
    (record,) = load(file)
    rubric = record.rubric
    assert record.prompt is None and record.name == name and rubric is not None
    checks.validate(rubric)
    assert 4 <= len(rubric.criteria) <= 9
    assert any(one.check for one in rubric.criteria) and any(one.weight < 0 for one in rubric.criteria)
    assert any(isinstance(one.scale, Ordinal) for one in rubric.criteria)
    assert lint(rubric) == []
    best = [Verdict.scored(one.key, float(one.weight > 0)) for one in rubric.criteria]
    worst = [Verdict.scored(one.key, float(one.weight < 0)) for one in rubric.criteria]
    assert (reward(rubric, best).value, reward(rubric, worst).value) == (1.0, 0.0)
    empty = checks.run(rubric, Prompt.of("Why?"), Completion(text=""))
    judged = [Verdict.scored(one.key, 0.0) for one in rubric.criteria if one.check is None]
    assert empty and reward(rubric, [*empty, *judged]).value == 0.0


def test_presets_have_examples_to_plant_faults_into() -> None:
    for name in ["advice", "code-review", "summary"]:
        (record,) = stream(InputFile("preset.yaml", stream=BytesIO(presets.text(name).encode())))
        rubric = record.rubric
        assert rubric is not None and rubric.examples is not None and len(rubric.examples) == 6
        for example in rubric.examples:
            assert example.prompt is not None and example.verdicts is not None
            for verdict in checks.run(rubric, example.prompt, Completion(text=example.text)):
                assert verdict.value is not None
                expected = example.verdicts.get(verdict.criterion)
                assert expected is None or round(verdict.value) in expected, (example.key, verdict.criterion)
        faults = Counter(base.criterion.key for base in good_examples(rubric) for _ in faults_by_rule(rubric, base))
        assert {key for key in rubric.by_key if faults[key] < 3} <= {"situation"}


def test_text_puts_the_prompt_in(tmp_path: Path) -> None:
    file = tmp_path / "rubric.yaml"
    for prompt in PROMPTS:
        file.write_text(presets.text("plan", prompt), encoding="utf-8")
        (record,) = load(file)
        assert record.prompt is not None and record.prompt.text == prompt.removesuffix("\n")
        assert record.name.startswith("plan-")
