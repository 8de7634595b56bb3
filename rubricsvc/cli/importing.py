"""What the commands that read files share: options, the input file, imports, and a rubric in a file or stored."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rubricsvc.cli.commands import local_service, service
from rubricsvc.cli.output import counted, echo, shorten, show
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.formats import FORMATS, InputFile, Record, stream
from rubricsvc.formats.record import FieldError, FileErrors
from rubricsvc.queries import ImportQuery
from rubricsvc.schemas import ImportedFile, StoredRubric
from rubricsvc.services.importing import COMPLETIONS, RECORDS
from rubricsvc.services.local import LocalService

if TYPE_CHECKING:
    from rubricsvc.client import Client

By = Annotated[str | None, typer.Option(help="Name of the person.", show_default="the user")]
File = Annotated[str, typer.Argument(help="File; - is stdin.", show_default=False)]
Format = Annotated[str | None, typer.Option(help=f"labels, completions, {', '.join(FORMATS)}.", show_default="auto")]
SkipInvalid = Annotated[bool, typer.Option("--skip-invalid", help="Skip invalid records and list them.")]

MOST_NAMES = 5
"""Rubrics that are named outside of --json."""
MOST_NOTES = 20
"""Notes that are printed."""
_UNAPPROVED = {
    "draft": ("a draft; submit it for review", "submit"),
    "in_review": ("in review; approve it", "approve"),
    "retired": ("retired; approve it again", "approve"),
}


def input_file(file: str) -> InputFile:
    """Return the file to read; ``-`` is stdin."""
    if not file.strip():
        raise InvalidError("the name of the file is empty", hint="name a file, or - for stdin")
    if file != "-":
        return InputFile(file)
    if sys.stdin.isatty():
        echo("reading from the terminal; end with Ctrl-D")
    return InputFile("stdin", stream=sys.stdin.buffer, name="<stdin>")


def import_file(s: LocalService | Client, file: str, query: ImportQuery) -> ImportedFile:
    """Import records or completions in one transaction; print the problems of the file to stderr."""
    source = input_file(file)
    if isinstance(s, LocalService):
        done, errors = s.imports.read(source, query, kinds=(RECORDS, COMPLETIONS)), source.errors
    else:
        done = s.imports.create(source.stream or source.path, **query.model_dump(exclude_unset=True))
        skipped, notes = ([FieldError(done.file, **dict(one)) for one in some] for some in (done.skipped, done.notes))
        errors = FileErrors(errors=skipped, count=done.skipped_count, notes=notes, note_count=len(notes))
    report(done, errors)
    return done


def prompts_of(s: LocalService | Client, file: str) -> list[int]:
    """Store the prompts of a file, and nothing else of it; return their ids in the file's order."""
    given = [(one.prompt, one.id) for one in stream(input_file(file)) if one.prompt is not None]
    return list(dict.fromkeys(s.prompts.add(prompt=prompt, external_id=id_).id for prompt, id_ in given))


def import_and_report(
    file: str, query: ImportQuery, as_json: bool, *, kinds: Collection[str], by: str | None = None, **options: Any
) -> None:
    """Import a file in one transaction, and print what was imported; for ``options`` see `Imports.read`."""
    source = input_file(file)
    with local_service(by) as local:
        done = local.imports.read(source, query, kinds=kinds, **options)
    report(done, source.errors)
    if as_json:
        show(done, as_json)
        return
    more = [f"and {len(done.rubrics) - MOST_NAMES} more"] * (len(done.rubrics) > MOST_NAMES)
    data: dict[str, Any] = {"new": done.new, "existing": done.existing, "rubrics": [*done.rubrics[:MOST_NAMES], *more]}
    show(data | ({"skipped_records": done.skipped_records} if done.skipped_records else {}))


