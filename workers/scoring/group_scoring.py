"""Completions of one prompt compared with each other: what is shown together, and the verdicts from it.

The order of the completions does not matter: they are shuffled by a hash of the whole group, so that no completion has
a fixed position. Completions with the same text are shown once and get the same value.
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
from rubricsvc.core.untrusted import CleanText, clean, fence_all
from rubricsvc.core.verdict import Verdict
from workers import judges
from workers.judges import comparative
from workers.judges.requests import join_notes
from workers.judges.template import JudgeTemplate, SharedPrompt, inner_judge, load
from workers.scoring.questions import group_digest

_NAME_CHARS = 12
_PAIRS_AT_ONCE = 256
"""Concurrent pairs of one group; each holds the text of its answers, and 100 answers make 10,000 pairs."""


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
    ask: judges.Asker

    @property
    def criteria(self) -> list[Criterion]:
        """The criteria to judge. Those that ask about a single completion are left out."""
        open_ = (c for c in self.rubric.criteria if c.check is None and c.key not in self.answered)
        return [criterion for criterion in open_ if not criterion.asked_alone]

    async def verdicts(self) -> list[list[Verdict]]:
        """Return for each completion one verdict on each open criterion.

        Raises:
            InvalidError: There is only one completion, or the judge's template cannot be used.
        """
        if not self.criteria:
            return [[] for _ in self.group.completions]
        if len(self.group.completions) < 2:
            raise comparative.single_completion()
        if len(self.group.texts) == 1:
            detail = "all completions of the group are the same; the judge was not asked"
            by_place = [[Verdict.scored(criterion.key, 0.5, detail=detail) for criterion in self.criteria]]
        elif self.judge.effective_comparison.kind == "pairwise":
            by_place = await self._pairwise()
        else:
            by_place = await self._groupwise()
        places, counts = self.group.places, self.group.counts
        split = [
            [_share(verdict, places[:number].count(place), counts[place]) for verdict in by_place[place]]
            for number, place in enumerate(places)
        ]
        top = self.judge.effective_comparison.top_n
        return _top_chosen(split, top) if top else split

    async def _pairwise(self) -> list[list[Verdict]]:
        """Return the verdicts of each place: its text against those that it is paired with."""
        paired = pairings(len(self.group.texts), self.judge.effective_comparison.opponents)
        pair, rubric = inner_judge(self.judge), comparative.pair_rubric(self.rubric)
        plan = judges.plan(pair, rubric, self.answered)
        orders = [order for a, b in paired for order in ((a, b), (b, a))]
        limit = asyncio.Semaphore(_PAIRS_AT_ONCE)

        async def compare(order: tuple[int, int]) -> list[Verdict]:
            async with limit:
                return await self.ask(plan, self.group.shown(plan.template, self.prompt, order))

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
            before, after = by_order[place, other][number], by_order[other, place][number]
            orders[other] = _share(before, 0, 2), _reversed(_share(after, 1, 2))
        pairs = {self.group.name(other): _pair(*both) for other, both in orders.items()}
        names = [f"shown {order} {name}" for name in pairs for order in ("before", "after")]
        votes = dict(zip(names, chain.from_iterable(orders.values()), strict=True))
        verdict = aggregate(self.criteria[number], pairs, "mean")
        fields: dict[str, object] = {
            "votes": as_votes(votes),
            "detail": join_notes(_order_disagreement(orders.values()), verdict.detail),
        }
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
        by_part = await asyncio.gather(*(self._part(template, places) for places in divided))
        by_criterion = []
        for number in range(len(self.criteria)):
            scores = [
                dict(zip(places, verdicts[number * len(places) :], strict=False))
                for places, verdicts in zip(divided, by_part, strict=True)
            ]
            by_criterion.append(self._joined(self.criteria[number], scores))
        return [[verdicts[place] for verdicts in by_criterion] for place in range(len(self.group.texts))]

    async def _part(self, template: JudgeTemplate, places: Sequence[int]) -> list[Verdict]:
        """Return a verdict for each place, criterion by criterion."""
        calls = comparative.group_calls(self.criteria, len(places), template)
        plan = judges.JudgePlan(self.judge, comparative, template, calls, Voting())
        return await self.ask(plan, self.group.shown(template, self.prompt, places))

    def _joined(self, criterion: Criterion, parts: Sequence[Mapping[int, Verdict]]) -> dict[int, Verdict]:
        """Return the verdict on one criterion by place, from those of each part."""
        if len(parts) == 1:
            return dict(parts[0])
        scored = [{place: v.value for place, v in part.items() if v.value is not None} for part in parts]
        values = align_scores([part for part in scored if part])
        verdicts = {}
        for place in sorted({place for part in parts for place in part}):
            votes = {f"part {number}": part[place] for number, part in enumerate(parts, start=1) if place in part}
            verdict = aggregate(criterion, votes, "mean")
            fields = {"value": values[place]} if verdict.outcome == "scored" else {}
            verdicts[place] = verdict.model_copy(update=fields)
        return verdicts


def _top_chosen(by_completion: list[list[Verdict]], n: int) -> list[list[Verdict]]:
    """Set each value to 1 if the completion is among the best ``n`` on the criterion, else to 0."""
    rows = [list(verdicts) for verdicts in by_completion]
    for number in range(len(rows[0])):
        scored = {place: row[number].value for place, row in enumerate(rows)}
        for place, value in top_n({place: v for place, v in scored.items() if v is not None}, n).items():
            verdict = rows[place][number]
            detail = join_notes(f"scored {verdict.value:g}", verdict.detail)
            rows[place][number] = verdict.model_copy(update={"value": value, "detail": detail})
    return rows


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


def _order_disagreement(pairs: Iterable[tuple[Verdict, Verdict]]) -> str:
    """Return in how many pairs the two orders have different winners."""
    values = [(first.value, second.value) for first, second in pairs]
    known = [(first, second) for first, second in values if first is not None and second is not None]
    disagreeing = sum(orders_disagree(*pair) for pair in known)
    return f"the two orders disagree in {disagreeing} of {len(known)} pairs" if disagreeing else ""


def _reversed(verdict: Verdict) -> Verdict:
    """Return the verdict from the view of the answer that was shown second."""
    fields = {"value": verdict.value, "probability": verdict.probability}
    return verdict.model_copy(update={name: 1 - value for name, value in fields.items() if value is not None})


def _share(verdict: Verdict, place: int, among: int) -> Verdict:
    """Return the verdict with the share of its usage that has this place."""
    return verdict.model_copy(update={"usage": verdict.usage and verdict.usage.split(among)[place]})
