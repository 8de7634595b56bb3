"""`rubricsvc doctor`: checks of everything that the service needs, each with a fix."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from rubricsvc.cli.models import served_models
from rubricsvc.cli.output import OK, WITH_FAILURES, Json, clean, counted, exit_with, print_data, print_json
from rubricsvc.errors import RubricsvcError, UnavailableError
from rubricsvc.settings import Settings, read_settings
from rubricsvc.store import judges, workers
from rubricsvc.store.migrate import open_database
from rubricsvc.store.session import sqlite_file
from rubricsvc.store.tables import JudgeRow
from rubricsvc.store.workers import Queue
from workers.checks.sandbox.runner import ready
from workers.engines.local.embedded_model import NAME
from workers.engines.local.weights import adapter_folder, check_sha256, weights_sha256

MIN_FREE_BYTES = 1_000_000_000
_CHECK_PACKAGES = ("jsonschema", "langdetect", "math_verify", "nltk", "rapidfuzz", "rouge_score", "sacrebleu")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check; ``fix`` is empty if it passed."""

    check: str
    detail: str
    fix: str = ""


def doctor(as_json: Json = False) -> None:
    """Check settings, database, broker, packages, workers, judges and disk; exit with 1 if a check fails."""
    results = list(diagnose())
    ok = not any(result.fix for result in results)
    with exit_with(OK if ok else WITH_FAILURES):
        if as_json:
            print_json({"ok": ok, "checks": [{"ok": not result.fix, **asdict(result)} for result in results]})
            return
        for result in results:
            print_data(clean(f"{'✗' if result.fix else '✓'} {result.check}: {result.detail}"))
            if result.fix:
                print_data(clean(f"  → {result.fix}"))


def diagnose() -> Iterator[Diagnosis]:
    """Run every check, in the order in which failures are best fixed."""
    from rubricsvc.broker import check_broker, shown  # loads Celery

    try:
        settings = read_settings()
    except RubricsvcError as error:
        yield Diagnosis("settings", error.message, error.hint)
        return
    file, folders = None, {"model cache": settings.cache_dir}
    with suppress(RubricsvcError):  # reported by the check of the database
        if (file := sqlite_file(settings.database_url)) is not None:
            folders["database folder"] = file.parent
    absent = file is not None and not file.exists()  # opening it would create it
    stored = _Stored([], Queue({}, outbox=0, workers=0)) if absent else _read(settings)
    checks: dict[str, Callable[[], str | None]] = {
        "settings": lambda: f"database {shown(settings.database_url)}, broker {shown(settings.broker_url)}",
        "database": lambda: "does not exist yet; created on first use" if absent else _database(settings),
        "broker": lambda: check_broker(settings.broker_url),
        "in-process models": lambda: _packages("train", "torch", "transformers"),
        "checks": lambda: _packages("judging", *_CHECK_PACKAGES),
        "sandbox": _sandbox,
        "workers": lambda: _workers(settings, stored),
        **_judge_checks(settings, stored),
        **{f"disk of the {name}": partial(_free_space, folder) for name, folder in folders.items()},
    }
    for check, run in checks.items():
        try:
            yield Diagnosis(check, run() or "reachable")
        except RubricsvcError as error:
            yield Diagnosis(check, error.message, error.hint or "see the message")


def _database(settings: Settings) -> str:
    open_database(settings.database_url).close()
    return "reachable, schema up to date"


def _packages(extra: str, *packages: str) -> str:
    missing = ", ".join(name for name in packages if find_spec(name) is None)
    return f"not installed: {missing} (optional: pip install 'rubricsvc[{extra}]')" if missing else "all installed"


def _sandbox() -> str:
    try:
        return "bubblewrap" if ready() == "bwrap" else "disabled: untrusted code runs without isolation"
    except UnavailableError as error:
        return f"{error.message}; checks that run code fail (optional: {error.hint})"


@dataclass(frozen=True, slots=True)
class _Stored:
    """What checks read from the database."""

    judges: list[JudgeRow]
    queue: Queue


def _read(settings: Settings) -> _Stored | None:
    """Return what the database has, or None if it cannot be opened."""
    with suppress(RubricsvcError), closing(open_database(settings.database_url)) as db, db.read() as session:
        return _Stored(judges.page(session, limit=10_000), workers.queue(session))
    return None  # reported by the check of the database


def _not_checked() -> NoReturn:
    raise UnavailableError("not checked: the database cannot be opened", hint="correct the database first; see above")


def _workers(settings: Settings, stored: _Stored | None) -> str:
    """Report running workers. On ``memory://`` none is needed until a command scores."""
    from rubricsvc.broker import MEMORY

    if stored is None:
        _not_checked()
    waiting = f", {counted(stored.queue.pending, 'completion')} pending"
    if stored.queue.workers:
        return f"{stored.queue.workers} running{waiting}"
    if settings.broker_url.startswith(MEMORY):
        return f"none running{waiting}; `rubricsvc serve` and `rubricsvc jobs wait` run one"
    raise UnavailableError(f"none running{waiting}", hint="start one with `rubricsvc worker`")


def _judge_checks(settings: Settings, stored: _Stored | None) -> dict[str, Callable[[], str]]:
    if stored is None:
        return {"judges": _not_checked}
    if not stored.judges:
        return {"judges": lambda: "none; add one with `rubricsvc judges add`"}
    return {f"judge {row.name}": partial(_judge, row, settings) for row in stored.judges}


def _judge(row: JudgeRow, settings: Settings) -> str:
    judge = row.value
    if judge.engine == "openai_http":
        url = judge.endpoint.base_url or "api.openai.com"
        served = served_models(judge.endpoint, timeout_s=3.0)
        if judge.model in served:
            return f"{url} serves {judge.model}"
        listed = ", ".join(sorted(served)[:3]) or "none"
        raise UnavailableError(f"{url} does not serve {judge.model}", hint=f"use one of its models: {listed}")
    if judge.engine != "transformers_local":
        return f"engine {judge.engine} is not checked"
    if find_spec("torch") is None:
        raise UnavailableError(f"{judge.model} needs torch", hint="pip install 'rubricsvc[train]'")
    if judge.adapter:
        adapter = adapter_folder(judge.adapter)
        check_sha256(adapter, judge.weights_sha256 or "", weights_sha256(adapter))
    folder = settings.cache_dir / NAME if judge.model == "embedded" else Path(judge.model)
    return f"model folder {folder}" if folder.is_dir() else f"{judge.model}, fetched on first use"


def _free_space(folder: Path) -> str:
    """Write a file as well: free bytes say nothing of inodes, quotas and read-only disks."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(bytes(65_536))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        hint = f"free space in {existing}, make it writable, or set another folder"
        raise UnavailableError(f"{existing} cannot be written to: {error.strerror}", hint=hint) from error
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE_BYTES:
        message = f"{free / 1e6:.0f} MB free, {MIN_FREE_BYTES / 1e6:.0f} MB required"
        raise UnavailableError(message, hint=f"free space on the disk of {existing}")
    return f"{free / 1e9:.1f} GB free"
