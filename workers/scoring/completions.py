"""Score completions: run the checks, ask the judge about the rest, return a verdict for every criterion."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from rubricsvc.core.judge import Judge, Voting
from rubricsvc.core.panel import aggregate, is_confident, resolve_cascade
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.questions import QuestionSet
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.templates import PlaceholderError
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers import checks, judges
from workers.engines.base import Engine, EngineRequest, Failure, Reply, error_message
from workers.engines.panel import member_engines
from workers.judges.template import SharedPrompt
from workers.scoring.claims import score_claims
from workers.scoring.group_scoring import ComparedGroup, GroupComparison
from workers.scoring.questions import group_questions, questions_of
from workers.scoring.trajectories import score_trajectory

_NOTHING: Mapping[str, Verdict] = {}
_CHECKERS = ThreadPoolExecutor(4, "checks")
"""Separate threads, because a slow pattern must not delay the heartbeat in the event loop's threads."""


async def score(
    engine: Engine,
    judge: Judge,
    rubric: Rubric,
    prompt: Prompt,
    completion: Completion,
    *,
    known: Mapping[str, Verdict] = _NOTHING,
) -> list[Verdict]:
    """Return one verdict for each criterion, in the rubric's order; every error is a ``failed`` verdict.

    All judged criteria go to the engine in one request, so that it reads the completion once. ``known`` verdicts, by
    criterion, are returned as they are, and are not asked for again.
    """
    case, questions = _Case(rubric, prompt, completion), questions_of(rubric, judge)
    answered = questions.answered(known)
    new = await _checked(case, answered)
    new += await _judged(engine, judge, case, answered)
    return _named(questions, known, new)


async def score_group(
    engine: Engine,
    judge: Judge,
    rubric: Rubric,
    prompt: Prompt,
    completions: Sequence[Completion],
    *,
    known: Sequence[Mapping[str, Verdict]] | None = None,
) -> list[list[Verdict]]:
    """Return the verdicts on several completions of one prompt, in their order.

    A comparative judge sees them together, and its verdicts are relative to the group. It asks again about a criterion
    unless the verdicts on all completions are ``known``; known verdicts are returned as they are.
    """
    before = known or [_NOTHING] * len(completions)
    if judge.mode != "comparative":
        each = zip(completions, before, strict=True)
        return await asyncio.gather(*(score(engine, judge, rubric, prompt, one, known=had) for one, had in each))
    questions = group_questions(rubric, judge, completions)
    group = ComparedGroup(completions, traces=judge.effective_comparison.traces)
    cases = [_Case(rubric, prompt, completion) for completion in completions]
    checked = await asyncio.gather(
        *(_checked(case, questions.answered(had)) for case, had in zip(cases, before, strict=True))
    )
    answered = questions.answered(frozenset[str]().union(*before).intersection(*before))
    comparing = GroupComparison(judge, rubric, prompt, group, answered, partial(_ask, engine))
    try:
        compared = await comparing.verdicts()
    except InvalidError as error:
        compared = [_unasked(comparing.criteria, error) for _ in completions]
    refused = _unasked([c for c in rubric.criteria if c.asked_alone], _NOT_COMPARED)
    return [
        _named(questions, had, [*of_checks, *of_judge, *refused])
        for had, of_checks, of_judge in zip(before, checked, compared, strict=True)
    ]


def _named(questions: QuestionSet, known: Mapping[str, Verdict], new: Iterable[Verdict]) -> list[Verdict]:
    """Return a verdict for each criterion: the known one, or the one of its question."""
    by_fingerprint: dict[str, Verdict] = {}
    for key, verdict in [*known.items(), *((verdict.criterion, verdict) for verdict in new)]:
        by_fingerprint.setdefault(questions.fingerprints[key], verdict)
    return [known.get(key) or by_fingerprint[name].on(key) for key, name in questions.fingerprints.items()]


_NOT_COMPARED = InvalidError(
    "a criterion with a custom prompt or with each: claim asks about one completion, and is not compared",
    hint="score it with a readout or written judge",
)


async def _checked(case: _Case, answered: frozenset[str]) -> list[Verdict]:
    """Return the verdicts of the checks that are not answered."""
    if all(criterion.check is None or criterion.key in answered for criterion in case.rubric.criteria):
        return []
    run = partial(checks.run, case.rubric, case.prompt, case.completion, answered=answered)
    return await asyncio.get_running_loop().run_in_executor(_CHECKERS, run)  # in a thread: a pattern may take long


@dataclass(frozen=True, slots=True)
class _Case:
    """A completion with its prompt and rubric."""

    rubric: Rubric
    prompt: Prompt
    completion: Completion

    def open(self, answered: frozenset[str]) -> list[Criterion]:
        """Return the criteria that a judge is to decide."""
        return [c for c in self.rubric.criteria if c.check is None and c.key not in answered]


