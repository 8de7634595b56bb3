"""`rubricsvc judges repeatability`: ask a judge the same questions again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.agreement import JudgeRef
from rubricsvc.cli.database import database
from rubricsvc.cli.figures import cells
from rubricsvc.cli.judge_probe import ask
from rubricsvc.cli.output import Json, cell, echo, print_json, print_table, progress_bar
from rubricsvc.core.judge import Judge
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.errors import UnavailableError
from rubricsvc.store import audits, jobs, judges

if TYPE_CHECKING:
    from workers.audit.repeatability import CompletionGroup


def repeatability(
    judge: JudgeRef,
    *,
    job: Annotated[
        int | None, typer.Option(help="Ask about completions of this job.", show_default="built-in cases")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum completions; of a job a random sample.")] = 40,
    repeats: Annotated[int, typer.Option(min=2, max=100, help="Number of times each question is asked.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the sample, the orders and the intervals.")] = 0,
    as_json: Json = False,
) -> None:
    """Measure how far a judge's verdicts and rewards vary when it is asked the same again.

    The questions are asked in other batches and orders, and sampling judges use other seeds. Reports the
    standard deviation of verdict values by kind of scale, and of rewards, with 95 % bootstrap intervals. The result is
    stored with the judge: `judges show` has it, and GRPO takes it as the least deviation that
    it divides by. It replaces an earlier measurement. No verdict is stored.
    """
    stored, judge_id, groups = _questions(judge, job, limit, seed)
    result = _measure(stored, groups, source=f"job {job}" if job else "built-in cases", repeats=repeats, seed=seed)
    if result.reward.value is None and not any(one.n for one in result.criteria.values()):
        raise UnavailableError(
            f"judge {stored.name!r}: no question was scored twice ({cell(result.unscored)})",
            hint=f"see what it answers: rubricsvc score --judge {stored.name} …",
        )
    with database() as db, db.write() as session:
        judges.set_repeatability(session, judge_id, result)
    echo(f"stored with judge {stored.name!r}, in place of any earlier measurement")
    if as_json:
        print_json({"judge": stored.name, **result.model_dump(mode="json")})
        return
    rows = result.criteria | {"reward": result.reward}
    table = [[kind, str(one.n), *cells(one, digits=4)] for kind, one in rows.items()]
    print_table(("of", "questions", "std", "95%"), table)
    unscored = f"; without a value: {cell(result.unscored)}" if result.unscored else ""
    echo(f"{stored.name}: {result.completions} completions of {result.source}, asked {repeats} times{unscored}")


def _questions(ref: str, job: int | None, limit: int, seed: int) -> tuple[Judge, int, list[CompletionGroup]]:
    from workers.audit import cases
    from workers.audit.repeatability import group_completions, groups_of_cases

    with database() as db, db.read() as session:
        row = judges.get(session, ref)
        stored = row.value
        if job is None:
            return stored, row.id, groups_of_cases(cases.built_in())[:limit]
        compares = stored.mode == "comparative"
        sample = audits.sample_of_job(session, jobs.get(session, job).id, limit, whole_groups=compares, seed=seed)
        return stored, row.id, group_completions(sample)


def _measure(judge: Judge, groups: list[CompletionGroup], **options: Any) -> Repeatability:
    from workers.audit.repeatability import measure

    with progress_bar("repeatability") as bar:
        return ask(judge, lambda engine: measure(engine, judge, groups, on_progress=bar.update, **options))
