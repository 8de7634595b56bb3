"""Score completions: run the checks, ask the judge about the rest, return a verdict for every criterion.

A comparative judge sees the completions of a prompt together. Their order does not matter: they are shuffled by a hash
of the whole group, so that none has a fixed position. Those with the same text are shown once and get the same value.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from itertools import chain
from statistics import fmean, pstdev
from typing import Any

from rubricsvc.core.estimate import mean_known
from rubricsvc.core.fingerprint import QuestionSet, digest
from rubricsvc.core.judge import Judge, Voting, family, orders_disagree
from rubricsvc.core.prompt import Completion, Prompt, Step, steps_of
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.templates import PlaceholderError
from rubricsvc.core.untrusted import CleanText, clean
from rubricsvc.core.verdict import Evidence, Reason, Verdict, total_usage
from rubricsvc.errors import InvalidError
from workers import checks, judges
from workers.checks.citations import PART_SEPARATOR, cited_ids, sources
from workers.checks.markdown import BRACKETS, paragraphs, plain, sentences
from workers.engines.base import Engine, PanelEngine
from workers.judges import comparative, custom_prompt, trajectory
from workers.judges.calls import JudgeTemplate, SharedPrompt, composition, fence_all, inner_judge, join_notes, load
from workers.judges.voting import aggregate, as_votes
from workers.reasoning import REASONING_MARKS, as_judged
from workers.repetitions import WORD, is_long, repetitions, words_of

_VERSION = "5"
"""Raise it when the same votes of a panel or a cascade would make another verdict."""
_ANSWER_VERSION = "3"
"""Raise it when the same completion would be shown with another part of it hidden."""


@lru_cache(maxsize=4096)
def questions_of(rubric: Rubric, judge: Judge, group: str = "") -> QuestionSet:
    """Return the questions of a judge under a rubric; ``group`` is the digest of the group that is compared.

    Never raises: a judge whose template cannot be read has questions too, and its verdicts are failures.
    """
    names: dict[str, str] = {}
    for criterion in rubric.criteria:
        if (check := criterion.check) is not None:
            known = checks.CHECKS.get(check.name)
            names[criterion.key] = digest("check", check.name, known and known.version, check.args)
    if judge.members:
        rule: Any = judge.band if judge.mode == "cascade" else (judge.voting or Voting()).rule
        votes = [questions_of(rubric, member, group).fingerprints for member in judge.members]
        asked = {key: digest(judge.mode, _VERSION, rule, [by_key[key] for by_key in votes]) for key in rubric.by_key}
        return QuestionSet(asked | names)
    try:
        template = load(judge).digest
    except InvalidError:
        template = ""
    curves = judge.calibration.families if judge.calibration else {}
    seen: dict[str, list[Any]] = {}
    for criterion in rubric.criteria:  # with the family whose curve calibrates its probability, if any
        curve = name if (name := family(criterion)) in curves else None
        seen[criterion.key] = [criterion.text, criterion.scale, criterion.reference, criterion.passages, curve]
    version = judges.MODES[judge.mode].VERSION
    how = [judge.digest, template, version, group]
    for criteria in composition(judge, rubric):
        call = [seen[criterion.key] for criterion in criteria]
        for place, criterion in enumerate(criteria):
            names[criterion.key] = digest("judge", *how, call, place)
    for criterion in rubric.criteria:
        if (prompt := criterion.custom_prompt) is not None:
            shown = prompt.model_copy(update={"model": None})  # which model a grader names decides nothing
            about = [shown, criterion.scale, seen[criterion.key][-1]]
            sent = custom_prompt.VERSION, custom_prompt.endings()[1]
            names[criterion.key] = digest("custom", judge.digest, version, *sent, *about)
        elif criterion.each:
            names[criterion.key] = digest("claims", CLAIMS_VERSION, *how, seen[criterion.key])
    return QuestionSet({key: names[key] for key in rubric.by_key})


def group_questions(rubric: Rubric, judge: Judge, completions: Sequence[Completion]) -> QuestionSet:
    """Return the questions about completions that are given together, in any order.

    They are others where reasoning is hidden or added, since the judge sees another text then.
    """
    comparative = judge.mode == "comparative"
    group = digest(sorted(completion.digest for completion in completions)) if comparative else ""
    questions = questions_of(rubric, judge, group)
    if all(as_judged(one, rubric.reasoning_marks) is one for one in completions):
        return questions
    marks = REASONING_MARKS if rubric.reasoning_marks is None else rubric.reasoning_marks
    how = digest("answer", _ANSWER_VERSION, marks)
    return QuestionSet({key: digest(how, name) for key, name in questions.fingerprints.items()})


CLAIMS_VERSION = "1"
"""Part of the questions' fingerprint. Raise it when the same completion would have other claims or passages."""
MAX_CLAIMS = 24
"""Of more, so many are chosen by the hash of their text, which a writer cannot aim at."""
_LEAST_WORDS = 5
_PASSAGE_WORDS = 120


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence without its citations, and one passage for each document that it cites; ``unknown`` are other ids."""

    text: str
    passages: tuple[str, ...]
    unknown: tuple[str, ...] = ()


def claims(prompt: Prompt, completion: Completion) -> list[Claim]:
    """Return the sentences of at least five words that cite something, in order."""
    known = sources(prompt, completion)
    citing: list[tuple[str, set[str]]] = []
    for sentence in (one for paragraph in paragraphs(completion.text) for one in sentences(paragraph)):
        cited, bare = cited_ids(sentence, known), " ".join(BRACKETS.sub(" ", sentence).split())
        if cited and len(words_of(bare)) >= _LEAST_WORDS:
            citing.append((bare, cited))
    ranked = sorted(range(len(citing)), key=lambda place: sha256(citing[place][0].encode()).digest())
    # passages are looked for last: a hostile completion has any number of sentences, and documents may be long
    return [
        Claim(
            text,
            tuple(nearest_passage(known[name], text) for name in sorted(cited & known.keys())),
            tuple(sorted(cited - known.keys())),
        )
        for text, cited in (citing[place] for place in sorted(ranked[:MAX_CLAIMS]))
    ]


def nearest_passage(text: str, claim: str) -> str:
    """Return the `_PASSAGE_WORDS` words in a row, of one part of a document, that share most words with a claim.

    Each different word counts once. Windows begin at each quarter of their size; the first of equal ones is taken.
    """
    wanted, size = _long_words(claim), _PASSAGE_WORDS
    windows = []
    for part in text.split(PART_SEPARATOR):
        words = part.split()
        starts = range(0, max(1, len(words) - size + size // 4), size // 4)
        windows += [" ".join(words[start : start + size]) for start in starts]
    return max(windows, key=lambda window: len(wanted & set(WORD.findall(plain(window)))))


def nearest_sentences(passage: str, claim: str, count: int = 3) -> str:
    """Return the ``count`` sentences that share most words with a claim, in the passage's order."""
    wanted, parts = _long_words(claim), list(sentences(passage))
    nearest = sorted(parts, key=lambda part: -len(wanted & _long_words(part)))[:count]
    return " ".join(part.strip() for part in parts if part in nearest)


