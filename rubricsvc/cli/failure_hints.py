"""What to do about failed verdicts: ask again what may succeed, change what would fail again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Reason

_START = "start the server, or correct its URL (it usually ends in /v1)"
_STRONGER = "use a stronger model, or a judge with `--mode readout`"
_OTHER_RUBRIC = "correct the rubric and import it"
FIXES = {
    Reason.UNREACHABLE: _START,
    Reason.UNAVAILABLE: _START,
    Reason.TIMEOUT: "the server is slow or does not respond; allow more time with endpoint.timeout_s in a judge file",
    Reason.RATE_LIMITED: "try again later, or with a lower endpoint.concurrency in a judge file",
    Reason.SERVER_ERROR: "see the server's own log",
    Reason.BUDGET: "allow a larger budget",
    Reason.REFUSED: "correct the model, the URL, or the API key in the variable of --api-key-env (in a judge file:"
    " api_key_env)",
    Reason.ENGINE_ERROR: "correct what the verdict's detail names; `rubricsvc doctor` checks the installation",
    Reason.NO_SANDBOX: "install bubblewrap on the workers",
    Reason.TRUNCATED: "raise sampling.max_tokens in the judge's file",
    Reason.UNPARSEABLE: _STRONGER,
    Reason.WRONG_CRITERIA: _STRONGER,
    Reason.CONTRADICTORY: _STRONGER,
    Reason.TEMPLATE_COPIED: _STRONGER,
    Reason.OUT_OF_RANGE: _STRONGER,
    Reason.NO_EVIDENCE: "use a stronger model, or a judge without require_evidence",
    Reason.NO_ANSWER: "use a judge with `--mode written`",
    Reason.NO_LOGPROBS: "the server returns no log-probabilities: use a judge with `--mode written` (comparative and"
    " trajectory judges can write too, see docs/judges.md)",
    Reason.DECLINED: "use another model",
    Reason.TOO_LONG: "use a model with a longer context",
    Reason.CHECK_ERROR: _OTHER_RUBRIC,
    Reason.NO_VARIABLE: _OTHER_RUBRIC,
    Reason.NOT_JSON: _OTHER_RUBRIC,
}
"""What to do about each reason of a failure."""

_THEN = {
    Reason.REFUSED: "retry",
    Reason.NO_SANDBOX: "retry",
    **{reason: "rescore" for reason, fix in FIXES.items() if fix is _OTHER_RUBRIC},
}
"""The command that scores a job again after the fix; where the fix is another judge, a new job does."""


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
        then = f", then run `rubricsvc jobs {_THEN[reason]} {job_id}`" if reason in _THEN else ""
        by_fix.setdefault(FIXES[reason] + then, {})[reason] = count
    for fix, counts in by_fix.items():
        yield f"{counted(counts)} would fail again: {fix}"


def failure_hints(
    reasons: Mapping[str, int], judge: Judge, job_id: int, *, null_coverage: float | None = None
) -> Iterator[str]:
    """Yield how to see the failed verdicts of a job, and what to do about them.

    ``null_coverage`` is the highest coverage of a completion without a reward.
    """
    again, lasting = split(reasons, judge)
    yield f"`rubricsvc verdicts list --job {job_id} --outcome failed` lists the failed verdicts"
    if again:
        yield f"{counted(again)}: `rubricsvc jobs retry {job_id}` asks again"
    yield from lasting_hints(lasting, job_id)
    coverage = min(0.8, math.floor(100 * (null_coverage or 0.0)) / 100)
    if lasting and coverage:
        yield (
            f"`rubricsvc jobs rescore {job_id} --min-coverage {coverage:g}` computes rewards where at least"
            f" {coverage:.0%} of the weight is judged, and asks nothing"
        )
