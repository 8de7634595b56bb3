"""``rubricsvc doctor``: looks at everything the service needs, and says in one line each what would mend it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rubricsvc.cli.output import OK, WITH_FAILURES, Json, clean, exit_with, print_data, print_json

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.settings import Settings

_ROOM = 1_000_000_000
_PROBE = 65_536
_JUDGE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """``mending`` is empty where all is well. A finding that is well may still have something to say."""

    check: str
    detail: str
    mending: str = ""

    @property
    def ok(self) -> bool:
        return not self.mending


def doctor(as_json: Json = False) -> None:
    """Check settings, database, broker, judges, models and disk. Exit status 1 when something needs mending."""
    findings = list(examine())
    well = all(finding.ok for finding in findings)
    with exit_with(OK if well else WITH_FAILURES):
        if as_json:
            print_json({"ok": well, "checks": [{"ok": finding.ok, **asdict(finding)} for finding in findings]})
        else:
            _put(findings)


def _put(findings: Iterable[Finding]) -> None:
    for finding in findings:
        print_data(clean(f"{'✓' if finding.ok else '✗'} {finding.check}: {finding.detail}"))
        if finding.mending:
            print_data(clean(f"  → {finding.mending}"))


def examine() -> Iterator[Finding]:
    """Every check, in the order in which one would mend things."""
    from rubricsvc.broker import shown
    from rubricsvc.errors import InvalidError
    from rubricsvc.settings import read_settings

    try:
        settings = read_settings()
    except InvalidError as error:
        yield Finding("settings", error.message, error.hint)
        return
    yield Finding("settings", f"database {shown(settings.database_url)}, broker {shown(settings.broker_url)}")
    yield _database(settings)
    yield _broker(settings)
    yield from _torch()
    yield _packages()
    yield _sandbox()
    judges = _judges(settings)
    yield from (_judge(judge, settings) for judge in judges)
    if not judges:
        yield Finding("judges", "none registered yet; `rubricsvc judges add` adds one")
    yield from _disk(settings)


def _try(check: str, action: Callable[[], object], well: str) -> Finding:
    """What ``action`` raises is the finding; its hint is the mending."""
    from rubricsvc.errors import RubricsvcError

    try:
        action()
    except RubricsvcError as error:
        return Finding(check, error.message, error.hint or "see the message")
    return Finding(check, well)


def _database(settings: Settings) -> Finding:
    from rubricsvc.store.migrate import open_database

    def look() -> None:
        if _is_there(settings):
            open_database(settings.database_url).close()

    finding = _try("database", look, "reachable, schema is the newest")
    if finding.ok and not _is_there(settings):
        return Finding("database", "not there yet; it is made on first use")
    return finding


def _is_there(settings: Settings) -> bool:
    """Whether there is something to open: to look for a SQLite file must not make it. Raises InvalidError."""
    from rubricsvc.store.session import sqlite_file

    file = sqlite_file(settings.database_url)
    return file is None or file.exists()


def _broker(settings: Settings) -> Finding:
    from rubricsvc.broker import check_broker

    return _try("broker", lambda: check_broker(settings.broker_url), "reachable")


def _torch() -> Iterator[Finding]:
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        extra = "`pip install 'rubricsvc[train]'` brings them, for the embedded model and for training"
        yield Finding("models in process", f"{' and '.join(missing)} not installed; {extra}")
    else:
        yield Finding("models in process", "torch and transformers are installed")


def _packages() -> Finding:
    wanted = ("jsonschema", "langdetect", "math_verify", "nltk", "rapidfuzz", "rouge_score", "sacrebleu")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    extra = "checks that need them fail; `pip install 'rubricsvc[judging]'` brings them"
    return Finding(
        "checks", f"without {', '.join(missing)}: {extra}" if missing else "all their packages are installed"
    )


def _sandbox() -> Finding:
    from rubricsvc.errors import UnavailableError
    from workers.checks.sandbox.runner import ready

    try:
        confined = ready() == "bwrap"
    except UnavailableError as error:
        return Finding("sandbox", f"{error.message}, and checks that run it fail; {error.hint}")
    return Finding("sandbox", "bubblewrap confines code" if confined else "none: code of strangers runs as you")


def _judges(settings: Settings) -> list[Judge]:
    """The registered ones; none where the database has a finding of its own."""
    from rubricsvc.errors import RubricsvcError
    from rubricsvc.store import judges
    from rubricsvc.store.migrate import open_database

    try:
        if not _is_there(settings):
            return []
        db = open_database(settings.database_url)
    except RubricsvcError:
        return []
    try:
        with db.read() as session:
            return [row.value for row in judges.page(session, limit=10_000)]
    finally:
        db.close()


def _judge(judge: Judge, settings: Settings) -> Finding:
    if judge.engine == "openai_http":
        return _endpoint(judge)
    if judge.engine == "transformers_local":
        return _local_model(judge, settings)
    return Finding(f"judge {judge.name}", f"engine {judge.engine} is not looked into here")


def _endpoint(judge: Judge) -> Finding:
    from rubricsvc.cli.served_models import served_models
    from rubricsvc.errors import RubricsvcError
    from workers.engines import factory_of

    check = f"judge {judge.name}"
    try:
        factory_of(judge)
        served = served_models(judge.endpoint, timeout_s=_JUDGE_SECONDS)
    except RubricsvcError as error:
        return Finding(check, error.message, error.hint)
    url = judge.endpoint.base_url or "api.openai.com"
    if judge.model not in served:
        some = ", ".join(sorted(served)[:3]) or "nothing"
        return Finding(check, f"{url} does not serve {judge.model}", f"it serves {some}; correct the judge's model")
    return Finding(check, f"{url} serves {judge.model}")


def _local_model(judge: Judge, settings: Settings) -> Finding:
    from workers.engines.local.embedded_model import NAME

    check = f"judge {judge.name}"
    if importlib.util.find_spec("torch") is None:
        return Finding(check, f"{judge.model} runs in process, and torch is missing", "pip install 'rubricsvc[train]'")
    if judge.model != "embedded":
        here = Path(judge.model).is_dir()
        return Finding(
            check, f"model folder {judge.model}" if here else f"{judge.model}, fetched on first use if need be"
        )
    folder = settings.cache_dir / NAME
    there = (folder / "model.safetensors").exists()
    return Finding(check, f"model files in {folder}" if there else "model files are fetched on first use (93 MB)")


def _disk(settings: Settings) -> Iterator[Finding]:
    from rubricsvc.errors import InvalidError
    from rubricsvc.store.session import sqlite_file

    folders = {"model cache": settings.cache_dir}
    with contextlib.suppress(InvalidError):  # told above
        if (file := sqlite_file(settings.database_url)) is not None:
            folders["database folder"] = file.parent
    for what, folder in folders.items():
        yield _room(f"disk of the {what}", folder)


def _room(check: str, folder: Path) -> Finding:
    """Whether files can be written there. It is tried: free bytes say nothing of inodes, quotas and read-only disks."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as probe:
            probe.write(bytes(_PROBE))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        mending = f"make room in {there}, or make it writable for you; or name another place"
        return Finding(check, f"{there} cannot be written to: {error.strerror}", mending)
    free = shutil.disk_usage(there).free
    return Finding(check, f"{free / 1e9:.1f} GB free", f"make room on the disk of {there}" if free < _ROOM else "")
