"""Score completions: run the checks, ask the judge about the rest, return a verdict for every criterion.

A comparative judge sees the completions of a prompt together. Their order does not matter: they are shuffled by a hash
of the whole group, so that none has a fixed position. Those with the same text are shown once and get the same value.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import fmean, pstdev

from rubricsvc.core.fingerprint import QuestionSet, digest
from rubricsvc.core.judge import Judge, Voting
from rubricsvc.core.panel import (
    aggregate,
    align_scores,
    as_votes,
    is_confident,
    mean_known,
    orders_disagree,
    overlapping_parts,
    pairings,
    resolve_cascade,
    top_n,
    total_usage,
    win_rate,
)
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.templates import PlaceholderError
from rubricsvc.core.untrusted import CleanText, clean, fence_all
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers import checks, judges
from workers.engines.base import Engine, member_engines
from workers.judges import comparative
from workers.judges.calls import join_notes
from workers.judges.template import JudgeTemplate, SharedPrompt, inner_judge, load
from workers.scoring.parts import score_claims, score_trajectory
from workers.scoring.questions import group_digest, group_questions, questions_of

_NOTHING: Mapping[str, Verdict] = {}
_NAME_CHARS = 12
_PAIRS_AT_ONCE = 256
"""Concurrent pairs of one group; each holds the text of its answers, and 100 answers make 10,000 pairs."""

_CHECKERS = ThreadPoolExecutor(4, "checks")
"""Separate threads, because a slow pattern must not delay the heartbeat in the event loop's threads."""

_NOT_COMPARED = InvalidError(
    "a criterion with a custom prompt or with each: claim asks about one completion, and is not compared",
    hint="score it with a readout or written judge",
)


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
    new = await case.checked(answered)
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
        *(case.checked(questions.answered(had)) for case, had in zip(cases, before, strict=True))
    )
    answered = questions.answered(frozenset[str]().union(*before).intersection(*before))
    comparing = GroupComparison(judge, rubric, prompt, group, answered, engine)
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
    return [
        known.get(key) or by_fingerprint[name].model_copy(update={"criterion": key})
        for key, name in questions.fingerprints.items()
    ]


@dataclass(frozen=True, slots=True)
class _Case:
    """A completion with its prompt and rubric."""

    rubric: Rubric
    prompt: Prompt
    completion: Completion

    def open(self, answered: frozenset[str]) -> list[Criterion]:
        """Return the criteria that a judge is to decide."""
        return [c for c in self.rubric.criteria if c.check is None and c.key not in answered]

    async def checked(self, answered: frozenset[str]) -> list[Verdict]:
        """Return the verdicts of the checks that are not answered."""
        if all(criterion.check is None or criterion.key in answered for criterion in self.rubric.criteria):
            return []
        run = partial(checks.run, self.rubric, self.prompt, self.completion, answered=answered)
        return await asyncio.get_running_loop().run_in_executor(_CHECKERS, run)


async def _judged(engine: Engine, judge: Judge, case: _Case, answered: frozenset[str]) -> list[Verdict]:
    """Return the verdicts on the open criteria, in their order."""
    criteria = case.open(answered)
    if not criteria:
        return []
    if judge.members:
        return await _by_members(engine, judge, judge.members, case, answered)
    rubric, prompt, completion = case.rubric, case.prompt, case.completion

    async def together(asked: list[Criterion]) -> list[Verdict]:
        try:
            if judge.mode == "trajectory":
                return await score_trajectory(judge, rubric, prompt, completion, answered=answered, engine=engine)
            plan = judges.plan(judge, rubric, answered)
            return await plan.ask(engine, plan.template.shared(prompt, completion))
        except InvalidError as error:
            return _unasked(asked, error)

    async def alone(criterion: Criterion) -> list[Verdict]:
        """Ask about a criterion with a custom prompt, or about each claim, in requests of their own."""
        try:
            if criterion.each:
                return [await score_claims(judge, criterion, prompt, completion, engine=engine)]
            plan, shown = judges.custom_prompt_plan(judge, criterion, prompt, completion)
            return await plan.ask(engine, shown)
        except PlaceholderError as error:
            return [Verdict.failed(criterion.key, error.reason, detail=str(error))]
        except InvalidError as error:
            return _unasked([criterion], error)

    own = [criterion for criterion in criteria if criterion.asked_alone]
    if not own:  # the common case needs no task of its own
        return await together(criteria)
    others = [criterion for criterion in criteria if not criterion.asked_alone]
    groups = await asyncio.gather(*([together(others)] if others else []), *map(alone, own))
    verdicts = {verdict.criterion: verdict for group in groups for verdict in group}
    return [verdicts[criterion.key] for criterion in criteria]


def _unasked(criteria: Iterable[Criterion], error: InvalidError) -> list[Verdict]:
    """Return the failed verdicts of a judge that cannot be asked."""
    detail = f"{error}; {error.hint}"
    return [Verdict.failed(criterion.key, Reason.ENGINE_ERROR, detail=detail) for criterion in criteria]


