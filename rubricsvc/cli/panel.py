"""`rubricsvc judges panel` and `judges cascade`: judges made of judges that are there."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rubricsvc.cli.database import database
from rubricsvc.cli.judge_row import judge_row
from rubricsvc.cli.output import Json, show

Name = Annotated[str, typer.Argument(help="What to call it. A name stands for one judge for good.")]


def panel(
    name: Name,
    members: Annotated[list[str], typer.Argument(help="Two or more judges, by name or id.")],
    *,
    vote: Annotated[str, typer.Option(help="mean, median, min or majority.")] = "mean",
    as_json: Json = False,
) -> None:
    """Add a judge that asks several side by side and folds what they say."""
    _add(name, members, as_json, mode="panel", voting={"rule": vote})


def cascade(
    name: Name,
    members: Annotated[list[str], typer.Argument(help="Two or more judges, the cheapest first.")],
    *,
    band: Annotated[tuple[float, float], typer.Option(help="From and to which probability to go on.")] = (0.3, 0.7),
    as_json: Json = False,
) -> None:
    """Add a judge that asks the next only where the one before is uncertain, abstains or fails."""
    _add(name, members, as_json, mode="cascade", band=band)


def _add(name: str, members: list[str], as_json: bool, **fields: Any) -> None:
    from rubricsvc.cli.judge_add import make_judge
    from rubricsvc.store import judges

    with database() as db, db.write() as session:
        seats = tuple(judges.get(session, ref).value for ref in members)
        judge = make_judge(name=name, model="", members=seats, **fields)
        show(judge_row(judges.add(session, judge)), as_json)
