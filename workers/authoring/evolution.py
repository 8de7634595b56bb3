"""Proposals of criteria for a rubric that evolves: asked for, and checked before they are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from rubricsvc.core.evolution import USED, BufferedCriterion, EvolutionRound, ProposalSource, RefusedProposal
from rubricsvc.core.generation import Generation
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.lint import lint
from rubricsvc.lint.duplicates import near_duplicates
from workers import checks
from workers.authoring.author import Author, GenerationError, rubric_reader
from workers.authoring.templates import shown, shown_all
from workers.engines.base import Engine
from workers.engines.budget import SpendingLimit, current_budget

TEMPLATE = "evolve"
REPAIRS = 2
MAX_PROPOSALS = 4
TEMPERATURE = 0.7
Proposed = tuple[list[BufferedCriterion], EvolutionRound]
"""New entries of a buffer, and what the round has done so far."""


async def propose_criteria(
    engine: Engine,
    judge: Judge,
    base: Rubric,
    entries: Sequence[BufferedCriterion],
    *,
    step: int,
    texts: Mapping[str, str],
    limit: SpendingLimit,
    most: int = MAX_PROPOSALS,
    prompt: Prompt | None = None,
) -> Proposed:
    """Return the new criteria of one reply; where there is none, the round has a failure: its reason, then why.

    Args:
        engine: The engine of the judge.
        judge: Whose model, endpoint and thinking propose.
        base: The rubric.
        entries: Its buffer. The model is shown the frozen and the active criteria.
        step: The step, from 0.
        texts: Completions that differ, by SHA-256: answers to ``prompt``, or each with its prompt and people's scores.
        limit: What calls may cost.
        most: Maximum of criteria that are taken from the reply.
        prompt: The prompt, where all have the same.
    """
    lines = [
        f"- {'(pitfall) ' * (one.criterion.weight < 0)}{' '.join(one.criterion.text.split())}"
        for one in entries
        if one.state in USED
    ]
    values = {"criteria": shown("criteria", "\n".join(lines)), "most": str(most)}
    answers = shown_all("answer", {f"answer {n}": text for n, text in enumerate(texts.values(), start=1)})
    if prompt is None:
        values["labelled"] = answers
    else:
        values |= {"prompt": shown("question", prompt.text), "answers": answers}
    reader = rubric_reader(TEMPLATE, least=1, needs_positive=False)
    own = SpendingLimit(None, 0.0, within=limit)
    token = current_budget.set(own)
    try:
        # a judge is usually asked at temperature 0, and would propose the same criteria in every round
        sampling = judge.sampling.model_copy(update={"temperature": judge.sampling.temperature or TEMPERATURE})
        author = Author(engine, judge, Generation(sampling=sampling, repairs=REPAIRS, redraws=0))
        draft = await author.write(TEMPLATE, values, reader=reader)
    except GenerationError as error:
        return [], EvolutionRound(failure=f"{error.reason}: {error}"[:500], cost=own.spent)
    finally:
        current_budget.reset(token)
    source = ProposalSource(
        judge=judge.name,
        model=judge.model,
        template=draft.template.name,
        template_digest=draft.template.digest,
        step=step,
        group=tuple(texts),
    )
    proposed = draft.rubric.criteria[:most]
    added, done = admit(proposed, base, entries, prompt=prompt, source=source)
    return added, done.model_copy(update={"raw_reply": draft.raw_reply, "cost": own.spent})


def admit(
    proposed: Sequence[Criterion],
    base: Rubric,
    entries: Sequence[BufferedCriterion],
    *,
    prompt: Prompt | None,
    source: ProposalSource,
) -> Proposed:
    """Return the proposals that are new and have no fault that the linter finds; all criteria of the buffer count.

    They are tried without a veto, and without what a person would have to confirm: references and sources. Their keys
    are evolved-1, evolved-2, …, which no entry has or has had.
    """
    accepted: list[BufferedCriterion] = []
    refused: list[RefusedProposal] = []
    known = [entry.criterion for entry in entries]
    taken = {entry.key for entry in entries}
    keys = (name for name in (f"evolved-{number}" for number in count(1)) if name not in taken)
    size = min((abs(other.weight) for other in base.criteria if other.weight), default=1.0)
    for given, key in zip(proposed, keys, strict=False):
        removed = {"required": False, "reference": None, "passages": None, "sources": None}
        one = given.model_copy(update={"key": key, **removed})
        same = next((other for other in known if (other.check or other.question) == (one.check or one.question)), None)
        if same is None and one.check is None:
            judged = [other for other in known if other.check is None and other.custom_prompt is None]
            pairs = near_duplicates([*judged, one])
            same = next((judged[place] for place, later in pairs if later == len(judged)), None)
        if same is not None:
            refused.append(RefusedProposal(text=one.text, reason=f"duplicate of {same.key}"))
            continue
        sized = one.model_copy(update={"weight": size if one.weight > 0 else -size})  # linted whatever its weight
        whole = base.model_copy(update={"criteria": (*base.criteria, sized)})
        findings = lint(whole, prompt, empty_value=checks.value_of_empty)
        found = next((f for f in findings if f.criterion == key and f.severity != "info"), None)
        if found is not None:
            refused.append(RefusedProposal(text=one.text, reason=f"{found.rule}: {found.message}"))
            continue
        known.append(one)
        accepted.append(BufferedCriterion(criterion=one, state="proposed", source=source))
    return accepted, EvolutionRound(proposed=tuple(one.key for one in accepted), refused=tuple(refused))