async def _by_members(
    engine: Engine, judge: Judge, members: Sequence[Judge], case: _Case, answered: frozenset[str]
) -> list[Verdict]:
    """Ask the members of a panel at once; those of a cascade in turn, about what those before left uncertain."""
    criteria, engines = case.open(answered), member_engines(engine, len(members))
    votes: dict[str, dict[str, Verdict]] = {criterion.key: {} for criterion in criteria}
    if judge.mode == "panel":
        asked = (_judged(each, member, case, answered) for each, member in zip(engines, members, strict=True))
        for member, verdicts in zip(members, await asyncio.gather(*asked), strict=True):
            for verdict in verdicts:
                votes[verdict.criterion][member.name] = verdict
        rule = (judge.voting or Voting()).rule
        return [aggregate(criterion, votes[criterion.key], rule) for criterion in criteria]
    for member_engine, member in zip(engines, members, strict=True):
        for verdict in await _judged(member_engine, member, case, answered):
            votes[verdict.criterion][member.name] = verdict
            if is_confident(verdict, judge.band or (0.0, 1.0)):
                answered |= {verdict.criterion}
    return [resolve_cascade(given) for given in votes.values()]


class ComparedGroup:
    """The completions of one prompt that are compared; with ``traces`` by their whole trajectories."""

    def __init__(self, completions: Sequence[Completion], *, traces: bool = False) -> None:
        self.completions = tuple(completions)
        cleaned = [clean(completion.full_text if traces else completion.text) for completion in completions]
        seed = group_digest(completions)
        order = {text: digest(seed, text.text) for text in cleaned}
        self.texts = sorted(order, key=lambda text: order[text])
        """The distinct texts, shuffled; a place is an index into them."""
        self.places = [self.texts.index(text) for text in cleaned]
        """The place of each completion's text."""
        self.counts = Counter(self.places)

    def name(self, place: int) -> str:
        """Return a name for a text: the digest of a completion that has it."""
        mine = zip(self.places, self.completions, strict=True)
        return min(completion.digest for own, completion in mine if own == place)[:_NAME_CHARS]

    def shown(self, template: JudgeTemplate, prompt: Prompt, places: Sequence[int]) -> SharedPrompt:
        """Return the prompt with these texts, each under a letter and in a fence of its own."""
        texts = [self.texts[place] for place in places]
        fenced = fence_all("answer", [text.text for text in texts])
        entries, notes = [], []
        for letter, text, mark in zip(comparative.LETTERS, texts, fenced, strict=False):
            entries.append(template.fill("entry", {"id": letter, "completion": template.mark_empty(mark, text.text)}))
            notes.append(f"answer {letter}: {text.note}" if text.note else "")
        together = "\n\n".join(text.text for text in texts)
        return template.render(prompt, CleanText("\n\n".join(entries), join_notes(*notes) or ""), together, together)


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """The comparison of one group under one rubric; ``answered`` criteria are not asked about."""

    judge: Judge
    rubric: Rubric
    prompt: Prompt
    group: ComparedGroup
    answered: frozenset[str]
    engine: Engine

    @property
    def criteria(self) -> list[Criterion]:
        """The criteria to judge. Those that ask about a single completion are left out."""
        open_ = (c for c in self.rubric.criteria if c.check is None and c.key not in self.answered)
        return [criterion for criterion in open_ if not criterion.asked_alone]

    async def verdicts(self) -> list[list[Verdict]]:
        """Return for each completion one verdict on each open criterion."""
        options, places, counts = self.judge.effective_comparison, self.group.places, self.group.counts
        if not self.criteria:
            return [[] for _ in places]
        if len(places) < 2:
            raise comparative.single_completion()
        if len(self.group.texts) == 1:
            detail = "all completions of the group are the same; the judge was not asked"
            by_place = [[Verdict.scored(criterion.key, 0.5, detail=detail) for criterion in self.criteria]]
        else:
            by_place = await (self._pairwise() if options.kind == "pairwise" else self._groupwise())
        rows = [
            [_share(verdict, places[:number].count(place), counts[place]) for verdict in by_place[place]]
            for number, place in enumerate(places)
        ]
        for number in range(len(rows[0]) if options.top_n else 0):  # the best n have the value 1, the others 0
            scored = {place: value for place, row in enumerate(rows) if (value := row[number].value) is not None}
            for place, value in top_n(scored, options.top_n or 0).items():
                verdict = rows[place][number]
                detail = join_notes(f"scored {verdict.value:g}", verdict.detail) or ""
                rows[place][number] = verdict.model_copy(update={"value": value, "detail": detail})
        return rows

    async def _pairwise(self) -> list[list[Verdict]]:
        """Return the verdicts of each place: its text against those that it is paired with."""
        paired = pairings(len(self.group.texts), self.judge.effective_comparison.opponents)
        pair, rubric = inner_judge(self.judge), comparative.pair_rubric(self.rubric)
        plan = judges.plan(pair, rubric, self.answered)
        orders = [order for a, b in paired for order in ((a, b), (b, a))]
        limit = asyncio.Semaphore(_PAIRS_AT_ONCE)

        async def compare(order: tuple[int, int]) -> list[Verdict]:
            async with limit:
                return await plan.ask(self.engine, self.group.shown(plan.template, self.prompt, order))

        by_order = dict(zip(orders, await asyncio.gather(*map(compare, orders)), strict=True))
        return [
            [self._pairwise_verdict(place, number, by_order) for number in range(len(self.criteria))]
            for place in range(len(self.group.texts))
        ]

    def _pairwise_verdict(self, place: int, number: int, by_order: Mapping[tuple[int, int], list[Verdict]]) -> Verdict:
        """Return the verdict on one text and criterion from all its pairs.

        A pair counts if both its orders are scored; the verdict is scored if at least half of the pairs count.
        """
        orders = {}
        for other in sorted(second for first, second in by_order if first == place):
            before = _share(by_order[place, other][number], 0, 2)
            after = _share(by_order[other, place][number], 1, 2)  # the text was shown second
            seen = {"value": after.value, "probability": after.probability}
            turned = {name: 1 - value for name, value in seen.items() if value is not None}
            orders[other] = before, after.model_copy(update=turned)
        pairs = {self.group.name(other): _pair(*both) for other, both in orders.items()}
        names = [f"shown {order} {name}" for name in pairs for order in ("before", "after")]
        votes = dict(zip(names, chain.from_iterable(orders.values()), strict=True))
        verdict = aggregate(self.criteria[number], pairs, "mean")
        both_scored = [(a.value, b.value) for a, b in orders.values() if a.value is not None and b.value is not None]
        disagreeing = sum(orders_disagree(a, b) for a, b in both_scored)
        note = f"the two orders disagree in {disagreeing} of {len(both_scored)} pairs" if disagreeing else ""
        fields: dict[str, object] = {"votes": as_votes(votes), "detail": join_notes(note, verdict.detail)}
        if verdict.outcome == "scored":
            weighted = zip(pairs.values(), (self.group.counts[other] for other in orders), strict=True)
            counted = [(pair.value, count) for pair, count in weighted if pair.value is not None]
            fields["value"] = win_rate(counted, self.group.counts[place] - 1)
            fields["spread"] = pstdev(vote.value for vote in votes.values() if vote.value is not None)
        return verdict.model_copy(update=fields)

    async def _groupwise(self) -> list[list[Verdict]]:
        """Return the verdicts of each place: all texts at once, or in parts that share some."""
        template, size = load(self.judge), self.judge.effective_comparison.group_size
        divided = overlapping_parts(len(self.group.texts), size)

        async def part(places: Sequence[int]) -> list[Verdict]:
            """Return a verdict for each place, criterion by criterion."""
            calls = comparative.group_calls(self.criteria, len(places), template)
            plan = judges.JudgePlan(self.judge, comparative, template, calls, Voting())
            return await plan.ask(self.engine, self.group.shown(template, self.prompt, places))

        by_part = await asyncio.gather(*map(part, divided))
        by_criterion = []
        for number, criterion in enumerate(self.criteria):
            parts = [
                dict(zip(places, verdicts[number * len(places) :], strict=False))
                for places, verdicts in zip(divided, by_part, strict=True)
            ]
            by_criterion.append(parts[0] if len(parts) == 1 else _joined(criterion, parts))
        return [[verdicts[place] for verdicts in by_criterion] for place in range(len(self.group.texts))]


