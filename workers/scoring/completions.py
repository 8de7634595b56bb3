"""Score a completion: run the checks, ask the judge about the rest, one verdict for every criterion of the rubric."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge, Voting, fingerprint
from rubricsvc.core.panel import certain, gather, settle
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.templates import PlaceholderError
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers import checks, judges
from workers.engines.base import Engine, EngineRequest, Failure, Reply, error_message
from workers.engines.panel import member_engines
from workers.judges.requests import Asked
from workers.judges.template import Shown, load
from workers.scoring.group_scoring import Comparing, Group, group_digest
from workers.scoring.trajectories import follow

Item = tuple[Rubric, Prompt, Completion]
"""What is to be scored."""

_VERSION = "2"
"""In the fingerprint of panels' and cascades' verdicts. Raise it when the same votes would make another verdict."""

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
    case = _Case(rubric, prompt, completion, fingerprint_of(rubric, judge))
    found = await _checked(case, known)
    for verdict in await _judged(engine, judge, case, frozenset(known)):
        found[verdict.criterion] = verdict
    return [found[criterion.key] for criterion in rubric.criteria]


async def score_group(
    engine: Engine,
    judge: Judge,
    rubric: Rubric,
    prompt: Prompt,
    completions: Sequence[Completion],
    *,
    known: Sequence[Mapping[str, Verdict]] | None = None,
) -> list[list[Verdict]]:
    """`score` for several completions of one prompt, in their order. A comparative judge is shown them side by side.

    Its verdicts are relative to the group, and their fingerprint is `group_fingerprint`. What is ``known`` of all
    completions is not asked for again; what is known of some stands.
    """
    before = known or [_NOTHING] * len(completions)
    if judge.mode != "comparative":
        each = zip(completions, before, strict=True)
        return await asyncio.gather(*(score(engine, judge, rubric, prompt, one, known=had) for one, had in each))
    origin = group_fingerprint(rubric, judge, completions)
    group = Group(completions, traces=judge.effective_comparison.traces)
    cases = [_Case(rubric, prompt, completion, origin) for completion in completions]
    found = await asyncio.gather(*(_checked(case, had) for case, had in zip(cases, before, strict=True)))
    settled = frozenset[str]().union(*before).intersection(*before)
    comparing = Comparing(judge, rubric, prompt, group, origin, settled, partial(_ask, engine))
    try:
        compared = await comparing.verdicts()
    except InvalidError as error:
        compared = [_unasked(comparing.criteria, error, origin) for _ in completions]
    for mine, verdicts in zip(found, compared, strict=True):
        for verdict in [*verdicts, *_unasked(_own_questions(rubric), _NOT_COMPARED, origin)]:
            mine.setdefault(verdict.criterion, verdict)
    return [[mine[criterion.key] for criterion in rubric.criteria] for mine in found]


def _own_questions(rubric: Rubric) -> list[Criterion]:
    return [criterion for criterion in rubric.criteria if criterion.custom_prompt is not None]


_NOT_COMPARED = InvalidError(
    "a criterion that brings its own question is about one completion, and is not compared",
    hint="score it by a readout or a written judge",
)


async def _checked(case: _Case, known: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """What is known, and the verdicts of the checks beside it."""
    found = dict(known)
    if any(criterion.check for criterion in case.rubric.criteria):  # in a thread: a pattern may take long
        run = partial(
            checks.run,
            case.rubric,
            case.prompt,
            case.completion,
            fingerprint=case.origin,
            settled=frozenset(known),
        )
        for verdict in await asyncio.get_running_loop().run_in_executor(_CHECKERS, run):
            found[verdict.criterion] = verdict
    return found


@dataclass(frozen=True, slots=True)
class _Case:
    """What is judged; its verdicts carry ``origin``, their fingerprint."""

    rubric: Rubric
    prompt: Prompt
    completion: Completion
    origin: str

    def open(self, settled: frozenset[str]) -> list[Criterion]:
        """The criteria that a judge is to find on."""
        return [c for c in self.rubric.criteria if c.check is None and c.key not in settled]


async def _judged(engine: Engine, judge: Judge, case: _Case, settled: frozenset[str]) -> list[Verdict]:
    """The verdicts on the open criteria, in their order."""
    criteria = case.open(settled)
    if not criteria:
        return []
    if judge.mode == "panel":
        return await _panel(engine, judge, case, settled)
    if judge.mode == "cascade":
        return await _cascade(engine, judge, case, settled)
    own = [criterion for criterion in criteria if criterion.custom_prompt is not None]
    if not own:  # as nearly always: without a task of its own
        return await _by_template(engine, judge, case, settled, criteria)
    others = [criterion for criterion in criteria if criterion.custom_prompt is None]
    asked = [_by_template(engine, judge, case, settled, others)] if others else []
    found = await asyncio.gather(*asked, *(_by_own_question(engine, judge, case, criterion) for criterion in own))
    verdicts = {verdict.criterion: verdict for some in found for verdict in some}
    return [verdicts[criterion.key] for criterion in criteria]


async def _by_template(
    engine: Engine, judge: Judge, case: _Case, settled: frozenset[str], criteria: list[Criterion]
) -> list[Verdict]:
    try:
        if judge.mode == "trajectory":
            about = case.rubric, case.prompt, case.completion
            return await follow(judge, *about, origin=case.origin, settled=settled, ask=partial(_ask, engine))
        plan = judges.plan(judge, case.rubric, case.origin, settled)
        return await _ask(engine, plan, plan.template.shared(case.prompt, case.completion))
    except InvalidError as error:
        return _unasked(criteria, error, case.origin)


async def _by_own_question(engine: Engine, judge: Judge, case: _Case, criterion: Criterion) -> list[Verdict]:
    """A criterion that brings its own question is an ask of its own."""
    try:
        asked = Asked(criterion, criterion.key, case.origin)
        plan, shown = judges.own_plan(judge, asked, case.prompt, case.completion)
    except PlaceholderError as error:
        return [Verdict.failed(criterion.key, error.reason, detail=str(error), fingerprint=case.origin)]
    except InvalidError as error:
        return _unasked([criterion], error, case.origin)
    return await _ask(engine, plan, shown)


def _unasked(criteria: Iterable[Criterion], error: InvalidError, origin: str) -> list[Verdict]:
    """The verdicts of a judge that cannot be asked: for its template, this rubric's scales, or a group of one."""
    why = {"detail": f"{error}; {error.hint}", "fingerprint": origin}
    return [Verdict.failed(criterion.key, Reason.ENGINE_ERROR, **why) for criterion in criteria]


