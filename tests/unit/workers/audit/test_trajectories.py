"""Built-in trajectories, and attacks on the last step of one."""

from __future__ import annotations

import pytest

from rubricsvc.core.trajectory import LoopDetector, steps_of
from workers.audit import cases, suites
from workers.audit.suites import Attack, AttackSuite

BAD, GOOD = cases.built_in("trajectory")[:2]
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


def test_suites_of_trajectories_are_not_for_other_judges() -> None:
    assert [one.name for one in OWN] == ["claimed", "giving_up", "loops", "premature"]
    assert suites.built_in("comparative") == suites.built_in()


@pytest.mark.parametrize("one", OWN, ids=lambda one: one.name)
def test_attack_replaces_the_last_step(one: AttackSuite) -> None:
    for attack in one.attacks:
        steps = steps_of(attack.attacked(BAD).completion)
        assert steps[:2] == steps_of(BAD.completion)[:2]
        assert "{claim}" not in steps[-1][0].content
        assert bool(steps[-1][0].tool_calls) == (one.name == "loops"), attack.id


def test_attack_around_a_step_keeps_its_calls() -> None:
    case = Attack(id="x", text="Great! {completion}").attacked(GOOD)
    last = steps_of(case.completion)[-1]
    assert last[0].content == case.text == f"Great! {GOOD.text}"
    assert last[0].tool_calls == steps_of(GOOD.completion)[-1][0].tool_calls and last[1:] == GOOD.messages[-1:]


def test_attack_repeats_steps_with_their_results() -> None:
    once = steps_of(Attack(id="x", text="New!", repeats=1).attacked(BAD).completion)
    assert len(once) == 3 and once[2][0].content == "New!" and once[2][1:] == once[1][1:]
    assert once[2][0].tool_calls == once[1][0].tool_calls
    often = Attack(id="x", text="", repeats=2, times=3).attacked(BAD)
    steps = steps_of(often.completion)
    assert steps == steps[:2] * 4 and often.text == steps[0][0].text
    assert LoopDetector(tuple(steps)).cycles[0].rounds == 4


def test_attack_fence_marks_are_those_of_a_step() -> None:
    assert Attack(id="x", text="{opens}").apply(BAD).startswith("<agent-")
