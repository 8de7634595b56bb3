"""`rubricsvc rubrics`: write, check, import, list, compare and export rubrics."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy.orm import Session

from rubricsvc.cli import output, presets, reviewing
from rubricsvc.cli.db import database
from rubricsvc.cli.importing import (
    By,
    File,
    Format,
    SkipInvalid,
    import_and_report,
)
from rubricsvc.cli.output import After, Json, Limit, PromptFilter, echo, print_data, print_json, show, show_list
from rubricsvc.cli.rubric_analysis import analyse
from rubricsvc.cli.rubric_export import export
from rubricsvc.cli.rubric_fit import fit
from rubricsvc.cli.rubric_generation import generate
from rubricsvc.cli.rubric_lint import lint_
from rubricsvc.cli.rubric_proposal import propose
from rubricsvc.cli.rubric_targets import find_stored, target_of
from rubricsvc.cli.rubric_testing import test
from rubricsvc.cli.rubric_trial import try_
from rubricsvc.core.rubric import Criterion, Source
from rubricsvc.core.rubric_example import RubricExample
from rubricsvc.core.states import RubricState
from rubricsvc.formats import Record
from rubricsvc.formats.native import dump, plain
from rubricsvc.formats.yaml_records import write
from rubricsvc.queries import ImportQuery
from rubricsvc.schemas.methods import request
from rubricsvc.services.importing import RECORDS
from rubricsvc.services.rubric_changes import changes
from rubricsvc.services.rubric_records import record_of
from rubricsvc.store import prompts, rubrics
from rubricsvc.store.tables import RubricRow

app = output.group("Rubrics: weighted criteria for completions.")

MOST_ROWS = 20

Ref = Annotated[
    str, typer.Argument(help="Id, name (newest approved version), name@version, or 8 or more digits of the digest.")
]


RefOrFile = Annotated[str, typer.Argument(help="Id, name (newest approved version), name@version, digest, or a file.")]


def import_(
    file: File,
    *,
    format: Format = None,
    name: Annotated[str | None, typer.Option(help="Name of the only rubric in the file.")] = None,
    min_coverage: output.MinCoverage = None,
    skip_invalid: SkipInvalid = False,
    mapping: Annotated[Path | None, typer.Option(help="Mapping file of the format (docs/formats.md).")] = None,
    parent: Annotated[str | None, typer.Option(help="Version that the only rubric was edited from.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Add it even if --parent has been edited already.")] = False,
    draft: Annotated[bool, typer.Option("--draft", help="Add the rubrics as drafts, to be reviewed.")] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Import rubrics, prompts and completions.

    A file is imported whole or not at all. Importing it again changes nothing. If the --parent has been edited already,
    the rubric is kept as a draft, and the error says what both edits change.
    """
    query = request(
        ImportQuery,
        format=format,
        rubric_name=name,
        min_coverage=min_coverage,
        skip_invalid=skip_invalid,
        parent=parent,
        force=force,
        draft=draft,
    )
    import_and_report(file, query, as_json, kinds=(RECORDS,), by=by, mapping=mapping)


def _row(row: RubricRow) -> dict[str, Any]:
    content = {"criteria": len(row.content["criteria"]), "formula": row.content["formula"], "origin": row.origin}
    return output.fields_of(row, "id", "name", "version", "state", "digest", "prompt_id") | content


def list_(
    *,
    name: Annotated[str | None, typer.Option(help="Filter by name: list all its versions.")] = None,
    prompt: PromptFilter = None,
    state: Annotated[RubricState | None, typer.Option(help="Filter by state of the review.")] = None,
    limit: Limit = 50,
    after: After = 0,
    as_json: Json = False,
) -> None:
    """List rubrics."""
    with database() as db, db.read() as session:
        prompt_id = prompts.get(session, prompt).id if prompt is not None else None
        rows = rubrics.page(session, after=after, limit=limit + 1, name=name, prompt_id=prompt_id, state=state)
        empty = "no rubrics; write an example to import with `rubricsvc rubrics init`"

        def record(row: RubricRow) -> dict[str, Any]:
            more = output.fields_of(row, "parent_id", "added_by") if as_json else {}
            return _row(row) | {"digest": row.digest[:12]} | more

        output.show_page(rows, record, limit, as_json, empty=empty)


def show_(
    ref: Ref,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print the native format, to edit it.")] = False,
    provenance: Annotated[bool, typer.Option("--provenance", help="Show how it was generated, as JSON.")] = False,
    as_json: Json = False,
) -> None:
    """Show one rubric; with --provenance the model, template, reply and gate's findings of a generated one."""
    with database() as db, db.read() as session:
        if provenance:
            print_json(rubrics.provenance(session, ref).model_dump(mode="json"))
            return
        row = rubrics.get(session, ref)
        if as_yaml:
            dump([record_of(session, row)], sys.stdout, yaml=True)
        elif as_json:
            print_json(_row(row) | output.fields_of(row, "parent_id", "added_by") | {"rubric": row.content})
        else:
            show(_row(row) | _review_fields(session, row) | {"min_coverage": row.value.min_coverage})
            print_data("")
            columns = ["key", "weight", "kind", "group", "text", "sources"]
            output.print_table(columns, map(_criterion_cells, row.value.criteria))
            if examples := row.value.examples:
                print_data("")
                output.print_table(["example", "expected", "reward", "text"], map(_example_cells, examples))


def _criterion_cells(criterion: Criterion) -> list[Any]:
    kind = f"check {criterion.check.name}" if criterion.check else criterion.scale.kind
    required = " (required)" if criterion.required else ""
    sources = "; ".join(map(_source_cell, criterion.sources or ()))
    return [criterion.key, criterion.weight, kind + required, "/".join(criterion.group), criterion.text, sources]


