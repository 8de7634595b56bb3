"""Proposals of criteria for a rubric that evolves: asked for, and checked before they are tried."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from rubricsvc.core.evolution import (
    ACTIVE,
    FROZEN,
    PROPOSED,
    BufferedCriterion,
    Proposals,
    ProposalSource,
    RefusedProposal,
    next_keys,
)
from rubricsvc.core.generation import NO_RUBRIC, Generation
from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.untrusted import clean
from rubricsvc.errors import UnavailableError, cut
from rubricsvc.lint import lint
from rubricsvc.lint.duplicates import near_duplicates
from workers import checks
from workers.authoring.author import Author, GenerationError
from workers.authoring.rubric_replies import criteria_texts, read_rubric
from workers.authoring.templates import read, shown, shown_all
from workers.engines.base import Engine
from workers.engines.budget import SpendingLimit, current_budget

TEMPLATE = "evolve"
REPAIRS = 2
MAX_CHARS = 6000
"""Characters of a labelled completion and of its prompt that a proposer is shown."""


class Proposer:
    """Proposes criteria by one model: the model, endpoint, sampling and thinking of a judge.

    Args:
        engine: The engine of the judge.
        judge: The judge.
        max_proposals: Maximum of criteria that are taken from a reply.
        sampling: How replies are sampled, by default as the judge's.
    """

    def __init__(self, engine: Engine, judge: Judge, *, max_proposals: int, sampling: Sampling | None = None) -> None:
        self._judge, self._max_proposals = judge, max_proposals
        self._author = Author(
            engine, judge, Generation(sampling=sampling or judge.sampling, repairs=REPAIRS, redraws=0)
        )

    async def propose(
        self,
        base: Rubric,
        entries: Sequence[BufferedCriterion],
        step: int,
        *,
        prompt: Prompt | None = None,
        answers: Sequence[Completion] = (),
        labelled: Mapping[str, str] | None = None,
    ) -> Proposals:
        """Return the new criteria of one reply.

        Args:
            base: The rubric.
            entries: Its buffer. The model is shown the frozen and the active criteria.
            step: The step, from 0.
            prompt: The prompt of the ``answers``.
            answers: Completions that differ.
            labelled: Completions with their prompt and people's scores, by SHA-256.
        """
        listed = [entry.criterion for entry in entries if entry.state in (FROZEN, ACTIVE)]
        lines = [f"- {'(pitfall) ' * (one.weight < 0)}{' '.join(one.text.split())}" for one in listed]
        values = {"criteria": shown("criteria", "\n".join(lines)), "most": str(self._max_proposals)}
        if prompt is not None:
            texts = {f"answer {n}": one.text for n, one in enumerate(answers, start=1)}
            values |= {"prompt": shown("question", prompt.text), "answers": shown_all("answer", texts)}
        if labelled:
            texts = {f"answer {n}": text for n, text in enumerate(labelled.values(), start=1)}
            values["labelled"] = shown_all("answer", texts)
        examples = criteria_texts(read(TEMPLATE).shared)
        parse = partial(read_rubric, examples=examples, least=1, needs_positive=False)
        draft = await self._author.write(
            TEMPLATE, values, reader=lambda text, truncated: parse(text, truncated=truncated)
        )
        source = ProposalSource(
            judge=self._judge.name,
            model=self._judge.model,
            template=draft.template.name,
            template_digest=draft.template.digest,
            step=step,
            group=tuple(labelled or (one.digest for one in answers)),
        )
        proposed = draft.rubric.criteria[: self._max_proposals]
        return admit(proposed, base, entries, prompt=prompt, source=source, raw_reply=draft.raw_reply)


def admit(
    proposed: Sequence[Criterion],
    base: Rubric,
    entries: Sequence[BufferedCriterion],
    *,
    prompt: Prompt | None,
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
    return Proposals(accepted=tuple(accepted), refused=tuple(refused), raw_reply=raw_reply)


def _refusal(one: Criterion, known: Sequence[Criterion], base: Rubric, prompt: Prompt | None) -> str | None:
    """Return why a criterion is not tried, whatever its weight; None if it is."""
    same = next((other for other in known if other.decided_by == one.decided_by), None)
    if same is None and one.check is None:
        judged = [other for other in known if other.check is None and other.custom_prompt is None]
        pairs = near_duplicates([*judged, one])
        same = next((judged[place] for place, later in pairs if later == len(judged)), None)
    if same is not None:
        return f"duplicate of {same.key}"
    size = min((abs(other.weight) for other in base.criteria if other.weight), default=1.0)
    sized = one.model_copy(update={"weight": size if one.weight > 0 else -size})
    whole = base.model_copy(update={"criteria": (*base.criteria, sized)})
    findings = lint(whole, prompt, empty_value=checks.value_of_empty)
    found = next((f for f in findings if f.criterion == one.key and f.severity != "info"), None)
    return f"{found.rule}: {found.message}" if found is not None else None


class LabelProposer:
    """Asks a judge's model for criteria that people's labels call for: `rubricsvc.services.label_search.Propose`.

    ``ask`` runs an action with the engine of the judge.
    """

    def __init__(
        self,
        judge: Judge,
        ask: Callable[[Callable[[Engine], Coroutine[Any, Any, Proposals]]], Proposals],
        *,
        max_proposals: int,
        sampling: Sampling,
    ) -> None:
        self._judge, self._ask = judge, ask
        self._max_proposals, self._sampling = max_proposals, sampling

    def __call__(
        self,
        base: Rubric,
        entries: Sequence[BufferedCriterion],
        cases: Sequence[tuple[str, str, str]],
        *,
        step: int,
        budget: float | None,
    ) -> Proposals:
        """Return what the model proposes; where no reply has criteria, the failure.

        Args:
            base: The rubric.
            entries: Its buffer.
            cases: Completions with people's scores, each (prompt, text, SHA-256).
            step: The round, from 0.
            budget: US dollars that it may cost.
        """
        labelled = {
            digest: clean(f"Question:\n{cut(prompt, MAX_CHARS)}\n\nAnswer:\n{cut(text, MAX_CHARS)}").text
            for prompt, text, digest in cases
        }
        limit = SpendingLimit(budget, 0.0)

        async def propose(engine: Engine) -> Proposals:
            token = current_budget.set(limit)
            options: dict[str, Any] = {"max_proposals": self._max_proposals, "sampling": self._sampling}
            try:
                return await Proposer(engine, self._judge, **options).propose(base, entries, step, labelled=labelled)
            finally:
                current_budget.reset(token)

        try:
            found = self._ask(propose)
        except GenerationError as error:
            if error.reason != NO_RUBRIC and not limit.exceeded:
                raise UnavailableError(f"the proposer {self._judge.name!r}: {error}") from error
            found = Proposals(failure=f"{error.reason}: {error}"[:500])
        return found.model_copy(update={"cost": limit.spent})
