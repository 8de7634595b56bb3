"""``rubricsvc doctor``: looks at everything the service needs, and says in one line each what would mend it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rubricsvc.cli.output import OK, WITH_FAILURES, Json, clean, put, put_json

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.settings import Settings

_ROOM = 1_000_000_000
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
    if as_json:
        put_json({"ok": well, "checks": [{"ok": finding.ok, **asdict(finding)} for finding in findings]})
    else:
        for finding in findings:
            put(clean(f"{'✓' if finding.ok else '✗'} {finding.check}: {finding.detail}"))
            if finding.mending:
                put(clean(f"  → {finding.mending}"))
    raise typer.Exit(OK if well else WITH_FAILURES)


def examine() -> Iterator[Finding]:
    """Every check, in the order in which one would mend things."""
    from pydantic import ValidationError

    from rubricsvc.broker import shown
    from rubricsvc.settings import Settings

    try:
        settings = Settings()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        yield Finding(
            "settings", f"{where}: {first['msg']}", "correct RUBRICSVC_… in the environment or rubricsvc.toml"
        )
        return
    yield Finding("settings", f"database {shown(settings.database_url)}, broker {shown(settings.broker_url)}")
    yield _database(settings)
    yield _broker(settings)
    yield from _torch()
    judges = _judges(settings)
    yield from (_judge(judge, settings) for judge in judges)
    if not judges:
        yield Finding("judges", "none registered yet; `rubricsvc judge add` adds one")
    yield from _disk(settings)


def _try(check: str, action: Callable[[], object], well: str) -> Finding:
    """What ``action`` raises is the finding; its hint is the mending."""
    from rubricsvc.errors import RubricsvcError

    try:
        action()
    except RubricsvcError as error:
        return Finding(check, error.message, error.hint or "see the message")
    return Finding(check, well)


def _sqlite_file(settings: Settings) -> Path | None:
    prefix, _, path = settings.database_url.partition(":///")
    return Path(path) if prefix.startswith("sqlite") else None


def _database(settings: Settings) -> Finding:
    from rubricsvc.store.migrate import open_database

    file = _sqlite_file(settings)
    if file is not None and not file.exists():
        return Finding("database", "not there yet; it is made on first use")
    return _try("database", lambda: open_database(settings.database_url).close(), "reachable, schema is the newest")


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


def _judges(settings: Settings) -> list[Judge]:
    """The registered ones; none where the database has a finding of its own."""
    from rubricsvc.errors import RubricsvcError
    from rubricsvc.store import judges
    from rubricsvc.store.migrate import open_database

    file = _sqlite_file(settings)
    if file is not None and not file.exists():
        return []
    try:
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
    import httpx2

    check = f"judge {judge.name}"
    url = (judge.endpoint.base_url or "https://api.openai.com/v1").rstrip("/")
    key = os.environ.get(judge.endpoint.key_variable or "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = httpx2.get(f"{url}/models", headers=headers, timeout=_JUDGE_SECONDS)
        answer.raise_for_status()
        served = {str(model["id"]) for model in answer.json()["data"]}
    except httpx2.HTTPStatusError as error:
        status = error.response.status_code
        wanted = judge.endpoint.key_variable
        ask = f"put the key into {wanted}" if wanted else "name the key's variable: judge add … --api-key-env"
        why = ask if status in {401, 403} else "look into the server's log"
        return Finding(check, f"{url} answers {status}", why)
    except httpx2.HTTPError as error:
        return Finding(
            check, f"{url} does not answer: {error}", "start the model server, or correct the judge's base_url"
        )
    except (ValueError, KeyError, TypeError):
        return Finding(
            check, f"{url}/models is no list of models", "check base_url: most servers want it to end in /v1"
        )
    if judge.model not in served:
        some = ", ".join(sorted(served)[:3]) or "nothing"
        return Finding(check, f"{url} does not serve {judge.model}", f"it serves {some}; correct the judge's model")
    return Finding(check, f"{url} serves {judge.model}")


def _local_model(judge: Judge, settings: Settings) -> Finding:
    from workers.engines.embedded import NAME

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
    folders = {"model cache": settings.cache_dir}
    if (file := _sqlite_file(settings)) is not None:
        folders["database folder"] = file.parent
    for what, folder in folders.items():
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(there).free
        short = f"make room on the disk of {there}" if free < _ROOM else ""
        yield Finding(f"disk of the {what}", f"{free / 1e9:.1f} GB free", short)