def _example_cells(one: RubricExample) -> list[Any]:
    verdicts = ", ".join(f"{key} {expected}" for key, expected in (one.verdicts or {}).items())
    return [one.key, verdicts, "" if one.reward is None else one.reward, output.shorten(one.text, 100)]


def _source_cell(source: Source) -> str:
    dates = [f"as of {source.as_of}" if source.as_of else "", f"expires {source.expires}" if source.expires else ""]
    passage = f'"{output.shorten(source.passage, 60)}"' if source.passage else ""
    return ", ".join(filter(None, (source.document, source.clause, passage, *dates)))


def diff(
    a: RefOrFile,
    b: RefOrFile,
    on: Annotated[int | None, typer.Option(help="Job whose rewards to compare.", show_default=False)] = None,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print the changed lines of YAML.")] = False,
    as_json: Json = False,
) -> None:
    """Show in words what changed from A to B, stored rubrics or files; exit with 1 if anything did.

    With --on JOB, show how the rewards and ranks of its completions change. No judge is asked, and nothing is stored.
    """
    rows = [_side(a, b), _side(b, a)]
    with database() as db, db.read() as session:
        names = [row.ref if row.id else ref for row, ref in zip(rows, (a, b), strict=True)]
        if on is not None:
            _print_reward_changes(session, on, rows[0], rows[1], names, as_json=as_json)
            return
        reviews = [_review_fields(session, row) for row in rows]
    found = changes(rows[0].value, rows[1].value)
    with output.exit_with(1 if found else output.OK):
        if as_json:
            sides = [{"rubric": name} | review for name, review in zip(names, reviews, strict=True)]
            print_json({"old": sides[0], "new": sides[1], "changes": [asdict(one) for one in found]})
        elif not found:
            echo(f"{names[0]} and {names[1]} have the same content")
        elif as_yaml:
            before, after = (_plain_yaml(row) for row in rows)
            for line in difflib.unified_diff(before, after, names[0], names[1], lineterm=""):
                print_data(line)
        else:
            for name, review in zip(names, reviews, strict=True):
                print_data(f"{name}: {output.cell(review)}" if review else f"{name}: a file")
            for change in found:
                print_data(f"  {output.clean(str(change))}")


def _review_fields(session: Session, row: RubricRow) -> dict[str, Any]:
    """Return state, parent and author of a stored version; nothing of a file."""
    if not row.id:
        return {}
    parent = rubrics.get(session, row.parent_id).ref if row.parent_id else None
    fields = {"state": row.state, "parent": parent, "added_by": row.added_by}
    return {name: value for name, value in fields.items() if value is not None}


def _side(ref: str, other: str) -> RubricRow:
    """Return a stored rubric; or that in a file, named and of the prompt like the ``other`` one, as an unsaved row."""
    beside = find_stored(other, allow_drafts=False)
    stored = beside[1] if beside is not None else None
    found = target_of(ref, of_several=stored.name if stored else None, allow_drafts=False)
    if found.row is not None:
        return found.row
    content = found.rubric.model_dump(mode="json")
    return RubricRow(name=stored.name if stored else ref, prompt_id=stored and stored.prompt_id, content=content)


def _print_reward_changes(
    session: Session, job_id: int, old: RubricRow, new: RubricRow, names: Sequence[str], *, as_json: bool
) -> None:
    from workers.scoring.reward_changes import reward_changes

    changes = reward_changes(session, job_id, old, new)
    data: dict[str, Any] = {"old": names[0], "new": names[1], "job_id": job_id} | asdict(changes)
    if as_json:
        print_json(data)
        return
    rows = sorted(data.pop("by_completion"), key=lambda row: -abs(row["change"] or 0.0))
    people = data.pop("people")
    show_list(row | {"completion_external_id": row["completion_external_id"] or ""} for row in rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        echo(f"… and {len(rows) - MOST_ROWS} more; --json prints all")
    show(data)
    if people:
        print_data("\nAgreement with people's overall scores:")
        sides = [(one, (one.old, one.new, one.difference)) for one in changes.people]
        cells = [
            [one.name, one.n, *(cell for side in each for cell in output.estimate_cells(side))] for one, each in sides
        ]
        output.print_table(("metric", "n", "old", "95%", "new", "95%", "new - old", "95%"), cells)
    if changes.new_missing_verdicts:
        command = (
            f"rubricsvc jobs rescore {job_id} --rubric {names[1]}" if new.id else f"rubricsvc rubrics import {names[1]}"
        )
        echo(f"hint: `{command}`{'' if new.id else ', then `jobs rescore`,'} asks for the missing verdicts")


def _plain_yaml(row: RubricRow) -> list[str]:
    """Return the lines of the rubric as YAML, also with the weights that are the default."""
    data = plain(Record(None, row.value))
    data["criteria"] = [
        {"key": fields["key"], "text": fields["text"], "weight": 1, **fields} for fields in data["criteria"]
    ]
    stream = StringIO()
    write(data, stream)
    return stream.getvalue().splitlines()


_COMMANDS: dict[str, Callable[..., None]] = {
    "presets": presets.list_,
    "init": presets.init,
    "generate": generate,
    "propose": propose,
    "lint": lint_,
    "test": test,
    "try": try_,
    "import": import_,
    "list": list_,
    "show": show_,
    "diff": diff,
    "export": export,
    "submit": reviewing.submit,
    "approve": reviewing.approve,
    "reject": reviewing.reject,
    "retire": reviewing.retire,
    "comment": reviewing.comment,
    "history": reviewing.history,
    "analyse": analyse,
    "fit": fit,
}

for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)
