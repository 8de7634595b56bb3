"""`rubricsvc evolve buffer`: the criteria that training runs have proposed for a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.output import Json, show_list
from rubricsvc.store import criterion_buffers, prompts, rubrics

if TYPE_CHECKING:
    from rubricsvc.store.tables import BufferedCriterionRow, RubricRow, RunStepRow


def buffer(
    prompt: Annotated[str, typer.Argument(help="Prompt: id, or id in its file.", show_default=False)],
    *,
    run: Annotated[str | None, typer.Option(help="Only this run: `run` in its config.json.")] = None,
    rounds: Annotated[bool, typer.Option("--rounds", help="List the rounds instead, with their failures.")] = False,
    as_json: Json = False,
) -> None:
    """List the criteria that training runs have proposed for a prompt, or the rounds in which they did."""
    with database() as db, db.read() as session:
        prompt_id = prompts.get(session, prompt).id
        if rounds:
            steps = criterion_buffers.rounds(session, prompt_id, run)
            versions = rubrics.many(session, {id_ for row in steps for id_ in (row.rubric_id, row.target_id) if id_})
            records = [_round(row, versions, as_json) for row in steps]
        else:
            rows = criterion_buffers.of_prompt(session, prompt_id, run)
            records = [_json(row) if as_json else _entry(row) for row in rows]
        show_list(
            records, as_json, empty="no training run has evolved a rubric of this prompt (docs/evolving-online.md)"
        )


def _json(row: BufferedCriterionRow) -> dict[str, Any]:
    value = row.value
    return {"run": row.run, "base_id": row.base_id, **value.model_dump(mode="json"), "agreement": value.agreement}


def _entry(row: BufferedCriterionRow) -> dict[str, Any]:
    one = row.value
    return {
        "run": row.run,
        "key": one.key,
        "state": f"{one.state} ({one.reason})" if one.reason else one.state,
        "kind": "pitfall" if one.criterion.weight < 0 else "",
        "trials": one.trials,
        "step": None if one.tested_step is None else one.tested_step + 1,
        "separation": one.separation,
        "mean": one.mean,
        "agreement": one.agreement,
        "pairs": one.pairs or None,
        "text": one.criterion.text,
    }


def _round(row: RunStepRow, versions: dict[int, RubricRow], as_json: bool) -> dict[str, Any]:
    done = row.round_value
    known = {
        "run": row.run,
        "step": row.step + 1,
        "used": versions[row.rubric_id].ref,
        "wrote": versions[row.target_id].ref if row.target_id else None,
    }
    if done is None:
        return known
    if as_json:
        return known | done.model_dump(mode="json")
    lists = ("proposed", "refused", "untested", "activated", "reactivated", "retired")
    return known | {name: len(getattr(done, name)) or None for name in lists} | {"failure": done.failure}
