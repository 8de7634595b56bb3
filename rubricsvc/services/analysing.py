"""Analyse the criteria of rubrics and fit their weights, from stored verdicts and labels. No judge is asked.

Needs the extra ``judging``.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from sqlalchemy.orm import Session

from rubricsvc.core.rubric import Rubric, default_pool, pools_of
from rubricsvc.core.rubric_analysis import RubricAnalysis, WeightFit
from rubricsvc.core.verdict import JudgedLabel
from rubricsvc.errors import InvalidError
from rubricsvc.queries import ALL, AnalysisQuery, FitQuery
from rubricsvc.services.comparing import prompt_tags
from rubricsvc.stats import RESAMPLES
from rubricsvc.stats.agreement import criterion_agreement
from rubricsvc.stats.criteria import VerdictMatrix, pooled
from rubricsvc.stats.intervals import Floats
from rubricsvc.stats.paired import differences, preference_pairs
from rubricsvc.stats.rubric_statistics import analysis
from rubricsvc.stats.weight_fit import FOLDS, Problem, check_weights_decide, fit_weights
from rubricsvc.store import jobs, judges, labels, rubrics
from rubricsvc.store.labels import Selection
from rubricsvc.store.session import by_id
from rubricsvc.store.tables import JudgeRow, RubricRow

AGREEMENT_METRICS = ("accuracy", "weighted_kappa", "auroc")
LABEL_RESAMPLES = 100
MAX_COMPLETIONS = 100_000  # completions of one analysis: a million verdicts are read in about 5 seconds
_HINT = "score completions by it: `rubricsvc jobs submit --judge NAME --wait`, or `rubricsvc jobs rescore JOB --wait`"


def scope_of(
    session: Session, ref: int | str, job_id: int | None = None, judge: int | str | None = None
) -> tuple[Selection, JudgeRow]:
    """Return the verdicts of one judge under a rubric version, of all completions or those of a job; and the judge.

    The judge is the one named, else that of the job, else the one that scored the most completions under the version.

    Raises:
        NotFoundError: There is no such rubric, job or judge.
        InvalidError: No completion was scored.
    """
    row = rubrics.get(session, ref, allow_drafts=True)
    job = jobs.get(session, job_id) if job_id is not None else None
    several = labels.judges_of(session, row.id, job_id)
    chosen = judges.get(session, judge) if judge is not None else job.judge if job else next(iter(several), None)
    if chosen is not None and chosen.id in {one.id for one in several}:
        return Selection(chosen.id, job_id, row.id), chosen
    where = f" in job {job_id}" if job_id is not None else ""
    of = f" of judge {chosen.name!r}" if chosen else ""
    raise InvalidError(f"rubric {row.ref} has no verdicts{where}{of}", hint=_HINT, path="ref")


def read_matrices(session: Session, selection: Selection) -> Iterator[VerdictMatrix]:
    """Yield the verdicts of each rubric version of a selection, by its id."""
    items = _columns(labels.read_items(session, selection), 6)
    if not items.shape[1]:
        return
    verdicts = _columns(labels.read_values(session, selection), 3)
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
            failed=np.bincount(positions[values == labels.FAILED], minlength=size),
            abstained=np.bincount(positions[values == labels.ABSTAINED], minlength=size),
        )


def _columns(chunks: labels.Chunks, width: int) -> Floats:
    """Return the columns [width, rows] of chunks of rows, NaN for null; ids are exact up to 2^53."""
    parts = [np.array([tuple(row) for row in chunk], np.float64) for chunk in chunks]
    return np.ascontiguousarray(np.concatenate(parts or [np.empty((0, width))]).T)


def _scored(
    session: Session, ref: int | str, query: AnalysisQuery
) -> tuple[Selection, JudgeRow, VerdictMatrix, list[Rubric], str | None, Mapping[int, Sequence[str]]]:
    """Return a judge's newest verdicts under a rubric version, or all of a job; what pools them, and prompts' tags."""
    if ref != ALL:
        selection, judge = scope_of(session, ref, query.job_id, query.judge)
    elif query.job_id is None:
        raise InvalidError("name a rubric or a job", hint="`rubricsvc rubrics analyse NAME`, or `--job ID`", path="ref")
    else:
        job = jobs.scoring(session, query.job_id)
        judge = job.judge if query.judge is None else judges.get(session, query.judge)
        selection = Selection(judge.id, job.id)
    if (count := labels.count_selected(session, selection)) > MAX_COMPLETIONS:
        message = f"{count} completions; at most {MAX_COMPLETIONS} are analysed"
        raise InvalidError(message, hint="name a job: --job ID, over HTTP job_id", path="job_id")
    if not (matrices := list(read_matrices(session, selection))):
        raise InvalidError(f"judge {judge.name!r} scored none of these completions", hint=_HINT)
    rubrics = [one.rubric for one in matrices]
    pool = query.pool or ((default_pool(rubrics) or "key") if len(matrices) > 1 else None)
    tags = prompt_tags(session, np.concatenate([m.prompts for m in matrices]).tolist(), rubrics, pool) if pool else {}
    return selection, judge, pooled(matrices, tags, pool) if pool else matrices[0], rubrics, pool, tags


def analyse(session: Session, ref: int | str, query: AnalysisQuery) -> RubricAnalysis:
    """Return the analysis of a rubric version, or all of a job, from a judge's newest verdicts; errors of `_scored`."""
    selection, judge, matrix, _, pool, tags = _scored(session, ref, query)
    judged: dict[str, list[JudgedLabel]] = defaultdict(list)
    for row in labels.judged_labels(session, judge.id, job_id=selection.job_id):
        if row.verdict is None or row.criterion is None or selection.rubric_id not in (None, row.rubric_id):
            continue
        for key in pools_of(row.criterion, tags.get(row.prompt_id, ()), pool) if pool else [row.label.criterion]:
            judged[key].append(row)
    agreement = {
        key: criterion_agreement(judge.value, rows, AGREEMENT_METRICS, resamples=LABEL_RESAMPLES)[0]
        for key, rows in judged.items()
    }
    return analysis(judge.name, matrix, query.job_id, agreement, labels.overall_labels(session, selection))


