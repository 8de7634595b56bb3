"""What the commands that read files share: options, the input file, imports, and a rubric in a file or stored."""

import sys
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from rubricsvc.cli.commands import Service, require_database, service
from rubricsvc.cli.output import echo, fields_of, shorten, show
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import APPROVED, RubricState
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.formats import FORMATS, InputFile, Record, stream
from rubricsvc.queries import ImportQuery
from rubricsvc.schemas.base import ImportedFile, every_row
from rubricsvc.schemas.rubrics import StoredRubric

By = Annotated[str | None, typer.Option(help="Name of the person.", show_default="the user")]
File = Annotated[str, typer.Argument(help="File; - is stdin.", show_default=False)]
Format = Annotated[str | None, typer.Option(help=f"labels, completions, {', '.join(FORMATS)}.", show_default="auto")]
SkipInvalid = Annotated[bool, typer.Option("--skip-invalid", help="Skip invalid records and list them.")]

MOST_LISTED = 20  # notes, and rubrics that are not approved, that are printed


def input_file(file: str) -> InputFile:
    """Return the file to read; ``-`` is stdin."""
    if not file.strip():
        raise InvalidError("the name of the file is empty", hint="name a file, or - for stdin")
    if file != "-":
        return InputFile(file)
    if sys.stdin.isatty():
        echo("reading from the terminal; end with Ctrl-D")
    return InputFile("stdin", stream=sys.stdin.buffer)


def import_file(s: Service, file: str, query: ImportQuery, mapping: Path | None = None) -> ImportedFile:
    """Import a file, or stdin, in one transaction, and print what was skipped or left out to stderr."""
    source = input_file(file)
    source.mapping = mapping
    given: Any = source.stream or source.path if mapping is None else source  # which only this process can read
    done = s.imports.create(given, query.model_copy(update={"name": source.name}))
    report(done)
    return done


def import_and_report(
    file: str, query: ImportQuery, as_json: bool, *, by: str | None = None, mapping: Path | None = None
) -> None:
    """Import a file in one transaction, and print what was imported."""
    if mapping is not None:
        require_database()
    with service(by) as s:
        done = import_file(s, file, query, mapping)
    about = fields_of(done, "new", "existing", "replaced") | {"rubrics": shorten(", ".join(done.rubrics), 200)}
    about["states"] = dict(Counter(done.not_approved.get(ref, APPROVED) for ref in dict.fromkeys(done.rubrics)))
    show(done if as_json else about | {"skipped_records": done.skipped_records or None}, as_json)


def print_problems(word: str, listed: Sequence[object], count: int) -> None:
    """Print the errors in a file, or the first of the notes on its records, to stderr."""
    for one in listed:
        echo(f"{word} {one}")
    if count > len(listed):
        echo(f"… and {count - len(listed)} more")


def report(done: ImportedFile) -> None:
    """Print the problems of the file, and what was not imported, to stderr."""
    print_problems("note:", done.notes[:MOST_LISTED], done.note_count)
    print_problems("skipped", done.skipped, done.skipped_count)
    if done.omitted_labels:
        echo(f"{done.omitted_labels} labels left out; import them with their rubrics: `rubricsvc labels import`")
    for ref, newest in done.superseded.items():
        echo(f"{ref} has this content already, and version {newest} is the newest; refer to it as {ref}")
    for ref, state in list(done.not_approved.items())[:MOST_LISTED]:
        action = "submit" if state == "draft" else "approve"
        why = f"{done.draft_notes[ref]}. " if ref in done.draft_notes else ""
        echo(f"{ref} is not approved ({state}): {why}To {action} it: `rubricsvc rubrics review {ref} {action}`")
    if (more := len(done.not_approved) - MOST_LISTED) > 0:
        echo(f"… and {more} more are not approved; list drafts with `rubricsvc rubrics show --state draft`")


class RubricTarget(NamedTuple):
    """A rubric with its prompt; ``stored`` is None if it is in a file, ``prompt_id`` that of the prompt in the file."""

    name: str
    rubric: Rubric
    prompt: Prompt | None
    prompt_id: str | None
    stored: StoredRubric | None


def find_stored(target: str, *, allow_drafts: bool = True) -> RubricTarget | None:
    """Return the stored rubric of that name, also a draft; None for a file. Raise NotFoundError for neither."""
    if target == "-" or Path(target).exists() or not target.strip():
        return None
    with service() as s:
        try:
            stored = s.rubrics.get(target, allow_drafts=allow_drafts)
        except NotFoundError as error:
            raise NotFoundError(f"no file and no stored rubric {target!r}", hint=error.hint, path=target) from error
        prompt = record_of(s, stored).prompt
    return RubricTarget(f"{stored.name}@{stored.version}", stored.rubric, prompt, None, stored)


def versions_of(s: Service, refs: Sequence[str], states: Sequence[RubricState]) -> list[str]:
    """Return the references, those with an asterisk as the versions in these states whose names match."""
    found: list[str] = []
    for ref in refs:
        if "*" not in ref:
            found.append(ref)
            continue
        rows = [one for state in states for one in every_row(s.rubrics.page, state=state)]
        matching = [f"{one.name}@{one.version}" for one in rows if fnmatchcase(one.name, ref)]
        if not matching:
            raise NotFoundError(f"no rubric {ref!r} is {' or '.join(states)}", hint="see `rubricsvc rubrics show`")
        found += matching
    return found


def record_of(s: Service, stored: StoredRubric) -> Record:
    """Return a stored rubric and its prompt as a record of a file."""
    if stored.prompt_id is None:
        return Record(None, stored.rubric, name=stored.name, state=stored.state)
    prompt = s.prompts.get(stored.prompt_id)
    return Record(prompt.prompt, stored.rubric, id=prompt.external_id, name=stored.name, state=stored.state)


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
    records = stream(input_file(target), check=checks.validate)
    known = [RubricTarget(one.name, one.rubric, one.prompt, one.id, None) for one in records if one.rubric is not None]
    found = [one for one in known if name in (None, one.name)]
    if not found:
        what = "rubric" if name is None else f"rubric named {name!r}"
        names = shorten(", ".join(one.name for one in known), 200)
        raise InvalidError(f"{target} has no {what}", hint=f"it has {names}" if names else "a rubric needs criteria")
    return found