async def _panel(engine: Engine, judge: Judge, case: _Case, settled: frozenset[str]) -> list[Verdict]:
    """All members side by side, folded."""
    members = judge.members or ()
    seats = zip(member_engines(engine, len(members)), members, strict=True)
    found = await asyncio.gather(*(_judged(seat, member, case, settled) for seat, member in seats))
    rule, names = (judge.voting or Voting()).rule, [member.name for member in members]
    return [
        gather(criterion, dict(zip(names, votes, strict=True)), rule, case.origin)
        for criterion, votes in zip(case.open(settled), zip(*found, strict=True), strict=True)
    ]


async def _cascade(engine: Engine, judge: Judge, case: _Case, settled: frozenset[str]) -> list[Verdict]:
    """Each member after the other, for what those before it left uncertain."""
    members, band = judge.members or (), judge.band or (0.0, 1.0)
    votes: dict[str, dict[str, Verdict]] = {criterion.key: {} for criterion in case.open(settled)}
    for seat, member in zip(member_engines(engine, len(members)), members, strict=True):
        found = await _judged(seat, member, case, settled)
        for verdict in found:
            votes[verdict.criterion][member.name] = verdict
        settled |= {verdict.criterion for verdict in found if certain(verdict, band)}
    return [settle(findings, case.origin) for findings in votes.values()]


async def _ask(engine: Engine, plan: judges.Plan, shown: Shown) -> list[Verdict]:
    request = plan.about(shown)
    replies = await _replies(engine, request)
    if again := plan.repairs(replies):
        repaired = await _replies(engine, replace(request, questions=tuple(again.values())))
        for place, second in zip(again, repaired, strict=True):
            if isinstance(first := replies[place], Reply):
                replies[place] = judges.mended(first, second)
    return plan.read(replies, shown)


async def _replies(engine: Engine, request: EngineRequest) -> list[Reply | Failure]:
    try:
        replies = await engine.ask(request)
        if len(replies) != len(request.questions):
            raise ValueError(f"{len(replies)} replies to {len(request.questions)} questions")
    except Exception as error:  # noqa: BLE001 - an engine is foreign code, and its fault must not lose the checks
        return [Failure(Reason.ENGINE_ERROR, error_message(error))] * len(request.questions)
    return list(replies)


async def score_many(engine: Engine, judge: Judge, items: Iterable[Item]) -> list[list[Verdict]]:
    """``score`` for several completions at once; how many are under way is the engine's to bound."""
    return await asyncio.gather(*(score(engine, judge, *item) for item in items))


def group_fingerprint(rubric: Rubric, judge: Judge, completions: Sequence[Completion]) -> str:
    """The fingerprint of a judge's verdicts on completions that it is shown together, in whatever order."""
    alone = fingerprint_of(rubric, judge)
    return digest(alone, group_digest(completions)) if judge.mode == "comparative" else alone


@lru_cache(maxsize=512)
def fingerprint_of(rubric: Rubric, judge: Judge) -> str:
    """``core.judge.fingerprint`` of this judge's verdicts on this rubric.

    How it is asked and read is told by the text of its template, the version of its mode, and those of the checks.

    Never raises: a judge whose template cannot be read has a fingerprint too, and its verdicts are failures.
    """
    if judge.members:
        told = digest(_VERSION, *(fingerprint_of(rubric, member) for member in judge.members))
        return fingerprint(rubric, judge, told)
    try:
        template_digest = load(judge).digest
    except InvalidError:
        template_digest = ""
    own = judges.own.identity() if any(criterion.custom_prompt for criterion in rubric.criteria) else []
    how = digest(template_digest, judges.MODES[judge.mode].VERSION, checks.versions(rubric), *own)
    return fingerprint(rubric, judge, how)
