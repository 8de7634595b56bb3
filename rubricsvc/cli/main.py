"""`rubricsvc`: resolves the command, and prints errors as one line with a hint.

A command's module is imported when the command is used, heavy libraries by the functions that need them:
``rubricsvc --help`` imports nothing but typer.
"""

import gc
import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from rubricsvc import __version__
from rubricsvc.cli.output import BAD_INPUT, INTERNAL_ERROR, INTERRUPTED, OK, UNAVAILABLE, echo, ignore_broken_pipe
from rubricsvc.errors import NotFoundError, RubricsvcError, UnavailableError, cut

COMMANDS = {
    "demo": "Run the whole job once, on real documents.",
    "score": "Score completions of one prompt, without a database.",
    "serve": "Run the HTTP service, with a worker.",
    "worker": "Run a worker for Redis or RabbitMQ.",
    "doctor": "Check the installation and suggest fixes.",
    "prompts": "Prompts of the policy.",
    "rubrics": "Rubrics: weighted criteria for completions.",
    "completions": "Completions of prompts.",
    "collections": "Collections of documents, to search and to quote.",
    "judges": "Judges: models that score completions.",
    "jobs": "Jobs: completions to score, rubrics to generate.",
    "verdicts": "Verdicts of judges, by criterion.",
    "labels": "Labels: people's verdicts, and their agreement.",
    "evolve": "Evolutions: rubrics that labels or training runs improve.",
    "runs": "Training runs.",
    "keys": "API keys of the service.",
    "delete": "Delete rows with all that hangs on them.",
    "db": "Database schema.",
}
"""Commands and their help. Each is ``app`` or a function in ``rubricsvc.cli.<command>``, or else in ``_HOMES``."""

_HOMES = {"worker": "serve", "db": "serve", "verdicts": "labels"}
"""Commands in the module of another one, as a group or function of their name."""

_EXTRAS = {
    "postgres": {"psycopg"},
    "redis": {"redis"},
    "charts": {"altair", "vl_convert"},
    "parquet": {"pyarrow"},
    "excel": {"openpyxl"},
    "judging": {"sklearn", "scipy", "numpy"},
    "train": {"torch", "transformers", "safetensors", "gguf", "filelock"},
}
"""Packages by the extra that installs them."""

ALIASES = {name[:-1]: name for name in COMMANDS if name.endswith("s") and name[:-1] not in COMMANDS}
"""The singular of each noun: ``rubricsvc job show`` is ``rubricsvc jobs show``."""

_GUESSES = {
    "completions import FILE": "completions add",
    "jobs cancel ID": "jobs stop",
    "jobs export ID --out report.html": "jobs report, jobs results",
    "jobs show ID": "jobs status",
    "jobs submit --judge NAME": "jobs add, jobs create, jobs run, jobs start",
    "judges audit NAME": "judges test",
    "labels export": "labels list, labels ls, labels show",
    "labels import FILE": "labels add",
    "rubrics import FILE": "import, prompts add, prompts import",
    "rubrics import FILE --parent REF": "rubrics edit, rubrics update",
    "rubrics init FILE": "rubrics add, rubrics create, rubrics new",
    "rubrics lint FILE": "rubrics check, rubrics validate",
    "rubrics show REF --history": "rubrics history, rubrics versions",
    "runs start CONFIG.toml": "runs run, runs train, train",
    **{f"delete {noun} ID": f"{noun} delete, {noun} remove" for noun in ("completions", "jobs", "labels")},
    **{f"delete {noun} ID": f"{noun} delete, {noun} remove" for noun in ("prompts", "rubrics", "runs")},
    **{f"rubrics review REF {name}": f"rubrics {name}" for name in ("approve", "reject", "retire", "submit")},
}
"""Commands by those that people try in their place."""


class LazyGroup(TyperGroup):
    """A group that lists its commands without importing them."""

    def __init__(self, **settings: Any) -> None:
        """Create a command without parameters for each line of the help."""
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=line) for name, line in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Import the command that is used; accept its singular, and agreement of labels for that of judges."""
        args = [ALIASES.get(args[0], args[0]), *args[1:]]
        args[0] = "judges" if args[:2] == ["labels", "agreement"] else args[0]
        args[1:2] = [ALIASES.get(one, one) if args[0] == "delete" else one for one in args[1:2]]
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name else command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a closed stdout is no error."""
        with ignore_broken_pipe():
            return super().invoke(ctx)
        return OK


