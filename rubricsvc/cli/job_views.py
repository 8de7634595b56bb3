"""What the commands print of a job: its progress, its results so far, and hints about its outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rubricsvc.cli.failure_hints import failure_hints
from rubricsvc.cli.output import cell, counted, echo, first_names, print_data, print_table, shorten, show
from rubricsvc.core.generation import GenerationSummary
from rubricsvc.core.jobs import JobProgress, JobSummary
from rubricsvc.services import job_items
from rubricsvc.store import items, jobs

if TYPE_CHECKING:
    from rubricsvc.services.job_items import ItemDetail
    from rubricsvc.store.jobs import JobOutcome
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import ItemRow, JobRow


def summary_row(job: JobRow) -> dict[str, Any]:
    """Return the fields of a job itself."""
    judge = job.judge.valid
    return {
        "id": job.id,
        "kind": job.kind,
        "name": job.name,
        "judge": job.judge.name,
        "judge_calibrated": judge and judge.calibrated,
        "min_coverage": job.min_coverage,
        "status": job.status,
        "created_at": job.created_at.isoformat(timespec="seconds"),
        "finished_at": job.finished_at.isoformat(timespec="seconds") if job.finished_at else None,
    }


def list_row(job: JobRow, outcome: JobOutcome, as_json: bool) -> dict[str, Any]:
    """Return a job's fields and its outcome in a list; a table has the shorter ones."""
    if as_json:
        return summary_row(job) | outcome._asdict()
    return {
        "id": job.id,
        "kind": job.kind,
        "name": job.name,
        "judge": job.judge.name,
        "rubrics": first_names(outcome.rubrics),
        "min_coverage": "" if job.min_coverage is None else job.min_coverage,
        "status": job.status,
        "done": f"{outcome.finished}/{outcome.total}",
        "mean_reward": outcome.mean_reward,
        "created_at": f"{job.created_at:%Y-%m-%d %H:%M}",
    }


def item_row(row: ItemRow, as_json: bool) -> dict[str, Any]:
    """Return an item's fields in a list; a table has the beginning of its prompt, and not all of them."""
    if row.prompt_id is not None:
        record = job_items.generation_record(row)
        return (
            record if as_json else record | {"prompt": shorten(record["prompt"], 40), "reason": row.null_reason or ""}
        )
    record, prompt = job_items.item_record(row), row.completion.prompt.value.text
    if as_json:
        return record | {"prompt": prompt}
    left_out = ("prompt_id", "prompt_external_id", "formula", "vetoed_by", "null_reason")
    shown = {name: value for name, value in record.items() if name not in left_out}
    notes = {"vetoed_by": row.vetoed_by or "", "null_reason": row.null_reason or ""}
    return shown | {"prompt": shorten(prompt, 40)} | notes


class JobView(NamedTuple):
    """The ``data`` and the ``hints`` of one job."""

    data: dict[str, Any]
    hints: tuple[str, ...]


def read_job(db: Database, job_id: int) -> JobView:
    """Read one job with its progress and its results so far."""
    with db.read() as session:
        job = jobs.get(session, job_id)
        progress, summary = jobs.progress(session, job_id), jobs.summary(session, job_id)
        over_budget = jobs.budget_message(session, job_id) if job.status == "budget_exhausted" else None
        data = summary_row(job) | {"progress": progress.model_dump()}
        if (judge := job.judge.valid) and judge.priced:
            data |= {"spent_usd": round(job.spent, 6), "budget_usd": job.budget}
        if job.budget is not None:
            held, lost = summary.reserved.held, summary.reserved.lost
            data |= {"reserved_usd": round(held, 6), "lost_usd": round(lost, 6)}
        if summary.generation is not None:
            data |= summary.generation.model_dump()
            return JobView(data, tuple(_generation_hints(job, summary.generation)))
        data |= summary.model_dump(exclude={"reserved", "generation"})
        null_coverage = items.null_coverage(session, job_id)
        return JobView(data, tuple(_hints(job, progress, summary, over_budget, null_coverage)))


def _hints(
    job: JobRow, progress: JobProgress, summary: JobSummary, over_budget: str | None, null_coverage: float | None
) -> Iterator[str]:
    """Yield a line for each failure, veto or cost that needs attention, with the command that helps."""
    exhausted, lost = job.status == "budget_exhausted", summary.reserved.lost
    if exhausted or lost:
        spent = f"${job.spent:.4g} of the budget of ${job.budget:g} is spent"
        killed = f" (${lost:.4g} of it reserved by workers that were killed)" if lost else ""
        worst = f"; {over_budget}: the worst case of one call must fit into it" if over_budget else ""
        remedy = f"; raise it with `rubricsvc jobs retry {job.id} --budget DOLLARS`" if exhausted else ""
        yield spent + killed + worst + remedy
    judge = job.judge.valid
    if judge is None:
        yield f"{job.judge.error}"
    elif progress.failed_verdicts and not exhausted:
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
        share = (
            f"{summary.quotes_not_found} of {summary.quotes} quotes ({summary.quotes_not_found / summary.quotes:.0%})"
        )
        required = judge is not None and judge.require_evidence
        fails = "" if required else "; `require_evidence` in a judge file fails such verdicts"
        yield f"{share} are not in the completions{fails}"
    if summary.voting.get("saved", 0.0) < 0:
        yield "the cascade cost more than its last judge alone: add one with a narrower `band`, or use the last judge"


