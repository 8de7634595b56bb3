"""The command `rubricsvc demo`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.output import INTERRUPTED, echo, print_data, print_json, print_table

if TYPE_CHECKING:
    from rubricsvc.cli.demo.plan import Workplace
    from rubricsvc.store.session import Database


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Fewer answers and steps: 2 to 3 minutes, not 10.")] = False,
    out: Annotated[Path, typer.Option(help="Where summary.json, report.html and the database go.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives other answers.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew where a demo was begun.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json instead of the table.")] = False,
) -> None:
    """The main job: rubrics, answers, verdicts through the queue, training, and the same again, with a report.

    Stopped at any point, the same command goes on from there.
    """
    from rubricsvc.cli.demo.plan import FAST, FULL, Workplace

    work = Workplace(out, FAST if fast else FULL, seed)
    try:
        figures = run(work, fresh=fresh)
    except KeyboardInterrupt:
        echo(f"\nstopped; what is done is kept in {out}, and the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(figures)
    else:
        _table(figures)
    if figures["failed_verdicts"]:
        echo(f"{figures['failed_verdicts']} verdicts failed: their answers have no reward, which is not a reward of 0")


def run(work: Workplace, *, fresh: bool = False) -> dict[str, Any]:
    """Do what is missing of the demo in its folder, and give the summary.

    Raises:
        ConflictError: the folder holds a demo with other settings.
        UnavailableError: the embedded model cannot be fetched.
    """
    from rubricsvc.cli.demo.questions import FILE
    from rubricsvc.cli.embedded import fetch_embedded

    spent = work.begin(FILE.read_text(encoding="utf-8"), fresh)
    if work.summary.is_file() and work.report.is_file():
        echo(f"the demo in {work.folder} is finished (begin anew with --fresh): {work.report}")
        figures: dict[str, Any] = json.loads(work.summary.read_text(encoding="utf-8"))
        return figures
    if spent:
        echo(f"going on with the demo in {work.folder}")
    began = time.monotonic()
    _tell(work)
    for package in ("altair", "vl_convert", "torch", "transformers"):
        import_module(package)  # better now than after ten minutes
    from rubricsvc.cli.demo import report, results, stages

    fetch_embedded()
    try:
        with _books(work) as db:
            asked = stages.chosen(work)
            stored = stages.author(work, db, asked)
            before = stages.score(work, db, stored, stages.answer(work, db, stored, 0), 0)
            steps = stages.learn(work, asked)
            last = work.size.steps
            after = stages.score(work, db, stored, stages.answer(work, db, stored, last), last)
            found = results.read(db, before, after)
            figures = results.summary(work, db, stored, found, steps)
        figures["seconds"] = round(spent + time.monotonic() - began, 1)
        report.write(work.report, results.report(work, stored, found, steps, figures))
        work.finish(figures)
    finally:
        work.spent(spent + time.monotonic() - began)
    stages.drop_optimizer(work)
    echo(f"wrote {work.summary} and {work.report}")
    return figures


@contextmanager
def _books(work: Workplace) -> Iterator[Database]:
    from rubricsvc.cli.database import open_database
    from rubricsvc.settings import get_settings

    db = open_database(get_settings().model_copy(update={"database_url": work.database_url}))
    try:
        yield db
    finally:
        db.close()


def _tell(work: Workplace) -> None:
    from rubricsvc.cli.demo.plan import FAST, STAGES
    from rubricsvc.cli.embedded import warn_of_embedded

    size = work.size
    takes = "2 to 3 minutes" if size == FAST else "8 to 10 minutes"
    echo(f"the demo takes {takes} on 2 cores, twice as long where they are busy: {STAGES} stages, then {work.report}")
    rubrics = f"; a second rubric for {size.generated} of them, by the model" if size.generated else ""
    echo(f"{size.training} questions to train on and {size.held_out} held out, each with its rubric{rubrics}")
    echo(
        f"{size.samples} answers to each question before and after {size.steps} steps of GRPO, each of"
        f" {size.prompts_per_step} questions with {size.group_size} answers of at most {size.max_new_tokens} tokens"
    )
    echo("a verdict is on one criterion of one answer; an answer's reward, from 0 to 1, is the weighted mean of them")
    echo("policy and judge are both the embedded model")
    warn_of_embedded()
    echo("what training can move is what the checked criteria measure: form, citation, terms; not whether it is right")
    if size == FAST:
        echo("--fast only shows the way: its few steps move the reward little")


def _table(figures: dict[str, Any]) -> None:
    """Each question's mean reward before and after, and what it comes to."""
    rows = [
        _row(q["name"] + (" (held out)" if q["held_out"] else ""), q["before"], q["after"], q["text"])
        for q in figures["questions"]
    ]
    for name, key in (("training questions", "reward"), ("held-out questions", "heldout")):
        error = figures[f"{key}_change_se"]
        said = "their mean" + (f"; the change has a standard error of {error:.3f}" if error is not None else "")
        rows.append(_row(name, figures[f"{key}_before"], figures[f"{key}_after"], said))
    print_table(["mean reward", "before", "after", "change", "of the question"], rows)
    print_data("")
    print_data(
        "The policy and the judge are one model of 135M parameters, and as a judge it is hardly better than chance."
    )
    print_data(
        "Read a change as: the answers took the form that the rubrics ask for (length, citation, terms), or did not."
    )


def _row(name: str, before: float | None, after: float | None, said: str) -> list[str]:
    change = None if before is None or after is None else after - before
    return [name, _figure(before), _figure(after), _figure(change, "+.3f"), said]


def _figure(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None else format(value, form)
