"""Examples as tokens: the very conversation that the judge will be asked with, and the tokens that it should answer.

The template, the fences and the order of the parts are those of `workers.judges`, and the tokenizer that of the engine,
so that a trained judge is asked what it learned. A row holds what the questions about one completion have in common
once, and each question after it; the attention mask keeps the questions apart (`trainer.judge_training.model`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.errors import InvalidError
from trainer.judge_training.examples import Example, Target
from workers.engines.base import EngineRequest, Question
from workers.engines.local.batching import shared_length
from workers.engines.local.conversation import Conversation
from workers.judges import readout
from workers.judges.requests import AskedCriterion, JudgeCall
from workers.judges.template import load


@dataclass(frozen=True)
class Read:
    """A position whose next token is learned.

    Attributes:
        at: Index of the token in its branch after which the next one is predicted.
        labels: Token ids of each label, all its spellings.
        target: Probability of each label; sums to 1.
        values: Value in [0, 1] of each label.
    """

    at: int
    labels: tuple[tuple[int, ...], ...]
    target: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Branch:
    """One question's own tokens, and where its answer is learned."""

    ids: tuple[int, ...]
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class Row:
    """The questions about one completion: their common tokens, and a branch for each."""

    prefix: tuple[int, ...]
    branches: tuple[Branch, ...]

    @property
    def size(self) -> int:
        """Tokens to compute."""
        return len(self.prefix) + sum(len(branch.ids) for branch in self.branches)


class Encoder:
    """Encodes examples for a readout judge, with the tokenizer of its model."""

    def __init__(self, judge: Judge, conversation: Conversation, context: int) -> None:
        self._judge = judge
        self._template = load(judge)
        self._conversation = conversation
        self._context = min(context, judge.max_context or context)

    def row(self, example: Example) -> Row:
        """Return the row of an example.

        Raises:
            InvalidError: It is longer than the judge's context, or a label is not a single token. Nothing is truncated.
        """
        calls = [self._call(target) for target in example.targets]
        ids = self._encode(example.prompt, example.completion, calls)
        start = shared_length(ids)
        reads = [self._read(call, target) for call, target in zip(calls, example.targets, strict=True)]
        branches = [
            Branch(tuple(own[start:]), (Read(len(own) - start - 1, *read),))
            for own, read in zip(ids, reads, strict=True)
        ]
        return Row(tuple(ids[0][:start]), tuple(branches))

    def _call(self, target: Target) -> JudgeCall:
        return readout.build_call([AskedCriterion(target.criterion, "C1")], self._template)

    def _encode(self, prompt: Prompt, completion: Completion, calls: Sequence[JudgeCall]) -> list[list[int]]:
        shown = self._template.shared(prompt, completion)
        questions: tuple[Question, ...] = tuple(call.question for call in calls)
        ids = self._conversation.encode(EngineRequest(self._template.system, shown.text, questions))
        for question, own in zip(questions, ids, strict=True):
            if failure := self._conversation.check(question, own, self._context):
                raise InvalidError(failure.detail, hint="leave the example out, or raise the judge's max_context")
        return ids

    def _read(
        self, call: JudgeCall, target: Target
    ) -> tuple[tuple[tuple[int, ...], ...], tuple[float, ...], tuple[float, ...]]:
        labels = tuple(tuple(self._conversation.label_ids(label)) for label in call.question.labels)
        levels = target.levels and {name: target.levels.get(name, 0.0) for name in call.levels}
        return labels, label_distribution(call.values, target.value, levels), call.values


def label_distribution(
    values: Sequence[float], value: float, levels: Mapping[str, float] | None = None
) -> tuple[float, ...]:
    """Return the probability of each label whose expected value is ``value``.

    ``levels``, a teacher's probabilities in the order of the labels, are taken as they are. Otherwise the mass lies on
    the two labels on both sides of ``value``, so that a label's own value is certain.
    """
    if levels and (total := sum(levels.values())) > 0:
        return tuple(mass / total for mass in levels.values())
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    bounded = min(max(value, values[order[0]]), values[order[-1]])
    for low, high in pairwise(order):
        if values[low] <= bounded <= values[high]:
            share = (bounded - values[low]) / (values[high] - values[low])
            result[low], result[high] = 1.0 - share, share
            break
    return tuple(result)
