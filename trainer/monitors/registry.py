"""The monitors of a run: what the completions of a step have in common, and how a step is observed."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from math import exp, fsum, inf
from statistics import fmean

from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import reward_or_null
from trainer.data.tasks import Task
from trainer.monitors.measures import Monitor, Observed, common_phrase, groups_of, runs_of, texts, words
from trainer.recording import Metrics
from trainer.rewards import ScoredRollout
from workers.checks.citations import sources

SATURATED = 0.05
"""Range of a criterion's values within a prompt under which it does not distinguish completions."""
PASSED = 0.5
"""Value from which a criterion passes."""


def criteria(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return what the verdicts and the criteria of a step say about its reward.

    ``saturated_criteria`` is the share of criteria, counted by prompt, whose values hardly differ between its
    completions; ``abstained_verdicts`` and ``failed_verdicts`` are shares of the verdicts. ``largest_reward_share`` is
    the largest share of the reward that one criterion makes up, as mean over prompts whose reward has several: criteria
    of two rubrics are not added up.
    """
    flat, largest = list[bool](), list[float]()
    for group in groups_of(observed):
        values = defaultdict[str, list[float]](list)
        for verdict in (verdict for one in group for verdict in one.verdicts):
            if verdict.value is not None:
                values[verdict.criterion].append(verdict.value)
        flat += [max(each) - min(each) < SATURATED for each in values.values() if len(each) > 1]
        if len(shares := reward_shares(group)) > 1:
            largest.append(max(shares.values()))
    outcomes = [verdict.outcome for one in observed for verdict in one.verdicts]
    return {
        "saturated_criteria": fmean(flat) if flat else None,
        "largest_reward_share": fmean(largest) if largest else None,
        "abstained_verdicts": outcomes.count("abstained") / len(outcomes) if outcomes else None,
        "failed_verdicts": outcomes.count("failed") / len(outcomes) if outcomes else None,
    }


def reward_shares(observed: Sequence[Observed]) -> dict[str, float]:
    """Return each criterion's share of the sum of absolute contributions to the rewards, by key."""
    sums = defaultdict[str, float](float)
    for one in observed:
        for key, value in reward_or_null(one.rubric, one.verdicts).contributions.items():
            sums[key] += abs(value)
    total = fsum(sums.values())
    return {key: value / total for key, value in sums.items()} if total else {}


def by_criterion(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the pass rate of each criterion, and its share of the reward; those with the same key are one."""
    passed = defaultdict[str, list[bool]](list)
    for verdict in (verdict for one in observed for verdict in one.verdicts):
        if verdict.value is not None:
            passed[verdict.criterion].append(verdict.value >= PASSED)
    rates = {f"pass_rate/{key}": fmean(each) for key, each in sorted(passed.items())}
    return rates | {f"reward_share/{key}": share for key, share in sorted(reward_shares(observed).items())}


DISTINCT = 2
"""Words of the runs that distinct-n counts."""
FIRST_WORDS = 20
"""Words of each completion in which it counts them: longer texts repeat more."""
_ORDERS = range(1, 5)
Runs = Counter[tuple[str, ...]]


def diversity(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return distinct-2 and self-BLEU, as means over prompts with at least two completions with words.

    distinct-2 is of the first `FIRST_WORDS` words of completions with as many.
    """
    groups = [[found for one in group if (found := words(one.text))] for group in groups_of(observed)]
    alike = [self_bleu(group) for group in groups if len(group) > 1]
    begins = ([each[:FIRST_WORDS] for each in group if len(each) >= FIRST_WORDS] for group in groups)
    runs = [[run for text in group for run in runs_of(text, DISTINCT)] for group in begins if len(group) > 1]
    shares = [len(set(each)) / len(each) for each in runs]
    return {"distinct": fmean(shares) if shares else None, "self_bleu": fmean(alike) if alike else None}


def self_bleu(texts: Sequence[Sequence[str]]) -> float:
    """Return the mean BLEU-4 of each text (its words) with the others as its references.

    Counts of runs are clipped at the most of another text, and brevity is that to the reference of the nearest length.
    Orders above 1 are smoothed by adding one (Lin and Och 2004), which keeps short texts off 0. A text of fewer than
    four words has as many orders as words: copies of it have a BLEU of 1.
    """
    precisions: list[list[float]] = [[] for _ in texts]  # logarithms
    for n in _ORDERS:
        counts = [Runs(runs_of(text, n)) for text in texts]
        first, second = Runs(), Runs()
        for run, count in chain.from_iterable(one.items() for one in counts):
            first[run], second[run] = sorted((count, first[run], second[run]), reverse=True)[:2]
        for own, found in zip(counts, precisions, strict=True):
            matches = sum(min(count, second[run] if count == first[run] else first[run]) for run, count in own.items())
            total, smoothing = max(1, own.total()), int(n > 1)
            found.append(math.log((matches + smoothing) / (total + smoothing)) if matches + smoothing else -inf)
    lengths = [len(text) for text in texts]
    scores = []
    for at, (length, found) in enumerate(zip(lengths, precisions, strict=True)):
        others = [*lengths[:at], *lengths[at + 1 :]]
        nearest = min(others, key=lambda other: (abs(other - lengths[at]), other))
        scores.append(exp(fmean(found[:length]) + min(0.0, 1.0 - nearest / length)))
    return fmean(scores)


log = logging.getLogger(__name__)

PREFIX = "monitors/"
"""Of the names of metrics."""
MONITORS: Mapping[str, Monitor] = {
    "texts": texts,
    "diversity": diversity,
    "common_phrase": common_phrase,
    "criteria": criteria,
}
WITH_CRITERIA: Mapping[str, Monitor] = {**MONITORS, "by_criterion": by_criterion}
"""Those of a run with `criterion_metrics`."""


def observed_of(
    tasks: Sequence[Task], completions: Sequence[Completion], scored: Sequence[ScoredRollout]
) -> list[Observed]:
    """Return a step's completions for monitors; all arguments have one entry for each, those of a prompt adjacent."""
    groups, observed = {id(task): number for number, task in enumerate(tasks)}, []
    for task, one, result in zip(tasks, completions, scored, strict=True):
        known = frozenset(sources(task.prompt, one)) if task.prompt.documents or one.messages else None
        about = task.prompt.text, groups[id(task)], one.text, result.reward.value, result.verdicts, task.rubric, known
        observed.append(Observed(*about))
    return observed


def monitor_metrics(observed: Sequence[Observed], monitors: Mapping[str, Monitor]) -> Metrics:
    """Return the metrics of a step. A monitor that raises is logged, and counted in ``monitors/errors``."""
    start, errors = time.perf_counter(), 0
    metrics: Metrics = {}
    for name, monitor in monitors.items():
        try:
            metrics |= {PREFIX + key: value for key, value in monitor(observed).items()}
        except Exception as error:  # noqa: BLE001 - a monitor never ends a run
            log.warning("the monitor %s raised %s: %s", name, type(error).__name__, error)
            errors += 1
    return metrics | {f"{PREFIX}errors": errors, "monitor_time": time.perf_counter() - start}
