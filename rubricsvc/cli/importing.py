"""What the commands that read files share: options, the input file, and the report of an import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from rubricsvc.cli.database import database
from rubricsvc.cli.output import echo, show
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.formats import InputFile
    from rubricsvc.services.importing import ImportResult

_FORMATS = (
    "native, healthbench, deep_research_bench, paperbench, ifeval, openai_grader, llmbar, evalbiasbench, gsm8k, cherrl"
)

File = Annotated[str, typer.Argument(help="File; - is stdin.", show_default=False)]
Format = Annotated[str | None, typer.Option(help=f"{_FORMATS}.", show_default="detected")]
AnyFormat = Annotated[str | None, typer.Option(help=f"completions, {_FORMATS}.", show_default="detected")]
SkipInvalid = Annotated[bool, typer.Option("--skip-invalid", help="Skip invalid records and list them.")]
Language = Annotated[str | None, typer.Option(help="DeepResearch Bench: language of the tasks (en, zh).")]


def input_file(file: str) -> InputFile:
    """Return the file to read; ``-`` is stdin."""
    from rubricsvc.formats import InputFile

    if not file.strip():
        raise InvalidError("the name of the file is empty", hint="name a file, or - for stdin")
    if file != "-":
        return InputFile(file)
    if sys.stdin.isatty():
        echo("reading from the terminal; end with Ctrl-D")
    return InputFile("stdin", stream=sys.stdin.buffer, name="<stdin>")


def options_of(language: str | None) -> dict[str, str]:
    """Return the options of the format."""
    return {"language": language} if language is not None else {}


def import_and_report(file: str, as_json: bool, run: Callable[[Session, InputFile], ImportResult]) -> None:
    """Import a file in one transaction with ``run``, and print what was imported."""
    with database() as db:
        with db.write() as session:
            result = run(session, input_file(file))
        report(result)
        if as_json:
            skipped = [
                {"line": one.line, "column": one.column, "path": one.path, "code": one.code, "message": one.message}
                for one in result.skipped
            ]
            data = {"new": result.new, "existing": result.existing, "skipped": skipped}
            show({**data, "skipped_count": result.skipped_count}, True)
        else:
            show({"new": result.new, "existing": result.existing}, False)


def report(result: ImportResult) -> None:
    """Print what was not imported, to stderr."""
    for error in result.skipped:
        echo(f"skipped {error}")
    if result.skipped_count > len(result.skipped):
        echo(f"… and {result.skipped_count - len(result.skipped)} more errors")
    if result.omitted_labels:
        echo(f"{result.omitted_labels} labels left out; import them with their rubrics: `rubricsvc labels import`")
    for ref, newest in result.superseded.items():
        echo(f"{ref} has this content already, and version {newest} is the newest; refer to it as {ref}")
    if not any(result.new.values()):
        nouns = [f"{n} {noun.removesuffix('s') if n == 1 else noun}" for noun, n in result.existing.items() if n]
        echo(f"{result.file}: {', '.join(nouns) or 'nothing'}, all stored before")