def _long_words(text: str) -> set[str]:
    return set(filter(is_long, WORD.findall(plain(text))))


async def score_claims(
    judge: Judge, criterion: Criterion, prompt: Prompt, completion: Completion, *, engine: Engine
) -> Verdict:
    """Return the verdict whose votes are those on the claims, with their mean as its value; 0 without a claim.

    A claim that cites anything but the documents that were given or opened has the value 0, and nothing is asked. One
    claim that fails makes the verdict fail: claims are parts of a completion, and not repeated measurements.
    """
    inner, template = inner_judge(judge), load(judge)

    async def vote(claim: Claim) -> Verdict:
        if claim.unknown:
            detail = f"cites {', '.join(claim.unknown)[:100]}, which was neither given nor opened"
            return Verdict.scored(criterion.key, 0.0, detail=detail)
        text, shown = clean(claim.text), claim.text
        asked: dict[str, Any] = {"each": None, "passages": claim.passages}
        if "claim" in template.texts:  # a small judge finds a statement in a text: the evidence stands as the answer
            fenced = template.fenced("claim", re.sub(r" (?=[.,;:!?])", "", text.text)).replace("\n", "")
            asked = {"each": None, "text": template.fill("claim", {"criterion": criterion.text, "claim": fenced})}
            shown = "\n\n".join(nearest_sentences(passage, claim.text) for passage in claim.passages)
        plan = judges.plan(inner, Rubric(criteria=(criterion.model_copy(update=asked),)))
        question = prompt.model_copy(update={"documents": ()})  # the passage alone is what the claim must follow from
        (verdict,) = await plan.ask(engine, template.shared(question, shown))
        note = text.note if "text" in asked else ""
        return verdict.model_copy(update={"detail": join_notes(note, verdict.detail)}) if note else verdict

    votes = await asyncio.gather(*map(vote, claims(prompt, completion)))
    if not votes:
        return Verdict.scored(criterion.key, 0.0, detail="no sentence cites a document")
    whole = aggregate(criterion, {f"claim {n}": vote for n, vote in enumerate(votes, start=1)}, "mean")
    failed = [vote for vote in votes if vote.outcome == "failed"]
    if not failed or whole.outcome == "failed":
        return whole
    detail = f"{len(failed)} of {len(votes)} claims: {failed[0].detail or failed[0].reason}"
    kept = {"votes": whole.votes, "usage": whole.usage, "latency_s": whole.latency_s}
    return Verdict.failed(criterion.key, failed[0].reason or Reason.ENGINE_ERROR, detail=detail, **kept)