def fit(session: Session, ref: int | str, query: FitQuery, *, resamples: int = RESAMPLES, seed: int = 0) -> WeightFit:
    """Return weights fitted on the completions that a judge scored under a rubric version and people gave a score.

    Raises:
        NotFoundError: There is no such rubric, job or judge.
        InvalidError: The formula has no weights to fit, or there are too few scores or preferences.
    """
    selection, judge, matrix, rubrics, pool, _ = _scored(session, ref, query)
    if pool and query.save:
        raise InvalidError("factors of pools are no weights of one rubric", hint="leave out --save", path="save")
    for rubric in rubrics:
        check_weights_decide(rubric)
    given = labels.overall_labels(session, selection)
    place = {id_: row for row, id_ in enumerate(matrix.completions.tolist())}
    scored = [(place[id_], person, score) for id_, person, score in given]
    sign = np.where(np.array([one.weight for one in matrix.rubric.criteria]) < 0, -1.0, 1.0)
    signs = sign if query.signs == "keep" else None
    features = matrix.values if matrix.shares is None else matrix.contributions * sign  # weights of pools are factors
    if query.to == "preferences":
        pairs = preference_pairs(scored, matrix.prompts)
        values = differences(features, pairs)
        complete = ~np.isnan(values).any(1)
        problem = Problem(values[complete], matrix.independent[pairs[:, 0]][complete], signs)
    else:
        rows = np.array([row for row, _, _ in scored], np.int64)
        complete = ~np.isnan(features[rows]).any(1)
        kept, used = [scored[number] for number in np.flatnonzero(complete).tolist()], rows[complete]
        scores, people = np.array([score for _, _, score in kept]), [person for _, person, _ in kept]
        problem = Problem(features[used], matrix.independent[used], signs, scores, people)
    found = fit_weights(problem, matrix.rubric, resamples=resamples, seed=seed)
    prompts = len(np.unique(problem.clusters))
    return WeightFit(
        rubric=matrix.name,
        judge=judge.name,
        **query.model_dump(include={"job_id", "to", "signs"}),
        n=len(problem.values),
        left_out=int((~complete).sum()),  # for a missing value
        people=len({person for _, person, _ in given}),
        prompts=prompts,
        folds=min(FOLDS, prompts),
        **found._asdict(),
    )
