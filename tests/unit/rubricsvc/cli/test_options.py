"""Options of commands that are made from request models."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from rubricsvc.cli.options import command
from rubricsvc.errors import InvalidError


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


def test_command_takes_a_field_as_an_argument() -> None:
    assert run("other", "j")[1].judge == "j"


def test_command_shows_names_types_and_defaults_in_its_help() -> None:
    text = " ".join(CliRunner().invoke(app, ["submit", "--help"], env={"COLUMNS": "200"}).output.split())
    for part in ("--judge", "Id or name.", "queued|done", "1<=x<=1000", "default: 50", "--no-verdicts", "required"):
        assert part in text, part
    assert "--inner" not in text


@pytest.mark.parametrize("args", [["--limit", "0"], ["--status", "lost"], []])
def test_command_refuses_invalid_options(args: list[str]) -> None:
    judge = ["--judge", "j"] if args else []
    assert CliRunner().invoke(app, ["submit", "3", *judge, *args]).exit_code == 2


def test_command_raises_our_error_for_what_only_the_model_refuses() -> None:
    with pytest.raises(InvalidError) as raised:
        CliRunner().invoke(app, ["submit", "3", "--judge", "j", "--timeout", "0"], catch_exceptions=False)
    assert raised.value.path == "timeout"
