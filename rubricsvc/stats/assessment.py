"""A judge held against people's labels: figures for each criterion and for all, and where they differ most.

Every label is one pair with the judge's verdict on the same; where several people labelled, each pair of them, both
ways round, gives the figures of ``people`` (their alpha comes of all of them at once): what a judge cannot be asked to
surpass. What is failed, abstained or not judged is counted and left out: it is no 0. Needs the extra ``judging``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from rubricsvc.core.judge import Judge
from rubricsvc.core.label import OVERALL, JudgedLabel
from rubricsvc.stats.agreement import (
    CORRELATIONS,
    FIGURES,
    RESAMPLES,
    Figure,
    Pairs,
    alpha_of_people,
    levels_of,
    measure,
)

WORST = 20
ALL = "all criteria"
_AMONG_PEOPLE = tuple(name for name in FIGURES if name not in ("auroc", "ece", "brier"))
_FINE = tuple(step / 10 for step in range(11))

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Group:
    """The figures of one criterion, or of all. ``confusion`` counts [people's level, judge's level]."""

    name: str
    pairs: int
    left_out: dict[str, int]
    figures: dict[str, Figure]
    levels: tuple[float, ...] = ()
    confusion: list[list[int]] = field(default_factory=list)
    people_pairs: int = 0
    people: dict[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A label from which the judge is far."""

    completion_id: int
    criterion: str
    annotator: str
    label: float
    judge: float
    note: str | None
    rationale: str | None


@dataclass(frozen=True, slots=True)
class Assessment:
    """``reward`` correlates the judge's reward with people's ``overall`` scores, where there are such labels."""

    judge: str
    calibrated: bool | None
    labels: int
    annotators: int
    overall: Group
    criteria: list[Group]
    worst: list[Disagreement]
    reward: Group | None = None


def finding(judge: Judge, row: JudgedLabel) -> float | None:
    """What the judge found: its (calibrated) probability where it has one, else its value; None where there is none."""
    verdict = row.verdict
    if verdict is None or verdict.value is None or row.criterion is None:
        return None
    if verdict.probability is None or judge.threshold is None:
        return verdict.value
    calibration = judge.calibration
    return calibration.value(row.criterion, verdict.probability) if calibration else verdict.probability


def assess(
    judge: Judge,
    rows: Sequence[JudgedLabel],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    on_progress: Progress = lambda done, total, note: None,
) -> Assessment:
    """The judge's standing on these labels."""
    on_criteria = [row for row in rows if row.criterion is not None]
    groups: dict[str, list[JudgedLabel]] = defaultdict(list)
    for row in on_criteria:
        groups[row.label.criterion].append(row)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    found = []
    for done, (name, members) in enumerate([(ALL, on_criteria), *ordered]):
        on_progress(done, len(groups) + 1, name)
        found.append(_group(judge, name, members, resamples, seed))
    on_progress(len(groups) + 1, len(groups) + 1, "")
    return Assessment(
        judge=judge.name,
        calibrated=judge.calibrated,
        labels=len(rows),
        annotators=len({row.label.annotator for row in rows}),
        overall=found[0],
        criteria=found[1:],
        worst=worst(judge, on_criteria),
        reward=_reward([row for row in rows if row.label.criterion == OVERALL], resamples, seed),
    )


def _group(judge: Judge, name: str, rows: Sequence[JudgedLabel], resamples: int, seed: int) -> Group:
    left_out = Counter(filter(None, (_why_out(row) for row in rows)))
    levels = _levels(rows)
    used = [(told, row) for row in rows if row.label.value is not None and (told := finding(judge, row)) is not None]
    decided = [row.verdict.value or 0.0 for _, row in used if row.verdict]
    pairs = Pairs.of([told for told, _ in used], [row.label.value or 0.0 for _, row in used], levels, decided)
    people_pairs, people = _among_people(rows, levels, _AMONG_PEOPLE, resamples, seed)
    return Group(
        name=name,
        pairs=len(used),
        left_out=dict(left_out),
        figures=measure(pairs, [row.prompt_id for _, row in used], resamples=resamples, seed=seed),
        levels=levels,
        confusion=pairs.confusion() if used else [],
        people_pairs=people_pairs,
        people=people,
    )