_MAX_CHARS = 500


async def score_trajectory(
    judge: Judge, rubric: Rubric, prompt: Prompt, completion: Completion, *, answered: frozenset[str], engine: Engine
) -> list[Verdict]:
    """Return a verdict on each open criterion, whose votes are the verdicts on the steps.

    The steps are asked about in order, so that a prefix cache holds the trajectory so far. After a step that is too
    long, no further step is asked about. Where the verdict is that on the last segment, it alone is asked about.
    """
    plan = judges.plan(inner_judge(judge), rubric, answered)
    steps = steps_of(completion)
    by_step, last = dict[str, list[Verdict]](), list[Verdict]()
    size, segments = judge.effective_trajectory.segment, dict[str, list[Step]]()
    for start in range(0, len(steps), size):
        end = min(start + size, len(steps))
        segments[f"step {end}" if end == start + 1 else f"steps {start + 1} to {end}"] = steps[start:end]
    *names, final = segments
    asked = {final} if judge.effective_trajectory.value == "last" else {*names, final}
    for name, shown in trajectory.prompts(plan.template, prompt, segments):
        if name in asked:
            if not last or any(verdict.reason != Reason.TOO_LONG for verdict in last):
                last = await plan.ask(engine, shown)
            by_step[name] = last
    rule, repetition = judge.effective_trajectory.value, repetitions(steps).text[:_MAX_CHARS]
    whole = []
    for number, key in enumerate(verdict.criterion for verdict in last):
        votes = {name: verdicts[number] for name, verdicts in by_step.items()}
        verdict = resolve_cascade(votes)
        if rule != "last":
            combined = aggregate(rubric.by_key[key], votes, rule)
            verdict = combined.model_copy(update={"latency_s": verdict.latency_s})
        detail = join_notes(verdict.detail, repetition and f"the trace repeats: {repetition}")
        whole.append(verdict.model_copy(update={"detail": detail}))
    return whole


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
    questions, shown = group_questions(rubric, judge, [completion]), as_judged(completion, rubric.reasoning_marks)
    answered = questions.answered(known)
    new = await _checked(rubric, prompt, shown, answered)
    new += await _judged(engine, judge, rubric, prompt, shown, answered=answered)
    return _named(questions, known, _on_whole(new, completion, shown))