async def _judged(engine: Engine, judge: Judge, case: _Case, answered: frozenset[str]) -> list[Verdict]:
    """Return the verdicts on the open criteria, in their order."""
    criteria = case.open(answered)
    if not criteria:
        return []
    if judge.mode == "panel":
        return await _panel(engine, judge, case, answered)
    if judge.mode == "cascade":
        return await _cascade(engine, judge, case, answered)
    own = [criterion for criterion in criteria if criterion.asked_alone]
    if not own:  # the common case needs no task of its own
        return await _by_template(engine, judge, case, answered, criteria)
    others = [criterion for criterion in criteria if not criterion.asked_alone]
    asked = [_by_template(engine, judge, case, answered, others)] if others else []
    alone = ((_by_claim if criterion.each else _by_custom_prompt)(engine, judge, case, criterion) for criterion in own)
    groups = await asyncio.gather(*asked, *alone)
    verdicts = {verdict.criterion: verdict for group in groups for verdict in group}
    return [verdicts[criterion.key] for criterion in criteria]


async def _by_template(
    engine: Engine, judge: Judge, case: _Case, answered: frozenset[str], criteria: list[Criterion]
) -> list[Verdict]:
    try:
        if judge.mode == "trajectory":
            about = case.rubric, case.prompt, case.completion
            return await score_trajectory(judge, *about, answered=answered, ask=partial(_ask, engine))
        plan = judges.plan(judge, case.rubric, answered)
        return await _ask(engine, plan, plan.template.shared(case.prompt, case.completion))
    except InvalidError as error:
        return _unasked(criteria, error)


async def _by_custom_prompt(engine: Engine, judge: Judge, case: _Case, criterion: Criterion) -> list[Verdict]:
    """Return the verdict on a criterion with a custom prompt, in a request of its own."""
    try:
        plan, shown = judges.custom_prompt_plan(judge, criterion, case.prompt, case.completion)
    except PlaceholderError as error:
        return [Verdict.failed(criterion.key, error.reason, detail=str(error))]
    except InvalidError as error:
        return _unasked([criterion], error)
    return await _ask(engine, plan, shown)


async def _by_claim(engine: Engine, judge: Judge, case: _Case, criterion: Criterion) -> list[Verdict]:
    """Return the verdict on a criterion that is asked about each claim, in requests of their own."""
    try:
        about = judge, criterion, case.prompt, case.completion
        return [await score_claims(*about, ask=partial(_ask, engine))]
    except InvalidError as error:
        return _unasked([criterion], error)


def _unasked(criteria: Iterable[Criterion], error: InvalidError) -> list[Verdict]:
    """Return the failed verdicts of a judge that cannot be asked."""
    detail = f"{error}; {error.hint}"
    return [Verdict.failed(criterion.key, Reason.ENGINE_ERROR, detail=detail) for criterion in criteria]


async def _panel(engine: Engine, judge: Judge, case: _Case, answered: frozenset[str]) -> list[Verdict]:
    """Ask all members at once, and aggregate their verdicts."""
    members = judge.members or ()
    engines = zip(member_engines(engine, len(members)), members, strict=True)
    by_member = await asyncio.gather(*(_judged(each, member, case, answered) for each, member in engines))
    rule, names = (judge.voting or Voting()).rule, [member.name for member in members]
    return [
        aggregate(criterion, dict(zip(names, votes, strict=True)), rule)
        for criterion, votes in zip(case.open(answered), zip(*by_member, strict=True), strict=True)
    ]


async def _cascade(engine: Engine, judge: Judge, case: _Case, answered: frozenset[str]) -> list[Verdict]:
    """Ask the members in turn about what those before left uncertain."""
    members, band = judge.members or (), judge.band or (0.0, 1.0)
    votes: dict[str, dict[str, Verdict]] = {criterion.key: {} for criterion in case.open(answered)}
    for member_engine, member in zip(member_engines(engine, len(members)), members, strict=True):
        verdicts = await _judged(member_engine, member, case, answered)
        for verdict in verdicts:
            votes[verdict.criterion][member.name] = verdict
        answered |= {verdict.criterion for verdict in verdicts if is_confident(verdict, band)}
    return [resolve_cascade(findings) for findings in votes.values()]


async def _ask(engine: Engine, plan: judges.JudgePlan, shown: SharedPrompt) -> list[Verdict]:
    request = plan.request(shown)
    parsed = plan.parse(await _replies(engine, request))
    if repairs := plan.repairs(parsed):
        repaired = await _replies(engine, replace(request, questions=tuple(repairs.values())))
        parsed = plan.with_repairs(parsed, dict(zip(repairs, repaired, strict=True)))
    return plan.verdicts(parsed, shown)


async def _replies(engine: Engine, request: EngineRequest) -> list[Reply | Failure]:
    try:
        replies = await engine.ask(request)
        if len(replies) != len(request.questions):
            raise ValueError(f"{len(replies)} replies to {len(request.questions)} questions")
    except Exception as error:  # noqa: BLE001 - an engine is foreign code, and its fault must not lose the checks
        return [Failure(Reason.ENGINE_ERROR, error_message(error))] * len(request.questions)
    return list(replies)
