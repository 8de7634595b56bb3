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
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from trainer.judge_training.examples import Example, Target, rubric_of
from trainer.judge_training.replies import reply_of
from workers.engines.base import EngineRequest, Question
from workers.engines.local.conversation import Conversation
from workers.engines.local.prefix_tree import shared_length
from workers.judges import plan, readout
from workers.judges.calls import AskedCriterion, JudgeCall
from workers.judges.template import load


class LeftOutError(InvalidError):
    """An example that cannot be learned; ``reason`` is what it is counted under."""

    def __init__(self, reason: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


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
    """Encodes examples for a judge, with the tokenizer of its model.

    A readout is learned at one token, the next after the prompt; a written judge learns each token of its reply.
    """

    def __init__(self, judge: Judge, conversation: Conversation, context: int) -> None:
        self._judge = judge
        self._template = load(judge)
        self._conversation = conversation
        self._context = min(context, judge.max_context or context)

    def row(self, example: Example) -> Row:
        """Return the row of an example.

        Raises:
            LeftOutError: It is longer than the judge's context (``too_long``), or its scale cannot be asked
                (``not_askable``). Nothing is truncated.
            InvalidError: A label is not a single token of the model.
        """
        try:
            calls = self._calls(example)
        except InvalidError as error:
            raise LeftOutError("not_askable", error.message, hint=error.hint) from error
        ids = self._encode(example.prompt, example.completion, [call for call, _ in calls])
        start = shared_length(ids)
        branches = [self._branch(call, asked, own, start) for (call, asked), own in zip(calls, ids, strict=True)]
        return Row(tuple(ids[0][:start]), tuple(branches))

    def _calls(self, example: Example) -> list[tuple[JudgeCall, tuple[Target, ...]]]:
        """Return the calls about an example as workers make them, each with the targets that answer it."""
        if self._judge.mode == "written":
            rubric = rubric_of(example)
            by_key = dict(zip((one.key for one in rubric.criteria), example.targets, strict=True))
            calls = plan(self._judge, rubric).calls
            return [(call, tuple(by_key[asked.criterion.key] for asked in call.asked)) for call in calls]
        return [
            (readout.build_call([AskedCriterion(target.criterion, "C1")], self._template), (target,))
            for target in example.targets
        ]

    def _branch(self, call: JudgeCall, targets: tuple[Target, ...], ids: list[int], start: int) -> Branch:
        own, last = tuple(ids[start:]), len(ids) - start - 1
        if self._judge.mode != "written":
            return Branch(own, (self._read(call, targets[0], last),))
        reply = self._conversation.reply_ids(reply_of(call, targets))
        room = min(self._judge.sampling.max_tokens, self._context - len(ids))
        if len(reply) > room:
            message = f"the reply has {len(reply)} tokens, and there is room for {room}"
            raise LeftOutError("too_long", message, hint="leave the example out, or raise max_context or max_tokens")
        reads = (Read(last + place, ((token,),), (1.0,), (0.0,)) for place, token in enumerate(reply))
        return Branch(own + tuple(reply[:-1]), tuple(reads))

    def _encode(self, prompt: Prompt, completion: Completion, calls: Sequence[JudgeCall]) -> list[list[int]]:
        shown = self._template.shared(prompt, completion)
        questions: tuple[Question, ...] = tuple(call.question for call in calls)
        ids = self._conversation.encode(EngineRequest(self._template.system, shown.text, questions))
        for question, own in zip(questions, ids, strict=True):
            if failure := self._conversation.check(question, own, self._context):
                if failure.reason is not Reason.TOO_LONG:
                    raise InvalidError(failure.detail, hint="choose another base model", path="judge.model")
                hint = "leave the example out, or raise the judge's max_context"
                raise LeftOutError("too_long", failure.detail, hint=hint)
        return ids

    def _read(self, call: JudgeCall, target: Target, at: int) -> Read:
        labels = tuple(tuple(self._conversation.label_ids(label)) for label in call.question.labels)
        levels = target.levels and {name: target.levels.get(name, 0.0) for name in call.levels}
        return Read(at, labels, label_distribution(call.values, target.value, levels), call.values)


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
