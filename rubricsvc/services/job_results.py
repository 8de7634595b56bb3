"""The results of a whole job for its report, read page by page: only counts and the extreme completions are kept."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import pstdev
from typing import TYPE_CHECKING, Any

from rubricsvc.core.contributions import Contribution, by_gain, contributions
from rubricsvc.core.estimate import Estimate, mean_estimate
from rubricsvc.core.jobs import JobProgress, JobSummary
from rubricsvc.core.judge import Judge
from rubricsvc.core.panel import total_usage
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.verdict import Usage
from rubricsvc.schemas import Item
from rubricsvc.store import items, jobs, verdicts

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.stats import OnProgress
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import ItemRow, JobRow

ITEMS_PER_PAGE = 200
BINS = 20
"""Bars of a histogram."""


@dataclass(frozen=True)
class Distribution:
    """Rewards of a group of completions.

    Attributes:
        n: Completions with a reward.
        mean: With its interval over prompts.
        counts: Rewards in each of `BINS` bars of equal width; without a width, where all are equal, in the middle one.
    """

    n: int
    mean: Estimate
    deviation: float
    counts: tuple[int, ...]


@dataclass(frozen=True)
class ItemDetail:
    """An item with its texts; ``parts`` are in the rubric's order."""

    item: Item
    prompt: Prompt
    completion: Completion
    parts: Sequence[Contribution]

    @property
    def reward(self) -> float | None:
        """The reward, if there is one."""
        return self.item.reward

    @property
    def gains(self) -> list[Contribution]:
        """The criteria with a gain, the largest first."""
        return by_gain(self.parts)


@dataclass
class CriterionTotals:
    """Sums over the completions of a job for a criterion, or for all criteria of a tag or a group.

    ``gain`` sums the gains over the ``rewarded`` completions, ``values`` the values of the ``scored`` verdicts.
    """

    name: str
    text: str = ""
    kind: str = ""
    weights: set[float] = field(default_factory=set)
    completions: int = 0
    rewarded: int = 0
    scored: int = 0
    met: int = 0
    failed: int = 0
    abstained: int = 0
    vetoes: int = 0
    values: float = 0.0
    gain: float = 0.0

    @property
    def mean_value(self) -> float | None:
        """The mean value of the scored verdicts."""
        return self.values / self.scored if self.scored else None

    @property
    def met_share(self) -> float | None:
        """The share of scored verdicts with a value of 0.5 or more."""
        return self.met / self.scored if self.scored else None

    @property
    def mean_gain(self) -> float | None:
        """The mean gain over the completions with a reward."""
        return self.gain / self.rewarded if self.rewarded else None

    def add(self, parts: Iterable[Contribution], *, rewarded: bool) -> None:
        """Add the criteria of one completion."""
        self.completions += 1
        self.rewarded += rewarded
        for part in parts:
            self.weights.add(part.criterion.weight)
            self.vetoes += part.vetoes
            self.gain += part.gain or 0.0
            if part.verdict is None:
                continue
            self.failed += part.verdict.outcome == "failed"
            self.abstained += part.verdict.outcome == "abstained"
            if part.verdict.value is not None:
                self.scored += 1
                self.met += part.verdict.value >= 0.5
                self.values += part.verdict.value


@dataclass(frozen=True)
class JobHeader:
    """What was submitted, and when."""

    id: int
    name: str
    status: str
    judge: Judge
    created_at: datetime
    finished_at: datetime | None
    budget: float | None
    spent: float
    min_coverage: float | None


@dataclass(frozen=True)
class JobResults:
    """The results of a job.

    Attributes:
        rubrics: Completions by rubric (name@version); ``formulas`` by the formula of their reward.
        low: The left end of the histograms, ``high`` the right one.
        policies: The distribution of rewards by policy, the highest mean first.
        criteria: By key and text, the largest gains first; ``tags`` and ``groups`` likewise.
        usage: Tokens and cost of the verdicts, reused ones included; None if no verdict has any.
        best: Without those that are among the ``worst``.
        without_reward: The first ones by id; ``null_reasons`` counts all.
    """

    job: JobHeader
    progress: JobProgress
    summary: JobSummary
    rubrics: Counter[str]
    formulas: Counter[str]
    low: float
    high: float
    rewards: Distribution | None
    policies: dict[str, Distribution]
    criteria: Sequence[CriterionTotals]
    tags: Sequence[CriterionTotals]
    groups: Sequence[CriterionTotals]
    usage: Usage | None
    worst: Sequence[ItemDetail]
    best: Sequence[ItemDetail]
    without_reward: Sequence[ItemDetail]
    null_reasons: dict[str, int]


def read_results(db: Database, job_id: int, *, extremes: int, on_progress: OnProgress = lambda *_: None) -> JobResults:
    """Read the results of a job, finished or not.

    Raises:
        NotFoundError: no such job.
    """
    with db.read() as session:
        job = jobs.scoring(session, job_id)
        names = JobHeader.__dataclass_fields__.keys() - {"judge"}
        header = JobHeader(judge=job.judge.value, **{name: getattr(job, name) for name in names})
        progress, summary = jobs.progress(session, job_id), jobs.summary(session, job_id)
    totals, done = _Totals(), 0
    for page in pages(db, job_id):
        for row, detail in page:
            totals.add(row, detail.parts)
        done += len(page)
        on_progress(done, progress.total, "")
    with db.read() as session:
        job = jobs.get(session, job_id)
        worst = _extremes(session, job, extremes, sort="reward", rewarded=True)
        listed = {one.item.id for one in worst}
        best = _extremes(session, job, extremes, sort="-reward", rewarded=True)
        return JobResults(
            job=header,
            progress=progress,
            summary=summary,
            rubrics=totals.rubrics,
            formulas=totals.formulas,
            criteria=_by_gain(totals.criteria),
            tags=_by_gain(totals.tags),
            groups=_by_gain(totals.groups),
            usage=totals.usage,
            worst=worst,
            best=[one for one in best if one.item.id not in listed],
            without_reward=_extremes(session, job, extremes, rewarded=False),
            null_reasons=items.null_reasons(session, job_id),
            **totals.distributions(),
        )


