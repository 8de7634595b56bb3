"""FILE|NAME of commands about one rubric: a file with a rubric, or a stored version, also a draft."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from rubricsvc.cli.importing import input_file
from rubricsvc.cli.output import shorten
from rubricsvc.cli.service import database
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.formats import Record, stream
from rubricsvc.store import prompts, rubrics
from rubricsvc.store.tables import RubricRow
from workers import checks

Target = Annotated[
    str, typer.Argument(metavar="FILE|NAME", help="File with a rubric, or a stored rubric.", show_default=False)
]
OfSeveral = Annotated[str | None, typer.Option("--name", help="Name of the rubric in a file with several.")]


class RubricTarget(NamedTuple):
    """A rubric with its prompt; ``row`` is None if it is in a file, ``prompt_id`` that of the prompt in the file."""

    name: str
    rubric: Rubric
    prompt: Prompt | None
    prompt_id: str | None
    row: RubricRow | None


def find_stored(target: str, *, allow_drafts: bool = True) -> tuple[Record, RubricRow] | None:
    """Return the stored rubric of that name as a record, and its row; None if it is none, or there is such a file."""
    if target == "-" or Path(target).exists() or not target.strip():
        return None
    try:
        with database() as db, db.read() as session:
            row = rubrics.get(session, target, allow_drafts=allow_drafts)
            prompt = prompts.get(session, row.prompt_id).value if row.prompt_id is not None else None
            session.expunge(row)
            return Record(prompt, row.value, name=row.name), row
    except NotFoundError:
        return None


def target_of(
    target: str, name: str | None = None, *, of_several: str | None = None, allow_drafts: bool = True
) -> RubricTarget:
    """Return the one rubric that is meant; ``name`` chooses one of a file, ``of_several`` only if it has more."""
    return _only(target, targets_of(target, name, allow_drafts=allow_drafts), of_several)


def targets_of(target: str, name: str | None = None, *, allow_drafts: bool = True) -> list[RubricTarget]:
    """Return the stored rubric, or all rubrics of the file, or those of this name."""
    if (stored := find_stored(target, allow_drafts=allow_drafts)) is not None:
        record, row = stored
        return [RubricTarget(row.ref, row.value, record.prompt, None, row)]
    if target != "-" and not Path(target).exists():
        hint = "name a file; list stored rubrics with `rubricsvc rubrics show`"
        raise NotFoundError(f"no file and no stored rubric {target!r}", hint=hint, path=target)
    return _of_file(target, name)


def target_of_file(file: str, name: str | None = None) -> RubricTarget:
    """Return the only rubric of a file, or the one of this name, without a database."""
    return _only(file, _of_file(file, name))


def _of_file(file: str, name: str | None) -> list[RubricTarget]:
    records = [one for one in stream(input_file(file), check=checks.validate) if one.rubric is not None]
    found = [
        RubricTarget(one.name, one.rubric, one.prompt, one.id, None)
        for one in records
        if one.rubric is not None and name in (None, one.name)
    ]
    if not found:
        what = "rubric" if name is None else f"rubric named {name!r}"
        names = shorten(", ".join(one.name for one in records), 200)
        raise InvalidError(f"{file} has no {what}", hint=f"it has {names}" if names else "a rubric needs criteria")
    return found


def _only(target: str, found: list[RubricTarget], of_several: str | None = None) -> RubricTarget:
    named = [one for one in found if one.name == of_several]
    only = named if len(found) > 1 and len(named) == 1 else found
    if len(only) > 1:
        names = shorten(", ".join(one.name for one in found), 200)
        raise InvalidError(f"{target} has {len(found)} rubrics, expected one", hint=f"choose one with --name: {names}")
    return only[0]
