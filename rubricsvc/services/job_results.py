"""The results of a whole job for its report, read page by page: only counts and the extreme completions are kept."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any

from sqlalchemy.orm import Session

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Contribution, contributions
from rubricsvc.core.rubric import default_pool, pools_of
from rubricsvc.core.verdict import Usage, total_usage
from rubricsvc.schemas.jobs import JobProgress, JobSummary
from rubricsvc.stats.estimates import independent, mean_estimate
from rubricsvc.store import completions, jobs
from rubricsvc.store.session import Database
from rubricsvc.store.tables import ItemRow, JobRow

ITEMS_PER_PAGE = 200
BINS = 20  # bars of a histogram


@dataclass(frozen=True)
class Distribution:
    """Rewards of the ``n`` completions of a group that have one; their mean has its interval over prompts.

    ``counts`` has the rewards in each of `BINS` bars of equal width; where all are equal they are in the middle one.
    """

    n: int
    mean: Estimate
    deviation: float
    counts: tuple[int, ...]


@dataclass(frozen=True)
class ItemDetail:
    """An item with its texts; ``parts`` are in the rubric's order."""

    row: ItemRow
    prompt: Prompt
    completion: Completion
    parts: Sequence[Contribution]


@dataclass
class CriterionTotals:
    """Sums over the completions of a job for a criterion.

    ``gain`` sums the gains over the ``rewarded`` completions, ``values`` and ``met`` the mean value and the share of
    0.5 or more over the ``scored`` ones; ``failed`` and ``abstained`` count verdicts.
    """

    name: str
    text: str = ""
    kind: str = ""
    weights: set[float] = field(default_factory=set)
    completions: int = 0
    rewarded: int = 0
    scored: int = 0
    met: float = 0.0
    failed: int = 0
    abstained: int = 0
    vetoes: int = 0
    values: float = 0.0
    gain: float = 0.0

    def add(self, parts: Sequence[Contribution], *, rewarded: bool) -> None:
        """Add the criteria of one completion, by their mean, as an analysis does (`stats.criteria.pooled`)."""
        verdicts = [part.verdict for part in parts if part.verdict is not None]
        values = [one.value for one in verdicts if one.value is not None]
        self.completions += 1
        self.rewarded += rewarded
        self.weights |= {part.criterion.weight for part in parts}
        self.vetoes += sum(part.vetoes for part in parts)
        self.gain += sum(part.gain or 0.0 for part in parts)
        self.failed += sum(one.outcome == "failed" for one in verdicts)
        self.abstained += sum(one.outcome == "abstained" for one in verdicts)
        if values:
            self.scored += 1
            self.met += fmean(value >= 0.5 for value in values)
            self.values += fmean(values)


@dataclass(frozen=True)
class JobResults:
    """The results of a job.

    Attributes:
        rubrics: Completions by rubric (name@version); ``formulas`` by the formula of their reward.
        low: The left end of the histograms, ``high`` the right one.
        policies: The distribution of rewards by policy, the highest mean first.
        criteria: By key, text and sign, or by ``pool`` and sign; the largest gains first.
        usage: Tokens and cost of the verdicts, reused ones included; None if no verdict has any.
        best: Without those that are among the ``worst``.
        without_reward: The first ones by id; ``null_reasons`` counts all.
    """

    job: JobRow
    judge: Judge
    progress: JobProgress
    summary: JobSummary
    pool: str | None
    rubrics: Counter[str]
    formulas: Counter[str]
    low: float
    high: float
    rewards: Distribution | None
    policies: dict[str, Distribution]
    criteria: Sequence[CriterionTotals]
    usage: Usage | None
    worst: Sequence[ItemDetail]
    best: Sequence[ItemDetail]
    without_reward: Sequence[ItemDetail]
    null_reasons: dict[str, int]


