"""`rubricsvc jobs`: completions to score, rubrics to generate."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.commands import Service, command, service
from rubricsvc.cli.importing import SkipInvalid, import_file
from rubricsvc.cli.output import Json, Out, cell, counted, echo, open_output, show
from rubricsvc.core import strict_json
from rubricsvc.errors import InvalidError
from rubricsvc.formats.writing import write_text
from rubricsvc.queries import BestOfNQuery, CompareQuery, ImportQuery, ItemFilters, JobFilters, RescoreQuery
from rubricsvc.schemas.jobs import ExportFormat, ExportQuery, NewItem, NewJob, RetryRequest, StoredJob
from rubricsvc.waiting import REMIND_SECONDS, no_worker

app = output.group("Jobs: completions to score, rubrics to generate.")

Id = Annotated[int, typer.Argument(help="The job's id.", show_default=False)]
Wait = Annotated[bool, typer.Option("--wait", help="Run the job now and wait for its end.")]

_ENDINGS: dict[str, ExportFormat] = {".jsonl": "jsonl", ".csv": "csv", ".html": "html", ".parquet": "parquet"}


@command(app)
def submit(
    new: NewJob,
    file: Annotated[str | None, typer.Argument(help="File to score; - is stdin.", show_default="all stored")] = None,
    *,
    format: Annotated[str | None, typer.Option(help="Format of the file.", show_default="detected")] = None,
    skip_invalid: SkipInvalid = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Submit completions for scoring: all stored ones, or those of a file.

    Submitting the same judge, completions, rubrics and --min-coverage again gives the same job; the budget must be the
    same too.
    """
    with service() as s:
        if file is not None:
            query = ImportQuery(format=format, skip_invalid=skip_invalid)
            done = import_file(s, file, query)
            given = dict.fromkeys(zip(done.completion_ids, done.completion_rubric_ids, strict=True))
            items = tuple(NewItem(completion_id=id_, rubric=rubric_id) for id_, rubric_id in given)
            new = new.model_copy(update={"completions": items})
        end(s, s.jobs.submit(new), wait, as_json)


@command(app, "show")
def show_(
    query: JobFilters,
    job_id: Annotated[int | None, typer.Argument(help="The job's id.", show_default="list jobs")] = None,
    as_json: Json = False,
) -> None:
    """Show one job with its progress and its results so far, or list jobs."""
    columns = ("id", "kind", "name", "judge", "status", "progress.finished", "progress.total", "created_at")
    with service() as s:
        if job_id is not None:
            show_job(s.jobs.get(job_id, summary=True), as_json)
        else:
            empty = "no jobs; submit one with `rubricsvc jobs submit --judge NAME`"
            show(s.jobs.page(query), as_json, columns=columns, empty=empty)


@command(app, "items")
def items_(job_id: Id, query: ItemFilters, as_json: Json = False) -> None:
    """List the items of a job: a completion, its rubric and its reward; or a prompt and its rubric."""
    names = ("id", "prompt_id", "completion_id", "completion_external_id", "policy", "rubric", "state")
    columns = (*names, "reward", "coverage", "vetoed_by", "null_reason", "text")
    with service() as s:
        show(s.jobs.items(job_id, query), as_json, columns=columns, empty="no items")


@app.command()
def wait(job_id: Id, as_json: Json = False) -> None:
    """Wait for a job; score it here if no worker can receive it."""
    with service() as s:
        wait_for(s, job_id, as_json)


@app.command()
def cancel(job_id: Id, as_json: Json = False) -> None:
    """Stop a job; its results so far stay."""
    with service() as s:
        s.jobs.cancel(job_id)
        show_job(s.jobs.get(job_id, summary=True), as_json)


