"""Options made of models, and what is printed."""

import os
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from rubricsvc.cli.commands import command
from rubricsvc.cli.output import cell, clean, open_output, print_table, replaced, show
from rubricsvc.errors import ConflictError, InvalidError


def test_clean_replaces_control_characters() -> None:
    assert clean("a\x1b[2Jb\x07\u202ec\x9bd\nline\ttab") == "a\ufffd[2Jb\ufffd\ufffdc\ufffdd\nline\ttab"
    assert "\x1b" not in cell("\x1b]0;title\x07")


def test_print_table_keeps_whole_cells_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "text"], [["1", "x" * 300], ["22", "y\nz"]])
    assert capsys.readouterr().out == "A   TEXT\n1   " + "x" * 300 + "\n22  y z\n"


def test_print_table_has_blocks_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_table(["a", "b", "text"], [["1", "x" * 40, "t"], ["2", "", "u v"]])
    assert capsys.readouterr().out.splitlines() == ["a: 1", "b: " + "x" * 40, "text: t", "", "a: 2", "text: u v"]


def test_open_output_leaves_no_partial_file(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with pytest.raises(RuntimeError), open_output(out) as stream:
        stream.write("half")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with open_output(out) as stream:
        stream.write("whole")
    assert out.read_text() == "whole"


def test_open_output_writes_into_a_pipe(tmp_path: Path) -> None:
    """A device or a pipe, such as /dev/null, must not be replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # an open reader, so that opening to write does not block
    with open_output(pipe) as stream:
        stream.write("text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(ConflictError), replaced(pipe):
        pass


def test_replaced_writes_a_folder_as_a_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), replaced(out, folder=True) as part:
        part.mkdir()
        (part / "half").write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    with replaced(out, folder=True) as part:
        part.mkdir()
        (part / "file").write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(ConflictError), replaced(out, folder=True):
        pass
    assert (out / "file").read_text() == "whole"


class Inner(BaseModel):
    x: int = 1


class Request(BaseModel):
    judge: Annotated[int, Field(ge=1)] | str = Field(description="Id or name.")
    limit: int = Field(50, ge=1, le=1000, description="Maximum rows.")
    status: Literal["queued", "done"] | None = Field(None, description="Filter by status.")
    rubric: tuple[str, ...] = Field((), description="Rubrics.")
    summary: bool = Field(False, description="Include the summary.")
    verdicts: bool = Field(True, description="Include the verdicts.")
    inner: Inner = Inner()
    timeout: float | None = Field(None, gt=0, description="Seconds.")

    @property
    def plain(self) -> dict[str, object]:
        return self.model_dump(exclude={"inner"})


GOT: list[tuple[int, Request]] = []
app = typer.Typer(rich_markup_mode=None)


@command(app, "submit")
def submit(job_id: Annotated[int, typer.Argument()], new: Request) -> None:
    """Submit."""
    GOT.append((job_id, new))


@command(app, "other")
def other(judge: Annotated[str, typer.Argument()], new: Request) -> None:
    """Take a field as an argument."""
    GOT.append((0, new))


def run(*args: str) -> tuple[int, Request]:
    result = CliRunner().invoke(app, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return GOT.pop()


def test_command_makes_the_model_of_its_options() -> None:
    job_id, new = run("submit", "3", "--judge", "7", "--rubric", "a", "--rubric", "b", "--no-verdicts", "--summary")
    assert job_id == 3
    expected = {"judge": "7", "limit": 50, "status": None, "summary": True, "verdicts": False, "timeout": None}
    assert new.plain == expected | {"rubric": ("a", "b")}
    assert run("other", "j")[1].judge == "j"


def test_command_shows_names_types_and_defaults_in_its_help() -> None:
    text = " ".join(CliRunner().invoke(app, ["submit", "--help"], env={"COLUMNS": "200"}).output.split())
    for part in ("--judge", "Id or name.", "queued|done", "1<=x<=1000", "default: 50", "--no-verdicts", "required"):
        assert part in text, part
    assert "--inner" not in text


def test_command_refuses_invalid_options() -> None:
    for args in (["--judge", "j", "--limit", "0"], ["--judge", "j", "--status", "lost"], []):
        assert CliRunner().invoke(app, ["submit", "3", *args]).exit_code == 2
    with pytest.raises(InvalidError) as raised:
        CliRunner().invoke(app, ["submit", "3", "--judge", "j", "--timeout", "0"], catch_exceptions=False)
    assert raised.value.path == "timeout", "what only the model refuses"


@pytest.mark.parametrize("terminal", [True, False])
def test_show_cuts_values_on_a_terminal_only(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "2000")
    show([{"text": "word " * 100 + "end", "many": [*range(30)]}])
    out = capsys.readouterr().out
    assert ("…" in out, "end" in out, ", 29" in out) == (terminal, not terminal, not terminal)
