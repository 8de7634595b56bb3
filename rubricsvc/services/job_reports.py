"""A job with its progress, its results so far, and hints about its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rubricsvc.store import jobs

if TYPE_CHECKING:
    from rubricsvc.core.jobs import JobProgress, JobSummary
    from rubricsvc.core.judge import Judge
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import JobRow


def summary_row(job: JobRow) -> dict[str, Any]:
    """Return a job's fields in a list."""
    return {
        "id": job.id,
        "name": job.name,
        "judge": job.judge.name,
        "judge_calibrated": job.judge.value.calibrated,
        "status": job.status,
        "created_at": job.created_at.isoformat(timespec="seconds"),
        "finished_at": job.finished_at.isoformat(timespec="seconds") if job.finished_at else None,
    }


@dataclass(frozen=True, slots=True)
class JobReport:
    """One job: its ``data`` for JSON, ``voting`` for people, and ``hints``."""

    data: dict[str, Any]
    voting: dict[str, Any]
    hints: tuple[str, ...]


def read_job(db: Database, job_id: int) -> JobReport:
    """Read one job with its progress and its results so far."""
    with db.read() as session:
        job = jobs.get(session, job_id)
        progress, summary = jobs.progress(session, job_id), jobs.summary(session, job_id)
        data = summary_row(job) | {"progress": progress.model_dump()}
        if job.judge.value.priced:
            data |= {"spent_usd": round(job.spent, 6), "budget_usd": job.budget}
        if job.budget is not None:
            held, lost = summary.reserved.held, summary.reserved.lost
            data |= {"reserved_usd": round(held, 6), "lost_usd": round(lost, 6)}
        names = ("rewards", "mean_reward", "reasons", "vetoed", "cached_share", "voting")
        data |= {name: getattr(summary, name) for name in names}
        voting = describe_voting(summary.voting, job.judge.value)
        worst = jobs.budget_message(session, job_id) if job.status == "budget_exhausted" else None
        return JobReport(data, voting, tuple(hints(job, progress, summary, worst)))


def hints(job: JobRow, progress: JobProgress, summary: JobSummary, worst_case: str | None) -> Iterator[str]:
    """Yield a line for each failure, veto or cost that needs attention, with the command that helps."""
    exhausted = job.status == "budget_exhausted"
    if exhausted or summary.reserved.lost:
        yield _budget_hint(job, summary.reserved.lost, worst_case)
    if progress.failed_verdicts and not exhausted:
        yield f"`rubricsvc verdicts list --job {job.id} --outcome failed` shows why; `jobs retry` asks again"
    elif job.status == "completed_with_failures":  # a worker died, or the result could not be recorded
        yield f"`rubricsvc jobs export {job.id}` shows null_reason; `jobs retry` scores again what failed"
    if summary.vetoed:
        criteria = ", ".join(f"{key} {count}" for key, count in summary.vetoed.items())
        yield (
            f"{sum(summary.vetoed.values())} of {summary.rewards} rewards are vetoed by a required criterion"
            f" ({criteria}); `rubricsvc jobs export {job.id}` shows which"
        )
    if summary.voting.get("saved", 0.0) < 0:
        yield "the cascade cost more than its last judge alone: add one with a narrower `band`, or use the last judge"


def _budget_hint(job: JobRow, lost: float, worst_case: str | None) -> str:
    message = f"${job.spent:.4g} of the budget of ${job.budget:g} is spent"
    if lost:
        message += f" (${lost:.4g} of it reserved by workers that were killed)"
    if job.status != "budget_exhausted":
        return message
    worst = f"; {worst_case}: the worst case of one call must fit into it" if worst_case else ""
    return f"{message}{worst}; raise it with `rubricsvc jobs retry {job.id} --budget DOLLARS`"


def describe_voting(voting: dict[str, float], judge: Judge) -> dict[str, Any]:
    """Return ``Summary.voting`` of a panel, a cascade or a pairwise judge with units and notes for people."""
    shown: dict[str, Any] = dict(voting)
    if "effective_votes" in voting:
        shown["effective_votes"] = f"{voting['effective_votes']:.2f} of {len(judge.members or ())}"
    if "order_disagreement" in voting:
        shown["order_disagreement"] = (
            f"{voting['order_disagreement']:.0%} of the pairs have another winner in the other order"
        )
    if voting.get("saved", 0.0) < 0:
        shown["saved"] = f"nothing (it cost {-voting['saved']:.0%} more)"
    if "resolved_early" in voting and "saved" not in voting:
        shown["saved"] = "unknown: the last judge was never asked, or a server reported no token counts"
    return shown
