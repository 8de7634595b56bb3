"""Several verdicts on one criterion as one: samples of a judge, members of a panel or a cascade, parts of a completion.

The result is scored where at least half of the votes are, with their values combined by the rule. Otherwise it is
abstained where at least half abstained, and failed with the most common reason where not. A failed vote has no value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, pstdev

from rubricsvc.core.estimate import mean_known
from rubricsvc.core.judge import Rule
from rubricsvc.core.rubric import Criterion, scale_values
from rubricsvc.core.verdict import RAW_CHARS, Reason, Verdict, Vote, total_usage
from rubricsvc.errors import cut
from workers.judges.calls import join_notes

_RULES: dict[Rule, Callable[[Sequence[float]], float]] = {"mean": fmean, "median": median, "min": min}
_VOTE_FIELDS = Vote.model_fields.keys() - {"by", "detail", "raw"}


def aggregate(criterion: Criterion, votes: Mapping[str, Verdict], rule: Rule) -> Verdict:
    """Return the verdict of several voters, given by name; see the module.

    For ``majority`` each value counts as the nearest level of the scale (numeric scales have none), as none of two that
    are equally near. The most common one wins if more than half of all votes agree, failed ones included; without
    a majority the verdict is abstained. Rationale and quotes are those of the vote nearest to the result. ``usage`` is
    the sum and ``latency_s`` the maximum: the voters were asked concurrently.
    """
    given = list(votes.values())
    outcomes = ("scored", "abstained", "failed")
    scored, abstained, failed = ([verdict for verdict in given if verdict.outcome == one] for one in outcomes)
    fields: dict[str, object] = {
        "votes": as_votes(votes),
        "usage": total_usage(verdict.usage for verdict in given),
        "latency_s": max((v.latency_s for v in given if v.latency_s is not None), default=None),
        "answer_mass": mean_known(verdict.answer_mass for verdict in given),
    }
    detail = "; ".join(dict.fromkeys(verdict.detail for verdict in given if verdict.detail)) or None
    if 2 * len(scored) >= len(given):
        values = [verdict.value for verdict in scored if verdict.value is not None]
        probabilities = [verdict.probability for verdict in scored if verdict.probability is not None]
        agreeing = len(given)
        if rule == "majority":
            levels = scale_values(criterion.scale)
            near = [[one for one in levels if abs(one - v) == min(abs(o - v) for o in levels)] or [v] for v in values]
            counts = Counter(one[0] for one in near if len(one) == 1)
            value, agreeing = max(counts.items(), key=lambda item: item[1], default=(values[0], 0))
        else:
            value = _RULES[rule](values)
        nearest = min(zip(values, scored, strict=True), key=lambda vote: abs(vote[0] - value))[1]
        fields |= {"outcome": "scored", "value": value, "spread": pstdev(values)}
        if 2 * agreeing <= len(given):
            fields |= {"outcome": "abstained", "value": None}
            detail = join_notes(f"no majority: {agreeing} of {len(given)} votes agree", detail)
        elif len(probabilities) == len(scored):
            fields["probability"] = fmean(probabilities)
            if any(verdict.calibrated is not None for verdict in scored):
                fields["calibrated"] = mean_known(verdict.best_probability for verdict in scored)
    elif 2 * len(abstained) >= len(given):
        nearest = abstained[0]
        fields["outcome"] = "abstained"
    else:
        nearest = failed[0]
        reason = Counter(verdict.reason for verdict in failed).most_common(1)[0][0] or Reason.ENGINE_ERROR
        detail = f"{len(scored)} of {len(given)} votes are scored; {detail or reason}"
        fields |= {"outcome": "failed", "reason": reason, "raw": nearest.raw}
    fields |= {name: getattr(nearest, name) for name in ("rationale", "evidence", "thinking")}
    return Verdict.model_validate({"criterion": criterion.key, "detail": detail, **fields})


def as_votes(verdicts: Mapping[str, Verdict]) -> tuple[Vote, ...]:
    """Return the votes of the verdicts, given by voter."""
    votes = []
    for by, verdict in verdicts.items():
        fields = verdict.model_dump(include=_VOTE_FIELDS)
        if verdict.outcome == "failed":
            texts = {"detail": verdict.detail, "raw": verdict.raw}
            fields |= {name: text and cut(text, RAW_CHARS) for name, text in texts.items()}
        votes.append(Vote(by=by, **fields))
    return tuple(votes)
