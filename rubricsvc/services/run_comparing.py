"""Compare training runs, by their configurations and evaluations: two of them, or the variants of a sweep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge
from rubricsvc.schemas.runs import (
    REWARD,
    RunComparison,
    RunReport,
    SweepTable,
    VariantScore,
    flat,
)
from rubricsvc.stats.policy_scores import over_prompts_and_seeds

Line = Mapping[str, Any]
"""The line of an evaluation."""
CHECKS = "checks"
"""The score by rubrics' checks alone, without a judge."""
_IDENTITY = {"out", "run", "judge_audit.id"}
_TIMES = {"measured_at", "created_at"}
_ADDRESSES = {"endpoint", "timeout_s"}


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
    if first["setup"] != second["setup"] and (pairs := _pairs(first, second)) is not None:
        of_a, of_b = (set(line["prompt_digests"]) for line in (first, second))
        counts = {
            "in A only": len(of_a - of_b),
            "in B only": len(of_b - of_a),
            "with another rubric version": max(0, len(of_a & of_b) - len(pairs)),
        }
        left_out = ", ".join(f"{count} {where}" for where, count in counts.items() if count)
        yield f"held-out prompts that are compared: {len(pairs)}; left out: {left_out or 'none'}"
    if first["step"] != second["step"]:
        yield f"the last evaluation of A is after step {first['step']}, that of B after step {second['step']}"


def _pairs(a: Line, b: Line) -> list[tuple[int, int]] | None:
    """Return the places in both evaluations of each shared prompt; None if one does not say which prompts it has."""
    if a["setup"] == b["setup"]:
        return [(place, place) for place in range(a["prompts"])]
    if "prompt_digests" not in a or "prompt_digests" not in b:
        return None
    keys_a, keys_b = (zip(one["prompt_digests"], one["rubric_digests"], strict=True) for one in (a, b))
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
    if pairs is None:
        return [], "an evaluation does not say which held-out prompts it has, and the settings of [eval] differ"
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
    names = first.get("prompt_digests") or list(map(str, range(first["prompts"])))
    known = [(names[place], values[0][place], values[1][other]) for place, other in pairs]
    return [(name, one, two) for name, one, two in known if one is not None and two is not None], ""


def _judge_reason(score: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    """Return why the values of a score are not on one scale, by their judges."""
    if score == CHECKS:
        return None
    judges = []
    for config in (a, b):
        named = {
            one if isinstance(one, str) else one["name"]: one for one in (config.get("eval") or {}).get("judges") or ()
        }
        judges.append(config.get("judge") if score == REWARD else named.get(score))
    if _judge_identity(judges[0]) == _judge_identity(judges[1]):
        return None
    names = [judge["name"] if isinstance(judge, Mapping) else judge for judge in judges]
    if names[0] == names[1]:
        return f"the judges named {names[0]} are not the same"
    return f"other judge: {names[0]} in A, {names[1]} in B"


def _judge_identity(judge: Any) -> Any:
    """Return what two judges share if they are the same; addresses do not matter, but a service's judge is its own."""
    if not isinstance(judge, Mapping):
        return judge
    if "service" in judge:
        return judge["service"], judge["name"]
    try:
        return Judge.model_validate(judge).digest
    except ValueError:  # of another version
        return {name: value for name, value in judge.items() if name not in _ADDRESSES}


Runs = Mapping[int, RunReport]
"""The runs of a variant, by seed."""


class _Pair(NamedTuple):
    """The values of two variants on a prompt, in their runs with one seed."""

    prompt: str
    seed: int
    first: float
    second: float


def _gains(pairs: Sequence[_Pair]) -> Estimate:
    """Return how much higher the second variant is, over prompts and seeds."""
    prompts, seeds = [one.prompt for one in pairs], [one.seed for one in pairs]
    return over_prompts_and_seeds([one.second - one.first for one in pairs], prompts, seeds)


def compare_variants(variants: Mapping[str, Runs]) -> SweepTable:
    """Return the table of a sweep: each variant beside the first, paired by prompt and seed.

    A variant without runs has no values, and no variant is the best while runs are missing.
    """
    first: Runs = next(iter(variants.values()), {})
    lines = [run.evaluations[-1] for runs in variants.values() for run in runs.values() if run.evaluations]
    scores = list(lines[0]["scores"]) if lines else []
    gold = lines[0]["gold"] if lines else ""
    every = [(score, variant) for score in scores for variant in variants]
    rows = [_variant_score(name, variants[name], first, score, gold=score == gold) for score, name in every]
    return SweepTable(rows=tuple(rows), best=_best(variants, rows, gold))


def _variant_score(variant: str, runs: Runs, first: Runs, score: str, *, gold: bool) -> VariantScore:
    """Return a variant's score beside the first one's: nothing is higher or lower where the interval holds 0."""
    pairs, reason = _values(first, runs, score)
    own = pairs or _values(runs, runs, score)[0]  # the first may have no runs
    prompts, seeds = [one.prompt for one in own], [one.seed for one in own]
    mean = over_prompts_and_seeds([one.second for one in own], prompts, seeds)
    row = VariantScore(
        variant=variant, score=score, gold=gold, seeds=len(set(seeds)), prompts=len(set(prompts)), mean=mean
    )
    if runs is first:
        return row
    if not pairs:
        return row.model_copy(update={"result": "not_comparable", "reason": reason})
    difference = _gains(pairs)
    result = "not_distinguishable"
    if difference.low is None or difference.high is None:
        result = "no_interval"
    elif difference.low > 0 or difference.high < 0:
        result = "higher" if difference.low > 0 else "lower"
    return row.model_copy(update={"difference": difference, "result": result})


def _values(first: Runs, second: Runs, score: str) -> tuple[list[_Pair], str]:
    """Return the paired values of two variants, or why there are none."""
    found: list[_Pair] = []
    reasons: list[str] = []
    for seed in first.keys() & second.keys():
        values, reason = paired_values(first[seed], second[seed], score)
        found += [_Pair(prompt, seed, one, two) for prompt, one, two in values]
        reasons += [reason] * bool(reason)
    return found, next(iter(reasons), "no run of both has the same seed")


def _best(variants: Mapping[str, Runs], rows: Sequence[VariantScore], gold: str) -> str | None:
    """Return the variant that is higher than every other; None where an interval holds 0, or a run is missing."""
    means = {row.variant: row.mean.value for row in rows if row.score == gold and row.mean.value is not None}
    if len({frozenset(runs) for runs in variants.values()}) > 1 or not 1 < len(means) == len(variants):
        return None
    best = max(means, key=lambda variant: means[variant])
    gains = [_gains(_values(variants[other], variants[best], gold)[0]) for other in means if other != best]
    return best if all(one.low is not None and one.low > 0 for one in gains) else None
