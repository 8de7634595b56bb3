"""Examples as tokens: the very conversation that the judge will be asked with, and the token that it should answer.

The template, the fences and the order of the parts are those of `workers.judges`, and the tokenizer that of the engine,
so that a trained judge is asked what it learned. A row holds what the questions about one completion have in common
once, and each question after it; the attention mask keeps the questions apart (`trainer.judge_training.model`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from trainer.judge_training.examples import Example
from workers.engines.base import EngineRequest
from workers.engines.local.conversation import Conversation
from workers.engines.local.prefix_tree import shared_length
from workers.judges import readout
from workers.judges.calls import AskedCriterion
from workers.judges.template import load


class LeftOutError(InvalidError):
    """An example that cannot be learned; ``reason`` is what it is counted under."""

    def __init__(self, reason: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


@dataclass(frozen=True)
class Branch:
    """One question's own tokens, and the label that is learned as the next token.

    ``labels`` has the token ids of each label, all its spellings; ``target`` their probabilities, which sum to 1.
    """

    ids: tuple[int, ...]
    labels: tuple[tuple[int, ...], ...]
    target: tuple[float, ...]


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
        self._template = load(judge)
        self._conversation = conversation
        self._context = min(context, judge.max_context or context)

    def row(self, example: Example) -> Row:
        """Return the row of an example."""
        conversation, template = self._conversation, self._template
        try:
            asked = [AskedCriterion(target.criterion, "C1") for target in example.targets]
            calls = [readout.build_call([one], template) for one in asked]
        except InvalidError as error:
            raise LeftOutError("not_askable", error.message, hint=error.hint) from error
        shown = template.shared(example.prompt, example.completion)
        questions = tuple(call.question for call in calls)
        ids = conversation.encode(EngineRequest(template.system, shown.text, questions))
        for question, own in zip(questions, ids, strict=True):
            if failure := conversation.check(question, own, self._context):
                if failure.reason is not Reason.TOO_LONG:
                    raise InvalidError(failure.detail, hint="choose another base model", path="judge.model")
                hint = "leave the example out, or raise the judge's max_context"
                raise LeftOutError("too_long", failure.detail, hint=hint)
        start, branches = shared_length(ids), []
        for call, target, own in zip(calls, example.targets, ids, strict=True):
            labels = tuple(tuple(conversation.label_ids(label)) for label in call.question.labels)
            levels = target.levels and {name: target.levels.get(name, 0.0) for name in call.levels}
            goal = label_distribution(call.values, target.value, levels)
            branches.append(Branch(tuple(own[start:]), labels, goal))
        return Row(tuple(ids[0][:start]), tuple(branches))


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