def _on_whole(verdicts: Sequence[Verdict], completion: Completion, shown: Completion) -> list[Verdict]:
    """Return verdicts on what was shown of a completion with their quotes located in its text, and a note."""
    if not (hidden := len(completion.text) - len(shown.text)):
        return [*verdicts]

    def located(quote: Evidence) -> Evidence:
        if quote.start is None or quote.end is None or quote.start + hidden < 0:
            return Evidence(quote=quote.quote)
        return quote.model_copy(update={"start": quote.start + hidden, "end": quote.end + hidden})

    note = f"{abs(hidden)} characters of reasoning were {'not shown' if hidden > 0 else 'shown too'}"
    return [
        one.model_copy(update={"evidence": tuple(map(located, one.evidence)), "detail": join_notes(one.detail, note)})
        for one in verdicts
    ]


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
    each = zip(completions, before, strict=True)
    if judge.mode != "comparative":
        return await asyncio.gather(*(score(engine, judge, rubric, prompt, one, known=had) for one, had in each))
    questions = group_questions(rubric, judge, completions)
    shown = [as_judged(completion, rubric.reasoning_marks) for completion in completions]
    each = zip(shown, before, strict=True)
    checked = await asyncio.gather(*(_checked(rubric, prompt, one, questions.answered(had)) for one, had in each))
    answered = questions.answered(frozenset[str]().union(*before).intersection(*before))
    comparison = GroupComparison(engine, judge, rubric, prompt, completions, answered=answered)
    try:
        compared = await comparison.verdicts()
    except InvalidError as error:
        compared = [_unasked(comparison.criteria, error) for _ in completions]
    refused = _unasked([c for c in rubric.criteria if c.asked_alone], _NOT_COMPARED)
    return [
        _named(questions, had, _on_whole([*of_checks, *of_judge, *refused], whole, part))
        for had, of_checks, of_judge, whole, part in zip(before, checked, compared, completions, shown, strict=True)
    ]


def _named(questions: QuestionSet, known: Mapping[str, Verdict], new: Iterable[Verdict]) -> list[Verdict]:
    """Return a verdict for each criterion: the known one, or the one of its question."""
    by_fingerprint: dict[str, Verdict] = {}
    for key, verdict in [*known.items(), *((verdict.criterion, verdict) for verdict in new)]:
        by_fingerprint.setdefault(questions.fingerprints[key], verdict)
    every = ((key, known.get(key) or by_fingerprint[name]) for key, name in questions.fingerprints.items())
    return [one if one.criterion == key else one.model_copy(update={"criterion": key}) for key, one in every]


async def _checked(rubric: Rubric, prompt: Prompt, completion: Completion, answered: frozenset[str]) -> list[Verdict]:
    """Return the verdicts of the checks that are not answered."""
    if all(criterion.check is None or criterion.key in answered for criterion in rubric.criteria):
        return []
    run = partial(checks.run, rubric, prompt, completion, answered=answered)
    return await asyncio.get_running_loop().run_in_executor(_CHECKERS, run)


async def _judged(
    engine: Engine, judge: Judge, rubric: Rubric, prompt: Prompt, completion: Completion, *, answered: frozenset[str]
) -> list[Verdict]:
    """Return the verdicts on the open criteria, in their order."""
    criteria = [c for c in rubric.criteria if c.check is None and c.key not in answered]
    if not criteria:
        return []
    if judge.members:
        return await _by_members(engine, judge, rubric, prompt, completion, answered=answered)

    async def together(asked: list[Criterion]) -> list[Verdict]:
        try:
            if judge.mode == "trajectory":
                return await score_trajectory(judge, rubric, prompt, completion, answered=answered, engine=engine)
            plans = {shown: judges.plan(judge, part, answered) for shown, part in by_passages(judge, rubric).items()}
            asks = [
                plan.ask(engine, plan.template.shared(prompt, completion.text, None, shown))
                for shown, plan in plans.items()
                if plan.calls
            ]
            return list(chain(*([await asks[0]] if len(asks) == 1 else await asyncio.gather(*asks))))
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
    others = [criterion for criterion in criteria if not criterion.asked_alone]
    asks = [*([together(others)] if others else []), *map(alone, own)]
    groups = [await asks[0]] if len(asks) == 1 else await asyncio.gather(*asks)  # one needs no task of its own
    verdicts = {verdict.criterion: verdict for group in groups for verdict in group}
    return [verdicts[criterion.key] for criterion in criteria]


@lru_cache(maxsize=512)
def by_passages(judge: Judge, rubric: Rubric) -> dict[tuple[str, ...], Rubric]:
    """Return the criteria of each request, by the passages before its answer; a template may show them in questions."""
    if "passages" in load(judge).texts or not any(criterion.passages for criterion in rubric.criteria):
        return {(): rubric}
    found = defaultdict[tuple[str, ...], list[Criterion]](list)
    for one in rubric.criteria:
        found[one.passages or ()].append(one.model_copy(update={"passages": None, "group": ()}))
    return {passages: Rubric(criteria=tuple(part)) for passages, part in found.items()}