def _joined(criterion: Criterion, parts: Sequence[Mapping[int, Verdict]]) -> dict[int, Verdict]:
    """Return the verdict on one criterion by place, from those of each part."""
    scored = [{place: v.value for place, v in part.items() if v.value is not None} for part in parts]
    values = align_scores([part for part in scored if part])
    verdicts = {}
    for place in sorted({place for part in parts for place in part}):
        votes = {f"part {number}": part[place] for number, part in enumerate(parts, start=1) if place in part}
        verdict = aggregate(criterion, votes, "mean")
        fields = {"value": values[place]} if verdict.outcome == "scored" else {}
        verdicts[place] = verdict.model_copy(update=fields)
    return verdicts


def _pair(first: Verdict, second: Verdict) -> Verdict:
    """Return both orders of a pair as one verdict, scored if both are."""
    values = [verdict.value for verdict in (first, second) if verdict.value is not None]
    known = [verdict.latency_s for verdict in (first, second) if verdict.latency_s is not None]
    common = {
        "usage": total_usage((first.usage, second.usage)),
        "latency_s": max(known, default=None),
        "answer_mass": mean_known((first.answer_mass, second.answer_mass)),
    }
    if len(values) == 2:
        detail = "; ".join(dict.fromkeys(verdict.detail for verdict in (first, second) if verdict.detail)) or None
        return Verdict.scored(first.criterion, fmean(values), detail=detail, **common)
    unscored = [verdict for verdict in (first, second) if verdict.value is None]
    return min(unscored, key=lambda verdict: verdict.outcome != "failed").model_copy(update=common)


def _share(verdict: Verdict, place: int, among: int) -> Verdict:
    """Return the verdict with the share of its usage that has this place."""
    return verdict.model_copy(update={"usage": verdict.usage and verdict.usage.split(among)[place]})