_MISSING = {
    "no_trajectory": "import completions with tool calls (`rubricsvc completions import FILE`)",
    "no_rubrics": "import a second rubric of the prompt (`rubricsvc rubrics import FILE`)",
}
"""What to add for prompts that lack what the method needs, by the reason."""


def _generation_hints(job: JobRow, made: GenerationSummary) -> Iterator[str]:
    """Yield a line for prompts without a rubric, and for drafts, with the command that helps."""
    if job.status == "budget_exhausted":
        spent = f"${job.spent:.4g} of the budget of ${job.budget:g} is spent"
        yield f"{spent}; raise it with `rubricsvc jobs retry {job.id} --budget DOLLARS`"
    elif made.reasons:
        reasons = ", ".join(f"{reason} {count}" for reason, count in made.reasons.items())
        without = counted(sum(made.reasons.values()), "prompt")
        missing = dict.fromkeys(_MISSING[reason] for reason in made.reasons if reason in _MISSING)
        again = f"`jobs retry {job.id}` asks again, but for the replies that are stored"
        if missing:
            again = f"{', '.join(missing)}, then `jobs retry {job.id}`"
        yield f"{without} without a rubric ({reasons}): `rubricsvc jobs items {job.id}` shows why; {again}"
    if made.refused_by:
        reasons = ", ".join(f"{reason} {count}" for reason, count in made.refused_by.items())
        yield f"refused by the gate ({reasons}): `rubricsvc rubrics show NAME --provenance` shows what it found"
    if made.drafts:
        drafts = counted(made.drafts, "draft")
        yield f"{drafts} to review: `rubricsvc rubrics list --state draft`, `rubrics submit`, `rubrics approve`"


CRITERIA_SHOWN = 3
"""Of each completion: those with the largest gain."""


def read_extremes(db: Database, job_id: int, *, worst: int, best: int) -> dict[str, Any]:
    """Read so many of the worst and the best completions, and those without a reward with their reasons."""
    with db.read() as session:
        job = jobs.get(session, job_id)
        return {
            "worst": job_items.worst(session, job, worst),
            "best": job_items.best(session, job, best),
            "without_reward": job_items.without_reward(session, job, max(worst, best)),
            "null_reasons": items.null_reasons(session, job_id),
        }


def print_extremes(extremes: Mapping[str, Any]) -> None:
    """Print a table of the worst completions, of the best, and of those without a reward."""
    for heading in ("worst", "best"):
        if extremes[heading]:
            print_data(f"\n{heading} completions, with the criteria of the largest gain")
            _print_details(extremes[heading])
    missing: list[ItemDetail] = extremes["without_reward"]
    if missing:
        print_data(f"\n{counted(sum(extremes['null_reasons'].values()), 'completion')} without a reward")
        rows = [(*_name_cells(one), one.fields["null_reason"] or one.fields["state"]) for one in missing]
        print_table((*_NAME_COLUMNS, "reason"), rows)


def _print_details(details: Sequence[ItemDetail]) -> None:
    """Print a row for each completion, and below it a row for each further criterion."""
    rows: list[tuple[Any, ...]] = []
    for detail in details:
        first: tuple[Any, ...] = (detail.reward, *_name_cells(detail))
        for part in detail.gains[:CRITERIA_SHOWN]:
            gain = "veto" if part.vetoes else cell(part.gain)
            pitfall = " (pitfall)" if part.criterion.weight < 0 else ""
            text = f"{part.criterion.key}{pitfall}: {shorten(part.criterion.text)}"
            rows.append((*first, gain, part.verdict.value if part.verdict else None, text))
            first = ("",) * len(first)
        if not detail.gains:
            rows.append((*first, "", "", "nothing"))
    print_table(("reward", *_NAME_COLUMNS, "gain", "value", "criterion"), rows)


def print_job(view: JobView, as_json: bool, extremes: Mapping[str, Any] | None = None) -> None:
    """Print one job, tables of its extreme completions, and its hints to stderr."""
    show(view.data, as_json)
    if extremes:
        print_extremes(extremes)
    for hint in view.hints:
        echo(f"hint: {hint}")


_NAME_COLUMNS = ("completion", "external_id", "policy", "prompt")


def _name_cells(detail: ItemDetail) -> tuple[Any, ...]:
    """Return the cells of `_NAME_COLUMNS`."""
    names = (detail.fields[name] for name in ("completion_id", "completion_external_id", "policy"))
    return *names, shorten(detail.prompt.text, 40)
