"""What in the metrics and evaluations of a training run is a reason to distrust its reward.

Alarms of monitors compare windows of steps with the start, and held-out prompts with those of the first evaluation;
those of tools compare means of `TOOL_WINDOW` steps, since shares of single steps are of few episodes.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from math import fsum, sqrt
from statistics import fmean
from typing import Any, NamedTuple

from rubricsvc.schemas.runs import Alarm
from rubricsvc.stats.estimates import p_above_zero
from trainer.divergence import first_divergence

ALPHA = 0.05  # probability of a false alarm in all evaluations of a run
MIN_PROMPTS = 8  # fewer held-out prompts are not compared: a share that is 0 or 1 may change in all of them by chance
WINDOW = 8  # steps whose mean is compared; fewer than twice as many raise no alarm
ERRORS = 6.0  # standard errors of the difference of two means; Welch's t with at least 7 degrees of freedom


class Rule(NamedTuple):
    """When a metric raises an alarm: it changes by ``least`` (``relative``: of its mean at the start).

    ``falls`` looks for a fall in place of a rise; ``from_zero`` compares with 0 in place of the start. ``sign`` is what
    the examples have, or have most of (`trainer.monitors.measures`).
    """

    metric: str
    what: str
    least: float
    sign: str = ""
    relative: bool = False
    falls: bool = False
    from_zero: bool = False


RULES = tuple(
    Rule(**one) for one in tomllib.loads(files("trainer").joinpath("alarms.toml").read_text("utf-8"))["rules"]
)
Values = Sequence[tuple[int, float]]
Steps = Sequence[Mapping[str, Any]]


def monitor_alarms(steps: Steps, evaluations: Steps = ()) -> list[Alarm]:
    """Return the first alarm of each rule, given the metrics of a run's steps and its evaluations, by step.

    What the last step (or evaluation) was the first to raise has its number.
    """
    found = []
    for rule in RULES:
        values = [(step["step"], step[rule.metric]) for step in steps if step.get(rule.metric) is not None]
        ends = range(2 * WINDOW, len(values) + 1)
        in_steps = (_alarm(rule, values[:WINDOW], values[end - WINDOW : end]) for end in ends)
        first = next((alarm for alarm in in_steps if alarm is not None), None)
        raised = [first, next(_held_out_alarms(rule, evaluations), None)]
        found += sorted((alarm for alarm in raised if alarm is not None), key=lambda alarm: alarm.step or 0)[:1]
    return found


def _alarm(rule: Rule, start: Values, now: Values) -> Alarm | None:
    """Return the alarm of two windows, if they raise one."""
    sides = [[value for _, value in side] for side in (start, now)]
    first, last = map(fmean, sides)
    base = 0.0 if rule.from_zero else first
    change = base - last if rule.falls else last - base
    least = rule.least * abs(first) if rule.relative else rule.least
    if change < least or change <= 0:
        return None
    compared = zip(sides[rule.from_zero :], (first, last)[rule.from_zero :], strict=True)
    variance = sum(fsum((value - mean) ** 2 for value in side) for side, mean in compared) / (WINDOW - 1)
    if change < ERRORS * sqrt(variance / WINDOW):
        return None
    shown = f"{first:.2g} (steps {start[0][0]} to {start[-1][0]})"
    recent = f"{last:.2g} (steps {now[0][0]} to {now[-1][0]})"
    verb = "is" if rule.from_zero else "fell" if rule.falls else "rose"
    text = f"{rule.what} is {recent}." if rule.from_zero else f"{rule.what} {verb} from {shown} to {recent}."
    return Alarm(text=text, step=now[-1][0], sign=rule.sign or None, metric=rule.metric)


_STEPS_ALONE = {"entropy", "monitors/common_phrase"}  # metrics that evaluations do not have, or not of a single prompt
_COMPARED = [rule for rule in RULES if not rule.from_zero and rule.metric not in _STEPS_ALONE]
"""The rules that evaluations are tested by."""


def _held_out_alarms(rule: Rule, evaluations: Steps) -> Iterator[Alarm]:
    """Yield the alarms of a rule in evaluations whose ``monitors`` have the metric for each prompt."""
    measured = ((line, line.get("monitors", {}).get(rule.metric, ())) for line in evaluations)
    known = [(line, values) for line, values in measured if any(one is not None for one in values)]
    if not known or rule not in _COMPARED:
        return
    begin, start = known[0]
    for m, (line, now) in enumerate(known[1:], 1):
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
                f"after step {begin['step']}) to {last:.2g} (step {line['step']})."
            )
            yield Alarm(text=text, step=line["step"], sign=rule.sign or None, metric=rule.metric)


TOOL_WINDOW = 5  # steps whose mean is compared; in a shorter run half of its steps, and at least three
FEWER_CALLS = 0.5
"""Part of the largest share of episodes with a tool call that is left when the policy stops calling its tools."""
TOOL_CHANGE = 0.2  # the least change of a share that is a trend


def tool_alarms(steps: Steps) -> list[Alarm]:
    """Return the alarms of a run's steps; none without an environment.

    The policy stops calling its tools, calls them worse, or ends episodes without a report: the last mean of a share
    over a window of steps falls behind the largest one.
    """
    found = []
    for name, sign, left, what in (
        ("used", "no_call", FEWER_CALLS, "The policy stops calling its tools: the share of episodes with a tool call"),
        ("valid", "malformed", 1.0, "Calls get worse: the share of those that are neither malformed nor refused"),
    ):
        metric = f"tools/{name}_fraction"
        values = [(step["step"], step[metric]) for step in steps if step.get(metric) is not None]
        size = min(TOOL_WINDOW, len(values) // 2)
        if size < 3:
            continue
        windows = [values[end - size : end] for end in range(size, len(values) + 1)]
        means = [(fmean(share for _, share in window), window[0][0], window[-1][0]) for window in windows]
        (best, *at), (last, *now) = max(means, key=lambda one: one[0]), means[-1]
        if last <= left * best and best - last >= TOOL_CHANGE:
            text = f"{what} fell from {best:.0%} (steps {at[0]} to {at[1]}) to {last:.0%} (steps {now[0]} to {now[1]})."
            found.append(Alarm(text=text, step=now[1], sign=sign))
    measured = [step for step in steps if step.get("tools/reported_fraction") is not None]
    if without := [step for step in measured if step["tools/reported_fraction"] == 0]:
        cut = sum(step.get("completions/clipped_ratio") == 1 for step in without)
        text = (
            f"In {len(without)} of {len(measured)} steps (the last is {without[-1]['step']}) no episode ended "
            f"with a report; in {cut} of them every episode was cut off. Raise sampling.max_new_tokens, "
            "environment.max_tokens or environment.max_turns, or begin with demonstrations."
        )
        found.append(Alarm(text=text, step=without[-1]["step"], sign="no_report"))
    return found


LARGE_KL = 0.2  # nats a token from the starting policy
UNSCORED = 0.05  # share of a step's completions without a reward
VETOED, NO_SIGNAL = "all completions vetoed", "no group with a signal"
"""Why a step taught the policy nothing."""
_MORE_SIGNAL = (
    "raise sampling.group_size or sampling.temperature, or use criteria that tell completions apart: equal rewards "
    "teach GRPO nothing"
)
MOSTLY_CUT = 0.5  # share of the completions of a step
LONGER = (
    "most completions were cut off at the limit of tokens: raise sampling.max_new_tokens (in an environment its "
    "max_tokens), or see the setting overlong"
)
_FEWER_VETOES = "reword the required criteria so that some completions meet them, or start from a better policy"


def alarms(steps: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return the reasons, given the metrics of the steps and the evaluations of a run, by step."""
    without = [step for step in steps if (step.get("frac_reward_zero_std") or 0.0) >= 1.0]
    cut_off = fmean([step.get("completions/clipped_ratio") or 0.0 for step in without] or [0.0])
    shares = (
        ("frac_reward_zero_std", 1.0, f"{NO_SIGNAL}; {'most were cut off' if cut_off >= MOSTLY_CUT else _MORE_SIGNAL}"),
        ("vetoed_fraction", 1.0, f"{VETOED}; {_FEWER_VETOES}"),
        ("unscored_fraction", UNSCORED, f"at least {UNSCORED:.0%} of the completions have no reward"),
        ("monitors/errors", 1, "a monitor raised an error, which is in the log of the run"),
        ("completions/clipped_ratio", MOSTLY_CUT, LONGER),
        ("kl/start", LARGE_KL, f"the policy is {LARGE_KL:g} nats a token or more from its start: read its completions"),
    )
    found = []
    for name, limit, text in shares:
        hit = [step["step"] for step in steps if (step.get(name) or 0.0) >= limit]
        if hit:
            where = f"In {len(hit)} of {len(steps)} steps (the last is {hit[-1]})"
            found.append(Alarm(text=f"{where}: {text}.", step=hit[-1]))
    found += [*tool_alarms(steps), *monitor_alarms(steps, lines)]
    divergence = first_divergence(lines)
    if divergence is not None:
        found.append(Alarm(text=divergence.text, step=divergence.step, sign="any"))
    return found
