"""`rubricsvc doctor`: checks of everything that the service needs, each with a fix."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from rubricsvc.cli.models import served_models
from rubricsvc.cli.output import OK, WITH_FAILURES, Json, clean, counted, exit_with, print_data, print_json
from rubricsvc.errors import RubricsvcError, UnavailableError
from rubricsvc.settings import Settings, read_settings
from rubricsvc.store import judges, workers
from rubricsvc.store.migrate import open_database
from rubricsvc.store.session import sqlite_file
from rubricsvc.store.tables import JudgeRow
from workers.checks.sandbox.runner import ready
from workers.engines.local.weights import adapter_folder, check_sha256, weights_sha256

MIN_FREE_BYTES = 1_000_000_000
_PACKAGES = {"train": ("torch", "transformers"), "judging": ("jsonschema", "nltk", "rapidfuzz", "sacrebleu", "sklearn")}
"""Packages that some judges and checks need, by the extra that installs them."""


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
    folders = {"model cache": settings.cache_dir}
    with suppress(RubricsvcError):  # reported by the check of the database
        if (file := sqlite_file(settings.database_url)) is not None:
            folders["database folder"] = file.parent
    checks: dict[str, Callable[[], str | None]] = {
        "settings": lambda: f"database {shown(settings.database_url)}, broker {shown(settings.broker_url)}",
        **_database_checks(settings),
        "broker": lambda: check_broker(settings.broker_url),
        **{f"packages of {extra}": partial(_packages, extra) for extra in _PACKAGES},
        "sandbox": _sandbox,
        **{f"disk of the {name}": partial(_free_space, folder) for name, folder in folders.items()},
    }
    for check, run in checks.items():
        try:
            yield Diagnosis(check, run() or "reachable")
        except RubricsvcError as error:
            yield Diagnosis(check, error.message, error.hint or "see the message")


def _database_checks(settings: Settings) -> dict[str, Callable[[], str | None]]:
    """Return the checks of the database, and of the workers and judges that it knows."""
    try:
        file = sqlite_file(settings.database_url)
        if file is not None and not file.exists():  # opening it would create it
            return {"database": lambda: "does not exist yet; created on first use"}
        with closing(open_database(settings.database_url)) as db, db.read() as session:
            rows, queue = judges.page(session, limit=10_000), workers.queue(session)
    except RubricsvcError as error:
        return {"database": partial(_fail, error)}
    found: dict[str, Callable[[], str | None]] = {
        "database": lambda: "reachable, schema up to date",
        "workers": partial(_workers, queue, needed=not settings.broker_url.startswith("memory")),
    }
    return found | {f"judge {row.name}": partial(_judge, row) for row in rows}


def _fail(error: RubricsvcError) -> str:
    raise error


def _packages(extra: str) -> str:
    missing = ", ".join(name for name in _PACKAGES[extra] if find_spec(name) is None)
    return f"not installed: {missing} (optional: pip install 'rubricsvc[{extra}]')" if missing else "all installed"


def _sandbox() -> str:
    try:
        return "bubblewrap" if ready() == "bwrap" else "disabled: untrusted code runs without isolation"
    except UnavailableError as error:
        return f"{error.message}; checks that run code fail (optional: {error.hint})"


def _workers(queue: workers.Queue, *, needed: bool) -> str:
    """Report running workers. On ``memory://`` none is needed until a command scores."""
    found = f"{queue.workers or 'none'} running, {counted(queue.pending, 'completion')} pending"
    if needed and not queue.workers:
        raise UnavailableError(found, hint="start one with `rubricsvc worker`")
    return found


def _judge(row: JudgeRow) -> str:
    judge = row.value
    if judge.engine == "openai_http":
        url, served = judge.endpoint.base_url or "api.openai.com", served_models(judge.endpoint, timeout_s=3.0)
        if judge.model in served:
            return f"{url} serves {judge.model}"
        listed = ", ".join(sorted(served)[:3]) or "none"
        raise UnavailableError(f"{url} does not serve {judge.model}", hint=f"use one of its models: {listed}")
    if judge.engine == "transformers_local" and find_spec("torch") is None:
        raise UnavailableError(f"{judge.model} needs torch", hint="pip install 'rubricsvc[train]'")
    if judge.adapter:
        folder = adapter_folder(judge.adapter)
        check_sha256(folder, judge.weights_sha256 or "", weights_sha256(folder))
    return f"{judge.model} in process"


def _free_space(folder: Path) -> str:
    """Write a file as well: free bytes say nothing of inodes, quotas and read-only disks."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(bytes(65_536))
    except OSError as error:
        hint = f"free space in {existing}, make it writable, or set another folder"
        raise UnavailableError(f"{existing} cannot be written to: {error.strerror}", hint=hint) from error
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE_BYTES:
        message = f"{free / 1e6:.0f} MB free, {MIN_FREE_BYTES / 1e6:.0f} MB required"
        raise UnavailableError(message, hint=f"free space on the disk of {existing}")
    return f"{free / 1e9:.1f} GB free"
