"""Completions of one prompt judged side by side: what is shown together, and the verdicts that come of it.

Nothing depends on the order in which completions are given: they are shuffled by a hash that is seeded with the whole
group, so that no place is anybody's. Completions with the same text are shown once, and get the same value.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, pstdev

from rubricsvc.core.comparison import align_scores, orders_disagree, overlapping_parts, pairings, top_n, win_rate
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge, Voting
from rubricsvc.core.panel import aggregate, as_votes, mean_known, total_usage
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from workers import judges
from workers.judges import comparative
from workers.judges.requests import join_notes
from workers.judges.template import JudgeTemplate, SharedPrompt, load
from workers.judges.untrusted import CleanText, clean, fence_all
from workers.scoring.questions import group_digest

_NAME_CHARS = 12
_PAIRS_AT_ONCE = 256
"""Of one group: each holds the text of its answers, and a hundred answers make ten thousand pairs."""


class Group:
    """The completions of one prompt that are judged side by side; with ``traces`` by all that they did."""

    def __init__(self, completions: Sequence[Completion], *, traces: bool = False) -> None:
        self.completions = tuple(completions)
        cleaned = [clean(completion.full_text if traces else completion.text) for completion in completions]
        seed = group_digest(completions)
        order = {text: digest(seed, text.text) for text in cleaned}
        self.texts = sorted(order, key=lambda text: order[text])
        """The distinct texts, shuffled."""
        self.places = [self.texts.index(text) for text in cleaned]
        """For each completion, which of the texts is its own."""
        self.counts = Counter(self.places)

    def name(self, place: int) -> str:
        """A text, by the digest of a completion that has it."""
        mine = zip(self.places, self.completions, strict=True)
        return min(completion.digest for own, completion in mine if own == place)[:_NAME_CHARS]

    def shown(self, template: JudgeTemplate, prompt: Prompt, places: Sequence[int]) -> SharedPrompt:
        """The task and these texts side by side, under letters and in fences of their own."""
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
    """One group under one rubric. ``answered`` criteria are not asked about."""

    judge: Judge
    rubric: Rubric
    prompt: Prompt
    group: Group
    answered: frozenset[str]
    ask: judges.Asker

    @property
    def criteria(self) -> list[Criterion]:
        """Those to be found on; one that brings its own question asks about one completion, and is not."""
        open_ = (c for c in self.rubric.criteria if c.check is None and c.key not in self.answered)
        return [criterion for criterion in open_ if criterion.custom_prompt is None]

    async def verdicts(self) -> list[list[Verdict]]:
        """For each completion one verdict on each open criterion.

        Raises:
            InvalidError: there is only one completion, or the judge's template cannot be used.
        """
        if not self.criteria:
            return [[] for _ in self.group.completions]
        if len(self.group.completions) < 2:
            comparative.build_call((), load(self.judge))
        if len(self.group.texts) == 1:
            found = [[self._tie(criterion) for criterion in self.criteria]]
        elif self.judge.effective_comparison.kind == "pairwise":
            found = await self._pairwise()
        else:
            found = await self._groupwise()
        split = [[_split(verdict, self.group.counts[place]) for verdict in found[place]] for place in self.group.places]
        return _chosen(split, self.judge.effective_comparison.top_n) if self.judge.effective_comparison.top_n else split

    def _tie(self, criterion: Criterion) -> Verdict:
        why = "all completions of the group are the same; the judge was not asked"
        return Verdict.scored(criterion.key, 0.5, detail=why)

    async def _pairwise(self) -> list[list[Verdict]]:
        """By place: each text against those that it meets."""
        met = pairings(len(self.group.texts), self.judge.effective_comparison.opponents)
        pair, rubric = comparative.pair_judge(self.judge), comparative.pair_rubric(self.rubric)
        plan = judges.plan(pair, rubric, self.answered)
        orders = [order for a, b in met for order in ((a, b), (b, a))]
        gate = asyncio.Semaphore(_PAIRS_AT_ONCE)

        async def meet(order: tuple[int, int]) -> list[Verdict]:
            async with gate:
                return await self.ask(plan, self.group.shown(plan.template, self.prompt, order))

        found = dict(zip(orders, await asyncio.gather(*map(meet, orders)), strict=True))
        return [
            [self._stands(place, number, found) for number in range(len(self.criteria))]
            for place in range(len(self.group.texts))
        ]

    def _stands(self, place: int, number: int, found: Mapping[tuple[int, int], list[Verdict]]) -> Verdict:
        """What one text is worth on one criterion, after all its pairs.

        A pair counts where both its orders are scored; the verdict is scored where at least half of the pairs count.
        """
        orders = {
            other: (_halved(found[place, other][number]), _turned(_halved(found[other, place][number])))
            for other in sorted(second for first, second in found if first == place)
        }
        pairs = {self.group.name(other): _pair(*both) for other, both in orders.items()}
        votes = dict(zip(_orders(pairs), chain.from_iterable(orders.values()), strict=True))
        verdict = aggregate(self.criteria[number], pairs, "mean")
        told: dict[str, object] = {
            "votes": as_votes(votes),
            "detail": join_notes(_order_disagreement(orders.values()), verdict.detail),
        }
        if verdict.outcome == "scored":
            met = zip(pairs.values(), (self.group.counts[other] for other in orders), strict=True)
            counted = [(pair.value, count) for pair, count in met if pair.value is not None]
            told["value"] = win_rate(counted, self.group.counts[place] - 1)
            told["spread"] = pstdev(vote.value for vote in votes.values() if vote.value is not None)
        return verdict.model_copy(update=told)

    async def _groupwise(self) -> list[list[Verdict]]:
        """By place: all texts at once, or in parts that share some."""
        template, size = load(self.judge), self.judge.effective_comparison.group_size
        divided = overlapping_parts(len(self.group.texts), size)
        asked = (self._part(template, places) for places in divided)
        found = await asyncio.gather(*asked)
        by_criterion = []
        for number in range(len(self.criteria)):
            scores = [
                dict(zip(places, verdicts[number * len(places) :], strict=False))
                for places, verdicts in zip(divided, found, strict=True)
            ]
            by_criterion.append(self._joined(self.criteria[number], scores))
        return [[verdicts[place] for verdicts in by_criterion] for place in range(len(self.group.texts))]

    async def _part(self, template: JudgeTemplate, places: Sequence[int]) -> list[Verdict]:
        """Criterion by criterion, a verdict for each place."""
        calls = comparative.group_calls(self.criteria, len(places), template)
        plan = judges.JudgePlan(self.judge, template, calls, Voting())
        return await self.ask(plan, self.group.shown(template, self.prompt, places))

    def _joined(self, criterion: Criterion, found: Sequence[Mapping[int, Verdict]]) -> dict[int, Verdict]:
        """By place the verdict on one criterion; ``found`` has those of each part."""
        if len(found) == 1:
            return dict(found[0])
        scored = [{place: v.value for place, v in part.items() if v.value is not None} for part in found]
        values = align_scores([part for part in scored if part])
        verdicts = {}
        for place in sorted({place for part in found for place in part}):
            votes = {f"part {number}": part[place] for number, part in enumerate(found, start=1) if place in part}
            verdict = aggregate(criterion, votes, "mean")
            told = {"value": values[place]} if verdict.outcome == "scored" else {}
            verdicts[place] = verdict.model_copy(update=told)
        return verdicts


def _chosen(found: list[list[Verdict]], n: int) -> list[list[Verdict]]:
    """The same with 1 on the criteria where a completion is among the best ``n``, and 0 on the others."""
    columns = [_best(verdicts, n) for verdicts in zip(*found, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def _best(verdicts: Sequence[Verdict], n: int) -> list[Verdict]:
    """All completions on one criterion. The best are chosen from those that have a score."""
    best = top_n({place: verdict.value for place, verdict in enumerate(verdicts) if verdict.value is not None}, n)
    return [
        verdict.model_copy(
            update={"value": best[place], "detail": join_notes(f"scored {verdict.value:g}", verdict.detail)}
        )
        if place in best
        else verdict
        for place, verdict in enumerate(verdicts)
    ]


def _pair(first: Verdict, second: Verdict) -> Verdict:
    """Both orders of a pair as one verdict: scored where both are."""
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
    lost = [verdict for verdict in (first, second) if verdict.value is None]
    return min(lost, key=lambda verdict: verdict.outcome != "failed").model_copy(update=common)


def _orders(names: Iterable[str]) -> list[str]:
    """What the votes of each pair are called."""
    return [f"shown {order} {name}" for name in names for order in ("before", "after")]


def _order_disagreement(pairs: Iterable[tuple[Verdict, Verdict]]) -> str:
    """In how many pairs the two orders name different winners."""
    values = [(first.value, second.value) for first, second in pairs]
    known = [(first, second) for first, second in values if first is not None and second is not None]
    disagreeing = sum(orders_disagree(*pair) for pair in known)
    return f"the two orders disagree in {disagreeing} of {len(known)} pairs" if disagreeing else ""


def _turned(verdict: Verdict) -> Verdict:
    """The verdict as it is worth to the answer that was shown second."""
    worth = {"value": verdict.value, "probability": verdict.probability}
    return verdict.model_copy(update={name: 1 - value for name, value in worth.items() if value is not None})


def _halved(verdict: Verdict) -> Verdict:
    """One answer's part of what a pair's question cost."""
    return _split(verdict, 2)


def _split(verdict: Verdict, among: int) -> Verdict:
    """One's part of a verdict's cost."""
    return (
        verdict.model_copy(update={"usage": verdict.usage and verdict.usage.divided(among)}) if among > 1 else verdict
    )
