"""With RUBRICSVC_URL set, which commands work against a remote service, and which need the database itself."""

import dis
import inspect
from functools import cache
from importlib import import_module
from typing import Any

import pytest

from rubricsvc.cli import commands, main
from rubricsvc.cli.main import COMMANDS, load
from rubricsvc.services import local
from trainer import rewards

LOCAL = {"serve", "worker", "doctor", "db upgrade", "keys create", "keys list", "keys revoke"}
"""What is of the service's own machine."""
EITHER = {inspect.unwrap(one) for one in (commands.service, rewards.service)}
"""What opens the service at RUBRICSVC_URL, else the database."""

OPENS = {inspect.unwrap(one) for one in (commands.local_service, local.open_database, local.upgrade_schema)}


def opens_database(used: Any, seen: set[object]) -> bool:
    """Return whether a function or class of the command line or the trainer opens the database, but by `service`."""
    used = inspect.unwrap(getattr(used, "func", used))
    if used in OPENS:
        return True
    followed = getattr(used, "__module__", "").startswith(("rubricsvc.cli", "trainer"))
    if not followed or used in seen or used in EITHER:
        return False
    seen.add(used)
    inner = vars(used).values() if inspect.isclass(used) else named(used) if inspect.isfunction(used) else ()
    return any(opens_database(one, seen) for one in inner if inspect.isroutine(one) or inspect.isclass(one))


@cache
def named(function: Any) -> list[Any]:
    """Return what a function names: of its module, or of modules that it imports or names."""
    codes, values = [function.__code__], []
    for code in codes:  # with those of functions within
        codes += filter(inspect.iscode, code.co_consts)
        module: Any = None
        for one in dis.get_instructions(code):
            if one.opname == "IMPORT_NAME":
                module = import_module(one.argval) if one.argval.startswith(("rubricsvc", "trainer")) else None
            elif one.opname in ("IMPORT_FROM", "LOAD_ATTR") and module is not None:
                values.append(getattr(module, one.argval, None))
            elif one.opname == "LOAD_GLOBAL":
                values.append(value := function.__globals__.get(one.argval))
                module = value if inspect.ismodule(value) else None
    return values


def test_commands_work_against_a_remote_service() -> None:
    every = {
        f"{name} {verb}".strip(): one.callback
        for name in COMMANDS
        for verb, one in getattr(load(name), "commands", {"": load(name)}).items()
    }
    found = {name for name, callback in every.items() if opens_database(callback, set())}
    assert found == LOCAL


@pytest.mark.parametrize("words", [["db", "upgrade"], ["keys", "list"]])
def test_commands_about_the_database_refuse_a_remote_service(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUBRICSVC_URL", "http://127.0.0.1:9")
    assert main.run(words) == 2 and "unset RUBRICSVC_URL" in capsys.readouterr().err
