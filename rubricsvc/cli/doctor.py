"""`rubricsvc doctor`: checks of everything that the service needs, each with a fix."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rubricsvc.cli.output import OK, WITH_FAILURES, Json, clean, exit_with, print_data, print_json

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.settings import Settings

MIN_FREE_BYTES = 1_000_000_000
_PROBE_BYTES = 65_536
_JUDGE_SECONDS = 3.0
_CHECK_PACKAGES = ("jsonschema", "langdetect", "math_verify", "nltk", "rapidfuzz", "rouge_score", "sacrebleu")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check; ``fix`` is empty if it passed."""

    check: str
    detail: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        """Whether the check passed."""
        return not self.fix


def doctor(as_json: Json = False) -> None:
    """Check settings, database, broker, packages, judges and disk; exit with 1 if a check fails."""
    results = list(diagnose())
    ok = all(result.ok for result in results)
    with exit_with(OK if ok else WITH_FAILURES):
        if as_json:
            print_json({"ok": ok, "checks": [{"ok": result.ok, **asdict(result)} for result in results]})
            return
        for result in results:
            print_data(clean(f"{'✓' if result.ok else '✗'} {result.check}: {result.detail}"))
            if result.fix:
                print_data(clean(f"  → {result.fix}"))


def diagnose() -> Iterator[Diagnosis]:
    """Run every check, in the order in which failures are best fixed."""
    from rubricsvc.broker import check_broker, shown
    from rubricsvc.errors import InvalidError
    from rubricsvc.settings import read_settings

    try:
        settings = read_settings()
    except InvalidError as error:
        yield Diagnosis("settings", error.message, error.hint)
        return
    yield Diagnosis("settings", f"database {shown(settings.database_url)}, broker {shown(settings.broker_url)}")
    yield _database(settings)
    yield _try("broker", lambda: check_broker(settings.broker_url), "reachable")
    yield _packages("in-process models", ("torch", "transformers"), "train")
    yield _packages("checks", _CHECK_PACKAGES, "judging")
    yield _sandbox()
    judges = _judges(settings)
    yield from (_judge(judge, settings) for judge in judges)
    if not judges:
        yield Diagnosis("judges", "none; add one with `rubricsvc judges add`")
    yield from _disk(settings)


def _try(check: str, action: Callable[[], object], detail: str) -> Diagnosis:
    from rubricsvc.errors import RubricsvcError

    try:
        action()
    except RubricsvcError as error:
        return Diagnosis(check, error.message, error.hint or "see the message")
    return Diagnosis(check, detail)


def _database(settings: Settings) -> Diagnosis:
    from rubricsvc.store.migrate import open_database

    def open_existing() -> None:
        if _exists(settings):
            open_database(settings.database_url).close()

    result = _try("database", open_existing, "reachable, schema up to date")
    if result.ok and not _exists(settings):
        return Diagnosis("database", "does not exist yet; created on first use")
    return result


def _exists(settings: Settings) -> bool:
    """Return whether the database can be opened without creating a SQLite file."""
    from rubricsvc.store.session import sqlite_file

    file = sqlite_file(settings.database_url)
    return file is None or file.exists()


def _packages(check: str, packages: tuple[str, ...], extra: str) -> Diagnosis:
    missing = [name for name in packages if find_spec(name) is None]
    if not missing:
        return Diagnosis(check, "all packages installed")
    return Diagnosis(check, f"not installed: {', '.join(missing)} (optional: pip install 'rubricsvc[{extra}]')")


def _sandbox() -> Diagnosis:
    from rubricsvc.errors import UnavailableError
    from workers.checks.sandbox.runner import ready

    try:
        isolated = ready() == "bwrap"
    except UnavailableError as error:
        return Diagnosis("sandbox", f"{error.message}; checks that run code fail (optional: {error.hint})")
    return Diagnosis("sandbox", "bubblewrap" if isolated else "disabled: untrusted code runs without isolation")


def _judges(settings: Settings) -> list[Judge]:
    from rubricsvc.errors import RubricsvcError
    from rubricsvc.store import judges
    from rubricsvc.store.migrate import open_database

    try:
        if not _exists(settings):
            return []
        db = open_database(settings.database_url)
    except RubricsvcError:  # reported by the check of the database
        return []
    with contextlib.closing(db), db.read() as session:
        return [row.value for row in judges.page(session, limit=10_000)]


def _judge(judge: Judge, settings: Settings) -> Diagnosis:
    if judge.engine == "openai_http":
        return _endpoint(judge)
    if judge.engine == "transformers_local":
        return _local_model(judge, settings)
    return Diagnosis(f"judge {judge.name}", f"engine {judge.engine} is not checked")


def _endpoint(judge: Judge) -> Diagnosis:
    from rubricsvc.cli.served_models import served_models
    from rubricsvc.errors import RubricsvcError

    check = f"judge {judge.name}"
    try:
        served = served_models(judge.endpoint, timeout_s=_JUDGE_SECONDS)
    except RubricsvcError as error:
        return Diagnosis(check, error.message, error.hint)
    url = judge.endpoint.base_url or "api.openai.com"
    if judge.model not in served:
        listed = ", ".join(sorted(served)[:3]) or "none"
        return Diagnosis(check, f"{url} does not serve {judge.model}", f"use one of its models: {listed}")
    return Diagnosis(check, f"{url} serves {judge.model}")


def _local_model(judge: Judge, settings: Settings) -> Diagnosis:
    from workers.engines.local.embedded_model import NAME

    check = f"judge {judge.name}"
    if find_spec("torch") is None:
        return Diagnosis(check, f"{judge.model} needs torch", "pip install 'rubricsvc[train]'")
    if judge.model != "embedded":
        is_folder = Path(judge.model).is_dir()
        return Diagnosis(check, f"model folder {judge.model}" if is_folder else f"{judge.model}, fetched on first use")
    folder = settings.cache_dir / NAME
    cached = (folder / "model.safetensors").exists()
    return Diagnosis(check, f"model files in {folder}" if cached else "model files fetched on first use (93 MB)")


def _disk(settings: Settings) -> Iterator[Diagnosis]:
    from rubricsvc.errors import InvalidError
    from rubricsvc.store.session import sqlite_file

    folders = {"model cache": settings.cache_dir}
    with contextlib.suppress(InvalidError):  # reported by the check of the database
        if (file := sqlite_file(settings.database_url)) is not None:
            folders["database folder"] = file.parent
    for name, folder in folders.items():
        yield _free_space(f"disk of the {name}", folder)


def _free_space(check: str, folder: Path) -> Diagnosis:
    """Write a file as well: free bytes say nothing of inodes, quotas and read-only disks."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        fix = f"free space in {existing}, make it writable, or set another folder"
        return Diagnosis(check, f"{existing} cannot be written to: {error.strerror}", fix)
    free = shutil.disk_usage(existing).free
    fix = f"free space on the disk of {existing}" if free < MIN_FREE_BYTES else ""
    return Diagnosis(check, f"{free / 1e9:.1f} GB free", fix)
