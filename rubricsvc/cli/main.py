"""`rubricsvc`: finds the command, and turns errors into one line of what and one of what to do.

A command's module is imported when the command is used, and heavy libraries inside the functions that need them:
``rubricsvc --help`` imports nothing but typer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from rubricsvc.cli.output import BAD_INPUT, INTERNAL_ERROR, OK, UNAVAILABLE, echo, ignore_broken_pipe
from rubricsvc.errors import InvalidError, NotFoundError, RubricsvcError, UnavailableError, cut

COMMANDS = {
    "demo": "The main job on real documents, from rubrics to training.",
    "score": "Score one completion, without a database.",
    "graders": "OpenAI's graders: check and run one, without a database.",
    "serve": "Run the HTTP service, with a worker inside.",
    "worker": "Run a worker on Redis or RabbitMQ.",
    "doctor": "Look at everything, and say how to mend it.",
    "prompts": "Prompts: what the policy is asked.",
    "rubrics": "Rubrics: what is looked for in a completion.",
    "completions": "Completions: what was answered.",
    "judges": "Judges: who judges, and how.",
    "jobs": "Jobs: batches of completions to be scored.",
    "verdicts": "Verdicts: what was found, by criterion.",
    "labels": "Labels: people's verdicts, to hold judges against.",
    "runs": "Training runs.",
    "keys": "API keys of the service.",
    "db": "The database's schema.",
}
"""Command to its line in ``--help``. Each is ``app`` (or a function of its own name) in ``rubricsvc.cli.<command>``."""

ALIASES = {name.removesuffix("s"): name for name in COMMANDS if name.endswith("s")}
"""The singular of each noun, which earlier examples use: ``rubricsvc jobs list`` is ``rubricsvc jobs list``."""


class LazyGroup(TyperGroup):
    """Lists the commands without importing them, and imports the one that is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=line) for name, line in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        args = [ALIASES.get(args[0], args[0]), *args[1:]]
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name else command, rest

    def invoke(self, ctx: Any) -> Any:
        with ignore_broken_pipe():
            return super().invoke(ctx)
        return OK


@cache
def load(name: str) -> Any:
    """The command of this name, from its module."""
    module = import_module(f"rubricsvc.cli.{name}")
    group = getattr(module, "app", None)
    if group is not None:
        group.rich_markup_mode = None
        return get_group(group)
    single = typer.Typer(rich_markup_mode=None, add_completion=False)
    single.command(name)(getattr(module, name))
    return get_command(single)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(asked: bool) -> None:
    if asked:
        from rubricsvc import __version__

        typer.echo(f"rubricsvc {__version__}")
        raise typer.Exit


@app.callback()
def rubricsvc(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a fault of the program in full; also: RUBRICSVC_DEBUG=1.")
    ] = False,
) -> None:
    """Rubric rewards: keep rubrics, score completions with generative judges, train policies on the result.

    Data goes to stdout, progress and messages to stderr. Lists with --json are one object a line.
    Exit codes: 0 done, 1 done with failures, 2 wrong usage or bad input, 3 something that is needed is not there,
    4 a judge did not pass its audit, 70 a fault of the program itself.
    """


def run(args: Sequence[str]) -> int:
    """Run the command line and give its exit code."""
    from typer._click.exceptions import NoArgsIsHelpError, UsageError  # typer has no public name for them

    try:
        _refuse_what_is_no_text(args)
        code = get_command(app).main(list(args), prog_name="rubricsvc", standalone_mode=False)
        with ignore_broken_pipe():
            sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except NoArgsIsHelpError as error:
        typer.echo(error.format_message())
        return BAD_INPUT
    except UsageError as error:
        path = error.ctx.command_path if error.ctx else "rubricsvc"
        return _fail(error.format_message(), f"`{path} --help` shows how", BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", "", 130)
    except Exception as error:
        what = _expected(error)
        if what is None and ("--debug" in args or os.environ.get("RUBRICSVC_DEBUG")):
            raise
        return _fail(*(what or _bug(error)))


def _refuse_what_is_no_text(args: Sequence[str]) -> None:
    """What is not UTF-8 could neither be printed nor stored: it is refused once, here."""
    for number, arg in enumerate(args, start=1):
        try:
            arg.encode()
        except UnicodeEncodeError:
            raise InvalidError(
                f"argument {number} is not UTF-8 text: {arg!a}", hint="write it, or name the file, in UTF-8"
            ) from None


def _expected(error: Exception) -> tuple[str, str, int] | None:
    """Message, hint and exit code of an error that is no fault of the program."""
    if isinstance(error, RubricsvcError):
        missing = isinstance(error, NotFoundError | UnavailableError)
        return error.message, error.hint, UNAVAILABLE if missing else BAD_INPUT
    if isinstance(error, ModuleNotFoundError):
        return f"the package {error.name!r} is not installed", f"pip install {_extra(error.name)}", UNAVAILABLE
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        hint = "look at the path, its permissions and the room on its disk" if where else ""
        return f"{where}{error.strerror or error}", hint, BAD_INPUT
    kind = f"{type(error).__module__}.{type(error).__name__}"  # by name, so that it is not imported for this
    if kind == "sqlalchemy.exc.OperationalError":
        return f"the database does not answer: {error.orig}", "`rubricsvc doctor` looks why", UNAVAILABLE  # type: ignore[attr-defined]
    return None


def _bug(error: Exception) -> tuple[str, str, int]:
    """What nobody foresaw, in one line."""
    line = " ".join(str(error).split())
    hint = "this is a bug: please report it, with the traceback that --debug or RUBRICSVC_DEBUG=1 shows"
    return f"{type(error).__name__}: {cut(line, 500)}", hint, INTERNAL_ERROR


def _extra(package: str | None) -> str:
    extras = {"psycopg": "postgres", "redis": "redis", "altair": "charts", "vl_convert": "charts"}
    training = ("torch", "transformers", "safetensors", "gguf", "filelock")
    extras |= dict.fromkeys(("sklearn", "scipy", "krippendorff", "numpy"), "judging")
    extra = extras.get(str(package), "train" if package in training else "")
    return f"'rubricsvc[{extra}]'" if extra else str(package)


def _fail(message: str, hint: str, code: int) -> int:
    echo(f"error: {message}")
    if hint:
        echo(f"hint: {hint}")
    return code


def main() -> None:
    """The entry point of the `rubricsvc` command."""
    # torch's threads spin while they wait for one another; on a machine that does anything else beside, that makes
    # small steps thirty times slower. Read once, when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()

__all__ = ["COMMANDS", "app", "main", "run"]
