"""`rubricsvc evolve`: rubrics that labels or training runs improve."""

from contextlib import ExitStack
from typing import Annotated, cast

import typer

from rubricsvc.cli.commands import command, service
from rubricsvc.cli.output import Json, continue_hint, counted, echo, fields_of, group, progress_bar, show
from rubricsvc.core.evolution import EvolutionReport, EvolutionRequest
from rubricsvc.errors import needs_extra
from rubricsvc.queries import EvolutionFilters
from rubricsvc.schemas.jobs import StoredJob
from rubricsvc.services.local import LocalService

app = group("Evolutions: rubrics that labels or training runs improve.")


@command(app)
def start(
    rubric: Annotated[str, typer.Argument(help="Rubric: name or name@version.")],
    request: EvolutionRequest,
    as_json: Json = False,
) -> None:
    """Evolve a rubric against people's labels: propose, measure, keep what agrees better, and store it as a draft.

    The same command continues what was interrupted, or what has used its --budget. The proposer is asked from here.
    """
    from rubricsvc.cli.models import fetch_embedded

    with needs_extra("judging"):
        from workers.evolution import evolve_on_labels
    with (
        service() as s,
        continue_hint("rounds so far are stored"),
        progress_bar(f"evolution of {rubric}") as bar,
        ExitStack() as workers,  # of this process, until the last job has ended
    ):

        def update(job: StoredJob) -> None:
            if (now := job.progress) is not None:
                bar.note(f"job {job.id}: {now.finished} of {counted(now.total, 'completion')}")

        def score_job(job_id: int) -> StoredJob:
            workers.enter_context(s.scoring(job_id, echo))
            return s.jobs.wait(job_id, None, update, echo)

        if request.proposer is not None:
            fetch_embedded(s.judges.get(request.proposer).value)
        evolution_id = evolve_on_labels(cast("LocalService", s), request, score_job, bar.update)
        report = s.evolutions.get(evolution_id)
    _show(report, as_json)


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
    measured = ("key", "state", "reason", "trials", "separation", "mean", "agreeing", "pairs")
    did = ("score", "proposed", "activated", "retired", "failure")
    result = report.held_out
    sections = {
        "held_out": result and fields_of(result, "start", "best", "difference"),
        "criteria": [fields_of(one, *measured) | {"text": one.criterion.text} for one in report.entries],
        "rounds": [fields_of(one, "step", "used", "wrote") | fields_of(one.round, *did) for one in report.rounds],
    }
    show(fields_of(report, *names) | sections)
    if result is not None and report.newest is not None:
        echo(f"`rubricsvc rubrics diff {report.rubric} {report.newest}` shows the changes; then `rubrics review`")
    if result is not None and not result.gain:
        echo("no gain is shown on held-out prompts: the interval is not above 0")
