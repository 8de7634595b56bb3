"""FILE|NAME of commands about one rubric: a file with a rubric, or a stored version, also a draft."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.output import shorten
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.formats import InputFile, Record, stream
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


def find_stored(target: str) -> tuple[Record, RubricRow] | None:
    """Return the stored rubric of that name as a record, and its row; None if it is none."""
    is_file = target == "-" or Path(target).exists() or "/" in target or Path(target).suffix
    if is_file or not target.strip():
        return None
    try:
        with database() as db, db.read() as session:
            row = rubrics.get(session, target, allow_drafts=True)
            prompt = prompts.get(session, row.prompt_id).value if row.prompt_id is not None else None
            session.expunge(row)
            return Record(prompt, row.value, name=row.name), row
    except NotFoundError:
        return None


def target_of(target: str, name: str | None = None) -> RubricTarget:
    """Return the one rubric that is meant; ``name`` chooses one of a file with several.

    Raises:
        NotFoundError: there is neither such a file nor such a stored rubric.
        InvalidError: the file is invalid, or has another number of rubrics, or a check has wrong arguments.
    """
    found = targets_of(target, name)
    if len(found) > 1:
        names = shorten(", ".join(one.name for one in found), 200)
        raise InvalidError(f"{target} has {len(found)} rubrics, expected one", hint=f"choose one with --name: {names}")
    return found[0]


def targets_of(target: str, name: str | None = None) -> list[RubricTarget]:
    """Return the stored rubric, or all rubrics of the file, or those of this name.

    Raises:
        NotFoundError: there is neither such a file nor such a stored rubric.
        InvalidError: the file is invalid, or has no such rubric, or a check has wrong arguments.
    """
    if (stored := find_stored(target)) is not None:
        record, row = stored
        return [RubricTarget(row.ref, row.value, record.prompt, None, row)]
    if not Path(target).exists():
        hint = "name a file; list stored rubrics with `rubricsvc rubrics list`"
        raise NotFoundError(f"no file and no stored rubric {target!r}", hint=hint, path=target)
    records = list(stream(InputFile(target), check=checks.validate))
    found = [
        RubricTarget(one.name, one.rubric, one.prompt, one.id, None)
        for one in records
        if one.rubric is not None and name in (None, one.name)
    ]
    if not found:
        what = "rubric" if name is None else f"rubric named {name!r}"
        raise InvalidError(f"{target} has no {what}", hint="a rubric needs criteria")
    return found
