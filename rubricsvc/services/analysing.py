"""Analyse the criteria of rubrics and fit their weights, from stored verdicts and labels. No judge is asked.

Needs the extra ``judging``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rubricsvc.core.reward import FormulaError, check_formula
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_analysis import RubricAnalysis, WeightFit
from rubricsvc.core.verdict import JudgedLabel
from rubricsvc.errors import InvalidError
from rubricsvc.queries import AnalysisQuery, FitQuery
from rubricsvc.stats import OnProgress
from rubricsvc.stats.agreement import CriterionAgreement, criterion_agreement
from rubricsvc.stats.criteria import VerdictMatrix
from rubricsvc.stats.intervals import Floats
from rubricsvc.stats.paired import differences, preference_pairs
from rubricsvc.stats.rubric_statistics import analysis
from rubricsvc.stats.weight_fit import FOLDS, Problem, check_weights_decide, fit_weights
from rubricsvc.store import jobs, judges, labels, rubrics
from rubricsvc.store.labels import (
    ABSTAINED,
    FAILED,
    Chunks,
    Selection,
    judged_labels,
    overall_labels,
    read_items,
    read_values,
)
from rubricsvc.store.session import by_id
from rubricsvc.store.tables import JudgeRow, RubricRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

AGREEMENT_METRICS = ("accuracy", "weighted_kappa", "auroc")
LABEL_RESAMPLES = 100
_HINT = "score completions by it: `rubricsvc jobs submit --judge NAME --wait`, or `rubricsvc jobs rescore JOB --wait`"


def scope_of(
    session: Session, ref: int | str | None, job_id: int | None, judge: int | str | None = None
) -> tuple[Selection, JudgeRow]:
    """Return the verdicts of one judge under a rubric version, of a job, or of a version in a job; and the judge.

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
    if chosen is not None and chosen.id in {one.id for one in several}:
        return Selection(chosen.id, job_id, row.id if row else None), chosen
    where = f" in job {job_id}" if row is not None and job_id is not None else ""
    what = f"{f'rubric {row.ref}' if row else f'job {job_id}'} has no verdicts{where}"
    raise InvalidError(f"{what}{f' of judge {chosen.name!r}' if chosen else ''}", hint=_HINT, path="ref")


def read_matrices(session: Session, selection: Selection) -> Iterator[VerdictMatrix]:
    """Yield the verdicts of each rubric version of a selection, by its id."""
    items = _columns(read_items(session, selection), 6)
    if not items.shape[1]:
        return
    verdicts = _columns(read_values(session, selection), 3)
    by_item = np.argsort(items[0])
    rows = by_item[np.searchsorted(items[0], verdicts[0], sorter=by_item)]
    order = np.argsort(rows, kind="stable")
    rows, verdicts = rows[order], verdicts[1:, order]
    starts = [*np.flatnonzero(np.diff(items[3], prepend=-1)).tolist(), items.shape[1]]
    bounds = np.searchsorted(rows, starts).tolist()
    stored = by_id(session, RubricRow, np.unique(items[3]).astype(int).tolist())
    for number, start in enumerate(starts[:-1]):
        cells = slice(bounds[number], bounds[number + 1])
        row = stored[int(items[3, start])]
        of_version, at = items[:, start : starts[number + 1]], rows[cells] - start
        positions, values = verdicts[0, cells].astype(np.int64), verdicts[1, cells]
        rubric = row.value
        size, scored = len(rubric.criteria), values >= 0
        matrix = np.full((of_version.shape[1], size), np.nan)
        matrix[at[scored], positions[scored]] = values[scored]
        yield VerdictMatrix(
            rubric_id=row.id,
            name=f"{row.name}@{row.version}",
            rubric=rubric,
            completions=of_version[1].astype(np.int64),
            prompts=of_version[2].astype(np.int64),
            rewards=of_version[4],
            lengths=of_version[5],
            values=matrix,
            failed=np.bincount(positions[values == FAILED], minlength=size),
            abstained=np.bincount(positions[values == ABSTAINED], minlength=size),
        )


def _columns(chunks: Chunks, width: int) -> Floats:
    """Return the columns [width, rows] of chunks of rows, NaN for null; ids are exact up to 2^53."""
    parts = [np.array([tuple(row) for row in chunk], np.float64) for chunk in chunks]
    return np.ascontiguousarray(np.concatenate(parts or [np.empty((0, width))]).T)


