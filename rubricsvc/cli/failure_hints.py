"""What to do about failed verdicts: ask again what may succeed, change what would fail again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Reason

_STRONGER = "use a stronger model, or a judge with `--mode readout`"
_OTHER_RUBRIC = "correct the rubric, import it, then run `rubricsvc jobs rescore {job_id}`"
FIXES = {
    Reason.REFUSED: "correct the judge's model, key or address, then run `rubricsvc jobs retry {job_id}`",
    Reason.NO_SANDBOX: "install bubblewrap on the workers, then run `rubricsvc jobs retry {job_id}`",
    Reason.TRUNCATED: "raise sampling.max_tokens in the judge's file",
    Reason.UNPARSEABLE: _STRONGER,
    Reason.WRONG_CRITERIA: _STRONGER,
    Reason.CONTRADICTORY: _STRONGER,
    Reason.TEMPLATE_COPIED: _STRONGER,
    Reason.OUT_OF_RANGE: _STRONGER,
    Reason.NO_EVIDENCE: "use a stronger model, or a judge without require_evidence",
    Reason.NO_ANSWER: "use a judge with `--mode written`",
    Reason.NO_LOGPROBS: "use a judge with `--mode written`",
    Reason.DECLINED: "use another model",
    Reason.TOO_LONG: "use a model with a longer context",
    Reason.CHECK_ERROR: _OTHER_RUBRIC,
    Reason.NO_VARIABLE: _OTHER_RUBRIC,
    Reason.NOT_JSON: _OTHER_RUBRIC,
}
"""Of failures that come again when the same question is asked again."""


def split(reasons: Mapping[str, int], judge: Judge) -> tuple[dict[Reason, int], dict[Reason, int]]:
    """Return the failures that may succeed when asked again, and those that would fail again."""
    counts = {Reason(name): count for name, count in reasons.items()}
    again = {
        reason: n for reason, n in counts.items() if reason.transient or (reason.of_reply and not judge.repeatable)
    }
    return again, {reason: count for reason, count in counts.items() if reason not in again}


def counted(counts: Mapping[Reason, int]) -> str:
    """Return ``unavailable ×7, timeout ×1``."""
    return ", ".join(f"{reason} ×{count}" for reason, count in counts.items())


def lasting_hints(lasting: Mapping[Reason, int], job_id: int) -> Iterator[str]:
    """Yield a line for each fix of failures that would come again."""
    by_fix: dict[str, dict[Reason, int]] = {}
    for reason, count in lasting.items():
        by_fix.setdefault(FIXES.get(reason, ""), {})[reason] = count
    for fix, counts in by_fix.items():
        yield f"{counted(counts)} would fail again: {fix.format(job_id=job_id)}".removesuffix(": ")


def failure_hints(reasons: Mapping[str, int], judge: Judge, job_id: int, *, null_rewards: int) -> Iterator[str]:
    """Yield how to see the failed verdicts of a job, and what to do about them."""
    again, lasting = split(reasons, judge)
    yield f"`rubricsvc verdicts list --job {job_id} --outcome failed` lists the failed verdicts"
    if again:
        yield f"{counted(again)}: `rubricsvc jobs retry {job_id}` asks again"
    yield from lasting_hints(lasting, job_id)
    if lasting and null_rewards:
        yield (
            f"{null_rewards} completions have no reward: `rubricsvc jobs rescore {job_id} --min-coverage 0.8` computes"
            " rewards without the failed verdicts, from 80% of the weight, and asks nothing"
        )
