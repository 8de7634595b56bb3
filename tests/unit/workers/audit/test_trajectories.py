"""Built-in trajectories, and attacks on the last step of one."""

from __future__ import annotations

import pytest

from rubricsvc.core.prompt import steps_of
from workers.audit import cases, suites
from workers.audit.suites import AttackSuite

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


@pytest.mark.parametrize("one", OWN, ids=lambda one: one.name)
def test_attack_replaces_the_last_step(one: AttackSuite) -> None:
    for attack in one.attacks:
        steps = steps_of(attack.attacked(BAD).completion)
        assert steps[:2] == steps_of(BAD.completion)[:2]
        assert "{claim}" not in steps[-1][0].content
        assert bool(steps[-1][0].tool_calls) == (one.name == "loops"), attack.id
