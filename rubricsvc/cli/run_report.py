"""`rubricsvc runs report` and `runs plot`: a training run as a page, and its curves as pictures."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from rubricsvc.cli import output
from rubricsvc.cli.db import database
from rubricsvc.cli.pictures import check_picture, write_picture
from rubricsvc.cli.run_alarms import with_alarms
from rubricsvc.cli.run_folders import read_record
from rubricsvc.cli.run_samples import MOST_ROWS, TRANSCRIPTS, of_several_prompts, with_evaluations
from rubricsvc.cli.run_views import Run, find, last_steps
from rubricsvc.core.judge import Judge
from rubricsvc.core.run_report import RunReport, Sample
from rubricsvc.core.validation_messages import closest
from rubricsvc.errors import InvalidError, NotFoundError, needs_extra

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.passport import Passport
    from rubricsvc.core.run import StoredRun

_LOOKED_AT = 500
_CAPTION_CHARS = 110
_SCORES_NOTE = "Mean by evaluation. Bands are 95 % intervals over prompts; fewer than 5 have none."


def report(
    run: Run,
    *,
    out: Annotated[Path, typer.Option(help="Page to write.", show_default=False)],
) -> None:
    """Write a run as one page: samples, evaluations with intervals, alarms, curves, judge, configuration.

    The page holds everything in itself, needs no script and loads nothing.
    """
    with needs_extra("charts"):
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    from rubricsvc.web.run import render_run

    page = render_run(read_report(run))
    with output.open_output(out) as stream:
        stream.write(page)


def plot(
    run: Run,
    *,
    out: Annotated[Path, typer.Option(help="Picture to write: .svg or .png.", show_default=False)],
    metric: Annotated[list[str] | None, typer.Option(help="Metric; repeat it.", show_default="reward")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All curves of the report, side by side.")] = False,
) -> None:
    """Write metrics of a run over its steps as a picture."""
    check_picture(out)
    if all_ and metric:
        raise InvalidError("--all and --metric exclude each other", hint="leave out one of them")
    found = read_report(run)
    picture = _all_curves(found) if all_ else _curve(found.steps, metric or ["reward"])
    write_picture(picture, out)


def _curve(steps: Sequence[Mapping[str, Any]], names: list[str]) -> Any:
    """Return a chart of metrics by their names."""
    from rubricsvc.web.charts import WIDTHS, styled
    from rubricsvc.web.run_charts import band_note, curve, metric_points

    known = sorted(name for name in {name for step in steps for name in step} if metric_points(steps, [name]))
    missing = [name for name in names if name not in known]
    if missing:
        hint = closest(missing[0], known) if known else "no step is finished yet"
        raise NotFoundError(f"the run has no numbers of {', '.join(missing)}", hint=hint)
    chart = curve(names[0] if len(names) == 1 else "value", metric_points(steps, names), height=300)
    return styled(chart(WIDTHS["wide"]).properties(title=_caption(band_note(steps, names))))


def _all_curves(found: RunReport) -> Any:
    """Return the curves of the report, side by side; first the scores on held-out prompts."""
    from rubricsvc.web.charts import configured
    from rubricsvc.web.run_charts import score_points
    from rubricsvc.web.run_curves import Curve, curves, side_by_side
    from rubricsvc.web.run_distance import distance_curve

    scores = Curve("Mean score on held-out prompts", _SCORES_NOTE, score_points(found.evaluations))
    distance = distance_curve(found.steps, found.evaluations)
    shown = [one for one in (scores, distance, *curves(found.steps)) if one.points]
    if not shown:
        raise NotFoundError(f"run {found.name} has no curves", hint="no step is finished yet")
    return configured(side_by_side(shown))


def _caption(note: str) -> dict[str, Any]:
    """Return a title below a chart."""
    lines = textwrap.wrap(note, _CAPTION_CHARS)
    style = {"fontSize": 12, "fontWeight": "normal", "anchor": "start", "orient": "bottom", "offset": 10}
    return {"text": lines, **style}


def read_report(ref: str, transcripts: int = TRANSCRIPTS) -> RunReport:
    """Return what is known of a run: its record, and its folder where that is here, with so many transcripts.

    Raises:
        NotFoundError: There is no such run.
    """
    from rubricsvc.services import recording

    with database() as db:
        found = find(db, ref)
        steps = last_steps(db, found, MOST_ROWS)
        if isinstance(found, Path):
            made = RunReport(ref, read_record(found), steps)
            return with_alarms(with_evaluations(made, db, found, transcripts), db, found)
        with db.read() as session:
            one = recording.details(session, found)
            highest = _highest(session, found)
            passport, missing = _passport(session, one)
        config = one.config or {}
        made = RunReport(str(found), config, steps, highest=highest, passport=passport, status=one.status)
        made = with_evaluations(replace(made, passport_missing=missing), db, found, transcripts)
        return with_alarms(made, db, found)


def _passport(session: Session, run: StoredRun) -> tuple[Passport | None, str]:
    """Return the passport of a run's judge, or why there is none: its name may mean another judge now."""
    from rubricsvc.store import judges

    name = run.judge or "none"
    row = judges.find(session, run.judge) if run.judge else None
    if row is None:
        return None, f"judge {name} is not stored here"
    digest: str | None
    try:
        digest = Judge.model_validate((run.config or {}).get("judge")).digest
    except ValidationError:  # the judge of a service: the run is linked to the stored one with its digest
        digest = row.digest if run.judge_id == row.id else None
    if digest != row.digest:
        asked = f"the run asked {digest[:8]}, " if digest else ""
        return None, f"the stored judge {name} is another one: {asked}the name means {row.digest[:8]} now"
    passport = row.passport_value
    return passport, "" if passport else f"judge {name} has no passport"


def _highest(session: Session, run_id: int) -> list[Sample]:
    """Return rollouts with the highest rewards, each text once, of as many prompts as there are."""
    from rubricsvc.services import recording
    from rubricsvc.store import completions, prompts, runs

    rows = runs.best_rollouts(session, run_id, _LOOKED_AT)
    texts = completions.many(session, {row.completion_id for row in rows})
    questions = prompts.many(session, {row.prompt_id for row in rows})
    unique = list({texts[row.completion_id][1].text: row for row in reversed(rows)}.values())[::-1]
    distinct = of_several_prompts(unique, lambda row: row.prompt_id)
    return [
        Sample(
            questions[row.prompt_id].text,
            texts[row.completion_id][1].text,
            f"step {row.step}, rubric {row.rubric.ref}",
            {"training reward": row.reward},
            truncated=row.truncated,
            verdicts=one.verdicts,
        )
        for row, one in zip(distinct, recording.rollout_values(session, distinct), strict=True)
    ]
