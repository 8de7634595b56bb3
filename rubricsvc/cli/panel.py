"""`rubricsvc judges panel` and `judges cascade`: judges made of stored judges."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rubricsvc.cli.database import database
from rubricsvc.cli.judge_add import judge_from_options
from rubricsvc.cli.judge_row import judge_row
from rubricsvc.cli.output import Json, show

Name = Annotated[str, typer.Argument(help="Name of the judge. A name always means the same judge.")]


def panel(
    name: Name,
    members: Annotated[list[str], typer.Argument(help="Two or more judges, by name or id.")],
    *,
    vote: Annotated[str, typer.Option(help="mean, median, min or majority.")] = "mean",
    as_json: Json = False,
) -> None:
    """Add a judge that asks several judges and aggregates their verdicts."""
    _add(name, members, as_json, mode="panel", voting={"rule": vote})


def cascade(
    name: Name,
    members: Annotated[list[str], typer.Argument(help="Two or more judges, by name or id, the cheapest first.")],
    *,
    band: Annotated[tuple[float, float], typer.Option(help="Probabilities between which the next is asked.")] = (
        0.3,
        0.7,
    ),
    as_json: Json = False,
) -> None:
    """Add a judge that asks the next member if the one before is uncertain, abstains or fails."""
    _add(name, members, as_json, mode="cascade", band=band)


def _add(name: str, members: list[str], as_json: bool, **fields: Any) -> None:
    from rubricsvc.store import judges

    with database() as db, db.write() as session:
        member_judges = tuple(judges.get(session, ref).value for ref in members)
        judge = judge_from_options(name=name, members=member_judges, **fields)
        show(judge_row(judges.add(session, judge)), as_json)
