"""What the commands that read files share: options, the input file, and the report of an import."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Annotated, Any

import typer

from rubricsvc.cli.output import counted, echo, show
from rubricsvc.cli.service import database, local, os_user
from rubricsvc.errors import InvalidError
from rubricsvc.formats import FORMATS, InputFile
from rubricsvc.formats.record import FileErrors
from rubricsvc.queries import ImportQuery
from rubricsvc.schemas import ImportedFile
from rubricsvc.services.editing import Edit
from rubricsvc.services.importing import ImportResult
from rubricsvc.settings import get_settings
from rubricsvc.store.session import name_of

_FORMATS = ", ".join(FORMATS)

By = Annotated[str | None, typer.Option(help="Name of the person.", show_default="the user")]

MOST_NAMES = 5
"""Rubrics that are named outside of --json."""

File = Annotated[str, typer.Argument(help="File; - is stdin.", show_default=False)]
Format = Annotated[str | None, typer.Option(help=f"auto, {_FORMATS}.", show_default="auto")]
CompletionFormat = Annotated[str | None, typer.Option(help=f"completions, {_FORMATS}.", show_default="detected")]
LabelFormat = Annotated[str | None, typer.Option(help=f"labels, {_FORMATS}.", show_default="detected")]
MOST_NOTES = 20
"""Notes that are printed."""
_UNAPPROVED = {
    "draft": "a draft; submit it for review with `rubricsvc rubrics submit",
    "in_review": "in review; approve it with `rubricsvc rubrics approve",
    "retired": "retired; approve it again with `rubricsvc rubrics approve",
}
SkipInvalid = Annotated[bool, typer.Option("--skip-invalid", help="Skip invalid records and list them.")]


def input_file(file: str) -> InputFile:
    """Return the file to read; ``-`` is stdin."""
    if not file.strip():
        raise InvalidError("the name of the file is empty", hint="name a file, or - for stdin")
    if file != "-":
        return InputFile(file)
    if sys.stdin.isatty():
        echo("reading from the terminal; end with Ctrl-D")
    return InputFile("stdin", stream=sys.stdin.buffer, name="<stdin>")


def edit_of(by: str | None = None, **fields: Any) -> Edit:
    """Return an edit with these fields by this person, by default the user of the operating system."""
    return Edit(name_of("--by", by) if by is not None else os_user(), policy=get_settings().require_approval, **fields)


def import_and_report(
    file: str, query: ImportQuery, as_json: bool, *, kinds: Collection[str], by: str | None = None, **options: Any
) -> None:
    """Import a file in one transaction, and print what was imported; for ``options`` see `Imports.read`."""
    source = input_file(file)
    with database() as db:
        done = local(db, name_of("--by", by) if by is not None else None).imports.read(
            source, query, kinds=kinds, **options
        )
    print_notes(source.errors)
    report(done)
    if as_json:
        show(done, as_json)
        return
    more = [f"and {len(done.rubrics) - MOST_NAMES} more"] * (len(done.rubrics) > MOST_NAMES)
    data: dict[str, Any] = {"new": done.new, "existing": done.existing, "rubrics": [*done.rubrics[:MOST_NAMES], *more]}
    show(data | ({"skipped_records": done.skipped_records} if done.skipped_records else {}))


def print_notes(errors: FileErrors) -> None:
    """Print the notes on the records of a file, to stderr."""
    for one in errors.notes[:MOST_NOTES]:
        echo(f"note: {one}")
    if errors.note_count > MOST_NOTES:
        echo(f"… and {counted(errors.note_count - MOST_NOTES, 'more note')}")


def report(done: ImportResult | ImportedFile) -> None:
    """Print what was not imported, to stderr."""
    for error in done.skipped:
        place = ":".join(str(one) for one in (done.file, error.line, error.column) if one is not None)
        echo(f"skipped {': '.join(filter(None, (place, error.path, error.message)))}")
    if done.skipped_count > len(done.skipped):
        echo(f"… and {done.skipped_count - len(done.skipped)} more errors")
    if done.omitted_labels:
        echo(f"{done.omitted_labels} labels left out; import them with their rubrics: `rubricsvc labels import`")
    for ref, newest in done.superseded.items():
        echo(f"{ref} has this content already, and version {newest} is the newest; refer to it as {ref}")
    for ref, state in list(done.not_approved.items())[:MOST_NAMES]:
        echo(f"{ref} is {_UNAPPROVED[state]} {ref}`")
    if (more := len(done.not_approved) - MOST_NAMES) > 0:
        echo(f"… and {more} more are not approved; list drafts with `rubricsvc rubrics show --state draft`")
    if not any(done.new.values()):
        nouns = [counted(n, noun.removesuffix("s")) for noun, n in done.existing.items() if n]
        echo(f"{done.file}: {', '.join(nouns) or 'nothing'}, all stored before")
