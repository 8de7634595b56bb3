"""`rubricsvc rubrics export`: stored rubrics in any format that can be written, and what it does not carry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubricsvc.cli import output
from rubricsvc.cli.db import database
from rubricsvc.cli.output import Out, counted, echo, print_json
from rubricsvc.errors import InvalidError
from rubricsvc.formats import containers, writing
from rubricsvc.store import rubrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rubricsvc.formats.record import Row

_WRITABLE = ", ".join(writing.WRITERS)


def export(
    refs: Annotated[list[str] | None, typer.Argument(help="Rubrics.", show_default="all")] = None,
    *,
    format: Annotated[str, typer.Option(help=f"{_WRITABLE}.")] = "native",
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Write YAML instead of JSON lines.")] = False,
    out: Out = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written and lost as JSON.")] = False,
) -> None:
    """Write rubrics with their prompts, the newest approved versions by default, and list what the format loses.

    The ending of --out decides between .jsonl, .json, .yaml, .csv and .parquet, as far as the format has them.
    """
    from rubricsvc.services.rubric_records import stored_records

    container = _container(format, out, as_yaml=as_yaml)
    if as_json and out is None:
        raise InvalidError("--json needs --out: stdout has the rubrics", hint="name a file with --out", path="out")
    losses = writing.Losses()
    with database() as db, db.read() as session:
        _write(writing.rows(stored_records(session, refs), format, losses), container, out)
        has_drafts = any(rubrics.page(session, limit=1, state=state) for state in rubrics.NOT_APPROVED)
    if as_json:
        lost = dict(sorted(losses.fields.items()))
        print_json({"format": format, "out": str(out), "rubrics": losses.records, "lost": lost})
    if has_drafts and not refs:
        echo("left out: drafts; name them to export them: `rubricsvc rubrics list --state draft`")
    for field, count in sorted(losses.fields.items()):
        echo(f"lost or changed in {format}: {field} of {counted(count, 'rubric')}")


def _container(format: str, out: Path | None, *, as_yaml: bool) -> str:
    if as_yaml and format != "native":
        raise InvalidError(f"--yaml is for the native format, not for {format}", hint="leave out --yaml or --format")
    container = "yaml" if as_yaml else writing.container_of(format, out)
    if container == "parquet" and out is None:
        raise InvalidError("Parquet is written to a file", hint="name it with --out", path="out")
    return container


def _write(rows: Iterable[Row], container: str, out: Path | None) -> None:
    if out is not None and container == "parquet":
        with output.replaced(out) as part:
            containers.write_parquet(rows, part)
        return
    with output.open_output(out) as stream:
        writing.write_text(rows, stream, container)
