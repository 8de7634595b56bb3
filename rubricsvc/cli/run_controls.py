"""`rubricsvc runs controls`: a run beside runs whose rewards say nothing about their completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc import telemetry
from rubricsvc.cli.output import Json, echo, estimate_cells, print_json, print_table
from rubricsvc.cli.run_evaluation import has_diverged
from rubricsvc.cli.run_report import read_report
from rubricsvc.cli.run_training import RunOptions, exit_stopped, is_done, train_run
from rubricsvc.core.run_comparison import ScoreComparison
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from trainer.config import ControlName

CONTROLS: tuple[ControlName, ...] = ("random", "shuffled", "frozen")
Reward = Annotated[
    list[str] | None, typer.Option(help="Control: random, shuffled or frozen; repeat it.", show_default="all three")
]


def control_changes(config: Path, control: str) -> dict[str, Any]:
    """Return the changed fields of a control of the run of a file: its reward, and a folder beside the run's."""
    from trainer.config import load_config

    loaded = load_config(config)
    if loaded.control is not None:
        hint = "remove the table [control] from the file"
        raise InvalidError(f"{config} is a control itself: {loaded.control.reward}", hint=hint, path="control")
    if control not in CONTROLS:
        raise InvalidError(f"unknown control {control!r}", hint=f"choose one of {', '.join(CONTROLS)}", path="control")
    beside = loaded.out.with_name(f"{loaded.out.name}-{control}")
    relative = beside.relative_to(config.parent) if beside.is_relative_to(config.parent) else beside
    return {"control.reward": control, "out": str(relative)}


def controls(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Configuration of the run, with [eval].")],
    *,
    reward: Reward = None,
    allow_drafts: Annotated[bool, typer.Option("--allow-drafts", help="Use rubrics that are not approved.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start although the preflight refuses; recorded.")] = False,
    as_json: Json = False,
) -> None:
    """Train a run and its controls, and compare them on the held-out prompts.

    Runs that are finished, or that stopped at a divergence, are not repeated; run the command again to continue after
    an interrupt.
    """
    from rubricsvc.services import run_comparing
    from trainer.config import load_config

    telemetry.configure("WARNING", human=True)
    if load_config(config).eval is None:
        raise InvalidError(
            f"{config} has no table [eval]", hint="name held-out prompts (docs/training.md)", path="eval"
        )
    changes: dict[str, dict[str, Any]] = {"": {}}
    changes |= {name: control_changes(config, name) for name in dict.fromkeys(reward or CONTROLS)}
    runs = {name: load_config(config, changes=changed) for name, changed in changes.items()}
    for one in runs.values():
        is_done(one, allow_drafts)  # finished runs of other settings are refused before any is trained
    folders = {name: one.out for name, one in runs.items()}
    for name, changed in changes.items():
        echo(f"\n{f'control {name}' if name else 'the run'}: {folders[name]}")
        options = RunOptions((folders[name] / "config.json").is_file(), allow_drafts, force, changed)
        if has_diverged(runs[name]):
            echo("it stopped where its reward diverges from gold")
        elif train_run(config, options).stopped and not has_diverged(runs[name]):
            exit_stopped(f"runs controls {config}")
    run = read_report(str(folders.pop("")))
    rows = []
    for name, folder in folders.items():
        compared = run_comparing.compare(read_report(str(folder)), run)
        rows += [{"control": name, **row} for row in _rows(compared.scores, name)]
        for note in compared.notes:
            echo(f"control {name}: {note}")
    _show(rows, as_json)


def _rows(scores: Sequence[ScoreComparison], control: str) -> Iterator[dict[str, Any]]:
    """Yield the last evaluations compared, by sampled completions: the run less the control."""
    for row in scores:
        if row.evaluation == "last" and row.measure == "mean":
            yield {
                "score": row.score,
                "gold": row.gold,
                "prompts": row.prompts,
                "run": row.b,
                "control_mean": row.a,
                "difference": row.difference,
                "result": _result(row, control),
            }


def _result(row: ScoreComparison, control: str) -> str:
    if row.difference is None:
        return f"not compared: {row.reason}"
    if row.result == "no_interval":
        return row.difference.null_reason or "no interval"
    return (
        f"{row.result.replace('_', ' ')} {'from' if row.result == 'not_distinguishable' else 'than'} {control} reward"
    )


def _show(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        for row in rows:
            print_json(row | {"difference": asdict(row["difference"]) if row["difference"] else None})
        return
    print_table(
        ("control", "score", "prompts", "run", "control mean", "run - control", "result"),
        [
            (
                row["control"],
                row["score"] + " (gold)" * row["gold"],
                row["prompts"],
                row["run"],
                row["control_mean"],
                " ".join(filter(None, estimate_cells(row["difference"], digits=4))),
                row["result"],
            )
            for row in rows
        ],
    )
