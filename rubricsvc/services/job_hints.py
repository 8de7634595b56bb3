"""What to do about the failures, vetoes and costs of a job, and about the rubrics that it has generated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rubricsvc.core.jobs import JobProgress, JobSummary
from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Reason
from rubricsvc.store import items, jobs

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.tables import JobRow

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


def hints(session: Session, job: JobRow, progress: JobProgress, summary: JobSummary) -> tuple[str, ...]:
    """Return a line for whatever of a job needs attention, with the command that helps."""
    found = (
        _of_generation(job, summary) if summary.generation is not None else _of_scoring(session, job, progress, summary)
    )
    return tuple(found)


def _of_scoring(session: Session, job: JobRow, progress: JobProgress, summary: JobSummary) -> Iterator[str]:
    exhausted, lost = job.status == "budget_exhausted", summary.reserved.lost
    if exhausted or lost:
        killed = f" (${lost:.4g} of it reserved by workers that were killed)" if lost else ""
        message = jobs.budget_message(session, job.id) if exhausted else None
        worst = f"; {message}: the worst case of one call must fit into it" if message else ""
        yield f"{_spent(job)}{killed}{worst}{_raise_budget(job) if exhausted else ''}"
    judge = job.judge.valid
    if judge is None:
        yield f"{job.judge.error}"
    elif progress.failed_verdicts and not exhausted:
        null_coverage = items.null_coverage(session, job.id)
        yield from failure_hints(summary.reasons, judge, job.id, null_coverage=null_coverage)
    elif job.status == "completed_with_failures":  # a worker died, or the result could not be recorded
        yield f"`rubricsvc jobs export {job.id}` shows null_reason; `jobs retry` scores again what failed"
    if summary.vetoed:
        criteria = ", ".join(f"{key} {count}" for key, count in summary.vetoed.items())
        yield (
            f"{sum(summary.vetoed.values())} of {summary.rewards} rewards are vetoed by a required criterion"
            f" ({criteria}); `rubricsvc jobs export {job.id}` shows which"
        )
    if summary.quotes and summary.quotes_not_found:
        share = f"{summary.quotes_not_found} of {summary.quotes} quotes"
        required = judge is not None and judge.require_evidence
        fails = "" if required else "; `require_evidence` in a judge file fails such verdicts"
        yield f"{share} ({summary.quotes_not_found / summary.quotes:.0%}) are not in the completions{fails}"
    if summary.voting.get("saved", 0.0) < 0:
        yield "the cascade cost more than its last judge alone: add one with a narrower `band`, or use the last judge"


def _spent(job: JobRow) -> str:
    return f"${job.spent:.4g} of the budget of ${job.budget:g} is spent"


def _raise_budget(job: JobRow) -> str:
    return f"; raise it with `rubricsvc jobs retry {job.id} --budget DOLLARS`"


_MISSING = {
    "no_trajectory": "import completions with tool calls (`rubricsvc completions import FILE`)",
    "no_rubrics": "import a second rubric of the prompt (`rubricsvc rubrics import FILE`)",
}
"""What to add for prompts that lack what the method needs, by the reason."""


def _of_generation(job: JobRow, summary: JobSummary) -> Iterator[str]:
    if (made := summary.generation) is None:
        return
    if job.status == "budget_exhausted":
        yield _spent(job) + _raise_budget(job)
    elif made.reasons:
        reasons = ", ".join(f"{reason} {count}" for reason, count in made.reasons.items())
        missing = dict.fromkeys(_MISSING[reason] for reason in made.reasons if reason in _MISSING)
        again = f"`jobs retry {job.id}` asks again, but for the replies that are stored"
        if missing:
            again = f"{', '.join(missing)}, then `jobs retry {job.id}`"
        without = f"prompts without a rubric: {sum(made.reasons.values())}"
        yield f"{without} ({reasons}); `rubricsvc jobs items {job.id}` shows why; {again}"
    if made.refused_by:
        reasons = ", ".join(f"{reason} {count}" for reason, count in made.refused_by.items())
        yield f"refused by the gate ({reasons}): `rubricsvc rubrics show NAME --provenance` shows what it found"
    if made.drafts:
        yield (
            f"drafts to review: {made.drafts}; `rubricsvc rubrics list --state draft`, `rubrics submit`,"
            " `rubrics approve`"
        )
