"""A criterion that is asked about each claim of a completion, and the verdict from its claims."""

from __future__ import annotations

import asyncio

from rubricsvc.core.judge import Judge
from rubricsvc.core.panel import aggregate
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Reason, Verdict
from workers import judges
from workers.judges.claims import Claim, claims
from workers.judges.template import inner_judge


async def score_claims(
    judge: Judge, criterion: Criterion, prompt: Prompt, completion: Completion, *, ask: judges.Asker
) -> Verdict:
    """Return the verdict whose votes are those on the claims, with their mean as its value; 0 without a claim.

    A claim that cites anything but the documents that were given or opened has the value 0, and nothing is asked. One
    claim that fails makes the verdict fail: claims are parts of a completion, and not repeated measurements.

    Raises:
        InvalidError: The judge's template cannot be used, or the scale cannot be asked in its mode.
    """
    found = claims(prompt, completion)
    if not found:
        return Verdict.scored(criterion.key, 0.0, detail="no sentence cites a document")
    votes = await asyncio.gather(*(_vote(inner_judge(judge), criterion, prompt, claim, ask) for claim in found))
    whole = aggregate(criterion, {f"claim {n}": vote for n, vote in enumerate(votes, start=1)}, "mean")
    failed = [vote for vote in votes if vote.outcome == "failed"]
    if not failed or whole.outcome == "failed":
        return whole
    detail = f"{len(failed)} of {len(votes)} claims: {failed[0].detail or failed[0].reason}"
    kept = {"votes": whole.votes, "usage": whole.usage, "latency_s": whole.latency_s}
    return Verdict.failed(criterion.key, failed[0].reason or Reason.ENGINE_ERROR, detail=detail, **kept)


async def _vote(judge: Judge, criterion: Criterion, prompt: Prompt, claim: Claim, ask: judges.Asker) -> Verdict:
    if claim.unknown:
        detail = f"cites {', '.join(claim.unknown)[:100]}, which was neither given nor opened"
        return Verdict.scored(criterion.key, 0.0, detail=detail)
    about = criterion.model_copy(update={"each": None, "passages": claim.passages})
    plan = judges.plan(judge, Rubric(criteria=(about,)))
    question = prompt.model_copy(update={"documents": ()})  # the passage alone is what the claim must follow from
    (verdict,) = await ask(plan, plan.template.shared(question, Completion(text=claim.text)))
    return verdict
