"""What a proposer is shown: completions of the search part that the rubric and people find differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rubricsvc.core.evolution import Objective, SearchCase
from rubricsvc.stats.evolution.objectives import Outcome, Target, line_of, unit_values
from rubricsvc.store import completions, prompts

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.stats.intervals import Ints

CASES = 2
"""Units that the rubric decides otherwise than people."""


def read_evidence(
    session: Session,
    random: np.random.Generator,
    *,
    ids: Ints,
    target: Target,
    outcome: Outcome,
    objective: Objective,
    key: str,
) -> tuple[SearchCase, ...]:
    """Return some of the worst units, for verdicts those of the criterion ``key``; none if all are right."""
    units = unit_values(objective, target, outcome, line_of(target, outcome))
    wrong = np.flatnonzero(units < (0.0 if objective == "scores" else 1.0))
    if objective == "verdicts":
        wrong = np.array([one for one in wrong.tolist() if target.keys[one] == key], np.int64)
    worst = wrong[np.argsort(units[wrong], kind="stable")][: 5 * CASES]
    drawn = random.permutation(worst)[:CASES].tolist()
    found = [one for unit in drawn for one in _findings(target, outcome, objective, unit)]
    texts = completions.many(session, {int(ids[row]) for row, _ in found})
    evidence = []
    for row, finding in found:
        prompt_id, completion = texts[int(ids[row])]
        prompt = prompts.get(session, prompt_id).value
        evidence.append(SearchCase(prompt=prompt.text, completion=completion.text, finding=finding))
    return tuple(evidence)


def _findings(target: Target, outcome: Outcome, objective: Objective, unit: int) -> list[tuple[int, str]]:
    """Return rows with what people and the rubric found of them."""
    if objective == "preferences":
        better, worse = target.pairs[unit].tolist()
        return [
            (better, f"People preferred this completion to the next one; its reward is {outcome.rewards[better]:.2f}."),
            (worse, f"People preferred the completion before to this one; its reward is {outcome.rewards[worse]:.2f}."),
        ]
    if objective == "scores":
        row = int(target.scored[unit])
        return [(row, f"People gave it {target.scores[unit]:.2f} of 1; its reward is {outcome.rewards[row]:.2f}.")]
    row = int(target.labelled[unit])
    met, found = ("met" if target.met[unit] else "not met", "not met" if target.met[unit] else "met")
    return [(row, f"People say that the criterion is {met}; the judge says {found}.")]
