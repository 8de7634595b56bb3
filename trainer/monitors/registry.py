"""The monitors of a run, by name, and how a step is observed."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from rubricsvc.core.prompt import Completion, Prompt
from trainer.data.tasks import Task
from trainer.history import Metrics
from trainer.monitors.citations import unresolved_citations
from trainer.monitors.criteria import abstentions, by_criterion, largest_share, saturation
from trainer.monitors.diversity import diversity
from trainer.monitors.length import length_correlation
from trainer.monitors.measures import MEANS
from trainer.monitors.monitor import Monitor, Observed, groups_of, mean_of
from trainer.monitors.phrases import common_phrase
from trainer.rewards.source import ScoredRollout
from workers.checks.citations import sources

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
