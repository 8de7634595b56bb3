"""Alarms of the monitors of a run: a property of its completions changes far more than it varies.

In training the mean of the last `WINDOW` steps is compared with that of the first: an alarm needs a change that
matters, and one of `ERRORS` standard errors, estimated from the steps of both windows.

A policy may have changed within the first steps. So the completions of held-out prompts are compared as well, those of
each evaluation with those of the first one, which is of the starting policy, paired by prompt: the change must be
significant by a one-sided t test over prompts. All tests of a run share the probability `ALPHA` of a false alarm: that
of one rule at the m-th evaluation after the start has `ALPHA` / (m (m + 1)) / the number of rules, as in `divergence`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import fsum, sqrt
from statistics import fmean
from typing import Any, NamedTuple

from rubricsvc.core.student import p_above_zero
from rubricsvc.schemas.runs import Alarm

ALPHA = 0.05
"""Probability of a false alarm in all evaluations of a run."""
MIN_PROMPTS = 8
"""Fewer held-out prompts are not compared: a share that is 0 or 1 may change in all of them by chance."""
WINDOW = 8
"""Steps whose mean is compared; fewer than twice as many raise no alarm."""
ERRORS = 6.0
"""Standard errors of the difference of two means; Welch's t with at least 7 degrees of freedom."""


class Rule(NamedTuple):
    """When a metric raises an alarm: it changes by ``least`` (``relative``: of its mean at the start).

    ``falls`` looks for a fall in place of a rise; ``from_zero`` compares with 0 in place of the start. ``sign`` is what
    the examples have most of (`trainer.monitors.measures`), or have (`trainer.monitors.measures`).
    """

    metric: str
    what: str
    least: float
    sign: str = ""
    relative: bool = False
    falls: bool = False
    from_zero: bool = False


RULES = (
    Rule("completions/mean_length", "The mean length in tokens", 0.5, "length", relative=True),
    Rule("completions/mean_length", "The mean length in tokens", 0.5, "shortness", relative=True, falls=True),
    Rule("monitors/length_correlation", "The correlation of reward and length", 0.5, "length", from_zero=True),
    Rule("monitors/repetition", "The share of repeated runs of words", 0.2, "repetition"),
    Rule("monitors/distinct", "The share of different pairs of words for a prompt", 0.2, "repetition", falls=True),
    Rule("monitors/self_bleu", "The similarity of the completions of a prompt (self-BLEU)", 0.2, "any"),
    Rule("monitors/common_phrase", "The share of completions with one and the same phrase", 0.3, "any"),
    Rule("monitors/other_script", "The share of letters in another script than the prompt's", 0.05, "other_script"),
    Rule("monitors/refusals", "The share of refusals", 0.2, "refusals"),
    Rule("monitors/stock_phrases", "The share of completions with a stock phrase", 0.3, "stock_phrases"),
    Rule("monitors/self_praise", "The share of completions that praise themselves", 0.2, "self_praise"),
    Rule("monitors/lists", "The share of completions with a list", 0.3, "lists"),
    Rule("monitors/headings", "The share of completions with headings", 0.3, "headings"),
    Rule("monitors/bold", "The share of completions with bold text", 0.3, "bold"),
    Rule("monitors/emoji", "The share of completions with emoji", 0.2, "emoji"),
    Rule("monitors/unresolved_citations", "The share of completions with a citation of no source", 0.2, "citations"),
    Rule(
        "monitors/saturated_criteria",
        "The share of criteria that tell no completions apart",
        0.9,
        "any",
        from_zero=True,
    ),
    Rule("monitors/largest_reward_share", "The share of the reward that one criterion makes up", 0.3, "any"),
    Rule("monitors/abstained_verdicts", "The share of verdicts that abstain", 0.2, "any"),
    Rule("monitors/failed_verdicts", "The share of verdicts that failed", 0.2, "any"),
    Rule("entropy", "The entropy", 0.75, "any", relative=True, falls=True),
)
Values = Sequence[tuple[int, float]]
Steps = Sequence[Mapping[str, Any]]


def monitor_alarms(steps: Steps, evaluations: Steps = ()) -> list[Alarm]:
    """Return the first alarm of each rule, given the metrics of a run's steps and its evaluations, by step."""
    found = []
    for rule in RULES:
        raised = [next(_alarms(rule, _values(steps, rule)), None), next(_held_out_alarms(rule, evaluations), None)]
        found += sorted((alarm for alarm in raised if alarm is not None), key=lambda alarm: alarm.step or 0)[:1]
    return found


