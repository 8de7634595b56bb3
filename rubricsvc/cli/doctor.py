"""`rubricsvc doctor`: checks of everything that the service needs, each with a fix."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from rubricsvc.cli.models import served_models
from rubricsvc.cli.output import OK, WITH_FAILURES, Json, cell, counted, exit_with, print_json, show
from rubricsvc.errors import RubricsvcError, UnavailableError
from rubricsvc.schemas.judges import StoredJudge
from rubricsvc.services.local import LocalService, open_database, sqlite_file
from rubricsvc.settings import read_settings
from workers.checks.sandbox.runner import ready
from workers.engines.local.weights import adapter_folder, check_sha256

MIN_FREE_BYTES = 1_000_000_000
_PACKAGES = {"train": ("torch", "transformers"), "judging": ("jsonschema", "nltk", "rapidfuzz", "sacrebleu", "sklearn")}
"""Packages that some judges and checks need, by the extra that installs them."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check; ``fix`` is empty if it passed."""

    ok: bool
    check: str
    detail: str
    fix: str = ""


def doctor(as_json: Json = False) -> None:
    """Check settings, database, broker, packages, workers, judges and disk; exit with 1 if a check fails."""
    results = list(diagnose())
    ok = all(result.ok for result in results)
    with exit_with(OK if ok else WITH_FAILURES):
        if as_json:
            print_json({"ok": ok, "checks": results})
        else:
            show(results)


def diagnose() -> Iterator[Diagnosis]:
    """Run every check, in the order in which failures are best fixed."""
    from rubricsvc.broker import check_broker, shown  # loads Celery

    def tried(check: str, run: Callable[[], str | None]) -> Diagnosis:
        try:
            return Diagnosis(True, check, run() or "reachable")
        except RubricsvcError as error:
            return Diagnosis(False, check, error.message, error.hint or "see the message")

    try:
        settings = read_settings()
    except RubricsvcError as error:
        yield Diagnosis(False, "settings", error.message, error.hint)
        return
    yield Diagnosis(True, "settings", f"database {shown(settings.database_url)}, broker {shown(settings.broker_url)}")
    if url := os.environ.get("RUBRICSVC_URL"):
        yield tried("service", partial(_service, url))
    folders = {"model cache": settings.cache_dir}
    judges: tuple[StoredJudge, ...] = ()
    try:
        file = sqlite_file(settings.database_url)
        if file is not None:
            folders["database folder"] = file.parent
        if file is not None and not file.exists():  # opening it would create it
            yield Diagnosis(True, "database", "does not exist yet; created on first use")
        else:
            with open_database(settings=settings) as db:
                s = LocalService(db)
                judges, queue, workers = s.judges.page(limit=1000).data, s.workers.queue(), s.workers.page()
            yield Diagnosis(True, "database", "reachable, schema up to date")
            running = f"{queue.workers or 'none'} running, {counted(queue.pending, 'completion')} pending"
            ok = queue.workers > 0 or settings.broker_url.startswith("memory")  # there a command that scores starts one
            yield Diagnosis(ok, "workers", running, "" if ok else "start one with `rubricsvc worker`")
            for each in workers:
                seen = f"{each.status} since {cell(each.since)}, last report {each.last_seen:g} s ago"
                yield Diagnosis(True, f"worker {each.name}", seen)
    except RubricsvcError as error:
        yield Diagnosis(False, "database", error.message, error.hint)
    for one in judges:
        yield tried(f"judge {one.name}", partial(_judge, one))
    yield tried("broker", partial(check_broker, settings.broker_url))
    for extra, names in _PACKAGES.items():
        missing = ", ".join(name for name in names if find_spec(name) is None)
        optional = f"not installed: {missing} (optional: pip install 'rubricsvc[{extra}]')"
        yield Diagnosis(True, f"packages of {extra}", optional if missing else "all installed")
    try:
        sandbox = "bubblewrap" if ready() == "bwrap" else "disabled: untrusted code runs without isolation"
    except UnavailableError as error:
        sandbox = f"{error.message}; checks that run code fail (optional: {error.hint})"
    yield Diagnosis(True, "sandbox", sandbox)
    for name, folder in folders.items():
        yield tried(f"disk of the {name}", partial(_free_space, folder))


def _service(url: str) -> str:
    """Ask the remote service that other commands use instead of this machine's database."""
    from rubricsvc.broker import shown
    from rubricsvc.client import Client

    with Client(url, outage_seconds=0) as client:
        client.judges.page(limit=1)
    return f"commands use {shown(url)} (RUBRICSVC_URL); the other checks are of this machine"


def _judge(stored: StoredJudge) -> str:
    """Check that the server has the judge's model, or that its packages and weights are here."""
    judge = stored.judge
    if judge is None:
        raise UnavailableError(f"judge {stored.name!r} is not valid", hint=stored.error or "")
    if judge.engine == "openai_http":
        url, served = judge.endpoint.base_url or "api.openai.com", served_models(judge.endpoint, timeout_s=3.0)
        if judge.model in served:
            return f"{url} serves {judge.model}"
        listed = ", ".join(sorted(served)[:3]) or "none"
        raise UnavailableError(f"{url} does not serve {judge.model}", hint=f"use one of its models: {listed}")
    if judge.engine == "transformers_local" and find_spec("torch") is None:
        raise UnavailableError(f"{judge.model} needs torch", hint="pip install 'rubricsvc[train]'")
    if judge.adapter:
        check_sha256(adapter_folder(judge.adapter), judge.weights_sha256)
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
