"""What is recorded of a step. Names are TRL's where TRL has one; ``null`` in the file is a missing number."""

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rubricsvc.core.prompt import Completion
from rubricsvc.errors import InvalidError
from trainer.algorithms.advantages import group_statistics
from trainer.config import OptimConfig
from trainer.data.tasks import Task
from trainer.monitors.measures import Monitor, Observed
from trainer.policies.rollouts import Rollouts
from trainer.recording import Metrics
from trainer.rewards import JudgeInfo, ScoredRollout
from workers.checks.citations import sources

CALLS = "calls/"
"""Prefix of the counts of an episode's calls, by tool."""
log = logging.getLogger(__name__)


def judge_metrics(judge: JudgeInfo | None, optim: OptimConfig) -> Metrics:
    """Return the metrics that are the same in every step, and log what is missing.

    ``std_floor`` is the number that the setting stands for, in units of the reward. ``std_floor_origin`` is ``config``
    (a number in the configuration), ``judge`` (its measured repeatability), ``unmeasured`` (it was never measured: 0)
    or ``no_judge`` (rewards without a judge: 0). ``judge_calibrated`` is left out unless the rewards come from a
    readout's probabilities.
    """
    std_floor = optim.std_floor
    measured = judge.repeatability.reward.value if judge and judge.repeatability else None
    origin = "config" if std_floor != "judge" else "no_judge" if judge is None else "judge"
    if judge is not None and origin == "judge" and measured is None:
        origin = "unmeasured"
        if "std_floor" in optim.model_fields_set:
            hint = f"run `rubricsvc judges repeatability {judge.name}`, or set a number"
            raise InvalidError("the judge's repeatability was not measured", hint=hint, path="optim.std_floor")
        log.warning(
            "the repeatability of judge %s was not measured: advantages have no floor for the standard deviation, and "
            "a group whose rewards differ only by the judge's noise counts in full; run `rubricsvc judges "
            "repeatability %s` or set optim.std_floor",
            *(judge.name, judge.name),
        )
    metrics: Metrics = {"std_floor": measured or 0.0 if std_floor == "judge" else std_floor, "std_floor_origin": origin}
    if judge is None or judge.calibrated is None:
        return metrics
    if judge.calibrated:
        log.warning("the rewards are probabilities of a readout calibrated on people's labels")
    else:
        log.warning(
            "the rewards are probabilities of an uncalibrated readout; compare judge %s with people's labels "
            "(`rubricsvc judges agreement`) and calibrate it (`rubricsvc judges calibrate`)",
            judge.name,
        )
    return metrics | {"judge_calibrated": judge.calibrated}


def rollout_metrics(rollouts: Rollouts) -> Metrics:
    """Return lengths in tokens and the share of truncated completions.

    Of episodes in an environment return means of turns, of calls by tool and of what went wrong, too.
    """
    lengths = rollouts.lengths.float()
    metrics: Metrics = {
        "completions/mean_length": float(lengths.mean()),
        "completions/min_length": float(lengths.min()),
        "completions/max_length": float(lengths.max()),
        "completions/clipped_ratio": float(rollouts.truncated_B.float().mean()),
        "num_tokens": int(lengths.sum()),
    }
    if not rollouts.episodes:
        return metrics
    counts: Counter[str] = Counter()
    for episode in rollouts.episodes:
        counts.update({"turns": episode.turns, **episode.counts})
    calls = sum(count for name, count in counts.items() if name.startswith(CALLS))
    called = sum(any(name.startswith(CALLS) for name in episode.counts) for episode in rollouts.episodes)
    wrong = counts["malformed"] + counts["refused"]
    given = rollouts.mask_BT.sum() - rollouts.lengths.sum()
    return metrics | {
        **{f"tools/{name}": count / len(rollouts.episodes) for name, count in sorted(counts.items())},
        **({"tools/leak_hits": counts["leak_hits"]} if "leak_hits" in counts else {}),
        "tools/calls": calls / len(rollouts.episodes),
        "tools/used_fraction": called / len(rollouts.episodes),
        "tools/valid_fraction": calls / (calls + wrong) if calls + wrong else None,
        "tools/tokens": int(given) / len(rollouts.episodes),
        "tools/reported_fraction": sum(map(bool, rollouts.texts)) / len(rollouts.texts),
        "tools/time": max(episode.tool_time for episode in rollouts.episodes),
    }


