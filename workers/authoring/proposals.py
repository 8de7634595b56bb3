"""Several rubrics proposed for one prompt, each with the linter's findings and what it gives to texts beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rubricsvc.core.generation import AuthoringTask, GateFindings, Generation
from rubricsvc.core.judge import Judge
from rubricsvc.lint import Finding, lint
from workers import checks
from workers.authoring.author import Author, Draft, GenerationError
from workers.authoring.gate import try_rubric
from workers.authoring.methods import write_rubric
from workers.engines.base import Engine

OnDone = Callable[[], None]

OFF_TOPIC = (
    "Bread rises when yeast turns sugar into carbon dioxide, which the gluten of the dough holds back. Knead the"
    " dough for ten minutes, let it rest for an hour in a warm place, fold it twice, and bake it at 230 °C. The crust"
    " becomes crisp if there is steam in the oven during the first ten minutes."
)
"""A completion of another prompt."""

DUPLICATE = "duplicate"
"""The reason of a candidate that is the same rubric as an earlier one."""


@dataclass(frozen=True)
class Proposal:
    """One candidate: a rubric, or the reason why there is none. Without ``tried``, ``reason`` says why.

    Attributes:
        draft: The rubric as it was written.
        reason: Why there is no rubric, or why it could not be tried.
        findings: What the linter finds.
        tried: What it gives to good, bad and empty texts.
    """

    draft: Draft | None = None
    reason: str | None = None
    findings: tuple[Finding, ...] = ()
    tried: GateFindings | None = None


async def write_proposals(
    engine: Engine, judge: Judge, generation: Generation, task: AuthoringTask, *, n: int, on_done: OnDone = lambda: None
) -> list[Proposal]:
    """Return ``n`` candidates that the judge's model writes, each with other seeds, and the linter's findings."""

    async def write(number: int) -> Proposal:
        try:
            draft = await write_rubric(Author(engine, judge, generation, retries=number), task)
        except GenerationError as error:
            return Proposal(reason=f"{error.reason}: {error.message}")
        finally:
            on_done()
        findings = lint(draft.rubric, task.prompt, empty_value=checks.value_of_empty)
        return Proposal(draft, findings=tuple(findings))

    seen: dict[str, int] = {}
    found = list[Proposal]()
    for number, one in enumerate(await asyncio.gather(*map(write, range(n))), start=1):
        first = seen.setdefault(one.draft.rubric.digest, number) if one.draft else number
        found.append(one if first == number else Proposal(reason=f"{DUPLICATE}: the same as candidate {first}"))
    return found


async def try_proposals(
    engine: Engine,
    judge: Judge,
    generation: Generation,
    task: AuthoringTask,
    given: Sequence[Proposal],
    *,
    on_done: OnDone = lambda: None,
) -> list[Proposal]:
    """Return the candidates with what the judge gives to the probes under each."""

    async def try_one(one: Proposal) -> Proposal:
        if one.draft is None:
            return one
        try:
            return replace(one, tried=await try_rubric(engine, judge, generation, one.draft.rubric, task))
        except GenerationError as error:
            return replace(one, reason=f"{error.reason}: {error.message}")
        finally:
            on_done()

    return list(await asyncio.gather(*map(try_one, given)))
