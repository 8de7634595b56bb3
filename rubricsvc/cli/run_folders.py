"""The folders of training runs, as `rubricsvc runs` names and lists them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rubricsvc.errors import InvalidError, NotFoundError

RUN = "run"
"""The entry of a run's ``config.json`` with its name in databases: that of its record, and of its criterion buffers."""
_CONFIG_FILE, _WORKING_FOLDER, _CHANGES = "config_file", "working_folder", "config_changes"
"""The entries with the path of the TOML file as it was given, the folder that it was given in, and changed fields."""

_MOST_RUN_CHARS = 80


def is_run(folder: Path) -> bool:
    """Return whether a training run has written to this folder."""
    return (folder / "config.json").is_file() and (folder / "metrics.jsonl").is_file()


def read_record(folder: Path) -> dict[str, Any]:
    """Return the content of ``config.json``.

    Raises:
        InvalidError: It is damaged.
    """
    path = folder / "config.json"
    try:
        record: dict[str, Any] = json.loads(path.read_bytes())
        record["steps"] += 0  # fails unless it is a number
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "`rubricsvc runs start CONFIG.toml --resume` writes it again; without a checkpoint, delete the folder"
        raise InvalidError(f"{path} is damaged: {type(error).__name__}: {error}", hint=hint) from error
    return record


def stored_name(folder: Path) -> str | None:
    """Return the run's name in databases; None for a run that was never recorded, or whose record is damaged."""
    try:
        record = read_record(folder)
    except InvalidError:
        return None
    return record.get(RUN)


def run_name(out: Path, resume: bool) -> str:
    """Return the name of a run in databases, which no other run has: that of its record, if it is resumed."""
    words = "-".join(out.name.replace("@", "-").split())
    return (stored_name(out) if resume else None) or f"{words[:_MOST_RUN_CHARS]}-{secrets.token_hex(6)}"


def invocation(config: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``config.json`` by which `runs resume` starts the run again."""
    given = {_CHANGES: dict(changes)} if changes else {}
    return {_CONFIG_FILE: str(config), _WORKING_FOLDER: str(Path.cwd()), **given}


def read_invocation(folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    """Return the working folder in which a run was started, the path of its TOML file there, and the changed fields.

    Raises:
        InvalidError: ``config.json`` is damaged.
        NotFoundError: There is no such file any more, or the run was started before its name was recorded.
    """
    record = read_record(folder)
    working_folder, file = Path(record.get(_WORKING_FOLDER, "")), Path(record.get(_CONFIG_FILE, ""))
    if not (working_folder / file).is_file():
        message = f"no configuration file of the run in {folder}: {working_folder / file}"
        raise NotFoundError(message, hint="`rubricsvc runs start CONFIG.toml --resume` names it")
    return working_folder, file, record.get(_CHANGES, {})


def audited(config: dict[str, Any]) -> str | None:
    """Return the result and the day of the judge's audit."""
    audit = config.get("judge_audit")
    return f"{'passed' if audit['passed'] else 'not passed'} {audit['created_at'][:10]}" if audit else None


def newest_checkpoint(folder: Path) -> str | None:
    """Return the folder of the newest checkpoint, if the run has one on this machine."""
    if not (folder / "checkpoints").is_dir():
        return None
    from trainer import checkpoint

    saved = checkpoint.steps(folder)
    return str(checkpoint.folder(folder, saved[-1])) if saved else None


def folder_record(folder: Path) -> dict[str, Any]:
    """Return the steps done, and the mean reward of the first and the last tenth of them.

    Raises:
        InvalidError: A file of the run is damaged.
    """
    from rubricsvc.services.recording import first_and_last
    from trainer.history import read

    config, steps = read_record(folder), read(folder)
    first, last = first_and_last([step.get("reward") for step in steps])
    return {
        "folder": str(folder),
        "steps": len(steps),
        "steps_total": config["steps"],
        "reward_first": first,
        "reward_last": last,
        "scored_by": config.get("scored_by"),
        "judge_calibrated": config.get("judge_calibrated"),
        "std_floor": config.get("std_floor"),
        "judge_audit": audited(config),
        "checkpoint": newest_checkpoint(folder),
    }
