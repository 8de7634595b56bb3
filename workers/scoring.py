"""Score a completion: run the checks, ask the judge about the rest, one verdict for every criterion of the rubric."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge, fingerprint
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers import checks, judges
from workers.engines.base import Engine, Failure, Reply, said_by
from workers.judges.template import load

Item = tuple[Rubric, Prompt, Completion]
"""What is to be scored."""

_NOTHING: Mapping[str, Verdict] = {}
_CHECKERS = ThreadPoolExecutor(4, "checks")
"""Threads of their own: slow patterns must not keep a worker's heartbeat waiting, which has those of the event loop."""


async def score(
    engine: Engine,
    judge: Judge,
    rubric: Rubric,
    prompt: Prompt,
    completion: Completion,
    *,
    known: Mapping[str, Verdict] = _NOTHING,
) -> list[Verdict]:
    """One verdict for each criterion, in the rubric's order; whatever goes wrong is a ``failed`` verdict.

    All judged criteria go to the engine in one ask, so that it reads the completion once. ``known`` verdicts, by
    criterion, stand as they are and are not asked for again.
    """
    origin, settled = fingerprint_of(rubric, judge), frozenset(known)
    found = dict(known)
    if any(criterion.check for criterion in rubric.criteria):  # in a thread: a pattern may take long
        run = partial(checks.run, rubric, prompt, completion, fingerprint=origin, settled=settled)
        for verdict in await asyncio.get_running_loop().run_in_executor(_CHECKERS, run):
            found[verdict.criterion] = verdict
    judged = [c.key for c in rubric.criteria if c.check is None and c.key not in settled]
    if judged:
        try:
            plan = judges.plan(judge, rubric, origin, settled)
            verdicts = await _ask(engine, plan, prompt, completion)
        except InvalidError as error:  # a judge that cannot be asked: its template or this rubric's scales
            why = {"detail": f"{error}; {error.hint}", "fingerprint": origin}
            verdicts = [Verdict.failed(key, Reason.ENGINE_ERROR, **why) for key in judged]
        for verdict in verdicts:
            found[verdict.criterion] = verdict
    return [found[criterion.key] for criterion in rubric.criteria]


async def _ask(engine: Engine, plan: judges.Plan, prompt: Prompt, completion: Completion) -> list[Verdict]:
    ask, shown = plan.ask(prompt, completion)
    replies: list[Reply | Failure]
    try:
        replies = await engine.ask(ask)
        if len(replies) != len(ask.questions):
            raise ValueError(f"{len(replies)} replies to {len(ask.questions)} questions")
    except Exception as error:  # noqa: BLE001 - an engine is foreign code, and its fault must not lose the checks
        replies = [Failure(Reason.ENGINE_ERROR, said_by(error))] * len(ask.questions)
    return plan.read(replies, shown)


async def score_many(engine: Engine, judge: Judge, items: Iterable[Item]) -> list[list[Verdict]]:
    """``score`` for several completions at once; how many are under way is the engine's to bound."""
    return await asyncio.gather(*(score(engine, judge, *item) for item in items))


@lru_cache(maxsize=512)
def fingerprint_of(rubric: Rubric, judge: Judge) -> str:
    """``core.judge.fingerprint`` of this judge's verdicts on this rubric.

    How it is asked and read is told by the text of its template, the version of its mode, and those of the checks.

    Never raises: a judge whose template cannot be read has a fingerprint too, and its verdicts are failures.
    """
    try:
        template_digest = load(judge).digest
    except InvalidError:
        template_digest = ""
    return fingerprint(
        rubric, judge, digest(template_digest, judges.MODES[judge.mode].VERSION, checks.versions(rubric))
    )