def read_results(db: Database, job_id: int, *, extremes: int, pool: str | None = None) -> JobResults:
    """Read the results of a job, finished or not: memory grows with its criteria, and by two numbers an item."""
    with db.read() as session:
        job = jobs.scoring(session, job_id)
        judge = job.judge.value
        progress, summary = jobs.progress(session, job_id), jobs.summary(session, job_id)
        pool = pool or default_pool(row.value for row in jobs.rubrics_of(session, job_id))
    rubrics, formulas = Counter[str](), Counter[str]()
    criteria: dict[tuple[str, str, bool], CriterionTotals] = {}
    usage: Usage | None = None
    rewards: dict[str, tuple[array[float], array[int], array[int]]] = {}  # by policy: of which prompts, completions
    for detail in _details(db, job_id):
        row, rewarded = detail.row, detail.row.reward is not None
        rubrics[row.rubric.ref] += 1
        if row.reward is not None:
            formulas[str(row.formula)] += 1
            values, of_prompts, ids = rewards.setdefault(row.completion.policy, (array("d"), array("q"), array("q")))
            values.append(row.reward)
            of_prompts.append(row.completion.prompt_id)
            ids.append(row.completion_id)
        usage = total_usage([usage, *(part.verdict.usage for part in detail.parts if part.verdict)])
        of_key = defaultdict[tuple[str, str, bool], list[Contribution]](list)
        for part in detail.parts:
            names = [(part.criterion.key, part.criterion.text)]
            if pool:
                names = [(name, "") for name in pools_of(part.criterion, detail.prompt.tags, pool)]
            for name in names:
                of_key[*name, part.criterion.weight < 0].append(part)
        for key, parts in of_key.items():
            totals = criteria.setdefault(key, CriterionTotals(*key[:2], kind=parts[0].criterion.kind))
            totals.add(parts, rewarded=rewarded)
    all_values, all_prompts, all_ids = ([v for of in rewards.values() for v in of[place]] for place in range(3))
    low, high = min(all_values, default=0.0), max(all_values, default=1.0)
    low, high = (0.0, 1.0) if low >= 0.0 and high <= 1.0 else (low, high)
    policies = {name: made for name, of in rewards.items() if (made := distribution(*of, low, high)) is not None}

    with db.read() as session:
        worst, best = (
            page(session, job_id, limit=extremes, sort=sort, rewarded=True) for sort in ("reward", "-reward")
        )
        known = {one.row.id for one in worst}
        return JobResults(
            job=job,
            judge=judge,
            progress=progress,
            summary=summary,
            pool=pool,
            rubrics=rubrics,
            formulas=formulas,
            low=low,
            high=high,
            rewards=distribution(all_values, all_prompts, all_ids, low, high),
            policies=dict(sorted(policies.items(), key=lambda item: -(item[1].mean.value or 0.0))),
            criteria=sorted(criteria.values(), key=lambda row: (-row.gain, -row.failed, row.name, row.text)),
            usage=usage,
            worst=worst,
            best=[one for one in best if one.row.id not in known],
            without_reward=page(session, job_id, limit=extremes, rewarded=False),
            null_reasons=jobs.unrewarded(session, job_id),
        )


def _details(db: Database, job_id: int) -> Iterator[ItemDetail]:
    """Yield all items of a job by id, read in pages with a transaction each."""
    after: int | None = 0
    while after is not None:
        with db.read() as session:
            found = page(session, job_id, after=after, limit=ITEMS_PER_PAGE)
        yield from found
        after = found[-1].row.id if len(found) == ITEMS_PER_PAGE else None


def page(session: Session, job_id: int, **selection: Any) -> list[ItemDetail]:
    """Return a page of the items of a job, as of `jobs.items`, with their texts and verdicts."""
    job, rows = jobs.scoring(session, job_id), jobs.items(session, job_id, **selection)
    by_item = completions.verdicts_of_items(session, [row.id for row in rows])
    rubrics = {row.rubric_id: row.rubric.value for row in rows}
    return [
        ItemDetail(
            row,
            row.completion.prompt.value,
            row.completion.value,
            contributions(rubrics[row.rubric_id], by_item.get(row.id, []), min_coverage=job.min_coverage),
        )
        for row in rows
    ]


def distribution(
    values: Sequence[float], prompts: Sequence[float], completions: Sequence[float], low: float, high: float
) -> Distribution | None:
    """Return the distribution of rewards of these prompts, with bars from ``low`` to ``high``; None without any."""
    if not values:
        return None
    counts = [0] * BINS
    for value in values:
        place = (value - low) / (high - low) if high > low else 0.5
        counts[min(max(int(place * BINS), 0), BINS - 1)] += 1
    return Distribution(
        len(values), mean_estimate(values, independent(prompts, completions)), pstdev(values), tuple(counts)
    )
