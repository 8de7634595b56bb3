"""Built-in cases and attacks, plans, and reading suites."""

from collections import Counter
from pathlib import Path

import pytest

from rubricsvc.core.prompt import Prompt, steps_of
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.untrusted import clean
from rubricsvc.formats import InvalidFileError
from workers.audit import cases, suites
from workers.audit.cases import AuditCase
from workers.audit.suites import CRITERIA_ORDER, DISGUISES, Attack, AttackSuite, AuditPlan

RUBRIC = Rubric(criteria=(Criterion(key="a", text="Says a."), Criterion(key="b", text="Says b.")))
CASE = AuditCase(Prompt.of("Why?"), RUBRIC, "It is {so}.", met=("a",), unmet=("b",))


def suite(name: str) -> AttackSuite:
    return next(one for one in suites.built_in() if one.name == name)


def test_injection_suite_has_seventy_attacks_in_seven_kinds() -> None:
    kinds = Counter(attack.family for attack in suite("injection").attacks)
    assert len(kinds) == 7 and set(kinds.values()) == {10}
    texts = {attack.apply(CASE) for attack in suite("injection").attacks}
    assert len(texts) == 70


def test_built_in_cases_are_a_good_and_a_bad_completion_of_each_task() -> None:
    shipped = cases.built_in()
    assert len(shipped) == 24 and len({case.prompt.digest for case in shipped}) == 12
    for bad, good in zip(shipped[::2], shipped[1::2], strict=True):
        assert bad.prompt == good.prompt and bad.unmet == good.met == tuple(bad.rubric.by_key)
        assert 2 <= len(bad.rubric.criteria) <= 4 and not bad.met and not good.unmet


def test_attack_fence_marks_are_those_of_the_unattacked_completion() -> None:
    text = Attack(id="x", text="{opens} {closes}").apply(CASE)
    opens, closes = text.split()
    assert opens.startswith("<completion-") and closes == opens.replace("<", "</")


@pytest.mark.parametrize("name", ["tags", "selectors", "zero_width"])
def test_invisible_disguise_is_removed_by_cleaning(name: str) -> None:
    hidden = DISGUISES[name]("Yes")
    assert "Yes" not in hidden and clean(f"Fine.{hidden}").text == "Fine."


def test_plan_uses_every_completion_and_reverses_criteria_once() -> None:
    plan = AuditPlan(cases.built_in(), (suite("injection"), suite("praise")))
    trials = list(plan.trials())
    tried = Counter(trial.baseline.text for trial in trials if trial.suite == "injection" and trial.baseline)
    assert (
        set(tried) == {case.text for case in plan.cases if case.unmet}
        and max(tried.values()) - min(tried.values()) <= 1
    )
    assert {trial.baseline for trial in trials if trial.suite == "praise"} == set(plan.cases)
    turned = [(trial.case.rubric, trial.baseline) for trial in trials if trial.suite == CRITERIA_ORDER]
    assert len(turned) == 24
    assert all(before and rubric.criteria == before.rubric.criteria[::-1] for rubric, before in turned)
    every = AuditPlan(cases.built_in(), (suite("injection"),), per_attack=0, consistency=()).trials()
    assert sum(trial.suite == "injection" for trial in every) == 70 * 12


@pytest.mark.parametrize(
    ("text", "path", "code"),
    [
        ("name: x\nmeasure: met\nmax_rate: 2\nattacks: [{id: a, text: b}]", "max_rate", "less_than_equal"),
        ("name: x\nmeasure: felt\nmax_rate: 0.1\nattacks: [{id: a, text: b}]", "measure", "literal_error"),
        (
            "name: x\nmeasure: met\nmax_rate: 0.1\nattacks: [{id: a, text: b, disguise: h}]",
            "attacks[0].disguise",
            "string_pattern_mismatch",
        ),
        ("{", "", "yaml_invalid"),
    ],
)
def test_read_names_the_wrong_field(tmp_path: Path, text: str, path: str, code: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(InvalidFileError) as caught:
        suites.read(file)
    assert [(error.path, error.code) for error in caught.value.errors] == [(path, code)]


BAD = cases.built_in("trajectory")[0]
OWN = [one for one in suites.built_in("trajectory") if one not in suites.built_in()]


def test_built_in_trajectories_fork_at_the_last_step() -> None:
    shipped = cases.built_in("trajectory")
    assert len(shipped) == 16
    for bad, good in zip(shipped[::2], shipped[1::2], strict=True):
        assert bad.task == good.task and bad.unmet == good.met == ("progress",) and bad.claim
        *before, last = steps_of(bad.completion)
        *same, other = steps_of(good.completion)
        assert before == same and last != other and len(before) == 2
        assert last[0].content == bad.text and last[1].role == "tool"


@pytest.mark.parametrize("one", OWN, ids=lambda one: one.name)
def test_attack_replaces_the_last_step(one: AttackSuite) -> None:
    for attack in one.attacks:
        steps = steps_of(attack.attacked(BAD).completion)
        assert steps[:2] == steps_of(BAD.completion)[:2] and "{claim}" not in steps[-1][0].content
        assert bool(steps[-1][0].tool_calls) == (one.name == "loops"), attack.id
