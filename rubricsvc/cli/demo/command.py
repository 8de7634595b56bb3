"""The command `rubricsvc demo`."""

from __future__ import annotations

import json
import time
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.output import INTERRUPTED, clean, echo, number, open_output, print_data, print_json, print_table

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
        _print_judge(figures, folder)
    if figures["failed_verdicts"]:
        echo(f"{figures['failed_verdicts']} verdicts failed: their completions have no reward, not a reward of 0")


def run(folder: DemoFolder, *, fresh: bool = False) -> dict[str, Any]:
    """Run the missing stages of the demo, and return the summary.

    Raises:
        ConflictError: the folder holds a demo with other settings.
        UnavailableError: the embedded model cannot be fetched.
    """
    from rubricsvc.cli.db import open_database
    from rubricsvc.cli.demo.questions import load_questions
    from rubricsvc.cli.models import fetch_embedded
    from rubricsvc.settings import get_settings

    continued = folder.open(fresh=fresh)
    if folder.is_finished:
        echo(f"the demo in {folder.path} is finished: {folder.report}. Start over with --fresh")
        finished: dict[str, Any] = json.loads(folder.summary.read_text(encoding="utf-8"))
        return finished
    if continued:
        echo(f"continuing the demo in {folder.path}")
    started = time.monotonic()
    for package in ("altair", "vl_convert", "torch", "transformers"):
        import_module(package)  # fail now rather than after ten minutes
    _announce(folder)
    from rubricsvc.cli.demo import pipeline, report, results
    from workers.engines.local.adapter_judges import shipped_passport

    fetch_embedded()
    settings = get_settings().model_copy(update={"database_url": f"sqlite:///{folder.database}"})
    size = folder.size
    questions = load_questions()
    chosen = [question for question in questions if not question.held_out][: size.training]
    chosen += [question for question in questions if question.held_out][: size.held_out]
    with closing(open_database(settings)) as db:
        stored = pipeline.author(folder, db, chosen)
        pipeline.sample(folder, db, stored, 0)
        before = pipeline.score(db, stored, 0)
        steps = pipeline.train_policy(folder, db, chosen)
        pipeline.sample(folder, db, stored, size.steps)
        after = pipeline.score(db, stored, size.steps)
        scored = results.read_results(db, stored, before, after)
    passport = shipped_passport()
    figures = results.summarize(size, folder.seed, scored, steps, passport)
    figures |= {"seconds": round(time.monotonic() - started, 1), "continued": continued}
    page = report.render_report(size, scored, steps, figures, passport)
    for state in folder.training.glob("checkpoints/*/optimizer.safetensors"):
        state.unlink()  # 1.6 GB, which only further training needs
    with open_output(folder.report) as stream:
        stream.write(page)
    with open_output(folder.summary) as stream:  # last: it marks the demo as finished
        json.dump(figures, stream, indent=2)
    return figures


def _announce(folder: DemoFolder) -> None:
    from rubricsvc.cli.demo.folder import FAST
    from rubricsvc.cli.demo.pipeline import demo_judge
    from rubricsvc.cli.local_judges import describe_embedded
    from workers.engines.local.models import dtype_name

    size = folder.size
    fast = dtype_name() == "bfloat16"
    minutes = ("2 to 3" if fast else "5 to 8") if size == FAST else ("8 to 10" if fast else "20 to 30")
    echo(f"the demo takes {minutes} minutes on 2 cores, and ends with {folder.report}")
    echo(
        f"{size.training} training and {size.held_out} held-out questions, each with its rubric; "
        f"{size.samples} completions of each before and after {size.steps} steps of GRPO with "
        f"{size.prompts_per_step} x {size.group_size} completions of at most {size.max_new_tokens} tokens"
    )
    describe_embedded([demo_judge()])
    if size == FAST:
        echo("--fast trains for few steps: expect little change of the reward")


def _print_table(figures: dict[str, Any]) -> None:
    rows = [
        [q["name"] + (" (held out)" if q["held_out"] else ""), number(q["before"]), number(q["after"]), q["text"]]
        for q in figures["questions"]
    ]
    for name, key in (("training questions", "reward"), ("held-out questions", "heldout")):
        change, error = (number(figures[f"{key}_{part}"]) for part in ("change", "change_se"))
        ends = [number(figures[f"{key}_{part}"]) for part in ("before", "after")]
        rows.append([name, *ends, f"mean; change {change}, standard error {error}"])
    print_table(["mean reward", "before", "after", "question"], rows)
    print_data("")


def _print_judge(figures: dict[str, Any], folder: DemoFolder) -> None:
    """Print what the judge can be relied on for."""
    share = f"{100 * figures['judged_share']:.0f} %"
    print_data(
        f"Judged criteria have {share} of the weights. Their judge is the embedded model with the adapter that this"
    )
    print_data("package ships. On completions that were not in its training it reaches:")
    for line in figures["judge_figures"]:
        print_data(f"  {clean(line)}")
    for sentence in figures["judge_not_for"]:
        print_data(f"not for: {clean(sentence)}")
    database = f"RUBRICSVC_DATABASE_URL=sqlite:///{folder.database}"
    print_data(f"All of its figures: {database} rubricsvc judges passport {figures['judge']}")
