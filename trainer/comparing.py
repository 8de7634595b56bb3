"""Compare training runs, by their configurations and evaluations: two of them, or the variants of a sweep."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge
from rubricsvc.schemas.runs import REWARD, RunReport, flat
from trainer.config import CHECKS
from trainer.policy_scores import over_prompts_and_seeds

Line = Mapping[str, Any]
"""The line of an evaluation."""
_IDENTITY = {"out", "run", "judge_audit.id"}
_TIMES = {"measured_at", "created_at"}
_ADDRESSES = {"endpoint", "timeout_s"}

Result = Literal["higher", "lower", "not_distinguishable", "no_interval", "not_comparable"]


class VariantScore(Value):
    """A variant of a sweep, or one of two runs, by one score, in the last evaluation of its runs.

    ``difference`` is that to the first variant, paired by prompt and seed; None for the first.
    """

    variant: str
    score: str
    gold: bool = Field(description="Whether it is the gold score.")
    seeds: int = Field(description="Runs that are compared.")
    prompts: int = Field(description="Different held-out prompts.")
    mean: Estimate
    difference: Estimate | None = None
    result: Result | None = None
    reason: str = Field(default="", description="Why the variant is not compared.")


class RunComparison(Value):
    """Run B compared with run A: differences are B less A."""

    config: dict[str, tuple[Any, Any]] = Field(
        description="Fields that differ, with their values in A and B, null where there is none; "
        "names, places and times are left out."
    )
    notes: tuple[str, ...] = Field(description="What to know before the numbers are read.")
    scores: tuple[VariantScore, ...] = Field(description="Scores on held-out prompts, those of A before those of B.")


class SweepFailure(Value):
    """A run of a sweep that failed. It is in no row of the table."""

    variant: str
    seed: int
    folder: str
    error: str
    hint: str = ""


class SweepTable(Value):
    """The variants, in the order of the file.

    ``best`` is higher than every other by the gold score; else None.
    """

    rows: tuple[VariantScore, ...]
    best: str | None = None
    failures: tuple[SweepFailure, ...] = ()


def compare(a: RunReport, b: RunReport) -> RunComparison:
    """Compare run B with run A; differences are B less A.

    Scores are compared as those of two variants, by `compare_variants`.
    """
    table = compare_variants({"A": {0: a}, "B": {0: b}})
    first, second, changes = dict(flat(a.config)), dict(flat(b.config)), dict[str, tuple[Any, Any]]()
    for path in dict.fromkeys([*first, *second]):
        name = path.rpartition(".")[2]
        values = first.get(path), second.get(path)
        compared = [PurePath(value).name if name == "path" and value else value for value in values]  # of a file
        if path not in _IDENTITY and name not in _TIMES and compared[0] != compared[1]:
            changes[path] = values
    return RunComparison(config=changes, notes=tuple(_notes(a, b)), scores=table.rows)


def _notes(a: RunReport, b: RunReport) -> Iterator[str]:
    """Yield what to know before the numbers of a comparison are read."""
    if reason := _judge_reason(REWARD, a.config, b.config):
        yield f"the training rewards are not on one scale: {reason}"
    for name, report in (("A", a), ("B", b)):
        if not report.evaluations:
            yield f"{name} has no evaluation on held-out prompts; its reward alone does not show a better policy"
    if not a.evaluations or not b.evaluations:
        return
    first, second = a.evaluations[-1], b.evaluations[-1]
    if first["setup"] != second["setup"]:
        pairs, (of_a, of_b) = _pairs(first, second), (set(line.get("prompt_digests", ())) for line in (first, second))
        counts = {
            "in A only": len(of_a - of_b),
            "in B only": len(of_b - of_a),
            "with another rubric version": max(0, len(of_a & of_b) - len(pairs)),
        }
        left_out = ", ".join(f"{count} {where}" for where, count in counts.items() if count)
        yield f"held-out prompts that are compared: {len(pairs)}; left out: {left_out or 'none'}"
    if first["step"] != second["step"]:
        yield f"the last evaluation of A is after step {first['step']}, that of B after step {second['step']}"


def _pairs(a: Line, b: Line) -> list[tuple[int, int]]:
    """Return the places in both evaluations of each shared prompt with the same rubric version.

    An evaluation of another trainer may not say which prompts it has, and shares none.
    """
    digests = ("prompt_digests", "rubric_digests")
    keys_a, keys_b = (zip(*(one.get(name, ()) for name in digests), strict=False) for one in (a, b))
    places: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for place, key in enumerate(keys_b):
        places[key].append(place)
    return [(place, places[key].pop(0)) for place, key in enumerate(keys_a) if places[key]]


def paired_values(a: RunReport, b: RunReport, score: str) -> tuple[list[tuple[str, float, float]], str]:
    """Return the values of both runs on each held-out prompt that they share, by the mean of its samples.

    They are those of the last evaluation of each, with the digest of the prompt: on the same prompts with the same
    rubric versions, by the same judge and with the same sampling. Without values a reason is given.
    """
    if not a.evaluations or not b.evaluations:
        return [], "a run has no evaluation"
    first, second = a.evaluations[-1], b.evaluations[-1]
    values: list[Any] = [(line["values"].get(score) or {}).get("mean") for line in (first, second)]
    for name, mean in zip("AB", values, strict=True):
        if not mean:
            return [], f"{name} has no score by {score}"
    pairs = _pairs(first, second)
    if not pairs:
        shared = set(first.get("prompt_digests", ())) & set(second.get("prompt_digests", ()))
        other = f"other rubric versions of all {len(shared)} shared prompts"
        return [], other if shared else "no held-out prompt in both"
    if reason := _judge_reason(score, a.config, b.config):
        return [], reason
    for setting in ("max_new_tokens", "temperature", "top_p"):
        of_a, of_b = ((config.get("sampling") or {}).get(setting) for config in (a.config, b.config))
        if of_a != of_b:
            return [], f"other sampling: {setting} is {of_a} in A, {of_b} in B"
    known = [(first["prompt_digests"][place], values[0][place], values[1][other]) for place, other in pairs]
    return [(name, one, two) for name, one, two in known if one is not None and two is not None], ""


def _judge_reason(score: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    """Return why the values of a score are not on one scale, by their judges.

    Addresses do not matter, but the judge of a service is its own.
    """
    names, identities = list[str | None](), list[Any]()
    for config in (a, b) if score != CHECKS else ():
        given = (config.get("eval") or {}).get("judges") or ()
        named = {one if isinstance(one, str) else one["name"]: one for one in given}
        judge: Any = config.get("judge") if score == REWARD else named.get(score)
        names.append(judge["name"] if isinstance(judge, Mapping) else judge)
        if isinstance(judge, Mapping) and "service" in judge:
            judge = judge["service"], judge["name"]
        elif isinstance(judge, Mapping):
            try:
                judge = Judge.model_validate(judge).digest
            except ValueError:  # of another version
                judge = {name: value for name, value in judge.items() if name not in _ADDRESSES}
        identities.append(judge)
    if not identities or identities[0] == identities[1]:
        return None
    if names[0] == names[1]:
        return f"the judges named {names[0]} are not the same"
    return f"other judge: {names[0]} in A, {names[1]} in B"


Runs = Mapping[int, RunReport]
"""The runs of a variant, by seed."""
Pair = tuple[str, int, float, float]
"""A prompt, a seed, and the values of two variants on the prompt in their runs with the seed."""


def compare_variants(variants: Mapping[str, Runs]) -> SweepTable:
    """Return the table of a sweep: each variant beside the first, paired by prompt and seed.

    Nothing is higher or lower where the interval holds 0. A variant without runs has no values, and no variant is the
    best while runs are missing, or where the interval of one of its differences holds 0.
    """
    first: Runs = next(iter(variants.values()), {})
    lines = [run.evaluations[-1] for runs in variants.values() for run in runs.values() if run.evaluations]
    gold, rows = lines[0]["gold"] if lines else "", list[VariantScore]()
    for score in lines[0]["scores"] if lines else ():
        for variant, runs in variants.items():
            pairs, reason = _values(first, runs, score)
            own = pairs or _values(runs, runs, score)[0]  # the first may have no runs
            row = VariantScore(
                variant=variant,
                score=score,
                gold=score == gold,
                seeds=len({seed for _, seed, *_ in own}),
                prompts=len({prompt for prompt, *_ in own}),
                mean=_estimate(own, gain=False),
            )
            update: dict[str, object] = {}
            if runs is not first and pairs:
                difference = _estimate(pairs)
                result = "not_distinguishable"
                if difference.low is None or difference.high is None:
                    result = "no_interval"
                elif difference.low > 0 or difference.high < 0:
                    result = "higher" if difference.low > 0 else "lower"
                update = {"difference": difference, "result": result}
            elif runs is not first:
                update = {"result": "not_comparable", "reason": reason}
            rows.append(row.model_copy(update=update))
    best = None
    means = {row.variant: row.mean.value for row in rows if row.gold and row.mean.value is not None}
    if len({frozenset(runs) for runs in variants.values()}) == 1 and 1 < len(means) == len(variants):
        best = max(means, key=lambda variant: means[variant])
        lows = [_estimate(_values(variants[name], variants[best], gold)[0]).low for name in means if name != best]
        best = best if all(low is not None and low > 0 for low in lows) else None
    return SweepTable(rows=tuple(rows), best=best)


def _estimate(pairs: Sequence[Pair], *, gain: bool = True) -> Estimate:
    """Return the mean of the second variant, or how much higher it is, over prompts and seeds."""
    values = [second - first if gain else second for _, _, first, second in pairs]
    return over_prompts_and_seeds(values, [prompt for prompt, *_ in pairs], [seed for _, seed, *_ in pairs])


def _values(first: Runs, second: Runs, score: str) -> tuple[list[Pair], str]:
    """Return the paired values of two variants, or why there are none."""
    found, reasons = list[Pair](), list[str]()
    for seed in first.keys() & second.keys():
        values, reason = paired_values(first[seed], second[seed], score)
        found += [(prompt, seed, one, two) for prompt, one, two in values]
        reasons += [reason] * bool(reason)
    return found, next(iter(reasons), "no run of both has the same seed")
