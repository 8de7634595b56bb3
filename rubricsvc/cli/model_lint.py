"""What a judge finds in rubrics (`rubrics lint --with-model`), with its progress and cost."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from rubricsvc.cli.models import ask, without_outage
from rubricsvc.cli.output import counted, echo, progress_bar
from rubricsvc.cli.score import judge_of
from rubricsvc.core.judge import Judge
from rubricsvc.lint import Rule
from rubricsvc.lint.registry import Subject

if TYPE_CHECKING:
    from workers.authoring.model_lint import ModelLint
    from workers.engines.base import Engine


def askable_judge(name: str, model: str | None, api_key_env: str | None) -> Judge:
    """Return the judge of this name, which does not wait for a server that is away.

    Raises:
        InvalidError: It does not judge texts one by one.
    """
    from workers.authoring.planted_faults import check_askable

    judge = judge_of(name, model, "readout", api_key_env)
    check_askable(judge)
    return judge.map_leaves(without_outage)


def ask_judge(judge: Judge, rules: Sequence[Rule], subjects: Sequence[Subject]) -> list[ModelLint]:
    """Return what the judge finds in each rubric; print the progress, and then the cost."""
    from workers.authoring.model_lint import ModelLint, ModelRule, lint_by_model

    asked, total = sum(isinstance(one, ModelRule) for one in rules), sum(len(one.judged) for one in subjects)
    if not asked or not total:
        echo(f"nothing to ask {judge.name}: {'no rule of a model' if total else 'no criterion that a judge decides'}")
        return [ModelLint([], [], []) for _ in subjects]
    echo(f"asking {judge.name} by {counted(asked, 'rule')}; criteria: {total}")
    numbers = count(1)
    with progress_bar("criteria") as bar:

        def on_done() -> None:
            bar.update(next(numbers), total, "")

        async def run(engine: Engine) -> list[ModelLint]:
            found = (lint_by_model(engine, judge, rules, one, on_done=on_done) for one in subjects)
            return await gather(*found)

        found = ask(judge, run)
    _print_cost(judge, found)
    return found


def _print_cost(judge: Judge, found: Sequence[ModelLint]) -> None:
    verdicts = [verdict for one in found for verdict in one.verdicts]
    usages = [verdict.usage for verdict in verdicts if verdict.usage is not None]
    cost = f", ${sum(one.cost for one in usages):.2g}" if judge.priced else ""
    tokens = sum(one.prompt + one.completion for one in usages)
    echo(f"{judge.name}: {counted(len(verdicts), 'verdict')}, {counted(tokens, 'token')}{cost}")