@cache
def load(name: str) -> Any:
    """Import and return the command of this name."""
    gc.disable()  # modules make many objects and no garbage; looking for some takes a tenth of a short command
    try:
        module = import_module(f"rubricsvc.cli.{_HOMES.get(name, name)}")
    finally:
        gc.enable()
    found = getattr(module, "app" if name not in _HOMES and hasattr(module, "app") else name)
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = None
        return get_group(found)
    single = typer.Typer(rich_markup_mode=None, add_completion=False)
    single.command(name)(found)
    return get_command(single)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"rubricsvc {__version__}")
        raise typer.Exit


@app.callback()
def rubricsvc(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (or set RUBRICSVC_DEBUG=1).")] = False,
) -> None:
    """Rubric rewards: store rubrics, score completions with generative judges, train policies on the rewards.

    Data goes to stdout, progress and messages to stderr. Lists with --json are one object a line.
    Exit codes: 0 success, 1 finished with failures or (`rubrics diff`) differences, 2 wrong usage or invalid input,
    3 not found or unavailable, 4 a judge failed its audit, or a preflight, 70 internal error, 130 interrupted.
    """


def run(args: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    from typer._click.exceptions import NoArgsIsHelpError  # typer has no public name for it

    try:
        code = get_command(app).main(list(args), prog_name="rubricsvc", standalone_mode=False)
        with ignore_broken_pipe():
            sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except NoArgsIsHelpError as error:
        typer.echo(error.format_message())
        return BAD_INPUT
    except (Exception, KeyboardInterrupt) as error:
        message, hint, status = _explain(error)
        if status == INTERNAL_ERROR and ("--debug" in args or os.environ.get("RUBRICSVC_DEBUG")):
            raise
    echo(f"error: {message}")
    if hint:
        echo(f"hint: {hint}")
    return status


def _explain(error: BaseException) -> tuple[str, str, int]:
    """Return message, hint and exit code of an error."""
    from pydantic import ValidationError
    from typer._click.exceptions import UsageError

    from rubricsvc.core.validation_messages import first_error

    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", "", INTERRUPTED
    if isinstance(error, UsageError):
        message = " ".join(error.format_message().split())
        if isinstance(error.__cause__, ValidationError):
            message = f"{message.partition(': ')[0]}: {first_error(error.__cause__)[1]}"
        path = error.ctx.command_path if error.ctx else "rubricsvc"
        tried = message.split("'")[1] if message.startswith("No such command") else ""
        tried = f"{path} {tried}".removeprefix("rubricsvc ")
        for command, guesses in _GUESSES.items():
            if tried in guesses.split(", "):
                return f"no command {tried!r}", f"use `rubricsvc {command}`", BAD_INPUT
        return message, f"see `{path} --help`", BAD_INPUT
    if f"{type(error).__module__}.{type(error).__name__}" == "sqlalchemy.exc.OperationalError":  # may not be imported
        error = UnavailableError.of_database(error)
    if isinstance(error, RubricsvcError):
        status = UNAVAILABLE if isinstance(error, NotFoundError | UnavailableError) else BAD_INPUT
        return error.message, error.hint, status
    if isinstance(error, ModuleNotFoundError):
        package = next((f"'rubricsvc[{extra}]'" for extra, names in _EXTRAS.items() if error.name in names), error.name)
        return f"the package {error.name!r} is not installed", f"pip install {package}", UNAVAILABLE
    if isinstance(error, UnicodeEncodeError):  # an argument that the shell could not decode, for instance
        return f"text is not UTF-8: {cut(ascii(error.object), 80)}", "give it in UTF-8", BAD_INPUT
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        hint = f"check {'the path, its permissions' if where else 'where the output goes'} and the free disk space"
        return f"{where}{error.strerror or error}", hint, BAD_INPUT
    hint = "this is a bug: report it with the traceback that --debug or RUBRICSVC_DEBUG=1 shows"
    return f"{type(error).__name__}: {cut(' '.join(str(error).split()), 500)}", hint, INTERNAL_ERROR


def main() -> None:
    """Run the `rubricsvc` command."""
    # torch's threads spin while they wait for others; without end, small steps are 30 times slower on a busy machine
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    for name in ("stdout", "stderr"):  # None where the caller closed it
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for as long as the process runs
    sys.exit(run(sys.argv[1:]))
