"""What to do about the way that a job came out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rubricsvc.cli.output import cell

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.store.jobs import Progress, Summary
    from rubricsvc.store.tables import JobRow


def hints(job: JobRow, progress: Progress, summary: Summary) -> Iterator[str]:
    """A line for each thing that may surprise, and its mending."""
    exhausted = job.status == "budget_exhausted"
    if exhausted or summary.reserved.lost:
        yield _money(job, summary)
    if progress.failed_verdicts and not exhausted:
        yield f"`rubricsvc verdicts list --job {job.id} --outcome failed` says why; `jobs retry` redoes them"
    elif job.status == "completed_with_failures":  # a worker died of it, or the result could not be recorded
        yield f"`rubricsvc jobs export {job.id}` says null_reason; `jobs retry` redoes what failed"
    if summary.vetoed:
        count = sum(summary.vetoed.values())
        yield (
            f"{count} of {summary.rewards} rewards are vetoed by a required criterion ({cell(summary.vetoed)});"
            f" `rubricsvc jobs export {job.id}` says which"
        )
    if summary.voting.get("saved", 0.0) < 0:
        yield "the cascade cost more than its last judge alone would have: narrow its --band, or ask that one"


def _money(job: JobRow, summary: Summary) -> str:
    told = f"${job.spent:.4g} of its budget of ${job.budget:g} is spent"
    if lost := summary.reserved.lost:
        told += f" (${lost:.4g} of it lost with killed workers: what they had reserved for their calls, and ahead)"
    if job.status != "budget_exhausted":
        return told
    poor = f"; {summary.over_budget}: the worst case of one call must fit into it" if summary.over_budget else ""
    return f"{told}{poor}; `rubricsvc jobs retry {job.id} --budget DOLLARS` goes on with a larger one"


def in_words(voting: dict[str, float], judge: Judge) -> dict[str, Any]:
    """What is told of ``voting``, for people: of a panel, a cascade, or pairs."""
    told: dict[str, Any] = dict(voting)
    if "effective_votes" in voting:
        told["effective_votes"] = f"{voting['effective_votes']:.2f} of {len(judge.members or ())}"
    if "torn" in voting:
        told["torn"] = f"{voting['torn']:.0%} of the pairs: their two orders name different winners"
    if voting.get("saved", 0.0) < 0:
        told["saved"] = f"nothing (it cost {-voting['saved']:.0%} more)"
    if "saved_estimate" in voting:
        told["saved_estimate"] = (
            f"{voting['saved_estimate']:.0%}, were its last judge's replies as short as the first's"
        )
    elif "settled_early" in voting and "saved" not in voting:
        never = "its last judge was never asked; --price for each member lets it be estimated"
        told["saved"] = "not known: " + (never if voting["settled_early"] == 1 else "a server counted no tokens")
    if (counted := told.pop("saved_over", None)) is not None:
        name = "saved" if "saved" in told else "saved_estimate"
        told[name] = f"{told[name]}, over the {counted:g} verdicts of which each call's tokens were counted"
    return told
