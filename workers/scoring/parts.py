"""Completions judged part by part: a report by the sentences that cite documents, a trajectory step by step.

A judge is asked about one such sentence (a claim) at a time, as if it were the whole completion, with the passage that
it cites as the criterion's evidence: whether a text follows from a passage is a question for natural language
inference, which small models answer for sentences and not for reports (ALCE, arXiv 2305.14627, and AIS, arXiv
2112.12870, ask in this way too).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha256

from rubricsvc.core.judge import Judge
from rubricsvc.core.panel import aggregate, resolve_cascade
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.trajectory import repetitions, steps_of
from rubricsvc.core.verdict import Reason, Verdict
from workers import judges
from workers.checks.citations import PART_SEPARATOR, sources
from workers.checks.markdown import BRACKETS, WORD, cited_ids, paragraphs, plain, sentences
from workers.engines.base import Engine
from workers.judges import trajectory
from workers.judges.calls import join_notes
from workers.judges.template import inner_judge

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
        if cited and len(bare.split()) >= _LEAST_WORDS:
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


def nearest_passage(text: str, claim: str, size: int = _PASSAGE_WORDS) -> str:
    """Return the ``size`` words in a row, of one part of a document, that share most words with a claim.

    Each different word counts once. Windows begin every ``size // 4`` words; the first of equal ones is taken.
    """
    wanted = {word for word in WORD.findall(plain(claim)) if len(word) > 3}
    windows = []
    for part in text.split(PART_SEPARATOR):
        words = part.split()
        starts = range(0, max(1, len(words) - size + size // 4), size // 4)
        windows += [" ".join(words[start : start + size]) for start in starts]
    return max(windows, key=lambda window: len(wanted & set(WORD.findall(plain(window)))))


async def score_claims(
    judge: Judge, criterion: Criterion, prompt: Prompt, completion: Completion, *, engine: Engine
) -> Verdict:
    """Return the verdict whose votes are those on the claims, with their mean as its value; 0 without a claim.

    A claim that cites anything but the documents that were given or opened has the value 0, and nothing is asked. One
    claim that fails makes the verdict fail: claims are parts of a completion, and not repeated measurements.
    """
    inner = inner_judge(judge)

    async def vote(claim: Claim) -> Verdict:
        if claim.unknown:
            detail = f"cites {', '.join(claim.unknown)[:100]}, which was neither given nor opened"
            return Verdict.scored(criterion.key, 0.0, detail=detail)
        about = criterion.model_copy(update={"each": None, "passages": claim.passages})
        plan = judges.plan(inner, Rubric(criteria=(about,)))
        question = prompt.model_copy(update={"documents": ()})  # the passage alone is what the claim must follow from
        (verdict,) = await plan.ask(engine, plan.template.shared(question, Completion(text=claim.text)))
        return verdict

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
    judge: Judge,
    rubric: Rubric,
    prompt: Prompt,
    completion: Completion,
    *,
    answered: frozenset[str],
    engine: Engine,
) -> list[Verdict]:
    """Return a verdict on each open criterion, whose votes are the verdicts on the steps.

    The steps are asked about in order, so that a prefix cache holds the trajectory so far. After a step that is too
    long, no further step is asked about. Where the verdict is that on the last segment, it alone is asked about.
    """
    plan = judges.plan(inner_judge(judge), rubric, answered)
    steps = steps_of(completion)
    so_far, by_step = trajectory.TrajectoryPrompt(plan.template, prompt), dict[str, list[Verdict]]()
    last: list[Verdict] = []
    *names, final = segments = trajectory.segments(steps, judge.effective_trajectory.segment)
    asked = {final} if judge.effective_trajectory.value == "last" else {*names, final}
    for name, piece in segments.items():
        shown = so_far.extend(name, piece)
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