def _unasked(criteria: Iterable[Criterion], error: InvalidError) -> list[Verdict]:
    """Return the failed verdicts of a judge that cannot be asked."""
    detail = f"{error}; {error.hint}"
    return [Verdict.failed(criterion.key, Reason.ENGINE_ERROR, detail=detail) for criterion in criteria]


def resolve_cascade(votes: Mapping[str, Verdict]) -> Verdict:
    """Return a cascade's verdict: that of the last member asked, even if it failed, with summed usage and latency."""
    given = list(votes.values())
    latencies = [verdict.latency_s for verdict in given if verdict.latency_s is not None]
    fields = {
        "votes": as_votes(votes),
        "usage": total_usage(verdict.usage for verdict in given),
        "latency_s": sum(latencies) if latencies else None,
    }
    return given[-1].model_copy(update=fields)


async def _by_members(
    engine: Engine, judge: Judge, rubric: Rubric, prompt: Prompt, completion: Completion, *, answered: frozenset[str]
) -> list[Verdict]:
    """Ask the members of a panel at once; those of a cascade in turn, about what those before left uncertain."""
    members, about = judge.members or (), (rubric, prompt, completion)
    engines = engine.members if isinstance(engine, PanelEngine) else (engine,) * len(members)
    votes = defaultdict[str, dict[str, Verdict]](dict)
    if judge.mode == "panel":
        asked = (_judged(each, one, *about, answered=answered) for each, one in zip(engines, members, strict=True))
        for member, verdicts in zip(members, await asyncio.gather(*asked), strict=True):
            for verdict in verdicts:
                votes[verdict.criterion][member.name] = verdict
        rule = (judge.voting or Voting()).rule
        return [aggregate(rubric.by_key[key], given, rule) for key, given in votes.items()]
    for member_engine, member in zip(engines, members, strict=True):
        for verdict in await _judged(member_engine, member, *about, answered=answered):
            votes[verdict.criterion][member.name] = verdict
            chance = verdict.value if verdict.best_probability is None else verdict.best_probability
            low, high = judge.band or (0.0, 1.0)
            if verdict.outcome == "scored" and chance is not None and not low <= chance <= high:
                answered |= {verdict.criterion}  # it is certain: the cascade ends here
    return [resolve_cascade(given) for given in votes.values()]


