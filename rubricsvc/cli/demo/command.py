"""The command `rubricsvc demo`."""

from __future__ import annotations

import json
import time
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.output import INTERRUPTED, echo, print_data, print_json, print_table

if TYPE_CHECKING:
    from rubricsvc.cli.demo.folder import DemoFolder


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Fewer completions and steps: 2 to 3 minutes, not 10.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the report, the summary and the database.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete an earlier demo in the folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json instead of the table.")] = False,
) -> None:
    """Write rubrics, score completions, train on the rewards and score again, with a report.

    Run the same command again to continue an interrupted demo.
    """
    from rubricsvc.cli.demo.folder import FAST, FULL, DemoFolder

    folder = DemoFolder(out, FAST if fast else FULL, seed)
    try:
        figures = run(folder, fresh=fresh)
    except KeyboardInterrupt:
        echo(f"\ninterrupted; results so far are in {out}. Run the same command again to continue")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(figures)
    else:
        _print_table(figures)
    if figures["failed_verdicts"]:
        echo(f"{figures['failed_verdicts']} verdicts failed: their completions have no reward, not a reward of 0")


def run(folder: DemoFolder, *, fresh: bool = False) -> dict[str, Any]:
    """Run the missing stages of the demo, and return the summary.

    Raises:
        ConflictError: the folder holds a demo with other settings.
        UnavailableError: the embedded model cannot be fetched.
    """
    from rubricsvc.cli.database import open_database
    from rubricsvc.cli.demo.questions import FORM, QUESTIONS
    from rubricsvc.cli.embedded import fetch_embedded
    from rubricsvc.settings import get_settings

    spent = folder.open(QUESTIONS.read_text(encoding="utf-8") + FORM.read_text(encoding="utf-8"), fresh=fresh)
    if folder.summary.is_file() and folder.report.is_file():
        echo(f"the demo in {folder.path} is finished: {folder.report}. Start over with --fresh")
        figures: dict[str, Any] = json.loads(folder.summary.read_text(encoding="utf-8"))
        return figures
    if spent:
        echo(f"continuing the demo in {folder.path}")
    started = time.monotonic()
    _announce(folder)
    for package in ("altair", "vl_convert", "torch", "transformers"):
        import_module(package)  # fail now rather than after ten minutes
    from rubricsvc.cli.demo import pipeline, report, summary

    fetch_embedded()
    settings = get_settings().model_copy(update={"database_url": folder.database_url})
    try:
        with closing(open_database(settings)) as db:
            questions = pipeline.select_questions(folder)
            stored = pipeline.author(folder, db, questions)
            before = pipeline.score(folder, db, stored, pipeline.sample(folder, db, stored, 0), 0)
            steps = pipeline.train_policy(folder, questions)
            last = folder.size.steps
            after = pipeline.score(folder, db, stored, pipeline.sample(folder, db, stored, last), last)
            items = summary.read_items(db, before, after)
            figures = summary.summarize(folder, db, stored, items, steps)
        figures["seconds"] = round(spent + time.monotonic() - started, 1)
        report.write(folder.report, summary.make_report(folder, stored, items, steps, figures))
        folder.save_summary(figures)
    finally:
        folder.save_seconds(spent + time.monotonic() - started)
    pipeline.drop_optimizer(folder)
    echo(f"wrote {folder.summary} and {folder.report}")
    return figures


def _announce(folder: DemoFolder) -> None:
    from rubricsvc.cli.demo.folder import FAST
    from rubricsvc.cli.embedded import warn_of_embedded

    size = folder.size
    duration = "2 to 3 minutes" if size == FAST else "8 to 10 minutes"
    echo(f"the demo takes {duration} on 2 cores, and ends with {folder.report}")
    echo(
        f"{size.training} training and {size.held_out} held-out questions, each with its rubric; "
        f"{size.samples} completions of each before and after {size.steps} steps of GRPO with "
        f"{size.prompts_per_step} x {size.group_size} completions of at most {size.max_new_tokens} tokens"
    )
    echo("policy and judge are both the embedded model; training can improve what the checked criteria measure:")
    echo("form, citation and terms, not whether the completion is right")
    warn_of_embedded()
    if size == FAST:
        echo("--fast trains for few steps: expect little change of the reward")


def _print_table(figures: dict[str, Any]) -> None:
    rows = [
        _row(q["name"] + (" (held out)" if q["held_out"] else ""), q["before"], q["after"], q["text"])
        for q in figures["questions"]
    ]
    for name, key in (("training questions", "reward"), ("held-out questions", "heldout")):
        error = figures[f"{key}_change_se"]
        note = "mean" + (f"; standard error of the change {error:.3f}" if error is not None else "")
        rows.append(_row(name, figures[f"{key}_before"], figures[f"{key}_after"], note))
    print_table(["mean reward", "before", "after", "change", "question"], rows)
    print_data("")
    print_data("Policy and judge are the same model of 135M parameters. As a judge it is hardly better than chance:")
    print_data(
        "a change shows whether the completions took the form that the rubrics ask for (length, citation, terms)."
    )


def _row(name: str, before: float | None, after: float | None, note: str) -> list[str]:
    change = None if before is None or after is None else after - before
    numbers = ["-" if value is None else f"{value:.3f}" for value in (before, after)]
    return [name, *numbers, "-" if change is None else f"{change:+.3f}", note]