def _levels(rows: Iterable[JudgedLabel]) -> tuple[float, ...]:
    """The scale that the rows share; criteria on several scales meet in met or not met."""
    scales = {levels_of(row.criterion.scale) for row in rows if row.criterion is not None}
    return scales.pop() if len(scales) == 1 else (0.0, 1.0)


def _why_out(row: JudgedLabel) -> str | None:
    if row.label.value is None:
        return "person could not tell"
    if row.verdict is None:
        return "not judged"
    return None if row.verdict.outcome == "scored" else row.verdict.outcome


def _among_people(
    rows: Iterable[JudgedLabel], levels: Sequence[float], names: Sequence[str], resamples: int, seed: int
) -> tuple[int, dict[str, Figure]]:
    """How many pairs of people labelled the same thing, and the figures of their agreement; none without such pairs."""
    by_thing: dict[tuple[int, int, str], list[JudgedLabel]] = defaultdict(list)
    for row in rows:
        if row.label.value is not None:
            by_thing[row.completion_id, row.rubric_id, row.label.criterion].append(row)
    shared = [labelled for labelled in by_thing.values() if len(labelled) > 1]
    if not shared:
        return 0, {}
    both = [(a, b) for labelled in shared for a, b in permutations(labelled, 2)]
    pairs = Pairs.of([a.label.value or 0.0 for a, _ in both], [b.label.value or 0.0 for _, b in both], levels)
    pairwise = [name for name in names if name != "alpha"]
    found = measure(pairs, [a.prompt_id for a, _ in both], pairwise, resamples=resamples, seed=seed)
    place = {name: n for n, name in enumerate(sorted({row.label.annotator for each in shared for row in each}))}
    matrix = np.full((len(place), len(shared)), np.nan)
    for thing, labelled in enumerate(shared):
        for row in labelled:
            matrix[place[row.label.annotator], thing] = row.label.value
    prompts = [labelled[0].prompt_id for labelled in shared]
    found["alpha"] = alpha_of_people(matrix, levels, prompts, resamples=resamples, seed=seed)
    return len(both) // 2, {name: found[name] for name in names}


def worst(judge: Judge, rows: Iterable[JudgedLabel], most: int = WORST) -> list[Disagreement]:
    """Where judge and person are farthest apart."""
    found = [
        Disagreement(
            completion_id=row.completion_id,
            criterion=row.label.criterion,
            annotator=row.label.annotator,
            label=row.label.value,
            judge=told,
            note=row.label.note,
            rationale=row.verdict.rationale if row.verdict else None,
        )
        for row in rows
        if row.label.value is not None and (told := finding(judge, row)) is not None
    ]
    return sorted(found, key=lambda item: -abs(item.label - item.judge))[:most]


def _reward(rows: Sequence[JudgedLabel], resamples: int, seed: int) -> Group | None:
    if not rows:
        return None
    used = [(row.reward, row.label.value, row.prompt_id) for row in rows]
    known = [(reward, value, prompt) for reward, value, prompt in used if reward is not None and value is not None]
    pairs = Pairs.of([reward for reward, _, _ in known], [value for _, value, _ in known], _FINE)
    figures = measure(pairs, [prompt for _, _, prompt in known], CORRELATIONS, resamples=resamples, seed=seed)
    left_out = {"no reward": len(used) - len(known)} if len(known) < len(used) else {}
    people_pairs, people = _among_people(rows, _FINE, (*CORRELATIONS, "alpha"), resamples, seed)
    return Group("reward", len(known), left_out, figures, people_pairs=people_pairs, people=people)
