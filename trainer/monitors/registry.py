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

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import reward_or_null
from trainer.data.tasks import Task
from trainer.monitors.measures import (
    MEANS,
    Monitor,
    Observed,
    common_phrase,
    groups_of,
    length_correlation,
    mean_of,
    runs_of,
    words,
)
from trainer.recording import Metrics
from trainer.rewards import ScoredRollout
from workers.checks.citations import sources
from workers.checks.markdown import report_citations

SATURATED = 0.05
"""Range of a criterion's values within a prompt under which it does not distinguish completions."""
PASSED = 0.5
"""Value from which a criterion passes."""


def saturation(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the share of criteria, counted by prompt, whose values hardly differ between its completions."""
    flat = []
    for group in groups_of(observed):
        values = defaultdict[str, list[float]](list)
        for verdict in (verdict for one in group for verdict in one.verdicts):
            if verdict.value is not None:
                values[verdict.criterion].append(verdict.value)
        flat += [max(each) - min(each) < SATURATED for each in values.values() if len(each) > 1]
    return {"saturated_criteria": fmean(flat) if flat else None}


def abstentions(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the shares of verdicts that abstain and that failed."""
    outcomes = [verdict.outcome for one in observed for verdict in one.verdicts]
    return {
        f"{outcome}_verdicts": outcomes.count(outcome) / len(outcomes) if outcomes else None
        for outcome in ("abstained", "failed")
    }


def largest_share(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the largest share of the reward that one criterion makes up, as mean over prompts.

    Prompts whose reward has one criterion are left out: None without others. Criteria of two rubrics are not added up.
    """
    shares = [each for group in groups_of(observed) if len(each := reward_shares(group)) > 1]
    return {"largest_reward_share": fmean(max(each.values()) for each in shares) if shares else None}


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
    shares = [distinct(group) for group in begins if len(group) > 1]
    return {"distinct": fmean(shares) if shares else None, "self_bleu": fmean(alike) if alike else None}


def distinct(texts: Sequence[Sequence[str]]) -> float:
    """Return the share of different runs of two words among those of all texts (their words)."""
    runs = [run for text in texts for run in runs_of(text, DISTINCT)]
    return len(set(runs)) / len(runs)


def self_bleu(texts: Sequence[Sequence[str]]) -> float:
    """Return the mean BLEU-4 of each text (its words) with the others as its references.

    Orders above 1 are smoothed by adding one (Lin and Och 2004), which keeps short texts off 0. A text of fewer than
    four words has as many orders as words: copies of it have a BLEU of 1.
    """
    lengths = [len(text) for text in texts]
    by_text = zip(*(_log_precisions(texts, n) for n in _ORDERS), strict=True)
    return fmean(exp(fmean(each[: lengths[at]]) + _brevity(lengths, at)) for at, each in enumerate(by_text))


def _log_precisions(texts: Sequence[Sequence[str]], n: int) -> list[float]:
    """Return the logarithm of each text's clipped precision; counts are clipped at the most of another text."""
    counts = [Runs(runs_of(text, n)) for text in texts]
    first, second = Runs(), Runs()
    for run, count in chain.from_iterable(one.items() for one in counts):
        first[run], second[run] = sorted((count, first[run], second[run]), reverse=True)[:2]
    found = []
    for own in counts:
        matches = sum(min(count, second[run] if count == first[run] else first[run]) for run, count in own.items())
        total, smoothing = max(1, own.total()), int(n > 1)
        found.append(math.log((matches + smoothing) / (total + smoothing)) if matches + smoothing else -inf)
    return found


def _brevity(lengths: Sequence[int], at: int) -> float:
    """Return the logarithm of the brevity penalty, by the reference of the nearest length."""
    others = [*lengths[:at], *lengths[at + 1 :]]
    nearest = min(others, key=lambda other: (abs(other - lengths[at]), other))
    return min(0.0, 1.0 - nearest / lengths[at])


def unresolved_citations(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the share of completions that cite what they were not given and did not open.

    Of completions that could cite something: their prompt has documents, or they are episodes. None without any.
    """
    found = [not report_citations(one.text, one.sources) <= one.sources for one in observed if one.sources is not None]
    return {"unresolved_citations": fmean(found) if found else None}


log = logging.getLogger(__name__)

PREFIX = "monitors/"
"""Of the names of metrics."""
MONITORS: Mapping[str, Monitor] = {
    **{name: mean_of(name, measure) for name, measure in MEANS.items()},
    "length_correlation": length_correlation,
    "diversity": diversity,
    "common_phrase": common_phrase,
    "unresolved_citations": unresolved_citations,
    "saturation": saturation,
    "abstentions": abstentions,
    "largest_share": largest_share,
}
WITH_CRITERIA: Mapping[str, Monitor] = {**MONITORS, "by_criterion": by_criterion}
"""Those of a run with `criterion_metrics`."""


def observed_of(
    tasks: Sequence[Task], completions: Sequence[Completion], scored: Sequence[ScoredRollout]
) -> list[Observed]:
    """Return a step's completions for monitors; all arguments have one entry for each, those of a prompt adjacent."""
    groups = {id(task): number for number, task in enumerate(tasks)}
    return [
        Observed(
            task.prompt.text,
            groups[id(task)],
            one.text,
            result.reward.value,
            result.verdicts,
            task.rubric,
            _sources(task.prompt, one),
        )
        for task, one, result in zip(tasks, completions, scored, strict=True)
    ]


def _sources(prompt: Prompt, completion: Completion) -> frozenset[str] | None:
    is_possible = prompt.documents or completion.messages
    return frozenset(sources(prompt, completion)) if is_possible else None


def metrics_by_prompt(observed: Sequence[Observed]) -> dict[str, list[float | None]]:
    """Return what the monitors measure in the completions of each prompt alone, by metric."""
    lines = [monitor_metrics(group, MONITORS) for group in groups_of(observed)]
    names = dict.fromkeys(name for line in lines for name in line if name.startswith(PREFIX))
    return {name: [line.get(name) for line in lines] for name in names}


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