def pages(db: Database, job_id: int) -> Iterator[list[tuple[ItemRow, ItemDetail]]]:
    """Yield all items of a job by id, in pages with a transaction each.

    Raises:
        NotFoundError: No such job.
    """
    after = 0
    while True:
        with db.read() as session:
            job = jobs.scoring(session, job_id)
            rows = items.page(session, job_id, after=after, limit=ITEMS_PER_PAGE)
            found = _details(session, job, rows)
        if not rows:
            return
        yield list(zip(rows, found, strict=True))
        after = rows[-1].id


def _extremes(session: Session, job: JobRow, count: int, **selection: Any) -> list[ItemDetail]:
    return _details(session, job, items.page(session, job.id, limit=count, **selection))


def _details(session: Session, job: JobRow, rows: Sequence[ItemRow]) -> list[ItemDetail]:
    """Return these items of the job with their texts and verdicts."""
    by_item = verdicts.for_items(session, [row.id for row in rows])
    rubrics = {row.rubric_id: row.rubric.value for row in rows}
    found = []
    for row in rows:
        prompt, completion = row.completion.prompt, row.completion.value
        item = Item.of(
            row,
            prompt_id=prompt.id,
            prompt_external_id=prompt.external_id,
            completion_external_id=completion.id,
            policy=row.completion.policy,
            rubric=row.rubric.ref,
            verdicts=(),
        )
        judged = by_item.get(row.id, [])
        parts = contributions(rubrics[row.rubric_id], judged, min_coverage=job.min_coverage)
        found.append(ItemDetail(item, prompt.value, completion, parts))
    return found


def _by_gain(rows: Mapping[Any, CriterionTotals]) -> list[CriterionTotals]:
    return sorted(rows.values(), key=lambda row: (-row.gain, -row.failed, row.name, row.text))


class _Totals:
    """Sums over the items of a job: memory grows with its distinct criteria, and by two numbers an item."""

    def __init__(self) -> None:
        self.rubrics: Counter[str] = Counter()
        self.formulas: Counter[str] = Counter()
        self.criteria: dict[tuple[str, str], CriterionTotals] = {}
        self.tags: dict[str, CriterionTotals] = {}
        self.groups: dict[str, CriterionTotals] = {}
        self.usage: Usage | None = None
        self._rewards: dict[str, tuple[array[float], array[int]]] = {}  # by policy: rewards, and their prompts

    def add(self, row: ItemRow, parts: Sequence[Contribution]) -> None:
        """Add one item."""
        self.rubrics[row.rubric.ref] += 1
        if row.reward is not None:
            self.formulas[str(row.formula)] += 1
            values, prompts = self._rewards.setdefault(row.completion.policy, (array("d"), array("q")))
            values.append(row.reward)
            prompts.append(row.completion.prompt_id)
        self.usage = total_usage([self.usage, *(part.verdict.usage for part in parts if part.verdict)])
        tags: dict[str, list[Contribution]] = {}
        groups: dict[str, list[Contribution]] = {}
        for part in parts:
            criterion = part.criterion
            key = criterion.key, criterion.text
            own = self.criteria.setdefault(key, CriterionTotals(*key, kind=criterion.kind))
            own.add([part], rewarded=row.reward is not None)
            for tag in criterion.tags:
                tags.setdefault(tag, []).append(part)
            if criterion.group:
                groups.setdefault(criterion.group[0], []).append(part)
        for named, sums in ((tags, self.tags), (groups, self.groups)):
            for name, members in named.items():
                sums.setdefault(name, CriterionTotals(name)).add(members, rewarded=row.reward is not None)

    def distributions(self) -> dict[str, Any]:
        """Return the distribution of all rewards and by policy, over the same range."""
        values = [value for part, _ in self._rewards.values() for value in part]
        prompts = [prompt for _, part in self._rewards.values() for prompt in part]
        low, high = bounds(min(values, default=0.0), max(values, default=1.0))
        policies = {name: distribution(*part, low, high) for name, part in self._rewards.items()}
        ranked = sorted(policies.items(), key=lambda item: -(item[1].mean.value or 0.0) if item[1] else 0.0)
        return {
            "low": low,
            "high": high,
            "rewards": distribution(values, prompts, low, high),
            "policies": dict(ranked),
        }


def distribution(values: Sequence[float], prompts: Sequence[Hashable], low: float, high: float) -> Distribution | None:
    """Return the distribution of rewards, with bars from ``low`` to ``high``; None without any.

    ``prompts`` has the prompt of each reward.
    """
    if not values:
        return None
    counts = [0] * BINS
    for value in values:
        place = (value - low) / (high - low) if high > low else 0.5
        counts[min(max(int(place * BINS), 0), BINS - 1)] += 1
    return Distribution(len(values), mean_estimate(values, prompts), pstdev(values), tuple(counts))


def bounds(low: float, high: float) -> tuple[float, float]:
    """Return the ends of a histogram of rewards from ``low`` to ``high``: 0 and 1 if they lie between."""
    return (0.0, 1.0) if low >= 0.0 and high <= 1.0 else (low, high)
