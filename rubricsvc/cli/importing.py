"""What the commands that read files share: options, the input file, and the report of an import."""

from __future__ import annotations

import sys
from collections.abc import Container
from typing import Annotated, Any

import typer
from sqlalchemy.orm import Session

from rubricsvc.cli.db import database
from rubricsvc.cli.output import counted, echo, fields_of, show
from rubricsvc.cli.service import os_user
from rubricsvc.errors import InvalidError
from rubricsvc.formats import FORMATS, InputFile
from rubricsvc.formats.errors import FileErrors
from rubricsvc.services.editing import Edit
from rubricsvc.services.importing import LABELS, ImportResult, import_file
from rubricsvc.settings import get_settings
from rubricsvc.store.base import name_of
from workers import checks

_FORMATS = ", ".join(FORMATS)

By = Annotated[str | None, typer.Option(help="Name of the person.", show_default="the user")]

MOST_NAMES = 5
"""Rubrics that are named outside of --json."""

File = Annotated[str, typer.Argument(help="File; - is stdin.", show_default=False)]
Format = Annotated[str | None, typer.Option(help=f"auto, {_FORMATS}.", show_default="auto")]
CompletionFormat = Annotated[str | None, typer.Option(help=f"completions, {_FORMATS}.", show_default="detected")]
LabelFormat = Annotated[str | None, typer.Option(help=f"labels, {_FORMATS}.", show_default="detected")]
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


def import_into(
    session: Session, file: InputFile, format: str | None, *, kinds: Container[str], **options: Any
) -> ImportResult:
    """Import a file in the session's transaction; see `import_file` for the other options."""
    options = {"check": checks.validate, "edit": edit_of(), **options}
    result = import_file(session, file, format, kinds=kinds, **options)
    if LABELS in kinds and not result.label_ids:
        hint = "docs/formats.md describes labels; import files without labels with `rubricsvc rubrics import`"
        what = "labels, but not the completions that they belong to" if result.omitted_labels else "no labels"
        raise InvalidError(f"{result.file} has {what}", hint=hint)
    return result


def import_and_report(file: str, format: str | None, as_json: bool, **options: Any) -> None:
    """Import a file in one transaction, and print what was imported; for ``options`` see `import_into`."""
    source = input_file(file)
    with database() as db, db.write() as session:
        result = import_into(session, source, format, **options)
    print_notes(source.errors)
    if result.conflict is not None:
        raise result.conflict
    report(result)
    data: dict[str, Any] = fields_of(result, "new", "existing")
    names = result.rubrics
    more = [] if as_json else [f"and {len(names) - MOST_NAMES} more"] * (len(names) > MOST_NAMES)
    data |= {"rubrics": names if as_json else names[:MOST_NAMES] + more}
    if as_json:
        skipped = [fields_of(error, "line", "column", "path", "code", "message") for error in result.skipped]
        data |= {"new_rubrics": result.new_rubrics, "not_approved": result.not_approved}
        data |= {"skipped": skipped, "skipped_count": result.skipped_count}
        data["notes"] = [fields_of(note, "line", "column", "path", "code", "message") for note in source.errors.notes]
    if as_json or result.skipped_records:
        data["skipped_records"] = result.skipped_records
    show(data, as_json)


MOST_NOTES = 20
"""Notes that are printed."""


def print_notes(errors: FileErrors) -> None:
    """Print the notes on the records of a file, to stderr."""
    for one in errors.notes[:MOST_NOTES]:
        echo(f"note: {one}")
    if errors.note_count > MOST_NOTES:
        echo(f"… and {counted(errors.note_count - MOST_NOTES, 'more note')}")


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
    for ref, state in list(result.not_approved.items())[:MOST_NAMES]:
        echo(f"{ref} is {_UNAPPROVED[state]} {ref}`")
    if (more := len(result.not_approved) - MOST_NAMES) > 0:
        echo(f"… and {more} more are not approved; list drafts with `rubricsvc rubrics list --state draft`")
    if not any(result.new.values()):
        nouns = [counted(n, noun.removesuffix("s")) for noun, n in result.existing.items() if n]
        echo(f"{result.file}: {', '.join(nouns) or 'nothing'}, all stored before")


_UNAPPROVED = {
    "draft": "a draft; submit it for review with `rubricsvc rubrics submit",
    "in_review": "in review; approve it with `rubricsvc rubrics approve",
    "retired": "retired; approve it again with `rubricsvc rubrics approve",
}