def print_problems(errors: FileErrors, what: str = "error:") -> None:
    """Print the notes on the records of a file, and its errors, to stderr."""
    notes = ("note:", "more note", errors.notes[:MOST_NOTES], errors.note_count)
    for word, noun, listed, count in (notes, (what, "more error", errors.errors, errors.count)):
        for one in listed:
            echo(f"{word} {one}")
        if count > len(listed):
            echo(f"… and {counted(count - len(listed), noun)}")


def report(done: ImportedFile, errors: FileErrors) -> None:
    """Print the problems of the file, and what was not imported, to stderr."""
    print_problems(errors, "skipped")
    if done.omitted_labels:
        echo(f"{done.omitted_labels} labels left out; import them with their rubrics: `rubricsvc labels import`")
    for ref, newest in done.superseded.items():
        echo(f"{ref} has this content already, and version {newest} is the newest; refer to it as {ref}")
    for ref, state in list(done.not_approved.items())[:MOST_NAMES]:
        what, action = _UNAPPROVED[state]
        echo(f"{ref} is {what} with `rubricsvc rubrics review {ref} {action}`")
    if (more := len(done.not_approved) - MOST_NAMES) > 0:
        echo(f"… and {more} more are not approved; list drafts with `rubricsvc rubrics show --state draft`")
    if not any(done.new.values()):
        nouns = [counted(n, noun.removesuffix("s")) for noun, n in done.existing.items() if n]
        echo(f"{done.file}: {', '.join(nouns) or 'nothing'}, all stored before")


class RubricTarget(NamedTuple):
    """A rubric with its prompt; ``stored`` is None if it is in a file, ``prompt_id`` that of the prompt in the file."""

    name: str
    rubric: Rubric
    prompt: Prompt | None
    prompt_id: str | None
    stored: StoredRubric | None


def find_stored(target: str, *, allow_drafts: bool = True) -> RubricTarget | None:
    """Return the stored rubric of that name, also a draft; None if it is none, or there is such a file."""
    if target == "-" or Path(target).exists() or not target.strip():
        return None
    with service() as s:
        try:
            stored = s.rubrics.get(target, allow_drafts=allow_drafts)
        except NotFoundError:
            return None
        prompt = record_of(s, stored).prompt
    return RubricTarget(f"{stored.name}@{stored.version}", stored.rubric, prompt, None, stored)


def record_of(s: LocalService | Client, stored: StoredRubric) -> Record:
    """Return a stored rubric and its prompt as a record of a file."""
    if stored.prompt_id is None:
        return Record(None, stored.rubric, name=stored.name)
    prompt = s.prompts.get(stored.prompt_id)
    return Record(prompt.prompt, stored.rubric, id=prompt.external_id, name=stored.name)


def only_one(target: str, found: Sequence[RubricTarget]) -> RubricTarget:
    """Return the only rubric of a target."""
    if len(found) > 1:
        names = shorten(", ".join(one.name for one in found), 200)
        raise InvalidError(f"{target} has {len(found)} rubrics, expected one", hint=f"choose one with --name: {names}")
    return found[0]


def targets_of(target: str, name: str | None = None, *, allow_drafts: bool = True) -> list[RubricTarget]:
    """Return the stored rubric, or all rubrics of the file, or those of this name."""
    from workers import checks

    if (stored := find_stored(target, allow_drafts=allow_drafts)) is not None:
        return [stored]
    if target != "-" and not Path(target).exists():
        hint = "name a file; list stored rubrics with `rubricsvc rubrics show`"
        raise NotFoundError(f"no file and no stored rubric {target!r}", hint=hint, path=target)
    records = [one for one in stream(input_file(target), check=checks.validate) if one.rubric is not None]
    found = [
        RubricTarget(one.name, one.rubric, one.prompt, one.id, None)
        for one in records
        if one.rubric is not None and name in (None, one.name)
    ]
    if not found:
        what = "rubric" if name is None else f"rubric named {name!r}"
        names = shorten(", ".join(one.name for one in records), 200)
        raise InvalidError(f"{target} has no {what}", hint=f"it has {names}" if names else "a rubric needs criteria")
    return found
