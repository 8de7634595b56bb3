"""Commands of `rubricsvc runs` on runs that other processes train: their records, and what is asked of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.db import database
from rubricsvc.cli.output import After, Json, Limit, cell, counted, echo, show, show_list, show_page
from rubricsvc.cli.run_folders import audited, folder_record, is_run, newest_checkpoint, stored_name
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from rubricsvc.core.run import StoredRun
    from rubricsvc.store.session import Database

Run = Annotated[str, typer.Argument(help="Id of the run, or its folder.", show_default=False)]
METRICS = ("reward", "reward_std", "unscored_fraction", "entropy", "grad_norm", "completions/mean_length", "step_time")
POLL_SECONDS = 0.25


def list_(
    folder: Annotated[Path, typer.Argument(help="Folder whose runs are listed too, if none is recorded.")] = Path(
        "runs"
    ),
    limit: Limit = 50,
    after: After = 0,
    as_json: Json = False,
) -> None:
    """List training runs: those on record, then those of a folder that are not."""
    from rubricsvc.services import recording
    from rubricsvc.store import runs

    folders = sorted(path for path in folder.iterdir() if is_run(path)) if folder.is_dir() else []
    with database() as db, db.read() as session:
        found = recording.summaries(session, runs.page(session, after=after, limit=limit + 1))
        names = {path: name for path in folders if (name := stored_name(path))}
        known = runs.of_keys(session, names.values())
    rows = [_list_row(one) for one in found]
    if len(found) <= limit:
        rows += [row for path in folders if names.get(path) not in known and (row := _folder_row(path))]
        limit = len(rows)
    show_page(rows, lambda row: row, limit, as_json, empty="no runs; start one with `rubricsvc runs start CONFIG.toml`")


def show_(
    run: Run,
    last: Annotated[int, typer.Option(min=0, help="Show the metrics of the last N steps.")] = 0,
    as_json: Json = False,
) -> None:
    """Show a run with its alarms, or the metrics of its last steps."""
    with database() as db:
        found = find(db, run)
        if not last:
            record = _record(db, found) if isinstance(found, int) else folder_record(found)
            _show_with_alarms(record, _alarms(db, found), as_json)
            return
        steps = last_steps(db, found, last)
    rows = steps if as_json else [{name: step.get(name) for name in ("step", *METRICS)} for step in steps]
    show_list(rows, as_json, empty="no step is finished yet")


def _show_with_alarms(record: dict[str, Any], alarms: list[str], as_json: bool) -> None:
    show(record | ({"alarms": alarms} if as_json else {}), as_json)
    for alarm in () if as_json else alarms:
        echo(f"alarm: {alarm}")


def _alarms(db: Database, found: int | Path) -> list[str]:
    """Return the alarms of a run that `find` has found, with the places of their examples."""
    from rubricsvc.cli.run_alarms import alarms_of
    from rubricsvc.cli.run_samples import MOST_ROWS, read_evaluations

    raised = alarms_of(last_steps(db, found, MOST_ROWS), read_evaluations(db, found).lines, db, found)
    examples = ["; ".join(sample.where for sample in one.examples) for one in raised]
    return [f"{one.text} Examples: {each}." if each else one.text for one, each in zip(raised, examples, strict=True)]


def watch(run: Run, as_json: Json = False) -> None:
    """Follow a run that another process trains until it ends; exit with 1 if it has failed or is lost."""
    with database() as db:
        run_id = stored_id(db, run)
        with output.progress_bar(f"run {run_id}") as bar:
            for one in _follow(db, run_id):
                bar.update(one.steps, one.steps_total, _note(one))
        record = _record(db, run_id)
    with output.exit_with(output.WITH_FAILURES if one.status in ("failed", "lost") else output.OK):
        show(record, as_json)
        if one.status in ("failed", "lost", "stopped"):
            echo(f"continue it with: rubricsvc runs resume {run_id}")


def _follow(db: Database, run_id: int) -> Iterator[StoredRun]:
    """Yield how far a run is until it has ended; await a report of one that is lost after an outage of the database."""
    from rubricsvc.services.waiting import answered
    from rubricsvc.store.runs import REPORT_SECONDS

    hint, awaited_until = f"follow the run again with: rubricsvc runs watch {run_id}", 0.0
    while True:
        asked_at = time.monotonic()
        one = answered(partial(_summary, db, run_id), echo, hint=hint)
        if (now := time.monotonic()) - asked_at > POLL_SECONDS:
            awaited_until = now + 2 * REPORT_SECONDS
        yield one
        if not one.is_live and (one.status != "lost" or now >= awaited_until):
            return
        time.sleep(POLL_SECONDS)


def stop(run: Run, as_json: Json = False) -> None:
    """Stop a run after its current step, with a checkpoint."""
    from rubricsvc.store import runs

    with database() as db:
        run_id = stored_id(db, run)
        with db.write() as session:
            runs.request_stop(session, run_id)
        show(_record(db, run_id), as_json)
    echo(f"run {run_id} stops after its current step; `rubricsvc runs watch {run_id}` follows it")


def delete(
    run: Run,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm it.")] = False,
    as_json: Json = False,
) -> None:
    """Delete the record of a run: its metrics and rollouts. Completions, jobs and the run's folder stay."""
    from rubricsvc.store import runs

    with database() as db:
        run_id = stored_id(db, run)
        record = _record(db, run_id)
        if not yes:
            size = f"{counted(record['steps'], 'step')} and {counted(record['rollouts'], 'rollout')}"
            message = f"this deletes run {run_id} ({record['name']}) with {size}"
            raise InvalidError(message, hint="confirm it with --yes")
        with db.write() as session:
            runs.remove(session, run_id)
    show(record, as_json)
    echo(f"deleted run {run_id}; its folder stays: {record['folder']}")


