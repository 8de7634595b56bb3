"""`rubricsvc delete`: rows with all that hangs on them."""

import sys
from collections import Counter
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
        of_noun, refs = getattr(s, noun), [*dict.fromkeys(refs)]
        found = [of_noun.delete(ref, dry_run=True) for ref in refs]
        rows = sum((Counter(one.rows) for one in found), Counter[str]())
        names = {table: [name for one in found for name in one.names.get(table, ())] for table in rows}
        if not yes:
            show({"deletes": rows, "names": {table: some for table, some in names.items() if some}}, as_json)
            if not sys.stdin.isatty():
                raise InvalidError(f"this deletes {counted(rows.total(), 'row')}", hint="confirm it with --yes")
            typer.confirm("Delete them?", abort=True, err=True)
        for number, ref in enumerate(refs, start=1):
            done = of_noun.delete(ref, vacuum=number == len(refs))
    show({"deleted": rows}, as_json)
    if kept := {ref for one in found for ref in one.may_quote}:
        echo(f"rubrics that a model made of it, and may quote it, stay: {', '.join(sorted(kept))}")
    if done.erased is False:
        echo("the database is in use, so that its file still has the text; run `sqlite3 FILE VACUUM` when it is not")
