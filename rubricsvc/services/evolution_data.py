"""The labelled completions that a rubric is evolved on, in two parts without a common prompt. Needs ``judging``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rubricsvc.core.evolution import UNITS, Objective, PartCounts
from rubricsvc.errors import InvalidError
from rubricsvc.services.verdict_matrix import read_matrices
from rubricsvc.stats.evolution.objectives import OBJECTIVES, Target
from rubricsvc.stats.intervals import Floats, Ints
from rubricsvc.stats.preferences import preference_pairs
from rubricsvc.stats.rewards import reward_vector
from rubricsvc.store import prompts
from rubricsvc.store.labels import Selection, criterion_labels, overall_labels

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.stats.verdict_matrix import VerdictMatrix
    from rubricsvc.store.tables import JudgeRow, RubricRow

MIN_UNITS = {"search": 20, "held-out": 10}
MIN_PROMPTS = 5
"""Prompts with units in each part: fewer give no interval."""
_LABEL = "label more completions (`rubricsvc labels import FILE`), and score them: `rubricsvc jobs submit --judge NAME`"

Masks = NDArray[np.bool_]


@dataclass(frozen=True)
class Labelled:
    """Completions that have labels and a reward of the start, N of them.

    Attributes:
        completions: Ids [N].
        values: Values of the start's criteria [N, C].
        search: Rows that candidates are scored on [N]; ``held_out`` the others.
        left_out: Labelled completions without a reward of the start.
    """

    completions: Ints
    values: Floats
    target: Target
    search: Masks
    held_out: Masks
    left_out: int

    @property
    def digest(self) -> str:
        """The SHA-256 of the parts, the labels and the start's verdicts."""
        target, found = self.target, sha256("\n".join(self.target.keys).encode())
        arrays = (self.completions, self.values, self.search, target.pairs, target.scored, target.scores)
        for one in (*arrays, target.labelled, target.met):
            found.update(np.ascontiguousarray(one).tobytes())
        return found.hexdigest()

    def counts(self, objective: Objective) -> PartCounts:
        """Return the size of the parts."""
        search, held_out = (self.target.of_rows(mask) for mask in (self.search, self.held_out))
        return PartCounts(
            search_units=len(search.rows(objective)),
            search_prompts=search.prompts(objective),
            held_out_units=len(held_out.rows(objective)),
            held_out_prompts=held_out.prompts(objective),
            left_out=self.left_out,
        )


def read_labelled(
    session: Session,
    rubric: RubricRow,
    judge: JudgeRow,
    *,
    seed: int,
    held_out: float,
    job_id: int | None = None,
    held_out_job_id: int | None = None,
) -> Labelled:
    """Return the completions that the judge scored under the rubric and that have labels.

    Raises:
        InvalidError: Both jobs have a prompt in common, or nothing was scored.
    """
    jobs = [job_id] if held_out_job_id is None else [job_id, held_out_job_id]
    selections = [Selection(judge.id, one, rubric.id) for one in jobs]
    matrices = [next(read_matrices(session, one), None) for one in selections]
    parts = [one for one in matrices if one is not None]
    if len(parts) < len(jobs):
        raise InvalidError(
            f"judge {judge.name!r} has scored nothing under {rubric.ref}",
            hint="the start needs verdicts: `rubricsvc jobs submit --judge NAME --rubric NAME@VERSION --wait`",
        )
    if len(parts) == 2:
        _reject_overlap(session, *parts)
    order = np.argsort(np.concatenate([one.completions for one in parts]))  # not that of the items, which may change
    completions = np.concatenate([one.completions for one in parts])[order]
    values = np.concatenate([one.values for one in parts])[order]
    prompt_ids = np.concatenate([one.prompts for one in parts])[order]
    independent = prompt_ids if len(parts) > 1 or np.ptp(prompt_ids) > 0 else completions
    place = {id_: row for row, id_ in enumerate(completions.tolist())}
    overall = [
        (place[id_], person, score) for one in selections for id_, person, score in _overall(session, one, place)
    ]
    labels = [
        (place[id_], key, value >= 0.5)
        for one in selections
        for id_, key, value in criterion_labels(session, one, rubric)
        if id_ in place
    ]
    rewarded = ~np.isnan(reward_vector(rubric.value, values))
    has_label = np.zeros(len(completions), bool)
    has_label[[row for row, *_ in (*overall, *labels)]] = True
    kept = has_label & rewarded
    target = _target(overall, labels, prompt_ids, independent).of_rows(kept)
    if held_out_job_id is None:
        clusters = np.random.default_rng([seed, 0]).permutation(np.unique(independent[kept]))
        out = np.isin(independent, clusters[: round(held_out * len(clusters))])
    else:
        out = np.repeat([False, True], [len(one.completions) for one in parts])[order]
    left_out = int((has_label & ~rewarded).sum())
    return Labelled(completions, values, target, kept & ~out, kept & out, left_out)


