"""Imports of `rubricsvc --help`, errors with hints and exit codes, options of imports, keys and the first database."""

import errno
import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rubricsvc.cli import main as main_module
from rubricsvc.cli.main import COMMANDS, app, load
from rubricsvc.errors import UnauthorizedError
from rubricsvc.formats import FORMATS
from rubricsvc.settings import get_settings
from rubricsvc.store import keys
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import KeyRow
from tests.cli import Cli

HEAVY = {
    "aiohttp", "alembic", "celery", "fastapi", "httpx2", "kombu", "openai", "pydantic", "pydantic_settings", "rich",
    "sqlalchemy", "structlog", "torch", "transformers", "uvicorn", "yaml",
}  # fmt: skip


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def modules_after(code: str) -> set[str]:
    names = python(f"import sys\n{code}\nprint(*sys.modules)").splitlines()[-1].split()
    return {name.split(".")[0] for name in names}


def test_help_and_package_import_nothing_heavy() -> None:
    assert not modules_after("import rubricsvc") & HEAVY
    code = "import contextlib, io\nfrom rubricsvc.cli.main import run\n"
    code += "with contextlib.redirect_stdout(io.StringIO()):\n    run(['--help'])"
    assert not modules_after(code) & HEAVY


def test_list_imports_no_broker_migrations_or_workers(tmp_path: Path) -> None:
    code = f"import os\nos.environ['RUBRICSVC_DATABASE_URL'] = 'sqlite:///{tmp_path / 'a.db'}'\n"
    code += "from rubricsvc.cli.main import run\nrun(['jobs', 'list'])"
    python(code)  # creates the database, by Alembic
    assert not modules_after(code) & {"alembic", "celery", "httpx2", "kombu", "numpy", "scipy", "torch", "workers"}


def test_help_lists_every_command() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    assert shown.exit_code == 0
    for name, line in COMMANDS.items():
        assert f"  {name} " in shown.output
        assert line in shown.output, f"{line!r} is too long for the list"


def test_commands_describe_themselves() -> None:
    for name in COMMANDS:
        command = load(name)
        for verb in getattr(command, "commands", {"": command}).values():
            assert verb.help, f"{name} {verb.name} has no description"


def test_usage_error_exits_with_2(cli: Cli) -> None:
    for args, words in (
        ("rubrik", "'rubrics'"), ("rubric lst", "'lst'"), ("rubric fit", "'--to'"), ("job show x", "'job_id'"),
        ("rubric list --limt 3", "--limt"), ("rubric list --limit 0", "--limit"),
    ):  # fmt: skip
        ran = cli(*args.split())
        assert (ran.code, ran.out) == (2, ""), args
        error, hint = ran.err.splitlines()
        assert error.startswith("error: ") and words in error
        assert hint.startswith("hint: see `rubricsvc") and hint.endswith("--help`")


def test_guessed_commands_lead_to_those_that_exist(cli: Cli) -> None:
    for instead, guesses in main_module._GUESSES.items():
        for guess in guesses.split(", "):
            ran = cli(*guess.split(), "x")
            assert ran.code == 2 and f"`rubricsvc {instead}`" in ran.err, guess
        words = [word for word in instead.split() if word.islower() and word.isalpha()]
        assert cli(*words[:2], "--help").code == 0, instead


def test_delete_takes_singulars_and_names_what_goes(cli: Cli, rubric_file: Path) -> None:
    assert cli("rubrics", "import", rubric_file).code == 0
    ran = cli("delete", "prompt", "one", "two", "--json")
    assert ran.code == 2 and ran.json["names"] == {
        "prompts": ["1 one", "2 two"],
        "rubrics": ["1 first@1", "2 second@1"],
    }
    assert cli("delete", "rubric", "first", "lost", "--yes").code == 3, "then none is deleted"
    ran = cli("delete", "rubric", "first", "first@1", "1", "--yes", "--json")
    assert (ran.code, ran.json["deleted"]) == (0, {"rubrics": 1}), "one row by three names"


def test_option_of_one_value_is_given_once(cli: Cli) -> None:
    ran = cli("jobs", "submit", "--judge", "x", "--rubric", "a", "--rubric", "b")
    assert ran.code == 2 and "--rubric" in ran.err


def test_not_found_exits_with_3(cli: Cli) -> None:
    ran = cli("rubrics", "show", "nothing")
    assert ran.code == 3
    error, hint = ran.err.splitlines()[-2:]
    assert error.startswith("error: ") and "'nothing'" in error
    assert hint.startswith("hint: ") and "`rubricsvc rubrics show`" in hint