class GroupComparison:
    """The comparison of the completions of one prompt under one rubric; ``answered`` criteria are not asked about.

    Attributes:
        criteria: Those to judge. Those that ask about a single completion are left out.
        texts: The distinct texts, shuffled; a place is an index into them.
        places: The place of each completion's text.
        names: A name for each text: the smallest digest of a completion that has it.
    """

    def __init__(
        self,
        engine: Engine,
        judge: Judge,
        rubric: Rubric,
        prompt: Prompt,
        completions: Sequence[Completion],
        *,
        answered: frozenset[str],
    ) -> None:
        self.engine, self.judge, self.rubric, self.prompt, self.answered = engine, judge, rubric, prompt, answered
        self.criteria = [c for c in rubric.criteria if not (c.check or c.key in answered or c.asked_alone)]
        whole = judge.effective_comparison.traces
        shown = [as_judged(completion, rubric.reasoning_marks) for completion in completions]
        cleaned = [clean(completion.full_text if whole else completion.text) for completion in shown]
        seed = digest(sorted(completion.digest for completion in completions))
        order = {text: digest(seed, text.text) for text in cleaned}
        self.texts = sorted(order, key=lambda text: order[text])
        self.places = [self.texts.index(text) for text in cleaned]
        self.counts = Counter(self.places)
        named = zip(self.places, (completion.digest[:_NAME_CHARS] for completion in completions), strict=True)
        self.names = dict(sorted(named, reverse=True))

    def shown(self, template: JudgeTemplate, places: Sequence[int]) -> SharedPrompt:
        """Return the prompt with these texts, each under a letter and in a fence of its own."""
        texts = [self.texts[place] for place in places]
        fenced = fence_all("answer", [text.text for text in texts])
        entries, notes = [], []
        for letter, text, mark in zip(comparative.LETTERS, texts, fenced, strict=False):
            marked = mark if text.text.strip() else f"{mark}\n{template.empty}"
            entries.append(template.fill("entry", {"id": letter, "completion": marked}))
            notes.append(f"answer {letter}: {text.note}" if text.note else "")
        together = "\n\n".join(text.text for text in texts)
        return template.shared(self.prompt, together, CleanText("\n\n".join(entries), join_notes(*notes) or ""))

    async def verdicts(self) -> list[list[Verdict]]:
        """Return for each completion one verdict on each open criterion."""
        options, places, counts = self.judge.effective_comparison, self.places, self.counts
        if not self.criteria:
            return [[] for _ in places]
        if len(places) < 2:
            comparative.build_call((), load(self.judge))  # raises
        if len(self.texts) == 1:
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
            for place, value in comparative.top_n(scored, options.top_n or 0).items():
                verdict = rows[place][number]
                detail = join_notes(f"scored {verdict.value:g}", verdict.detail) or ""
                rows[place][number] = verdict.model_copy(update={"value": value, "detail": detail})
        return rows

    async def _pairwise(self) -> list[list[Verdict]]:
        """Return the verdicts of each place: its text against those that it is paired with."""
        paired = comparative.pairings(len(self.texts), self.judge.effective_comparison.opponents)
        criteria = tuple(one if one.check else comparative.on_scale(one) for one in self.rubric.criteria)
        rubric = self.rubric.model_copy(update={"criteria": criteria})
        plan = judges.plan(inner_judge(self.judge), rubric, self.answered)
        orders = [order for a, b in paired for order in ((a, b), (b, a))]
        limit = asyncio.Semaphore(_PAIRS_AT_ONCE)

        async def compare(order: tuple[int, int]) -> list[Verdict]:
            async with limit:
                return await plan.ask(self.engine, self.shown(plan.template, order))

        by_order = dict(zip(orders, await asyncio.gather(*map(compare, orders)), strict=True))
        return [
            [self._pairwise_verdict(place, number, by_order) for number in range(len(self.criteria))]
            for place in range(len(self.texts))
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
        pairs = {self.names[other]: _pair(*both) for other, both in orders.items()}
        names = [f"shown {order} {name}" for name in pairs for order in ("before", "after")]
        votes = dict(zip(names, chain.from_iterable(orders.values()), strict=True))
        verdict = aggregate(self.criteria[number], pairs, "mean")
        both_scored = [(a.value, b.value) for a, b in orders.values() if a.value is not None and b.value is not None]
        disagreeing = sum(orders_disagree(a, b) for a, b in both_scored)
        note = f"the two orders disagree in {disagreeing} of {len(both_scored)} pairs" if disagreeing else ""
        fields: dict[str, object] = {"votes": as_votes(votes), "detail": join_notes(note, verdict.detail)}
        if verdict.outcome == "scored":
            weighted = zip(pairs.values(), (self.counts[other] for other in orders), strict=True)
            counted = [(pair.value, count) for pair, count in weighted if pair.value is not None]
            fields["value"] = comparative.win_rate(counted, self.counts[place] - 1)
            fields["spread"] = pstdev(vote.value for vote in votes.values() if vote.value is not None)
        return verdict.model_copy(update=fields)

    async def _groupwise(self) -> list[list[Verdict]]:
        """Return the verdicts of each place: all texts at once, or in parts that share some."""
        template, size = load(self.judge), self.judge.effective_comparison.group_size
        divided = comparative.overlapping_parts(len(self.texts), size)

        async def part(places: Sequence[int]) -> list[Verdict]:
            """Return a verdict for each place, criterion by criterion."""
            calls = comparative.group_calls(self.criteria, len(places), template)
            plan = judges.JudgePlan(self.judge, comparative, template, calls, Voting())
            return await plan.ask(self.engine, self.shown(template, places))

        by_part = await asyncio.gather(*map(part, divided))
        by_criterion = []
        for number, criterion in enumerate(self.criteria):
            parts = [
                dict(zip(places, verdicts[number * len(places) :], strict=False))
                for places, verdicts in zip(divided, by_part, strict=True)
            ]
            by_criterion.append(parts[0] if len(parts) == 1 else _joined(criterion, parts))
        return [[verdicts[place] for verdicts in by_criterion] for place in range(len(self.texts))]


def _joined(criterion: Criterion, parts: Sequence[Mapping[int, Verdict]]) -> dict[int, Verdict]:
    """Return the verdict on one criterion by place, from those of each part."""
    scored = [{place: v.value for place, v in part.items() if v.value is not None} for part in parts]
    values = comparative.align_scores([part for part in scored if part])
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