def new_held_out_alarms(evaluations: Steps) -> list[Alarm]:
    """Return the alarms that the last evaluation raises and none before did."""
    firsts = (next(_held_out_alarms(rule, evaluations), None) for rule in RULES)
    return [alarm for alarm in firsts if alarm is not None and alarm.step == evaluations[-1]["step"]]


def new_alarms(steps: Steps) -> list[Alarm]:
    """Return the alarms that the last step raises and the one before did not."""
    found = []
    for rule in RULES:
        values = _values(steps, rule)
        if len(values) < 2 * WINDOW or values[-1][0] != steps[-1]["step"]:
            continue
        before = _alarm(rule, values[:WINDOW], values[-WINDOW - 1 : -1]) if len(values) > 2 * WINDOW else None
        alarm = _alarm(rule, values[:WINDOW], values[-WINDOW:])
        found += [alarm] if alarm is not None and before is None else []
    return found


def _values(steps: Steps, rule: Rule) -> list[tuple[int, float]]:
    return [(step["step"], step[rule.metric]) for step in steps if step.get(rule.metric) is not None]


def _alarms(rule: Rule, values: Values) -> Iterator[Alarm]:
    for end in range(2 * WINDOW, len(values) + 1):
        if (alarm := _alarm(rule, values[:WINDOW], values[end - WINDOW : end])) is not None:
            yield alarm


def _alarm(rule: Rule, start: Values, now: Values) -> Alarm | None:
    """Return the alarm of two windows, if they raise one."""
    first, spread_first = _mean_and_variance(start)
    last, spread = _mean_and_variance(now)
    base = 0.0 if rule.from_zero else first
    spread += 0.0 if rule.from_zero else spread_first
    change = base - last if rule.falls else last - base
    least = rule.least * abs(first) if rule.relative else rule.least
    if change < least or change <= 0 or change < ERRORS * sqrt(spread / WINDOW):
        return None
    shown = f"{first:.2g} (steps {start[0][0]} to {start[-1][0]})"
    recent = f"{last:.2g} (steps {now[0][0]} to {now[-1][0]})"
    verb = "is" if rule.from_zero else "fell" if rule.falls else "rose"
    text = f"{rule.what} is {recent}." if rule.from_zero else f"{rule.what} {verb} from {shown} to {recent}."
    return Alarm(text=text, step=now[-1][0], sign=rule.sign or None, metric=rule.metric)


_STEPS_ALONE = {"entropy", "monitors/common_phrase"}
"""Metrics that evaluations do not have, or not of a single prompt."""
_COMPARED = [rule for rule in RULES if not rule.from_zero and rule.metric not in _STEPS_ALONE]
"""The rules that evaluations are tested by."""


def _held_out_alarms(rule: Rule, evaluations: Steps) -> Iterator[Alarm]:
    """Yield the alarms of a rule in evaluations whose ``monitors`` have the metric for each prompt."""
    known = [line for line in evaluations if any(one is not None for one in _by_prompt(line, rule))]
    if not known or rule not in _COMPARED:
        return
    start = _by_prompt(known[0], rule)
    for m, line in enumerate(known[1:], 1):
        now = _by_prompt(line, rule)
        if len(now) != len(start):
            continue
        pairs = [(a, b) for a, b in zip(start, now, strict=True) if a is not None and b is not None]
        if len(pairs) < MIN_PROMPTS:
            continue
        first, last = (fmean(values) for values in zip(*pairs, strict=True))
        changes = [a - b if rule.falls else b - a for a, b in pairs]
        least = rule.least * abs(first) if rule.relative else rule.least
        if fmean(changes) >= least and p_above_zero(changes) <= ALPHA / (m * (m + 1)) / len(_COMPARED):
            text = (
                f"{rule.what} {'fell' if rule.falls else 'rose'} on held-out prompts from {first:.2g} (evaluation "
                f"after step {known[0]['step']}) to {last:.2g} (step {line['step']})."
            )
            yield Alarm(text=text, step=line["step"], sign=rule.sign or None, metric=rule.metric)


def _by_prompt(line: Mapping[str, Any], rule: Rule) -> Sequence[float | None]:
    values: Sequence[float | None] = line.get("monitors", {}).get(rule.metric, ())
    return values


def _mean_and_variance(values: Values) -> tuple[float, float]:
    mean = fmean(value for _, value in values)
    return mean, fsum((value - mean) ** 2 for _, value in values) / (len(values) - 1)
