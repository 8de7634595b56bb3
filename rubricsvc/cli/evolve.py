"""`rubricsvc evolve`: rubrics searched for against people's labels, and the criteria that training runs propose."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.criterion_buffer import buffer
from rubricsvc.cli.db import database
from rubricsvc.cli.importing import By, edit_of
from rubricsvc.cli.output import After, Json, Limit, Seed, echo, print_json, show, show_list, show_page
from rubricsvc.cli.rubric_analysis import JudgeOfScores
from rubricsvc.core.evolution import Objective
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from rubricsvc.core.evolution import EvolutionSettings
    from rubricsvc.store.session import Database

app = output.group(
    "Evolutions: rubrics searched for against people's labels, and the criteria that training runs propose."
)

Id = Annotated[int, typer.Argument(help="Id of the evolution.", show_default=False)]
POLL_SECONDS = 1.0
SILENT_SECONDS = 60.0
"""Time without a change after which `watch` says so."""


@app.command("start")
def start_(
    ref: Annotated[str | None, typer.Argument(help="Rubric version to start from.", show_default=False)] = None,
    *,
    resume: Annotated[int | None, typer.Option(help="Continue this evolution.", show_default=False)] = None,
    objective: Annotated[
        Objective | None, typer.Option(help="What is maximized.", show_default="the first that has enough labels")
    ] = None,
    job: Annotated[int | None, typer.Option(help="Only what this job scored.")] = None,
    held_out_job: Annotated[int | None, typer.Option(help="Job with the held-out prompts.")] = None,
    held_out: Annotated[float, typer.Option(min=0.05, max=0.95, help="Share of the prompts that are held out.")] = 0.4,
    judge: JudgeOfScores = None,
    template: Annotated[list[str] | None, typer.Option(help="Prompt template of the judge to try; repeatable.")] = None,
    proposer: Annotated[str | None, typer.Option(help="Judge whose model rewords, splits and adds criteria.")] = None,
    generations: Annotated[int, typer.Option(min=1, max=1000, help="Generations.")] = 8,
    islands: Annotated[int, typer.Option(min=1, max=64, help="Islands: populations that rarely mix.")] = 4,
    children: Annotated[int, typer.Option(min=1, max=1000, help="Children of an island in a generation.")] = 6,
    seed: Seed = 0,
    budget: Annotated[float | None, typer.Option(min=0, help="US dollars that models may cost.")] = None,
    as_json: Json = False,
) -> None:
    """Evolve a rubric against labels, and compare the best candidate with it on held-out prompts.

    Weights, formulas, thresholds and subsets of criteria are tried on stored verdicts, without asking a judge. With
    --template or --proposer the judge is asked about what is new. The same command continues an evolution that was
    interrupted. It needs the extra `judging`.
    """
    if (ref is None) == (resume is None):
        raise InvalidError("expected a rubric version, or --resume ID", hint="`rubricsvc evolve list` lists evolutions")
    fields: dict[str, Any] = {"judge": judge, "objective": objective, "budget": budget, "proposer": proposer}
    fields |= {"job_id": job, "held_out_job_id": held_out_job, "held_out": held_out, "templates": tuple(template or ())}
    fields |= {"seed": seed, "generations": generations, "islands": islands, "children": children}
    with database() as db:
        evolution_id = resume
        if evolution_id is None:
            evolution_id = _add(db, str(ref), fields)
        if not _completed(db, evolution_id):
            _run(db, evolution_id, budget)
        _show(db, evolution_id, as_json)


def _add(db: Database, ref: str, fields: dict[str, Any]) -> int:
    from rubricsvc.services import evolving
    from rubricsvc.store import judges
    from workers import judges as asking

    with db.write() as session:
        started = evolving.start(session, ref, **fields)
        for name in started.row.settings_value.templates:
            asking.validate(judges.get(session, started.row.judge_id).value.model_copy(update={"template": name}))
        evolution_id, is_new = started.row.id, started.is_new
    echo(f"evolution {evolution_id}" if is_new else f"evolution {evolution_id} exists already")
    return evolution_id


def _completed(db: Database, evolution_id: int) -> bool:
    from rubricsvc.store import evolutions

    with db.read() as session:
        return evolutions.get(session, evolution_id).status == evolutions.COMPLETED


def _run(db: Database, evolution_id: int, budget: float | None) -> None:
    from rubricsvc.cli.job_waiting import job_scorer
    from rubricsvc.services.evolution_search import EvolutionSearch
    from rubricsvc.store import evolutions

    with db.read() as session:
        settings = evolutions.get(session, evolution_id).settings_value
    done = 0, 1
    with _continue_hint(evolution_id), output.progress_bar(f"evolution {evolution_id}") as bar:

        def update(number: int, total: int, note: str) -> None:
            nonlocal done
            done = number, total
            bar.update(number, total, note)

        with job_scorer(db, lambda note: bar.update(*done, note)) as score_job:
            proposer = _proposer(db, evolution_id, settings) if settings.proposer is not None else None
            search = EvolutionSearch(db, evolution_id, score_job, proposer=proposer, on_progress=update)
            search.run(budget=budget)


def _proposer(db: Database, evolution_id: int, settings: EvolutionSettings) -> Any:
    from rubricsvc.cli.models import ask
    from rubricsvc.store import judges
    from workers.authoring.evolution.proposing import ModelProposer

    with db.read() as session:
        judge = judges.get(session, settings.proposer or "").value
    return ModelProposer(db, evolution_id, judge, settings.sampling, partial(ask, judge))


@contextmanager
def _continue_hint(evolution_id: int) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        echo(f"\ninterrupted; continue with: rubricsvc evolve start --resume {evolution_id}")
        raise typer.Exit(output.INTERRUPTED) from None


def _show(db: Database, evolution_id: int, as_json: bool) -> None:
    from rubricsvc.cli.evolution_views import closing_record, print_evolution
    from rubricsvc.services.evolution_reports import evolution_report

    with db.read() as session:
        report = evolution_report(session, evolution_id)
    if as_json:
        print_json(closing_record(report))
    else:
        print_evolution(report)


@app.command("list")
def list_(limit: Limit = 50, after: After = 0, as_json: Json = False) -> None:
    """List evolutions."""
    from rubricsvc.cli.evolution_views import evolution_cells
    from rubricsvc.services.evolution_reports import evolution_summaries
    from rubricsvc.store import evolutions

    with database() as db, db.read() as session:
        rows = evolution_summaries(session, evolutions.page(session, after=after, limit=limit + 1))
        empty = "no evolutions; start one with `rubricsvc evolve start NAME`"
        show_page(rows, evolution_cells, limit, as_json, empty=empty)


@app.command("show")
def show_(
    evolution_id: Id,
    out: Annotated[Path | None, typer.Option(help="Write an HTML page with the lineage.")] = None,
    candidates: Annotated[bool, typer.Option("--candidates", help="List all candidates instead.")] = False,
    as_json: Json = False,
) -> None:
    """Show an evolution: the best candidate, how it was made, and what it gains on held-out prompts."""
    with database() as db:
        if candidates:
            from rubricsvc.services.evolution_reports import evolution_report

            with db.read() as session:
                rows = evolution_report(session, evolution_id).candidates
            show_list((one.model_dump(mode="json") for one in rows), as_json)
            return
        if out is not None:
            from rubricsvc.services.evolution_reports import evolution_report
            from rubricsvc.web.evolution import render_evolution

            with db.read() as session:
                page = render_evolution(evolution_report(session, evolution_id))
            with output.open_output(out) as stream:
                stream.write(page)
        if out is None or as_json:
            _show(db, evolution_id, as_json)


@app.command()
def watch(evolution_id: Id, as_json: Json = False) -> None:
    """Follow an evolution that another process works on until it ends."""
    from rubricsvc.cli.evolution_views import scores_note
    from rubricsvc.services.evolution_reports import evolution_summaries
    from rubricsvc.store import evolutions
    from rubricsvc.store.base import utcnow

    silent = False
    with database() as db:
        with output.progress_bar(f"evolution {evolution_id}") as bar:
            while True:
                with db.read() as session:
                    (one,) = evolution_summaries(session, [evolutions.get(session, evolution_id)])
                bar.update(one.reached, one.planned, scores_note(one))
                if one.status != evolutions.RUNNING:
                    break
                since = (utcnow() - one.updated_at).total_seconds()
                if since > SILENT_SECONDS and not silent:
                    echo(f"nothing has changed for {since:.0f} s; if its process has ended, continue it:")
                    echo(f"  rubricsvc evolve start --resume {evolution_id}")
                silent = since > SILENT_SECONDS
                time.sleep(POLL_SECONDS)
        _show(db, evolution_id, as_json)


@app.command()
def stop(evolution_id: Id, as_json: Json = False) -> None:
    """Stop an evolution; it can be continued by `evolve start --resume`."""
    from rubricsvc.store import evolutions

    with database() as db:
        with db.write() as session:
            evolutions.stop(session, evolution_id)
        _show(db, evolution_id, as_json)


@app.command()
def best(
    evolution_id: Id,
    *,
    name: Annotated[str | None, typer.Option(help="Name of the rubric.", show_default="that of the start")] = None,
    judge_out: Annotated[Path | None, typer.Option(help="Write its judge, if it is not that of the start.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Store it even if the start was edited since.")] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Store the best candidate as a draft version whose parent is the start; it is never approved by itself.

    A candidate with another template or threshold needs another judge, which --judge-out writes as a judge file.
    """
    from rubricsvc.formats.judges import dump_judge
    from rubricsvc.services import evolving
    from rubricsvc.store import evolutions

    with database() as db, db.write() as session:
        row = evolutions.get(session, evolution_id)
        found = evolving.best_candidate(session, row)
        judge = evolving.judge_of(row, found.value)
        added = evolving.save_best(session, row, name=name, by=edit_of(by).by, force=force)
        start, gain = row.rubric.ref, row.held_out.gain if row.held_out else None
    if judge is not None and judge_out is not None:
        with output.open_output(judge_out) as stream:
            dump_judge(judge, stream)
    if added is not None and added.conflict is not None:
        raise added.conflict
    data = {"evolution": evolution_id, "candidate": found.number, "rubric": added.row.ref if added else start}
    data |= {"state": added.row.state if added else None, "parent": start if added else None, "gain": gain}
    show(data | {"judge": judge.model_dump(mode="json", exclude_defaults=True) if judge else None}, as_json)
    if added is None:
        echo(f"nothing stored: the best candidate has the rubric of {start}")
    else:
        echo(f"`rubricsvc rubrics diff {start} {added.row.ref}` shows the changes; approve it as any draft")
    if judge is not None:
        where = judge_out or "FILE"
        echo(f"it needs its own judge: `rubricsvc judges add -f {where}`" + " after --judge-out FILE" * (not judge_out))
    if not gain:
        echo("no gain is shown on held-out prompts: the interval is not above 0, or there is none yet")


app.command()(buffer)
