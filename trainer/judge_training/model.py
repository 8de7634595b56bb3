"""The model of a judge in training: examples as tokens, all questions about a completion in one pass, and the loss.

An example is the very conversation that the judge will be asked with, and the token that it should answer. The
template, the fences and the order of the parts are those of `workers.judges`, and the tokenizer that of the engine, so
that a trained judge is asked what it learned. A row holds what the questions about one completion have in common once,
and each question after it; the attention mask keeps the questions apart.

Shapes in names: B rows, T tokens of the longest row, Q questions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from trainer.judge_training.config import LoraConfig
from trainer.judge_training.data import Example
from trainer.policies.policy import use_grouped_attention
from workers.engines.base import EngineRequest
from workers.engines.local.conversation import Conversation
from workers.engines.local.prefix_tree import PADDING, SHARED, shared_length, tree_mask
from workers.judges import readout
from workers.judges.calls import AskedCriterion, load

MAX_PADDING = 0.15
"""Share of a micro-batch that may be padding."""


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

    def row(self, example: Example) -> Row | Literal["not_askable", "too_long"]:
        """Return the row of an example, or why it cannot be learned."""
        conversation, template = self._conversation, self._template
        try:
            asked = [AskedCriterion(target.criterion, "C1") for target in example.targets]
            calls = [readout.build_call([one], template) for one in asked]
        except InvalidError:
            return "not_askable"
        shown = template.shared(example.prompt, example.completion)
        questions = tuple(call.question for call in calls)
        ids = conversation.encode(EngineRequest(template.system, shown.text, questions))
        for question, own in zip(questions, ids, strict=True):
            if failure := conversation.check(question, own, self._context):
                if failure.reason is not Reason.TOO_LONG:
                    raise InvalidError(failure.detail, hint="choose another base model", path="judge.model")
                return "too_long"
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


class JudgeModel:
    """A causal language model that answers rows; ``model`` is it with the LoRA adapter that is trained.

    ``base_sha256`` is the digest of its weights before the training.
    """

    def __init__(self, model: Any, lora: LoraConfig, *, seed: int, base_sha256: str = "") -> None:
        self.base_sha256 = base_sha256
        from peft import LoraConfig as PeftConfig
        from peft import get_peft_model

        use_grouped_attention(model)
        model.eval()  # no dropout
        torch.manual_seed(seed)
        # Workers can merge linear layers only; `log_masses` reads the weights of the head directly.
        head, layers = model.get_output_embeddings(), model.config.num_hidden_layers
        linear = {name for name, one in model.named_modules() if isinstance(one, torch.nn.Linear) and one is not head}
        known = {name.rpartition(".")[2] for name in linear}
        if unknown := set(lora.modules) - known:
            message = f"the model has no linear layer {min(unknown)!r} that can be trained"
            raise InvalidError(message, hint=f"choose of {', '.join(sorted(known))}", path="lora.modules")
        if lora.first_layer >= layers:
            raise InvalidError(f"lora.first_layer is {lora.first_layer}; the model has {layers}")
        config = PeftConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            target_modules=list(lora.modules),
            layers_to_transform=list(range(lora.first_layer, layers)) if lora.first_layer else None,
            bias="none",
            task_type="CAUSAL_LM",
        )
        # The adapter's type is that of the model; the optimiser keeps float32 masters.
        self.model = get_peft_model(model, config, autocast_adapter_dtype=False)
        self._causal = model

    def trained_weights(self) -> dict[str, Tensor]:
        """Return copies of the weights that are trained."""
        return {name: p.detach().clone() for name, p in self.model.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def restore(self, weights: dict[str, Tensor]) -> None:
        """Set the weights that are trained."""
        for name, param in self.model.named_parameters():
            if name in weights:
                param.copy_(weights[name])

    def log_masses(self, rows: Sequence[Row]) -> list[list[Tensor]]:
        """Return the log-probability of each label [labels] for each question, in the order of rows and branches."""
        width, device = max(row.size for row in rows), self._causal.device
        ids_BT = torch.zeros(len(rows), width, dtype=torch.long)
        position_BT, owner_BT = torch.zeros_like(ids_BT), torch.full_like(ids_BT, PADDING)
        asked: list[tuple[int, int, Branch]] = []  # row and column of every question
        for number, row in enumerate(rows):
            start = end = len(row.prefix)
            ids_BT[number, :start] = torch.tensor(row.prefix, dtype=torch.long)
            position_BT[number, :start] = torch.arange(start)
            owner_BT[number, :start] = SHARED
            for owner, branch in enumerate(row.branches):
                begin, end = end, end + len(branch.ids)
                ids_BT[number, begin:end] = torch.tensor(branch.ids)
                position_BT[number, begin:end] = torch.arange(start, start + len(branch.ids))
                owner_BT[number, begin:end] = owner
                asked.append((number, end - 1, branch))
        output = self._causal.model(
            input_ids=ids_BT.to(device),
            position_ids=position_BT.to(device),
            attention_mask=tree_mask(owner_BT, 0, self._causal.dtype).to(device),
            use_cache=False,
        )
        places = torch.tensor([[number, at] for number, at, _ in asked], device=device)
        hidden_QD = output.last_hidden_state[places[:, 0], places[:, 1]]
        # float32: in bfloat16 a logit near 20 is rounded to the next 1/8
        logits_QV = torch.nn.functional.linear(hidden_QD.float(), self._causal.lm_head.weight.float())
        log_z_Q = logits_QV.logsumexp(-1)
        result: list[list[Tensor]] = [[] for _ in rows]
        for i, (number, _, branch) in enumerate(asked):
            masses = [logits_QV[i, list(label)].logsumexp(0) - log_z_Q[i] for label in branch.labels]
            result[number].append(torch.stack(masses))
        return result


def cross_entropy(rows: Sequence[Row], log_masses: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return the sum over questions of the cross-entropy Σ -target · log p, in nats."""
    losses = [
        -(torch.tensor(branch.target, device=masses.device) * masses).sum()
        for row, each in zip(rows, log_masses, strict=True)
        for branch, masses in zip(row.branches, each, strict=True)
    ]
    return torch.stack(losses).sum()


def micro_batches(rows: Sequence[Row], max_tokens: int) -> Iterator[list[Row]]:
    """Yield rows of similar length, at most ``max_tokens`` with padding at a time, the longest first."""
    batch: list[Row] = []
    total = 0
    for row in sorted(rows, key=lambda row: row.size, reverse=True):
        widest = batch[0].size if batch else row.size
        padded = widest * (len(batch) + 1)
        if batch and (padded > max_tokens or total + row.size < (1 - MAX_PADDING) * padded):
            yield batch
            batch, total = [], 0
        batch.append(row)
        total += row.size
    if batch:
        yield batch