def _reject_overlap(session: Session, first: VerdictMatrix, second: VerdictMatrix) -> None:
    shared = np.intersect1d(first.prompts, second.prompts)
    if len(shared):
        name = prompts.get(session, int(shared[0])).external_id or f"{int(shared[0])}"
        raise InvalidError(
            f"{len(shared)} prompts are in both jobs, such as {name!r}",
            hint="hold out prompts that the search does not use; without --held-out-job they are divided by prompt",
            path="held_out_job",
        )


def _overall(session: Session, selection: Selection, place: dict[int, int]) -> list[tuple[int, str, float]]:
    return [one for one in overall_labels(session, selection) if one[0] in place]


def _target(
    overall: Sequence[tuple[int, str, float]],
    labels: Sequence[tuple[int, str, bool]],
    prompt_ids: Ints,
    independent: NDArray[Any],
) -> Target:
    by_row: dict[int, list[float]] = defaultdict(list)
    for row, _, score in overall:
        by_row[row].append(score)
    scored = sorted(by_row)
    return Target(
        clusters=independent,
        pairs=preference_pairs(overall, prompt_ids),
        scored=np.array(scored, np.int64),
        scores=np.array([np.mean(by_row[row]) for row in scored], float),
        labelled=np.array([row for row, *_ in labels], np.int64),
        keys=[key for _, key, _ in labels],
        met=np.array([met for *_, met in labels], bool),
    )


def choose_objective(labelled: Labelled) -> Objective:
    """Return the first objective for which both parts have enough units; the one with the most units if none has."""
    for objective in OBJECTIVES:
        if _shortage(labelled, objective) is None:
            return objective
    return max(OBJECTIVES, key=lambda one: len(labelled.target.rows(one)))


def check_parts(labelled: Labelled, objective: Objective) -> None:
    """Raise an InvalidError unless both parts have enough labels, and people distinguished something in each."""
    message = _shortage(labelled, objective)
    if message is not None:
        left_out = f"; {labelled.left_out} labelled completions have no reward of the start" * bool(labelled.left_out)
        raise InvalidError(f"{message}{left_out}", hint=_LABEL, path="labels")


def _shortage(labelled: Labelled, objective: Objective) -> str | None:
    noun = f"{UNITS[objective]}s"
    for name, mask in (("search", labelled.search), ("held-out", labelled.held_out)):
        part = labelled.target.of_rows(mask)
        units, prompt_count = len(part.rows(objective)), part.prompts(objective)
        if units < MIN_UNITS[name] or prompt_count < MIN_PROMPTS:
            return (
                f"the {name} part needs {MIN_UNITS[name]} {noun} of {MIN_PROMPTS} prompts, "
                f"found {units} of {prompt_count}"
            )
        if not part.varies(objective):
            return f"people distinguish nothing in the {name} part: all {units} {noun} are of one class"
    return None
