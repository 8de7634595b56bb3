"""`rubricsvc delete`: rows with all that hangs on them."""

import sys
from functools import partial
from typing import Annotated, Literal

import typer

from rubricsvc.cli.commands import service
from rubricsvc.cli.output import Json, echo, show
from rubricsvc.errors import InvalidError, counted

Noun = Literal["prompts", "rubrics", "completions", "labels", "jobs", "runs"]


def delete(
    noun: Annotated[Noun, typer.Argument(help="What is deleted.", show_default=False)],
    refs: Annotated[list[str], typer.Argument(help="Ids; of a rubric also NAME (all versions) or NAME@VERSION.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete prompts, rubrics, completions, labels, jobs or runs, with all that hangs on them.

    Prints first how many rows of each table that is. The folder of a run stays.
    """
    with service() as s:
        remove = partial(getattr(s, noun).delete, refs[0], also=refs[1:])
        if not yes:
            found = remove(dry_run=True)
            show({"deletes": found.rows, "names": found.names}, as_json)
            if not sys.stdin.isatty():
                raise InvalidError(f"this deletes {counted(sum(found.rows.values()), 'row')}", hint="confirm: --yes")
            typer.confirm("Delete them?", abort=True, err=True)
        done = remove()
    show({"deleted": done.rows}, as_json)
    if done.may_quote:
        echo(f"rubrics that a model made of it, and may quote it, stay: {', '.join(sorted({*done.may_quote}))}")
    if done.erased is False:
        echo("the database is in use, so that its file still has the text; run `sqlite3 FILE VACUUM` when it is not")
