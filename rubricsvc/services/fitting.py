"""Fit a rubric's weights to people's overall scores or preferences, from stored verdicts. No judge is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rubricsvc.core.formulas import FormulaError
from rubricsvc.core.reward import check_formula
from rubricsvc.core.states import FITTED
from rubricsvc.core.weight_fit import FitTo, Signs, WeightFit
from rubricsvc.errors import InvalidError, needs_extra
from rubricsvc.services.analysing import scope_of
from rubricsvc.services.editing import add_derived
from rubricsvc.stats import RESAMPLES, OnProgress
from rubricsvc.store import rubrics
from rubricsvc.store.labels import overall_labels

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.rubric import Rubric
    from rubricsvc.services.editing import Addition
    from rubricsvc.stats.verdict_matrix import VerdictMatrix


def fit(
    session: Session,
    ref: int | str,
    *,
    to: FitTo,
    job_id: int | None = None,
    judge: int | str | None = None,
    signs: Signs = "keep",
    resamples: int = RESAMPLES,
    seed: int = 0,
    on_progress: OnProgress = lambda done, total, note: None,
) -> WeightFit:
    """Return weights fitted on the completions that a judge scored under a rubric version and people gave a score.

    With ``signs`` "keep", no weight changes its sign. ``seed`` is that of the folds and of the draws.

    Raises:
        NotFoundError: There is no such rubric, job or judge.
        InvalidError: The formula has no weights to fit, or there are too few scores or preferences.
        UnavailableError: The extra ``judging`` is not installed.
    """
    with needs_extra("judging"):
        from rubricsvc.services.verdict_matrix import read_matrices
        from rubricsvc.stats.weight_fit import FOLDS, check_weights_decide, fit_weights
    import numpy as np

    scope = scope_of(session, ref, job_id, judge)
    (matrix,) = read_matrices(session, scope.selection)
    check_weights_decide(matrix.rubric)
    labels = overall_labels(session, scope.selection)
    problem, left_out = _problem(matrix, labels, to, signs)
    found = fit_weights(problem, matrix.rubric, resamples=resamples, seed=seed, on_progress=on_progress)
    prompts = len(np.unique(problem.clusters))
    return WeightFit(
        rubric=matrix.name,
        job_id=job_id,
        judge=scope.judge.name,
        to=to,
        signs=signs,
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
    from rubricsvc.stats.weight_problems import PreferenceProblem, ScoreProblem

    place = {id_: row for row, id_ in enumerate(matrix.completions.tolist())}
    scored = [(place[id_], person, score) for id_, person, score in labels]
    given = np.array([criterion.weight for criterion in matrix.rubric.criteria])
    sign = np.where(given < 0, -1.0, 1.0) if signs == "keep" else None
    if to == "preferences":
        pairs = preference_pairs(scored, matrix.prompts)
        values = differences(matrix.values, pairs)
        complete = ~np.isnan(values).any(1)
        clusters = matrix.independent[pairs[:, 0]][complete]
        return PreferenceProblem(values[complete], clusters, sign), int((~complete).sum())
    rows = np.array([row for row, _, _ in scored], np.int64)
    complete = ~np.isnan(matrix.values[rows]).any(1)
    kept = [scored[place] for place in np.flatnonzero(complete).tolist()]
    problem = ScoreProblem(
        values=matrix.values[rows[complete]],
        scores=np.array([score for _, _, score in kept]),
        people=[person for _, person, _ in kept],
        clusters=matrix.independent[rows[complete]],
        signs=sign,
    )
    return problem, int((~complete).sum())


def save(session: Session, found: WeightFit, *, by: str | None = None, force: bool = False) -> Addition:
    """Store the fitted weights as a draft, the next version of the rubric.

    Weights that are those of a stored version are that version, whose state stays. ``by`` is who adds it. If somebody
    has edited the rubric since, the addition has a conflict, unless ``force`` is set.

    Raises:
        InvalidError: The formula does not take these weights.
    """
    row = rubrics.get(session, found.rubric)
    return add_derived(session, fitted_rubric(row.value, found), row, origin=FITTED, by=by, force=force)


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