def local_folder(run: str, *, ended: bool = False) -> Path:
    """Return the folder of a run on this machine.

    Args:
        run: Its id or its folder.
        ended: Refuse a run that another process trains.

    Raises:
        NotFoundError: There is no such run, or its folder is on another machine.
        ConflictError: The run goes on.
    """
    folder = Path(run)
    if run.isdecimal():
        with database() as db:
            stored = _summary(db, run)
        if ended and stored.is_live:
            raise ConflictError(f"run {run} is {stored.status}", hint=f"stop it first: `rubricsvc runs stop {run}`")
        folder = Path(stored.folder)
        if not folder.is_dir():
            message = f"the folder of run {run} is not here: {folder} on {stored.host}"
            raise NotFoundError(message, hint="run this on that machine, or name the folder")
    if not (folder / "config.json").is_file():
        raise NotFoundError(f"no training run in {folder}", hint="list runs with `rubricsvc runs list`")
    return folder


def find(db: Database, ref: str) -> int | Path:
    """Return the id of a run on record, or the folder of one that is not."""
    from rubricsvc.store import runs

    with db.read() as session:
        if ref.isdecimal():
            return runs.get(session, ref).id
        if not is_run(folder := Path(ref)):
            raise NotFoundError(
                f"no training run in {ref}", hint="name a run by its id or its folder; `rubricsvc runs list` has both"
            )
        name = stored_name(folder)
        return runs.of_keys(session, [name]).get(name, folder) if name else folder


def stored_id(db: Database, ref: str) -> int:
    """Return the id of a run on record.

    Raises:
        NotFoundError: There is no such run, or it is not on record here.
    """
    found = find(db, ref)
    if isinstance(found, Path):
        hint = "RUBRICSVC_DATABASE_URL names another database than that of the run, or its service has the record"
        raise NotFoundError(f"the run in {found} is not recorded in this database", hint=hint)
    return found


def _summary(db: Database, ref: int | str) -> StoredRun:
    from rubricsvc.services import recording
    from rubricsvc.store import runs

    with db.read() as session:
        (one,) = recording.summaries(session, [runs.get(session, ref)])
    return one


def _record(db: Database, run_id: int) -> dict[str, Any]:
    from rubricsvc.services import recording

    with db.read() as session:
        run = recording.details(session, run_id)
    config = run.config or {}
    record = run.model_dump(mode="json", exclude={"metrics", "config", "seen_seconds", "judge_id"})
    return record | {
        "scored_by": config.get("scored_by") or (run.metrics or {}).get("scored_by"),
        "judge_calibrated": config.get("judge_calibrated"),
        "std_floor": config.get("std_floor"),
        "judge_audit": audited(config),
        "checkpoint": newest_checkpoint(Path(run.folder)),
    }


def last_steps(db: Database, found: int | Path, last: int) -> list[dict[str, Any]]:
    """Return the metrics of the last steps of a run that `find` has found."""
    if isinstance(found, Path):
        from trainer.history import read

        return read(found)[-last:] if last else []
    from rubricsvc.store import runs

    with db.read() as session:
        return [row.metrics for row in runs.steps(session, found, last=last)]


def _list_row(run: StoredRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "steps": run.steps,
        "steps_total": run.steps_total,
        "reward": (run.metrics or {}).get("reward"),
        "judge": run.judge,
        "started": f"{run.created_at:%Y-%m-%d %H:%M}",
        "folder": run.folder,
    }


def _folder_row(folder: Path) -> dict[str, Any] | None:
    """Return the row of a run that is not on record; None with a warning if its files are damaged."""
    try:
        record = folder_record(folder)
    except InvalidError as error:
        echo(f"warning: left out {folder}: {error}; {error.hint}")
        return None
    row = dict.fromkeys(("id", "name", "status", "steps", "steps_total", "reward", "judge", "started", "folder"))
    names = ("steps", "steps_total", "folder")
    return row | {name: record[name] for name in names} | {"name": folder.name, "reward": record["reward_last"]}


def _note(run: StoredRun) -> str:
    metrics = run.metrics or {}
    reward = f"reward {cell(metrics.get('reward'))} ± {cell(metrics['reward_std'])}" if "reward_std" in metrics else ""
    status = "" if run.status == "running" else f"{run.status}: {run.reason}" if run.reason else run.status
    stopping = "stops after this step" if run.stop_requested and run.is_live else ""
    return ", ".join(filter(None, (reward, status, stopping)))
