"""Proposals of criteria for a rubric whose policy is being trained: asked for, and checked before they are tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rubricsvc.core.criterion_buffer import (
    PROPOSED,
    BufferedCriterion,
    ProposalSource,
    RefusedProposal,
    next_keys,
)
from rubricsvc.core.generation import Generation
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.lint import lint
from rubricsvc.lint.duplicates import near_duplicates
from workers import checks
from workers.authoring.author import Author, Draft
from workers.authoring.methods.shown import shown, shown_all
from workers.authoring.rubric_replies import criteria_texts, read_rubric
from workers.authoring.templates import read
from workers.engines.base import Engine

TEMPLATE = "online"
REPAIRS = 2


@dataclass(frozen=True)
class Proposals:
    """What a proposer wrote on a group of completions.

    Attributes:
        accepted: New entries of the buffer.
        refused: Criteria that are not tried, with the reason.
        raw_reply: The reply, as it came.
    """

    accepted: Sequence[BufferedCriterion] = ()
    refused: Sequence[RefusedProposal] = ()
    raw_reply: str = ""


class Proposer:
    """Proposes criteria by one model: the model, endpoint, sampling and thinking of a judge.

    Args:
        engine: The engine of the judge.
        judge: The judge.
        max_shown: Maximum of completions that the model is shown.
        max_proposals: Maximum of criteria that are taken from a reply.
    """

    def __init__(self, engine: Engine, judge: Judge, *, max_shown: int, max_proposals: int) -> None:
        self._judge = judge
        self._max_shown, self._max_proposals = max_shown, max_proposals
        self._author = Author(engine, judge, Generation(sampling=judge.sampling, repairs=REPAIRS, redraws=0))

    async def propose(
        self,
        prompt: Prompt,
        base: Rubric,
        entries: Sequence[BufferedCriterion],
        group: Sequence[tuple[Completion, float | None]],
        step: int,
    ) -> Proposals:
        """Return the new criteria of one reply.

        Args:
            prompt: The prompt.
            base: Its authored rubric.
            entries: Its buffer. The model is shown the frozen and the active criteria.
            group: Completions with their rewards.
            step: Step of the run, from 0.

        Raises:
            GenerationError: The model cannot be asked, or no reply has criteria.
        """
        chosen = spread(group, self._max_shown)
        listed = [entry.criterion for entry in entries if entry.state in ("frozen", "active")]
        values = {
            "prompt": shown("question", prompt.text),
            "criteria": shown("criteria", "\n".join(map(_line, listed))),
            "answers": shown_all("answer", {f"answer {n}": one.text for n, one in enumerate(chosen, start=1)}),
            "most": str(self._max_proposals),
        }
        examples = criteria_texts(read(TEMPLATE).shared)
        parse = partial(read_rubric, examples=examples, least=1, needs_positive=False)
        draft = await self._author.write(
            TEMPLATE, values, reader=lambda text, truncated: parse(text, truncated=truncated)
        )
        source = self._source(draft, chosen, step)
        proposed = draft.rubric.criteria[: self._max_proposals]
        return admit(proposed, base, entries, prompt=prompt, source=source, raw_reply=draft.raw_reply)

    def _source(self, draft: Draft, chosen: Sequence[Completion], step: int) -> ProposalSource:
        return ProposalSource(
            judge=self._judge.name,
            model=self._judge.model,
            template=draft.template.name,
            template_digest=draft.template.digest,
            step=step,
            group=tuple(one.digest for one in chosen),
        )


def _line(criterion: Criterion) -> str:
    pitfall = "(pitfall) " if criterion.weight < 0 else ""
    return f"- {pitfall}{' '.join(criterion.text.split())}"


def spread(group: Sequence[tuple[Completion, float | None]], count: int) -> list[Completion]:
    """Return up to ``count`` completions with different texts, from the worst to the best reward at equal distances.

    They are in an order that says nothing about their rewards, and always the same.
    """
    distinct = {one.text: (one, reward) for one, reward in group if reward is not None}
    ranked = [one for one, _ in sorted(distinct.values(), key=lambda pair: (pair[1], pair[0].digest))]
    if len(ranked) > count:
        ranked = [ranked[round(place * (len(ranked) - 1) / (count - 1))] for place in range(count)]
    return sorted(ranked, key=lambda one: one.digest)


def admit(
    proposed: Sequence[Criterion],
    base: Rubric,
    entries: Sequence[BufferedCriterion],
    *,
    prompt: Prompt,
    source: ProposalSource,
    raw_reply: str = "",
) -> Proposals:
    """Return the proposals that are new and have no fault that the linter finds; all criteria of the buffer count.

    They are tried without a veto, and without what a person would have to confirm: references and sources.
    """
    accepted: list[BufferedCriterion] = []
    refused: list[RefusedProposal] = []
    known = [entry.criterion for entry in entries]
    for key, given in zip(next_keys(entries, len(proposed)), proposed, strict=True):
        removed = {"required": False, "reference": None, "passages": None, "sources": None}
        one = given.model_copy(update={"key": key, **removed})
        if (reason := _refusal(one, known, base, prompt)) is not None:
            refused.append(RefusedProposal(text=one.text, reason=reason))
            continue
        known.append(one)
        accepted.append(BufferedCriterion(criterion=one, state=PROPOSED, source=source))
    return Proposals(accepted, refused, raw_reply)


def _refusal(one: Criterion, known: Sequence[Criterion], base: Rubric, prompt: Prompt) -> str | None:
    """Return why a criterion is not tried; None if it is."""
    same = next((other for other in known if other.decided_by == one.decided_by), None)
    if same is None and one.check is None:
        judged = [other for other in known if other.check is None and other.custom_prompt is None]
        pairs = near_duplicates([*judged, one])
        same = next((judged[place] for place, later in pairs if later == len(judged)), None)
    if same is not None:
        return f"duplicate of {same.key}"
    return lint_refusal(one, base.criteria, base, prompt)


def lint_refusal(one: Criterion, others: Sequence[Criterion], rubric: Rubric, prompt: Prompt | None) -> str | None:
    """Return what the linter has against a criterion beside others, whatever its weight; None: nothing."""
    size = min((abs(other.weight) for other in others if other.weight), default=1.0)
    sized = one.model_copy(update={"weight": size if one.weight > 0 else -size})
    whole = rubric.model_copy(update={"criteria": (*others, sized)})
    findings = lint(whole, prompt, empty_value=checks.value_of_empty)
    found = next((f for f in findings if f.criterion == one.key and f.severity != "info"), None)
    return f"{found.rule}: {found.message}" if found is not None else None
