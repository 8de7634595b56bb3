"""`rubricsvc evolve`: rubrics that labels or training runs improve."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from rubricsvc.cli.options import command
from rubricsvc.cli.output import Json, continue_hint, echo, fields_of, group, print_table, progress_bar, show
from rubricsvc.cli.service import local_service, service
from rubricsvc.core.evolution import EvolutionReport, EvolutionRequest
from rubricsvc.errors import InvalidError
from rubricsvc.schemas.evolutions import EvolutionFilters

app = group("Evolutions: rubrics that labels or training runs improve.")


@command(app)
def start(
    request: EvolutionRequest,
    rubric: Annotated[str | None, typer.Argument(help="Rubric, as name@version.", show_default=False)] = None,
    resume: Annotated[int | None, typer.Option(help="Continue this evolution instead.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Evolve a rubric against people's labels: propose, measure, keep what agrees better, and store it as a draft."""
    with local_service() as s:
        if (rubric is None) == (resume is None):
            hint = "`rubricsvc evolve start NAME`, or `rubricsvc evolve start --resume ID`"
            raise InvalidError("name a rubric, or an evolution with --resume", hint=hint)
        report = s.evolutions.get(resume) if resume is not None else s.evolutions.start(rubric or "", request)
        settings = report.settings or request
        from rubricsvc.cli.jobs import job_scorer

        propose: Any = None
        if settings.proposer is not None:
            from rubricsvc.cli.models import ask
            from workers.authoring.evolution import LabelProposer

            judge = s.judges.value(settings.proposer)
            options: dict[str, Any] = {"max_proposals": settings.max_proposals, "sampling": settings.sampling}
            propose = LabelProposer(judge, partial(ask, judge), **options)
        with (
            continue_hint("rounds so far are stored"),
            progress_bar(f"evolution {report.id}") as bar,
            job_scorer(s.db, bar.note) as score_job,
        ):
            budget = request.budget
            found = s.evolutions.search(report.id, score_job, propose, budget=budget, on_progress=bar.update)
    _show(found, as_json)


@command(app, "show")
def show_(
    query: EvolutionFilters,
    evolution_id: Annotated[int | None, typer.Argument(help="Id.", show_default="list evolutions")] = None,
    as_json: Json = False,
) -> None:
    """Show an evolution: its criteria with what was measured of them, its rounds and its gain; or list evolutions."""
    empty = "no evolutions; start one with `rubricsvc evolve start NAME`, or train with a table [evolve]"
    columns = ("id", "rubric", "run", "prompt_id", "steps", "planned", "newest", "cost")
    with service() as s:
        if evolution_id is not None:
            _show(s.evolutions.get(evolution_id), as_json)
        else:
            show(s.evolutions.page(query), as_json, columns=columns, empty=empty)


def _show(report: EvolutionReport, as_json: bool) -> None:
    if as_json:
        show(report, as_json)
        return
    names = ("id", "run", "prompt_id", "rubric", "newest", "steps", "planned", "cost", "jobs", "finished_at")
    result = report.held_out
    gain = result and fields_of(result, "start", "best") | {
        "low": result.difference.low,
        "high": result.difference.high,
    }
    show(fields_of(report, *names) | {"held_out": gain or None})
    entries = [
        (
            one.key,
            f"{one.state} ({one.reason})" if one.reason else one.state,
            *(one.trials, one.separation, one.mean, one.agreement, one.criterion.text),
        )
        for one in report.entries
    ]
    print_table(("key", "state", "trials", "separation", "mean", "agreement", "text"), entries)
    rounds = [
        (one.step + 1, one.used, one.wrote, done.score, done.proposed, done.activated, done.retired, done.failure)
        for one in report.rounds
        if (done := one.round) is not None
    ]
    if rounds:
        print_table(("step", "used", "wrote", "score", "proposed", "added", "retired", "failure"), rounds)
    if result is not None and report.newest is not None:
        echo(f"`rubricsvc rubrics diff {report.rubric} {report.newest}` shows the changes; approve it as any draft")
    if result is not None and not result.gain:
        echo("no gain is shown on held-out prompts: the interval is not above 0")
