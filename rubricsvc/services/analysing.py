"""Analyse the criteria of rubrics from stored verdicts and labels. No judge is asked, and nothing is written.

Needs the extra ``judging``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rubricsvc.core.rubric_analysis import RubricAnalysis
from rubricsvc.errors import InvalidError, cut, needs_extra
from rubricsvc.stats import OnProgress
from rubricsvc.store import items, jobs, judges, labels, rubrics
from rubricsvc.store.labels import Selection, judged_labels

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.label import JudgedLabel
    from rubricsvc.stats.agreement import CriterionAgreement
    from rubricsvc.stats.verdict_matrix import VerdictMatrix
    from rubricsvc.store.tables import JudgeRow, RubricRow

AGREEMENT_METRICS = ("accuracy", "weighted_kappa", "auroc")
LABEL_RESAMPLES = 100
_HINT = "score completions by it: `rubricsvc jobs submit --judge NAME --wait`, or `rubricsvc jobs rescore JOB --wait`"


@dataclass(frozen=True)
class Scope:
    """What is analysed: the verdicts of one judge, under one version or those of a job; and the other judges."""

    selection: Selection
    judge: JudgeRow
    others: Sequence[JudgeRow]

    @property
    def votes(self) -> bool:
        """Whether verdicts of the judge aggregate several votes."""
        judge = self.judge.valid
        return judge is not None and bool(judge.members or (judge.voting and judge.voting.samples > 1))


def scope_of(session: Session, ref: int | str | None, job_id: int | None, judge: int | str | None = None) -> Scope:
    """Return the scope of a rubric, of a job, or of a rubric in a job.

    The judge is that of the job, else the one named, else the one that scored the most completions under the version.

    Raises:
        NotFoundError: There is no such rubric, job or judge.
        InvalidError: Neither a rubric nor a job is given, or no completion was scored.
    """
    if ref is None and job_id is None:
        raise InvalidError("name a rubric or a job", hint="`rubricsvc rubrics analyse NAME`, or `--job ID`", path="ref")
    row = rubrics.get(session, ref, allow_drafts=True) if ref is not None else None
    job = jobs.get(session, job_id) if job_id is not None else None
    several = labels.judges_of(session, rubric_id=row.id if row else None, job_id=job_id)
    chosen = judges.get(session, judge) if judge is not None else job.judge if job else next(iter(several), None)
    if chosen is None or chosen.id not in {one.id for one in several}:
        raise _no_verdicts(session, row, job_id, chosen)
    selection = Selection(chosen.id, job_id, row.id if row else None)
    return Scope(selection, chosen, [one for one in several if one.id != chosen.id])


def _no_verdicts(session: Session, row: RubricRow | None, job_id: int | None, judge: JudgeRow | None) -> InvalidError:
    """Return the error of a selection without verdicts, with the version that the job scored instead."""
    what = f"rubric {row.ref}" if row else f"job {job_id}"
    if row is not None and job_id is not None:
        scored = sorted({one.rubric for one in items.rewards(session, job_id)})
        own = [ref for ref in scored if ref.rpartition("@")[0] == row.name]
        if row.ref not in scored:
            hint = f"name the version that it scored: {own[-1]}" if own else "name a rubric that it scored"
            message = f"{what} has no verdicts in job {job_id}, which scored {cut(', '.join(own or scored), 400)}"
            return InvalidError(message, hint=hint, path="ref")
    return InvalidError(f"{what} has no verdicts{f' of judge {judge.name!r}' if judge else ''}", hint=_HINT)


def analyse(
    session: Session,
    ref: int | str | None = None,
    *,
    job_id: int | None = None,
    judge: int | str | None = None,
    on_progress: OnProgress = lambda done, total, note: None,
) -> list[RubricAnalysis]:
    """Return the analysis of a rubric version, or of each one of a job, from a judge's newest verdicts.

    Raises:
        NotFoundError: There is no such rubric, job or judge.
        InvalidError: Neither a rubric nor a job is given, or no completion was scored.
        UnavailableError: The extra ``judging`` is not installed.
    """
    with needs_extra("judging"):
        from rubricsvc.services.verdict_matrix import read_matrices
        from rubricsvc.stats.rubric_statistics import AnalysisInput, analysis
    scope = scope_of(session, ref, job_id, judge)
    matrices = list(read_matrices(session, scope.selection, votes=scope.votes))
    if not matrices:
        raise InvalidError(f"judge {scope.judge.name!r} scored none of these completions", hint=_HINT)
    others = _of_other_judges(session, scope, {one.rubric_id for one in matrices})
    agreement = _agreement(session, scope, {one.rubric_id for one in matrices})
    overall = _by_rubric(labels.overall_labels(session, scope.selection), matrices)
    found = []
    for done, matrix in enumerate(matrices):
        on_progress(done, len(matrices), matrix.name)
        one = AnalysisInput(
            judge=scope.judge.name,
            matrix=matrix,
            job_id=job_id,
            others=others[matrix.rubric_id],
            agreement=agreement[matrix.rubric_id],
            overall=overall[matrix.rubric_id],
        )
        found.append(analysis(one))
    on_progress(len(matrices), len(matrices), "")
    return found


def _of_other_judges(session: Session, scope: Scope, rubric_ids: set[int]) -> dict[int, dict[str, VerdictMatrix]]:
    """Return the verdicts of the other judges under these versions, by rubric id and judge."""
    from rubricsvc.services.verdict_matrix import read_matrices

    found: dict[int, dict[str, VerdictMatrix]] = defaultdict(dict)
    for judge in scope.others:
        for matrix in read_matrices(session, Selection(judge.id, None, scope.selection.rubric_id)):
            if matrix.rubric_id in rubric_ids:
                found[matrix.rubric_id][judge.name] = matrix
    return found


def _agreement(session: Session, scope: Scope, rubric_ids: set[int]) -> dict[int, dict[str, CriterionAgreement]]:
    """Return the judge's agreement with labels by rubric id and criterion."""
    from rubricsvc.stats.agreement import criterion_agreement

    rows: dict[tuple[int, str], list[JudgedLabel]] = defaultdict(list)
    for row in judged_labels(session, scope.judge.id, job_id=scope.selection.job_id):
        if row.rubric_id in rubric_ids and row.verdict is not None:
            rows[row.rubric_id, row.label.criterion].append(row)
    found: dict[int, dict[str, CriterionAgreement]] = defaultdict(dict)
    for (rubric_id, key), judged in rows.items():
        judge = scope.judge.value
        found[rubric_id][key] = criterion_agreement(judge, judged, AGREEMENT_METRICS, resamples=LABEL_RESAMPLES)
    return found


def _by_rubric(
    labels: Sequence[tuple[int, str, float]], matrices: Sequence[VerdictMatrix]
) -> dict[int, list[tuple[int, str, float]]]:
    """Return the overall scores by rubric id."""
    by_completion: dict[int, list[tuple[int, str, float]]] = defaultdict(list)
    for label in labels:
        by_completion[label[0]].append(label)
    return {
        one.rubric_id: [label for id_ in one.completions.tolist() for label in by_completion.get(id_, ())]
        if labels
        else []
        for one in matrices
    }
