"""Analyse the criteria of rubrics and fit their weights, from stored verdicts and labels. No judge is asked."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rubricsvc.core.formulas import FormulaError
from rubricsvc.core.reward import check_formula
from rubricsvc.core.rubric_analysis import FitTo, RubricAnalysis, Signs, WeightFit
from rubricsvc.errors import InvalidError, cut, needs_extra
from rubricsvc.queries import AnalysisQuery, FitQuery
from rubricsvc.stats import OnProgress
from rubricsvc.store import items, jobs, judges, labels, rubrics
from rubricsvc.store.labels import Selection, judged_labels, overall_labels

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.rubric import Rubric
    from rubricsvc.core.verdict import JudgedLabel
    from rubricsvc.stats.agreement import CriterionAgreement
    from rubricsvc.stats.criteria import VerdictMatrix
    from rubricsvc.store.tables import JudgeRow

AGREEMENT_METRICS = ("accuracy", "weighted_kappa", "auroc")
LABEL_RESAMPLES = 100
_HINT = "score completions by it: `rubricsvc jobs submit --judge NAME --wait`, or `rubricsvc jobs rescore JOB --wait`"


@dataclass(frozen=True)
class Scope:
    """What is analysed: the verdicts of one judge, under one version or those of a job."""

    selection: Selection
    judge: JudgeRow


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
    if chosen is not None and chosen.id in {one.id for one in several}:
        return Scope(Selection(chosen.id, job_id, row.id if row else None), chosen)
    what = f"rubric {row.ref}" if row else f"job {job_id}"
    if row is not None and job_id is not None:
        scored = sorted({one.rubric for one in items.rewards(session, job_id)})
        own = [ref for ref in scored if ref.rpartition("@")[0] == row.name]
        if row.ref not in scored:
            hint = f"name the version that it scored: {own[-1]}" if own else "name a rubric that it scored"
            message = f"{what} has no verdicts in job {job_id}, which scored {cut(', '.join(own or scored), 400)}"
            raise InvalidError(message, hint=hint, path="ref")
    raise InvalidError(f"{what} has no verdicts{f' of judge {chosen.name!r}' if chosen else ''}", hint=_HINT)


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
        UnavailableError: The extra ``judging`` is not installed.
    """
    with needs_extra("judging"):
        from rubricsvc.services.verdict_matrix import read_matrices
        from rubricsvc.stats.agreement import criterion_agreement
        from rubricsvc.stats.rubric_statistics import analysis
    scope = scope_of(session, ref, query.job_id, query.judge)
    matrices = list(read_matrices(session, scope.selection))
    if not matrices:
        raise InvalidError(f"judge {scope.judge.name!r} scored none of these completions", hint=_HINT)
    rows: dict[tuple[int, str], list[JudgedLabel]] = defaultdict(list)
    for row in judged_labels(session, scope.judge.id, job_id=scope.selection.job_id):
        if row.verdict is not None:
            rows[row.rubric_id, row.label.criterion].append(row)
    overall = overall_labels(session, scope.selection)
    found = []
    for done, matrix in enumerate(matrices):
        on_progress(done, len(matrices), matrix.name)
        agreement: dict[str, CriterionAgreement] = {}
        for (rubric_id, key), judged in rows.items():
            if rubric_id == matrix.rubric_id:
                agreement[key], _ = criterion_agreement(
                    scope.judge.value, judged, AGREEMENT_METRICS, resamples=LABEL_RESAMPLES
                )
        found.append(analysis(scope.judge.name, matrix, query.job_id, agreement, overall))
    on_progress(len(matrices), len(matrices), "")
    return found


def fit(
    session: Session, ref: int | str, query: FitQuery, on_progress: OnProgress = lambda done, total, note: None
) -> WeightFit:
    """Return weights fitted on the completions that a judge scored under a rubric version and people gave a score.

    Raises:
        NotFoundError: There is no such rubric, job or judge.
        InvalidError: The formula has no weights to fit, or there are too few scores or preferences.
        UnavailableError: The extra ``judging`` is not installed.
    """
    with needs_extra("judging"):
        from rubricsvc.services.verdict_matrix import read_matrices
        from rubricsvc.stats.weight_fit import FOLDS, check_weights_decide, fit_weights
    import numpy as np

    scope = scope_of(session, ref, query.job_id, query.judge)
    (matrix,) = read_matrices(session, scope.selection)
    check_weights_decide(matrix.rubric)
    labels = overall_labels(session, scope.selection)
    problem, left_out = _problem(matrix, labels, query.to, query.signs)
    draws: dict[str, Any] = {"resamples": query.resamples, "seed": query.seed, "on_progress": on_progress}
    found = fit_weights(problem, matrix.rubric, **draws)
    prompts = len(np.unique(problem.clusters))
    return WeightFit(
        rubric=matrix.name,
        judge=scope.judge.name,
        **query.model_dump(include={"job_id", "to", "signs"}),
        n=len(problem.values),
        left_out=left_out,
        people=len({person for _, person, _ in labels}),
        prompts=prompts,
        folds=min(FOLDS, prompts),
        penalty=found.penalty,
        weights=found.weights,
        held_out=found.held_out,
        gain=found.gain,
    )


def _problem(matrix: VerdictMatrix, labels: list[tuple[int, str, float]], to: FitTo, signs: Signs) -> tuple[Any, int]:
    """Return what is fitted, and how many scores or pairs were left out for a missing value."""
    import numpy as np

    from rubricsvc.stats.paired import differences, preference_pairs
    from rubricsvc.stats.weight_fit import Problem

    place = {id_: row for row, id_ in enumerate(matrix.completions.tolist())}
    scored = [(place[id_], person, score) for id_, person, score in labels]
    given = np.array([criterion.weight for criterion in matrix.rubric.criteria])
    sign = np.where(given < 0, -1.0, 1.0) if signs == "keep" else None
    if to == "preferences":
        pairs = preference_pairs(scored, matrix.prompts)
        values = differences(matrix.values, pairs)
        complete = ~np.isnan(values).any(1)
        clusters = matrix.independent[pairs[:, 0]][complete]
        return Problem(values[complete], clusters, sign), int((~complete).sum())
    rows = np.array([row for row, _, _ in scored], np.int64)
    complete = ~np.isnan(matrix.values[rows]).any(1)
    kept = [scored[place] for place in np.flatnonzero(complete).tolist()]
    problem = Problem(
        values=matrix.values[rows[complete]],
        scores=np.array([score for _, _, score in kept]),
        people=[person for _, person, _ in kept],
        clusters=matrix.independent[rows[complete]],
        signs=sign,
    )
    return problem, int((~complete).sum())


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