@command(app)
def rescore(job_id: Id, query: RescoreQuery, wait: Wait = False, as_json: Json = False) -> None:
    """Score a job's completions under the newest approved version of its rubrics, as a new job.

    Stored verdicts are reused: after a change of weights or of --min-coverage no judge is asked.
    """
    with service() as s:
        job = s.jobs.rescore(job_id, query)
        if (now := job.progress) is not None and now.finished:  # of a remote service the workers do so later
            echo(f"{counted(now.finished, 'completion')} rescored without asking, {now.pending} to ask")
        end(s, job, wait, as_json)


@command(app)
def retry(job_id: Id, query: RetryRequest, wait: Wait = False, as_json: Json = False) -> None:
    """Score again what failed or was cancelled. A new budget includes what is spent already."""
    with service() as s:
        retried = s.jobs.retry(job_id, query)
        echo(f"{counted(retried.reopened, 'completion')} to score again")
        end(s, retried.job.model_copy(update={"is_new": True}), wait, as_json)


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of an exported completion: without messages, its verdicts by criterion, since rubrics differ."""
    verdicts = row["verdicts"]
    plain = {name: value for name, value in row.items() if name != "verdicts" and not name.endswith("_messages")}
    plain["prompt_tags"] = ";".join(row["prompt_tags"])
    for field in ("value", "contribution", "group", "tags"):
        by_criterion = {one["criterion"]: one.get(field) for one in verdicts}
        plain[field if field == "tags" else f"{field}s"] = strict_json.dump(by_criterion)
    plain["failed"] = " ".join(f"{one['criterion']}:{one['reason']}" for one in verdicts if "reason" in one)
    return plain


@command(app, without=("after", "limit"))
def export(
    job_id: Id,
    query: ExportQuery,
    *,
    format: Annotated[ExportFormat | None, typer.Option(help="Format.", show_default="by the ending of --out")] = None,
    out: Out = None,
) -> None:
    """Write rewards and verdicts with their texts, a row for each completion; or examples for TRL's trainers.

    As HTML it is a report: rewards, criteria, the worst and the best completions. The page holds everything in itself.
    """
    ending = out.suffix.lower() if out else ""
    if format is None and ending and ending not in _ENDINGS:
        hint = f"use one of {', '.join(_ENDINGS)}, or choose the format with --format"
        raise InvalidError(f"unknown ending {ending!r} of --out {out}", hint=hint, path="out")
    form = format or _ENDINGS.get(ending)
    if form == "csv" and query.kind != "completion":
        raise InvalidError(f"{query.kind} and csv exclude each other", hint="messages are no cells: choose jsonl")
    rows, unrewarded, left_out, min_margin = 0, 0, Counter[str](), query.min_margin

    def read() -> Iterator[dict[str, Any]]:
        """Yield the rows of all pages, and count what they have and leave out."""
        nonlocal rows, unrewarded, min_margin
        after: int | None = 0
        while after is not None:
            part = s.jobs.export(job_id, query.model_copy(update={"after": after}))
            yield from part.rows
            after, min_margin = part.next, part.min_margin
            rows += len(part.rows)
            unrewarded += sum("state" in row and row["reward"] is None for row in part.rows)
            left_out.update(part.left_out)

    with service() as s, open_output(out) as stream:
        if form == "html":
            stream.write(s.jobs.report(job_id))
            return
        if form == "parquet":
            import pyarrow as pa
            from pyarrow import parquet

            parquet.write_table(pa.Table.from_pylist(list(read())), stream.buffer)
        else:
            write_text(map(_cells, read()) if form == "csv" else read(), stream, form or "jsonl")
    reasons = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in left_out.items() if count)
    echo(f"{counted(rows, 'row')}; left out: {reasons or 'none'}")
    if unrewarded:
        echo(f"{counted(unrewarded, 'completion')} without a reward; null_reason and the verdicts say why")
    if min_margin is not None:
        echo(f"close: a tie, or a difference of the rewards below {cell(min_margin)}")


@command(app, without=("b", "policy_a", "policy_b"))
def compare(
    query: CompareQuery,
    a: Annotated[str, typer.Argument(help="Job to compare with: ID, or ID:POLICY.", show_default=False)],
    other: Annotated[str | None, typer.Argument(help="Other job.", show_default="the other policy of A")] = None,
    as_json: Json = False,
) -> None:
    """Compare two jobs, or policies of one: judges or rubric versions on the same completions, policies on prompts.

    Differences are B less A. Intervals treat prompts as independent, and need the extra `judging`.
    """
    (id_a, _, policy_a), (id_b, _, policy_b) = (ref.partition(":") for ref in (a, other or a))
    if not (id_a.isdecimal() and id_b.isdecimal()):
        raise InvalidError("expected jobs as ID or ID:POLICY", hint="list jobs with `rubricsvc jobs show`", path="a")
    given = query.model_copy(update={"b": int(id_b), "policy_a": policy_a or None, "policy_b": policy_b or None})
    with service() as s:
        found = s.jobs.compare(int(id_a), given)
    show(found if as_json else found.model_copy(update={"criteria": found.criteria[:20]}), as_json)


@command(app)
def bestofn(query: BestOfNQuery, as_json: Json = False) -> None:
    """Show what the best of n samples is worth by a gold score, if judges choose it by their rewards.

    The samples are the completions of each prompt that all jobs scored. Estimates are unbiased, and no judge is asked.
    """
    with service() as s:
        show(s.jobs.best_of_n(query), as_json)


def end(s: Service, job: StoredJob, wait: bool, as_json: bool) -> None:
    """Print a job that was submitted, or exists already; wait for it first, or say how it will be scored."""
    for note in job.notes:
        echo(note)
    if not job.is_new:
        echo(f"job {job.id} exists already; nothing is submitted")
    if wait:
        wait_for(s, job.id, as_json)
        return
    if job.workers == 0:
        echo(no_worker(job.id))
    found = s.jobs.get(job.id, summary=True)
    show_job(found.model_copy(update={"is_new": job.is_new}), as_json)


def show_job(job: StoredJob, as_json: bool) -> None:
    """Print one job with its results, and its hints to stderr."""
    record = job.model_dump(exclude={"hints", "notes", "is_new", "settings", "summary", "judge_id"})
    summary = job.summary.model_dump() if job.summary is not None else {}
    show(job if as_json else record | summary, as_json)
    for hint in job.hints:
        echo(f"hint: {hint}")


def wait_for(s: Service, job_id: int, as_json: bool) -> None:
    """Show a job's progress until it has ended, then the job; exit 1 unless it completed.

    Where no other worker can receive it, a worker of this process scores it.
    """
    kept = partial(output.continue_hint, "results so far are stored", f"rubricsvc jobs wait {job_id}")
    seen, changed_at = 0, time.monotonic()

    def update(job: StoredJob) -> None:
        nonlocal seen, changed_at
        if (now := job.progress) is None:
            return
        noun, good, bad = "verdict", now.verdicts, now.failed_verdicts
        if job.kind == "generate":
            noun, good, bad = "rubric", now.done, now.failed
        text = counted(good, noun) + (f", {bad} failed" if bad else "")
        if not job.finished:
            workers = counted(job.workers or 0, "running worker")
            text += f"; waits for {now.leased} leased and {now.pending} pending items, {workers}"
            idle_s = time.monotonic() - changed_at
            if good + bad != seen:
                seen, changed_at = good + bad, time.monotonic()
            elif now.leased and idle_s > REMIND_SECONDS:
                text += f", for {idle_s:.0f} s without a {noun}: is the judge up? The log of its worker says"
        bar.update(now.finished, now.total, text)

    # the inner hint is printed before the worker stops, which may take a while
    with kept(), s.scoring(job_id, echo), kept(), output.progress_bar(f"job {job_id}") as bar:
        job = s.jobs.wait(job_id, None, update, echo)
    with output.exit_with(output.OK if job.status == "completed" else output.WITH_FAILURES):
        show_job(job, as_json)