def reward_metrics(
    rewards_GM: Tensor, std_floor: float = 0.0, tasks: Sequence[Task] = (), counted_GM: Tensor | None = None
) -> Metrics:
    """Return statistics of the rewards [G, M], NaN where there is none, and the mean of each domain of ``tasks`` [G].

    ``reward_std`` is the mean over groups of the deviation within. A group of fewer than two has none, and counts
    in ``frac_reward_zero_std``, the share of groups without a signal. ``frac_reward_std_floored`` is the share of
    groups with a deviation above 0 and below the floor. Both are of ``counted_GM`` where rewards count otherwise.
    """
    _, std_G1 = group_statistics(rewards_GM)
    _, signal_G1 = group_statistics(rewards_GM if counted_GM is None else counted_GM)
    domains: defaultdict[str, list[int]] = defaultdict(list)
    for at, task in enumerate(tasks):
        domains[task.domain].append(at)
    enough_G = (~rewards_GM.isnan()).sum(-1) >= 2
    return {
        "reward": float(rewards_GM.nanmean()),
        "reward_std": float(std_G1[enough_G].mean()),
        "frac_reward_zero_std": float((signal_G1 == 0).float().mean()),
        "frac_reward_std_floored": float(((signal_G1 > 0) & (signal_G1 < std_floor)).float().mean()),
        "unscored_fraction": float(rewards_GM.isnan().float().mean()),
        **{f"reward/{name}": float(rewards_GM[at].nanmean()) for name, at in sorted(domains.items()) if name},
    }


def verdict_metrics(scored: Sequence[ScoredRollout], by_criterion: bool) -> Metrics:
    """Return counts of verdicts and vetoes, and the mean value of each criterion where asked for.

    ``verdicts`` does not count the ``failed_verdicts``. ``judge/failed/<reason>`` counts these by
    `rubricsvc.core.verdict.Reason`; reasons that did not occur are left out.
    """
    verdicts = [verdict for result in scored for verdict in result.verdicts]
    failed = Counter(str(verdict.reason) for verdict in verdicts if verdict.outcome == "failed")
    vetoed = sum(result.reward.vetoed_by is not None for result in scored)
    metrics: Metrics = {
        "verdicts": len(verdicts) - failed.total(),
        "failed_verdicts": failed.total(),
        "vetoed_fraction": vetoed / len(scored),
    }
    metrics |= {f"judge/failed/{reason}": count for reason, count in sorted(failed.items())}
    if by_criterion:
        values: dict[str, list[float]] = defaultdict(list)
        for verdict in verdicts:
            if verdict.value is not None:
                values[verdict.criterion].append(verdict.value)
        metrics |= {f"rewards/{key}/mean": math.fsum(each) / len(each) for key, each in sorted(values.items())}
    return metrics


def update_metrics(sums: Mapping[str, float], tokens: int, optim: OptimConfig, gaps: Sequence[Tensor] = ()) -> Metrics:
    """Return means over the batch's updates; ``entropy``, ``clip_ratio`` and both ``kl`` are means over tokens.

    ``entropy`` and ``kl/start`` are over the tokens that were computed, which may be none (`trainer.loop.update`).
    ``gaps`` are the policy's log-probabilities of the tokens less those of the server that sampled them, if one did.
    """
    updates, positions = optim.updates_per_batch, max(1, tokens)
    metrics = {
        "loss": sums["loss"] / updates,
        "entropy": sums["entropy"] / sums["computed"] if sums["computed"] else math.nan,
        "clip_ratio": sums["clipped"] / positions / updates,
        "grad_norm": sums["grad_norm"] / updates,
    }
    if "kl_start" in sums:
        metrics["kl/start"] = sums["kl_start"] / max(1, sums["computed"])
    metrics |= {"kl": sums["kl"] / positions / updates} if optim.kl_beta and optim.kl_in == "loss" else {}
    if not gaps:
        return metrics
    gap_N = torch.cat(list(gaps))
    ratio_N = gap_N.exp()
    return metrics | {
        "sampling/sampling_logp_difference/mean": float(gap_N.abs().mean()),
        "sampling/sampling_logp_difference/max": float(gap_N.abs().max()),
        "sampling/importance_sampling_ratio/min": float(ratio_N.min()),
        "sampling/importance_sampling_ratio/mean": float(ratio_N.mean()),
        "sampling/importance_sampling_ratio/max": float(ratio_N.max()),
    }


PREFIX = "monitors/"
"""Of the names of metrics of monitors."""


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
