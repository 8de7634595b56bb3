from __future__ import annotations

from rubricsvc.core.evolution import BufferedCriterion, BufferState, evolved_rubric
from rubricsvc.core.rubric import Criterion, Rubric

BASE = Rubric(
    criteria=[
        Criterion(key="dose", text="Names the dose.", weight=6),
        Criterion(key="rude", text="Is rude.", weight=-4),
    ]
)


def entry(key: str, weight: float, state: BufferState) -> BufferedCriterion:
    return BufferedCriterion(criterion=Criterion(key=key, text=f"Says {key}.", weight=weight), state=state)


def test_evolved_rubric_adds_active_criteria_with_a_share_of_the_authored_weights() -> None:
    entries = [
        *(BufferedCriterion(criterion=one, state="frozen") for one in BASE.criteria),
        entry("evolved-1", 3.0, "retired"),
        entry("evolved-2", -50.0, "active"),
        entry("evolved-3", 0.1, "active"),
        entry("evolved-4", 1.0, "proposed"),
    ]
    rubric = evolved_rubric(BASE, entries, 0.1)
    assert [(one.key, one.weight) for one in rubric.criteria] == [
        ("dose", 6.0),
        ("rude", -4.0),
        ("evolved-2", -1.0),
        ("evolved-3", 1.0),
    ]
    assert rubric.criteria[:2] == BASE.criteria
    assert evolved_rubric(BASE, entries[:3], 0.1).digest == BASE.digest
