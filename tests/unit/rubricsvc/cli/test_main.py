"""Starting costs little, and errors are two lines and a number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rubricsvc.cli import main as main_module
from rubricsvc.cli.main import COMMANDS, app, load
from rubricsvc.errors import ConflictError
from tests.cli import Cli

HEAVY = {
    "aiohttp",
    "alembic",
    "celery",
    "fastapi",
    "httpx2",
    "kombu",
    "openai",
    "pydantic",
    "pydantic_settings",
    "rich",
    "sqlalchemy",
    "structlog",
    "torch",
    "transformers",
    "uvicorn",
    "yaml",
}


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def modules_after(code: str) -> set[str]:
    names = python(f"import sys\n{code}\nprint(*sys.modules)").splitlines()[-1].split()
    return {name.split(".")[0] for name in names}


def test_help_imports_nothing_heavy() -> None:
    code = "import contextlib, io\nfrom rubricsvc.cli.main import run\n"
    code += "with contextlib.redirect_stdout(io.StringIO()):\n    run(['--help'])"
    assert not modules_after(code) & HEAVY


def test_the_help_of_no_command_imports_anything_heavy() -> None:
    code = "import contextlib, io\nfrom rubricsvc.cli.main import COMMANDS, run\n"
    code += "with contextlib.redirect_stdout(io.StringIO()):\n    "
    code += "assert not any(run([name, '--help']) for name in COMMANDS)"
    assert not modules_after(code) & (HEAVY - {"pydantic"})  # typer itself reads arguments with it


def test_help_lists_every_command() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    assert shown.exit_code == 0
    for name, line in COMMANDS.items():
        assert f"  {name} " in shown.output
        assert line in shown.output, f"{line!r} is too long for the list"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_describes_itself(name: str) -> None:
    command = load(name)
    for verb in getattr(command, "commands", {"": command}).values():
        assert verb.help, f"{name} {verb.name} has no description"


def test_version(cli: Cli) -> None:
    assert cli("--version").out.startswith("rubricsvc 0.")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["rubrik"], "No such command 'rubrik'. Did you mean 'rubrics'?"),
        (["rubric", "lst"], "No such command 'lst'"),
        (["rubric", "show"], "Missing argument"),
        (["job", "show", "x"], "valid integer"),
        (["rubric", "list", "--limt", "3"], "No such option: --limt"),
        (["rubric", "list", "--limit", "0"], "--limit"),
    ],
)
def test_wrong_usage_ends_with_2(cli: Cli, args: list[str], words: str) -> None:
    ran = cli(*args)
    assert (ran.code, ran.out) == (2, "")
    error, hint = ran.err.splitlines()
    assert error.startswith("error: ") and words in error
    assert hint.startswith("hint: `rubricsvc") and hint.endswith("--help` shows how")


def test_what_is_not_there_ends_with_3(cli: Cli) -> None:
    ran = cli("rubric", "show", "nothing")
    assert ran.code == 3
    assert ran.err.splitlines()[-2:] == [
        "error: no rubric 'nothing'",
        "hint: `rubricsvc rubrics list` or GET /v1/rubrics shows what there is",
    ]


def test_a_bad_setting_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_PORT", "many")
    ran = cli("rubric", "list")
    assert ran.code == 2
    assert "error: setting RUBRICSVC_PORT: " in ran.err


def test_a_database_that_is_no_database(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", "mysql://x/y")
    ran = cli("rubric", "list")
    assert ran.code == 2
    assert "hint: use sqlite:///FILE or postgresql" in ran.err


def test_a_fault_of_ours_is_one_line_and_in_full_on_request(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr(main_module, "load", broken)
    ran = cli("rubric", "list")
    error, hint = ran.err.splitlines()
    assert (ran.code, error) == (70, "error: ZeroDivisionError: by nothing")
    assert "this is a bug" in hint and "--debug" in hint
    with pytest.raises(ZeroDivisionError):
        cli("--debug", "rubric", "list")
    monkeypatch.setenv("RUBRICSVC_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli("rubric", "list")


@pytest.mark.parametrize(
    "args", [("judge", "show", "\udcff"), ("rubric", "lint", "caf\udce9.yaml"), ("key", "create", "\udcff")]
)
def test_an_argument_that_is_no_text_is_refused(cli: Cli, args: tuple[str, ...]) -> None:
    ran = cli(*args)
    assert ran.code == 2
    assert "error: argument 3 is not UTF-8 text: '" in ran.err


@pytest.mark.parametrize("number", ["9" * 19, "9" * 20, "9" * 5000])
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("job", "show"), 3),
        (("completion", "show"), 3),
        (("key", "revoke"), 3),
        (("judge", "show"), 3),
        (("rubric", "show"), 3),
        (("prompt", "show"), 3),
        (("job", "list", "--after"), 2),
        (("judge", "list", "--limit"), 2),
        (("verdict", "list", "--completion"), 2),
    ],
)
def test_a_number_beyond_every_id_is_no_fault_of_ours(cli: Cli, args: tuple[str, ...], code: int, number: str) -> None:
    ran = cli(*args, number)
    assert ran.code in ({code, 2} if len(number) > 19 else {code, 0}), ran.err
    assert len(ran.err) < 400


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("BROKER_URL", "foo://x", "expected memory://"),
        ("BROKER_URL", "redis", "expected memory://"),
        ("BROKER_URL", "redis://[", "IPv6"),
        ("BROKER_URL", "redis://h:port/0", "ort"),
        ("LOG_LEVEL", "loud", "'DEBUG', 'INFO', 'WARNING' or 'ERROR'"),
        ("LEASE_SECONDS", "inf", "finite"),
    ],
)
def test_a_bad_setting_is_refused_before_anything_is_done(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(f"RUBRICSVC_{name}", value)
    ran = cli("job", "list")
    assert ran.code == 2
    assert f"error: setting RUBRICSVC_{name}: " in ran.err and words in ran.err


def test_a_level_may_be_written_small(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_LOG_LEVEL", "debug")
    assert cli("job", "list").code == 0


def test_a_setting_that_is_refused_tells_no_password(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", "foo://:hunter2@h/0")
    assert "hunter2" not in cli("job", "list").err


def test_a_settings_file_that_is_no_toml(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "rubricsvc.toml").write_text("port 1\n")
    ran = cli("job", "list")
    assert ran.code == 2 and "error: rubricsvc.toml cannot be read: " in ran.err


@pytest.mark.parametrize("command", [("job", "list"), ("db", "status"), ("db", "upgrade")])
@pytest.mark.parametrize(
    "said",
    [
        ("sqlite:///{here}/text", 3, "file is not a database"),
        ("sqlite:///{here}/text/x.db", 3, "no folder for the database"),
        ("sqlite:///{here}", 3, "unable to open database file"),
        ("sqlite:///:memory:", 2, "in-memory"),
        ("postgresql+psycopg://u@h:port/x", 2, "not a database URL"),
        ("sqlite+nothing:///x", 2, "no database driver"),
        ("http://[", 2, "http is not supported"),
    ],
)
def test_what_is_no_database_is_told_in_a_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], said: tuple[str, int, str]
) -> None:
    (url, code, words), here = said, Path.cwd()
    (here / "text").write_text("no database at all, but long enough to look like one\n" * 50)
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", url.format(here=here))
    ran = cli(*command)
    assert ran.code == code, ran.err
    assert words in ran.err and "hint: " in ran.err


def test_errors_hide_no_terminal_commands(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ConflictError("bad \x1b[31mred")

    monkeypatch.setattr(main_module, "load", broken)
    assert "\x1b" not in cli("rubric", "list").err


def code_where_the_reader_leaves(command: str, reader: str, tmp_path: Path) -> tuple[str, str]:
    """The exit code of `rubricsvc COMMAND | READER`, and what was said on stderr."""
    environment = {**os.environ, "RUBRICSVC_DATABASE_URL": f"sqlite:///{tmp_path}/rubricsvc.db"}
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m rubricsvc.cli.main {command} | {reader}; echo ${{PIPESTATUS[0]}}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1], done.stderr


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "code"), [("rubrics lint {file} --json", "0"), ("rubrics list", "0"), ("rubrics diff a b", "1")]
)
@pytest.mark.parametrize("reader", ["head -1", "true"])
def test_a_reader_that_leaves_is_no_error_and_hides_none(
    cli: Cli, tmp_path: Path, command: str, code: str, reader: str
) -> None:
    """Neither of much output, nor of little, which is written when the command has ended."""
    rubrics = tmp_path / "many.yaml"
    rubrics.write_text("".join(f"- {{name: n{n}, criteria: [{'x' * 200}]}}\n" for n in range(2000)))
    for name in "ab":
        criteria = "".join(f"  - {name} {n} {'x' * 50}\n" for n in range(1000))
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\ncriteria:\n{criteria}")
        assert cli("rubric", "import", tmp_path / f"{name}.yaml").code == 0
    told, said = code_where_the_reader_leaves(command.format(file=rubrics), reader, tmp_path / "books")
    assert (told, said) == (code, "")


def test_names_of_the_package_resolve() -> None:
    import rubricsvc

    for name in rubricsvc.__all__:
        assert getattr(rubricsvc, name).__name__ == name
        assert name in dir(rubricsvc)
    with pytest.raises(AttributeError, match="no attribute 'Rubrik'"):
        _ = rubricsvc.Rubrik


def test_importing_the_package_costs_nothing() -> None:
    assert not modules_after("import rubricsvc") & HEAVY