def analyse(
    session: Session,
    ref: int | str | None,
    query: AnalysisQuery,
    on_progress: OnProgress = lambda done, total, note: None,
) -> list[RubricAnalysis]:
    """Return the analysis of a rubric version, or of each one of a job, from a judge's newest verdicts.

    Raises:
        NotFoundError: There is no such rubric, job or judge.
        InvalidError: Neither a rubric nor a job is given, or no completion was scored.
    """
    selection, judge = scope_of(session, ref, query.job_id, query.judge)
    matrices = list(read_matrices(session, selection))
    if not matrices:
        raise InvalidError(f"judge {judge.name!r} scored none of these completions", hint=_HINT)
    rows: dict[tuple[int, str], list[JudgedLabel]] = defaultdict(list)
    for row in judged_labels(session, judge.id, job_id=selection.job_id):
        if row.verdict is not None:
            rows[row.rubric_id, row.label.criterion].append(row)
    overall = overall_labels(session, selection)
    found = []
    for done, matrix in enumerate(matrices):
        on_progress(done, len(matrices), matrix.name)
        agreement: dict[str, CriterionAgreement] = {}
        for (rubric_id, key), judged in rows.items():
            if rubric_id == matrix.rubric_id:
                agreement[key], _ = criterion_agreement(
                    judge.value, judged, AGREEMENT_METRICS, resamples=LABEL_RESAMPLES
                )
        found.append(analysis(judge.name, matrix, query.job_id, agreement, overall))
    on_progress(len(matrices), len(matrices), "")
    return found


def fit(
    session: Session, ref: int | str, query: FitQuery, on_progress: OnProgress = lambda done, total, note: None
) -> WeightFit:
    """Return weights fitted on the completions that a judge scored under a rubric version and people gave a score.

    Raises:
        NotFoundError: There is no such rubric, job or judge.
        InvalidError: The formula has no weights to fit, or there are too few scores or preferences.
    """
    selection, judge = scope_of(session, ref, query.job_id, query.judge)
    (matrix,) = read_matrices(session, selection)
    check_weights_decide(matrix.rubric)
    labels = overall_labels(session, selection)
    place = {id_: row for row, id_ in enumerate(matrix.completions.tolist())}
    scored = [(place[id_], person, score) for id_, person, score in labels]
    sign = np.where(np.array([one.weight for one in matrix.rubric.criteria]) < 0, -1.0, 1.0)
    signs = sign if query.signs == "keep" else None
    if query.to == "preferences":
        pairs = preference_pairs(scored, matrix.prompts)
        values = differences(matrix.values, pairs)
        complete = ~np.isnan(values).any(1)
        problem = Problem(values[complete], matrix.independent[pairs[:, 0]][complete], signs)
    else:
        rows = np.array([row for row, _, _ in scored], np.int64)
        complete = ~np.isnan(matrix.values[rows]).any(1)
        kept, used = [scored[number] for number in np.flatnonzero(complete).tolist()], rows[complete]
        scores, people = np.array([score for _, _, score in kept]), [person for _, person, _ in kept]
        problem = Problem(matrix.values[used], matrix.independent[used], signs, scores, people)
    draws: dict[str, Any] = {"resamples": query.resamples, "seed": query.seed, "on_progress": on_progress}
    found = fit_weights(problem, matrix.rubric, **draws)
    prompts = len(np.unique(problem.clusters))
    return WeightFit(
        rubric=matrix.name,
        judge=judge.name,
        **query.model_dump(include={"job_id", "to", "signs"}),
        n=len(problem.values),
        left_out=int((~complete).sum()),  # for a missing value
        people=len({person for _, person, _ in labels}),
        prompts=prompts,
        folds=min(FOLDS, prompts),
        **found._asdict(),
    )


def fitted_rubric(rubric: Rubric, found: WeightFit) -> Rubric:
    """Return the rubric with the fitted weights.

    Raises:
        InvalidError: The formula does not take these weights.
    """
    weights = {one.key: one.new for one in found.weights}
    criteria = [one.model_copy(update={"weight": weights[one.key]}) for one in rubric.criteria]
    fitted = rubric.model_copy(update={"criteria": tuple(criteria)})
    fitted = type(rubric).model_validate(fitted.model_dump())
    try:
        check_formula(fitted)
    except FormulaError as error:
        raise InvalidError(str(error), hint="keep the signs: --signs keep", path="formula") from error
    return fitted
