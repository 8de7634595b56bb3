"""What a generation is likely to cost: its calls are built as they will be, and counted instead of sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rubricsvc.core.authoring import AuthoringTask
from rubricsvc.core.generation import Generation
from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Reason
from workers.authoring.author import Author, Draft, GenerationError, Reader, ask_model
from workers.authoring.gate import judge_of_gate, try_rubric
from workers.authoring.methods import write_rubric
from workers.authoring.rubric_replies import Documents, read_rubric
from workers.authoring.templates import read
from workers.engines.base import EngineRequest, Failure, Question, Replies, Reply
from workers.engines.budget import CallEstimate

CRITERIA = 8
"""Criteria that a rubric is assumed to have."""
_VERDICT_TOKENS = 120
_TEXT = "Names the second of the two causes and says how it differs from the first one, number {}."
_RUBRIC = json.dumps({"criteria": [{"text": _TEXT.format(n), "weight": 3} for n in range(CRITERIA)]})


@dataclass
class GenerationEstimate:
    """Calls, tokens at four characters each, and US dollars; the maximum is with all repairs and redraws.

    The costs are None where a price is not known.
    """

    prompts: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0
    max_calls: int = 0
    max_cost: float | None = 0.0


class _CountingEngine:
    """Counts calls of one judge, and answers with a rubric or with a label. ``most`` is how often each may be made."""

    def __init__(self, judge: Judge, estimate: GenerationEstimate, most: int) -> None:
        self._judge, self._estimate, self._most = judge, estimate, most

    async def ask(self, request: EngineRequest) -> Replies:
        return [self._reply(request, number) for number in range(len(request.questions))]

    async def aclose(self) -> None:
        return

    def _reply(self, request: EngineRequest, number: int) -> Reply | Failure:
        question, estimate = request.questions[number], self._estimate
        price = self._judge.endpoint.price
        call = CallEstimate.of(request, (question,), price)
        reply = 1 if question.labels else _VERDICT_TOKENS if question.schema else len(_RUBRIC) // 4
        prompt = sum(map(len, request.texts(question))) // 4
        estimate.calls += 1
        estimate.max_calls += self._most
        estimate.prompt_tokens += prompt
        estimate.completion_tokens += reply
        if self._judge.unpriced:
            estimate.cost = estimate.max_cost = None
        elif price and estimate.cost is not None and estimate.max_cost is not None:
            estimate.cost += price.cost(prompt, reply)
            estimate.max_cost += self._most * call.max_cost
        if question.labels:
            return Reply(label_mass={question.labels[0]: 1.0})
        return Failure(Reason.UNPARSEABLE) if question.schema else Reply(_RUBRIC)


class _CountingAuthor(Author):
    """Asks once for each rubric; the reply is one."""

    async def write(
        self,
        template: str,
        values: Mapping[str, str],
        documents: Documents | None = None,
        evidence: Documents | None = None,
        *,
        reader: Reader | None = None,
    ) -> Draft:
        """Return a rubric of `CRITERIA` criteria."""
        question = Question(read(template).question(values))
        reply = await ask_model(self._engine, self.judge, read(template), question, self.generation.sampling)
        return Draft(read_rubric(reply.text), read(template), reply.text, redraws=0, repairs=0)


async def estimate_generation(
    judge: Judge, gate_judge: Judge, generation: Generation, tasks: Iterable[AuthoringTask]
) -> GenerationEstimate:
    """Return the estimate for these prompts. A rubric is assumed to have `CRITERIA` criteria."""
    estimate = GenerationEstimate()
    most = (generation.redraws + 1) * (generation.repairs + 1)
    author = _CountingAuthor(_CountingEngine(judge, estimate, most), judge, generation)
    tried_by = judge_of_gate(gate_judge)
    for task in tasks:
        estimate.prompts += 1
        try:
            draft = await write_rubric(author, task)
            if generation.gate:
                engine = _CountingEngine(tried_by, estimate, 1)
                await try_rubric(engine, tried_by, generation, draft.rubric, task)
        except GenerationError:
            continue  # this prompt will fail without a call
    return estimate
