"""A model that proposes other wordings or parts of a criterion, or pitfalls, for the evolution of a rubric.

A reply is read like any rubric from outside. Only its texts, checks and shares of weight are taken from it: keys, signs
and the rest of the rubric stay as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from pydantic import ValidationError
from sqlalchemy.orm import Session

from rubricsvc.core.base import numbered_names
from rubricsvc.core.evolution import ProposalRequest, SearchCase
from rubricsvc.core.formulas import FormulaError
from rubricsvc.core.generation import NO_RUBRIC, Generation
from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.reward import check_formula
from rubricsvc.core.rubric import Binary, Criterion, Rubric
from rubricsvc.core.untrusted import clean, fence_all
from rubricsvc.errors import RubricsvcError, cut
from rubricsvc.store import evolutions, items
from rubricsvc.store.session import Database
from workers.authoring.author import Author, GenerationError
from workers.authoring.evolution.online import lint_refusal
from workers.authoring.methods.shown import shown
from workers.authoring.recording import RecordingEngine, ReplyLog
from workers.engines.base import Engine
from workers.engines.budget import SpendingLimit, current_budget

MAX_CHARS = 6000
"""Characters of a completion, and of a prompt, that a proposer is shown."""

Proposed = list[Rubric | RubricsvcError]
Ask = Callable[[Callable[[Engine], Coroutine[Any, Any, Proposed]]], Proposed]
"""Runs an action with the engine of the proposer."""


class ModelProposer:
    """Proposes by the model of a judge. A question that has a stored reply is not asked again."""

    def __init__(self, db: Database, evolution_id: int, judge: Judge, sampling: Sampling, ask: Ask) -> None:
        self._db, self._evolution_id, self._ask = db, evolution_id, ask
        self._judge, self._generation = judge, Generation(sampling=sampling, redraws=1, gate=False)

    def propose(self, requests: Sequence[ProposalRequest]) -> Proposed:
        """Return the changed rubrics in order, with an error where the model cannot be asked or proposes none."""

        async def propose_all(engine: Engine) -> Proposed:
            recording = RecordingEngine(engine, self._judge, self._log())
            token = current_budget.set(self._budget())
            try:
                return list(await asyncio.gather(*(self._propose(recording, one) for one in requests)))
            finally:
                current_budget.reset(token)

        return self._ask(propose_all)

    def _budget(self) -> SpendingLimit:
        """Return what the evolution may still cost."""
        with self._db.read() as session:
            limit = evolutions.get(session, self._evolution_id).budget
            return SpendingLimit(limit, evolutions.spent(session, self._evolution_id))

    def _log(self) -> ReplyLog:
        """Return the stored replies of the evolution's proposer."""
        with self._db.read() as session:
            known = items.known_replies(session, items.OF_EVOLUTION, self._evolution_id)

        async def write(step: Callable[[Session], Any]) -> None:
            with self._db.write() as session:
                step(session)

        return ReplyLog(items.OF_EVOLUTION, self._evolution_id, known, write)

    async def _propose(self, engine: Engine, request: ProposalRequest) -> Rubric | RubricsvcError:
        rubric = request.rubric
        lines = "\n".join(f"[{one.weight:g}] {one.text}" for one in rubric.criteria)
        values = {"rubric": shown("rubric", lines), "criterion": shown("criterion", rubric.by_key[request.key].text)}
        if request.evidence:
            values["evidence"] = "\n\n".join(fence_all("answer", [_shown(one) for one in request.evidence]))
        author = Author(engine, self._judge, self._generation, retries=request.sample)
        try:
            draft = await author.write(f"evolve_{request.operator}", values)
            changed = _APPLY[request.operator](request, draft.rubric.criteria)
            check_formula(changed)
            _check_wording(changed, request.rubric)
        except GenerationError as error:
            return error
        except (ValidationError, FormulaError) as error:
            return GenerationError(NO_RUBRIC, f"the proposal cannot be applied: {cut(str(error), 200)}")
        return changed


def _check_wording(changed: Rubric, old: Rubric) -> None:
    """Raise a GenerationError if the linter has something against a new criterion."""
    for one in changed.criteria:
        if one not in old.criteria:
            others = [other for other in changed.criteria if other is not one]
            if (reason := lint_refusal(one, others, changed, None)) is not None:
                raise GenerationError(NO_RUBRIC, f"the linter refuses the proposal: {reason}")


def _shown(one: SearchCase) -> str:
    texts = (one.finding, f"Question:\n{cut(one.prompt, MAX_CHARS)}", f"Answer:\n{cut(one.completion, MAX_CHARS)}")
    return clean("\n\n".join(texts)).text


def _reworded(request: ProposalRequest, proposed: tuple[Criterion, ...]) -> Rubric:
    """Return the rubric with one of the wordings, chosen by the sample."""
    text = proposed[int(np.random.default_rng(request.sample).integers(len(proposed)))].text
    old = request.rubric.by_key[request.key]
    return _replaced(request, [old.model_copy(update={"text": text})])


def _split(request: ProposalRequest, proposed: tuple[Criterion, ...]) -> Rubric:
    """Return the rubric with the parts in place of the criterion, which share its weight."""
    old = request.rubric.by_key[request.key]
    total = sum(abs(one.weight) for one in proposed)
    keys = _free_keys(request.rubric, old.key, len(proposed))
    parts = [
        Criterion(
            key=key,
            text=one.text,
            weight=float(f"{old.weight * abs(one.weight) / total:.4g}"),
            check=one.check,
            group=old.group,
            required=old.required,
            tags=old.tags,
        )
        for key, one in zip(keys, proposed, strict=True)
    ]
    return _replaced(request, parts)


def _with_pitfall(request: ProposalRequest, proposed: tuple[Criterion, ...]) -> Rubric:
    """Return the rubric with one of the faults, at up to the weight of its heaviest criterion."""
    chosen = proposed[int(np.random.default_rng(request.sample).integers(len(proposed)))]
    heaviest = max(abs(one.weight) for one in request.rubric.criteria)
    weight = -float(f"{heaviest * min(abs(chosen.weight), 10.0) / 10.0:.4g}")
    (key,) = _free_keys(request.rubric, "pitfall", 1)
    group = request.rubric.by_key[request.key].group
    pitfall = Criterion(key=key, text=chosen.text, weight=weight, check=chosen.check, group=group, scale=Binary())
    return _rebuilt(request.rubric, [*request.rubric.criteria, pitfall])


_APPLY: Mapping[str, Callable[[ProposalRequest, tuple[Criterion, ...]], Rubric]] = {
    "reword": _reworded,
    "split": _split,
    "pitfall": _with_pitfall,
}


def _replaced(request: ProposalRequest, parts: list[Criterion]) -> Rubric:
    criteria: list[Criterion] = []
    for one in request.rubric.criteria:
        criteria += parts if one.key == request.key else [one]
    return _rebuilt(request.rubric, criteria)


def _rebuilt(rubric: Rubric, criteria: list[Criterion]) -> Rubric:
    return Rubric.model_validate(rubric.with_criteria(criteria).model_dump())


def _free_keys(rubric: Rubric, base: str, count: int) -> list[str]:
    free = (key for key in numbered_names(base, 1) if key not in rubric.by_key)
    return list(islice(free, count))