def test_error_that_is_internal_is_one_line_unless_debug(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr(main_module, "load", broken)
    ran = cli("rubrics", "list")
    error, hint = ran.err.splitlines()
    assert (ran.code, error) == (70, "error: ZeroDivisionError: by nothing")
    assert "--debug" in hint
    with pytest.raises(ZeroDivisionError):
        cli("--debug", "rubric", "list")
    monkeypatch.setenv("RUBRICSVC_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli("rubrics", "list")


@pytest.mark.parametrize("number", ["9" * 19, "9" * 20, "9" * 5000])
def test_number_beyond_every_id_is_no_internal_error(cli: Cli, number: str) -> None:
    unknown = [f"{noun} show" for noun in ("job", "completion", "judge", "rubric", "prompt")] + ["key revoke"]
    invalid = ["job list --after", "judge list --limit", "verdict list --completion"]
    for command, code in [(one, 3) for one in unknown] + [(one, 2) for one in invalid]:
        ran = cli(*command.split(), number)
        assert ran.code in ({code, 2} if len(number) > 19 else {code, 0}), ran.err
        assert len(ran.err) < 400


def test_settings_reject_invalid_values(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = [("BROKER_URL", url) for url in ("foo://x", "redis", "redis://[", "redis://h:port/0")]
    brokers.append(("BROKER_URL", "foo://:hunter2@h/0"))
    for name, value in [*brokers, ("LOG_LEVEL", "loud"), ("LEASE_SECONDS", "inf"), ("PORT", "many")]:
        with monkeypatch.context() as setting:
            setting.setenv(f"RUBRICSVC_{name}", value)
            get_settings.cache_clear()
            ran = cli("jobs", "list")
        assert ran.code == 2 and f"error: setting RUBRICSVC_{name}: " in ran.err, value
        assert "hunter2" not in ran.err


@pytest.mark.parametrize("command", ["job list", "db upgrade"])
def test_database_that_is_invalid_exits_with_a_hint(cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    here = Path.cwd()
    (here / "text").write_text("no database at all, but long enough to look like one\n" * 50)
    unusable = {f"sqlite:///{here}/text": 3, f"sqlite:///{here}/text/x.db": 3, f"sqlite:///{here}": 3}
    invalid = ("sqlite:///:memory:", "postgresql+psycopg://u@h:port/x", "sqlite+nothing:///x", "http://[")
    for url, code in (unusable | dict.fromkeys(invalid, 2)).items():
        monkeypatch.setenv("RUBRICSVC_DATABASE_URL", url)
        get_settings.cache_clear()
        ran = cli(*command.split())
        assert ran.code == code, ran.err
        assert "error: " in ran.err and "hint: " in ran.err


def test_full_disk_under_stdout_has_a_hint(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(main_module, "load", full)
    ran = cli("rubrics", "list")
    assert ran.code == 2 and "hint: " in ran.err


def test_package_exports_resolve() -> None:
    import rubricsvc

    for name in rubricsvc.__all__:
        assert getattr(rubricsvc, name).__name__ == name and name in dir(rubricsvc)
    with pytest.raises(AttributeError, match="Rubrik"):
        _ = rubricsvc.Rubrik


NOUNS = ("rubric", "label", "completion")


def test_import_help_names_every_format(cli: Cli) -> None:
    for noun in NOUNS:
        options = " ".join(cli(noun, "import", "--help").out.split())
        alone = "completions, " if noun == "completion" else ""
        assert f"{alone}{', '.join(FORMATS)}." in options


@pytest.mark.parametrize("noun", NOUNS)
def test_import_with_an_invalid_record_stores_nothing(cli: Cli, noun: str) -> None:
    good = '{"prompt": "q", "criteria": ["a"], "completions": ["b"], "labels": {"c1": 1}}\n'
    ran = cli(noun, "import", "-", stdin=good + '{"prompt": 5, "criteria": ["a"]}')
    assert ran.code == 2 and ran.out == "" and "stdin:2: prompt: " in ran.err
    assert cli("prompts", "list", "--json").out == ""
    ran = cli(noun, "import", "-", "--skip-invalid", "--json", stdin=good + '{"prompt": 5, "criteria": ["a"]}')
    assert ran.code == 0 and ran.json["new"]["prompts"] == 1 and [one["line"] for one in ran.json["skipped"]] == [2]


def test_serve_refuses_a_busy_port_and_worker_the_in_process_broker(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        result = cli("serve", "--port", str(busy.getsockname()[1]))
    assert result.code == 2 and "--port" in result.err
    result = cli("worker")
    assert result.code == 2 and "RUBRICSVC_BROKER_URL" in result.err


def test_key_is_valid_from_create_to_revoke(cli: Cli) -> None:
    secret = cli("keys", "create", "trainer", "--expires-in", "30").out.strip()
    with closing(Database(get_settings().database_url)) as db:
        with db.read() as session:
            key = keys.verify(session, secret)
        assert key.expires_at is not None and (key.expires_at - key.created_at).days in {29, 30}
        listed = cli("keys", "list", "--json")
        assert secret not in listed.out and listed.json["name"] == "trainer"
        assert cli("keys", "revoke", key.id).code == 0
        with db.read() as session, pytest.raises(UnauthorizedError):
            keys.verify(session, secret)
        unknown = cli("keys", "revoke", 9)
        assert unknown.code == 3 and "rubricsvc keys list" in unknown.err
        for name in ("", "  ", "x" * 5000):
            ran = cli("keys", "create", name)
            assert (ran.code, ran.out) == (2, "")
        with db.read() as session:
            assert len(page_of(session, KeyRow, 0, 50)) == 1


@pytest.mark.usefixtures("new_machine")
def test_database_is_created_where_there_is_none_and_foreign_tables_are_left(cli: Cli, tmp_path: Path) -> None:
    first, again = cli("db", "upgrade"), cli("db", "upgrade")
    assert (first.code, again.code) == (0, 0) and "from nothing" in first.err and "up to date" in again.err
    file = tmp_path / "books" / "rubricsvc.db"
    file.unlink()
    file.touch()
    ran, again = cli("rubrics", "list"), cli("rubrics", "list")
    assert (ran.code, again.code) == (0, 0) and "rubricsvc.db" in ran.err and "rubricsvc.db" not in again.err
    file.unlink()
    with closing(sqlite3.connect(file)) as theirs:
        theirs.execute("CREATE TABLE theirs (id INTEGER)")
    ran = cli("rubrics", "list")
    assert ran.code == 3 and "`rubricsvc db upgrade`" in ran.err
