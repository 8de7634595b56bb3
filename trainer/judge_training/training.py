"""The training of a judge's model: examples as tokens, all questions about a completion in one pass, and the loop.

An example is the very conversation that the judge will be asked with, and the token that it should answer. The
template, the fences and the order of the parts are those of `workers.judges`, and the tokenizer that of the engine, so
that a trained judge is asked what it learned. A row holds what the questions about one completion have in common once,
and each question after it; the attention mask keeps the questions apart.

The loop mixes, takes steps, validates, keeps the best weights and writes checkpoints. The examples of a step depend on
the seed and on the number of examples drawn before alone: a resumed training equals one without a stop.

Shapes in names: B rows, T tokens of the longest row, Q questions, V vocabulary.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from threading import Event
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from rubricsvc.stats import OnProgress
from trainer import checkpoint
from trainer.config import LoraConfig
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.data import Dataset, Example, Parts, sample
from trainer.optim import MasterAdamW
from trainer.policies.lora import add_adapter
from trainer.policies.policy import use_grouped_attention
from trainer.policies.rollouts import micro_batches
from trainer.recording import History, Metrics, write_config
from workers.engines.base import EngineRequest
from workers.engines.local.conversation import Conversation
from workers.engines.local.prefix_tree import PADDING, SHARED, shared_length, tree_mask
from workers.judges import readout
from workers.judges.calls import AskedCriterion, JudgeCall, load


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


@dataclass(frozen=True)
class Encoder:
    """Encodes examples for a readout judge, with the tokenizer of its model, whose longest input is ``context``."""

    judge: Judge
    conversation: Conversation
    context: int

    def row(self, example: Example) -> Row | Literal["not_askable", "too_long"]:
        """Return the row of an example, or why it cannot be learned."""
        conversation, template = self.conversation, load(self.judge)
        limit = min(self.context, self.judge.max_context or self.context)
        requests, calls = list[EngineRequest](), list[JudgeCall]()
        for criterion in (target.criterion for target in example.targets):
            first = ("passages" not in template.texts and criterion.passages) or ()
            asked = criterion.model_copy(update={"passages": None}) if first else criterion
            shown = template.shared(example.prompt, example.completion.text, None, first)
            try:
                calls.append(readout.build_call([AskedCriterion(asked, "C1")], template))
            except InvalidError:
                return "not_askable"
            requests.append(EngineRequest(template.system, shown.text, (calls[-1].question,)))
        ids = [own for request in requests for own in conversation.encode(request)]
        for call, own in zip(calls, ids, strict=True):
            if failure := conversation.check(call.question, own, limit):
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
    order = np.argsort(values)
    certain = np.eye(len(values))[:, order]  # of each label: its probability where the value is that of a label
    return tuple(float(np.interp(value, np.array(values)[order], masses)) for masses in certain)


class JudgeModel:
    """A causal language model that answers rows; ``model`` is it with the LoRA adapter that is trained.

    ``base_sha256`` is the digest of its weights before the training.
    """

    def __init__(self, model: Any, lora: LoraConfig, *, seed: int, base_sha256: str = "") -> None:
        self.base_sha256 = base_sha256
        use_grouped_attention(model)
        model.eval()  # no dropout
        self.model = add_adapter(model, lora, seed)
        self._causal = model

    def log_masses(self, rows: Sequence[Row]) -> list[Tensor]:
        """Return the log-probability of each label [labels] for each question, in the order of rows and branches."""
        width, device = max(row.size for row in rows), self._causal.device
        ids_BT = torch.zeros(len(rows), width, dtype=torch.long)
        position_BT, owner_BT = torch.zeros_like(ids_BT), torch.full_like(ids_BT, PADDING)
        places: list[tuple[int, int]] = []  # row and column of every question
        for number, row in enumerate(rows):
            end = 0
            for owner, ids in enumerate((row.prefix, *(branch.ids for branch in row.branches)), SHARED):
                begin, end, start = end, end + len(ids), 0 if owner == SHARED else len(row.prefix)
                ids_BT[number, begin:end] = torch.tensor(ids, dtype=torch.long)
                position_BT[number, begin:end] = torch.arange(start, start + len(ids))
                owner_BT[number, begin:end] = owner
                places += [(number, end - 1)] if owner != SHARED else []
        output = self._causal.model(
            input_ids=ids_BT.to(device),
            position_ids=position_BT.to(device),
            attention_mask=tree_mask(owner_BT, 0, self._causal.dtype).to(device),
            use_cache=False,
        )
        hidden_QD = output.last_hidden_state[torch.tensor(places, device=device).unbind(-1)]
        # float32: in bfloat16 a logit near 20 is rounded to the next 1/8
        logits_QV = torch.nn.functional.linear(hidden_QD.float(), self._causal.lm_head.weight.float())
        log_z_Q = logits_QV.logsumexp(-1)
        branches = [branch for row in rows for branch in row.branches]
        return [
            torch.stack([logits_V[list(label)].logsumexp(0) - log_z for label in branch.labels])
            for branch, logits_V, log_z in zip(branches, logits_QV, log_z_Q, strict=True)
        ]

    def losses(self, rows: Sequence[Row], max_tokens: int) -> Iterator[Tensor]:
        """Yield for each micro-batch the sum over its questions of the cross-entropy Σ -target · log p, in nats."""
        longest_first = sorted(rows, key=lambda row: row.size, reverse=True)
        for part in micro_batches(longest_first, max_tokens, lambda some: some[0].size * len(some)):
            targets = [branch.target for row in part for branch in row.branches]
            pairs = zip(targets, self.log_masses(part), strict=True)
            each = [-(torch.tensor(target, device=masses.device) * masses).sum() for target, masses in pairs]
            yield torch.stack(each).sum()


T = TypeVar("T")
_LOWER_LR = "lower optim.lr, and start again"
MUTABLE = {"checkpoint_every", "data", "description", "device", "keep_checkpoints", "license", "not_for", "out"}
MUTABLE |= {"test_examples"}
"""Settings that may change at a resume: they do not affect what is learned. Data is compared by content."""
_FITS = "raise the judge's max_context, choose a shorter template, or add shorter completions"


@dataclass(frozen=True)
class EncodedData:
    """What a judge learns from: rows by data set, and the ``weights`` by which they are mixed.

    ``validation`` rows are not trained on, for early stopping; a resumed training must share the ``digest``.
    """

    sources: Mapping[str, Sequence[Row]]
    weights: Mapping[str, float]
    validation: Sequence[Row]
    digest: str = ""


def encode(
    datasets: Mapping[str, Dataset],
    parts: Parts,
    encoder: Encoder,
    config: JudgeTrainConfig,
    on_progress: OnProgress = lambda done, total, note: None,
) -> EncodedData:
    """Return the rows to learn from, and those of the validation part.

    Examples that are longer than the judge's context are left out and counted in the data set's ``left_out``.
    """
    weights = {entry.name: entry.weight for entry in config.data if not datasets[entry.name].absent}
    known, validation = parts["train"], sample(parts["validation"], config.validation.max_examples)
    sources: dict[str, list[Row]] = {name: [] for name in weights}
    valid: list[Row] = []
    for number, example in enumerate((*known, *validation)):
        on_progress(number + 1, len(known) + len(validation), "")
        row = encoder.row(example)
        if not isinstance(row, Row):
            datasets[example.source].left_out[row] += 1
        elif number < len(known):
            sources[example.source].append(row)
        else:
            valid.append(row)
    if not valid:
        raise InvalidError("no example of the validation part can be encoded", hint=_FITS, path="judge.max_context")
    for name, weight in weights.items():
        if weight and not sources[name]:
            message = f"{name!r} has no example to train on; left out: {datasets[name].reasons or 'none'}"
            raise InvalidError(message, hint=f"{_FITS}, or set its weight to 0", path=f"data.{name}")
    return EncodedData(sources, weights, valid, digest("judge training", [one.digest for one in datasets.values()]))


def mix(sources: Mapping[str, Sequence[T]], weights: Mapping[str, float], seed: int) -> Iterator[T]:
    """Yield examples without end, from the sources in proportion to their weights.

    The proportion is of examples, not of targets, and already holds in short stretches: the next example is of the
    source that has fallen furthest behind its share. Each source is shuffled again in each of its epochs. The order
    depends on the sources, the weights and the seed only.
    """
    total = sum(weights.values())
    shares = {name: weight / total for name, weight in sorted(weights.items()) if weight}
    counts = dict.fromkeys(shares, 0)
    orders: dict[str, tuple[int, list[int]]] = {}
    for drawn in count(1):
        name = max(shares, key=lambda one: shares[one] * drawn - counts[one])
        epoch, place = divmod(counts[name], len(sources[name]))
        counts[name] += 1
        if orders.get(name, (-1,))[0] != epoch:
            order = list(range(len(sources[name])))
            random.Random(f"{seed}/{name}/{epoch}").shuffle(order)
            orders[name] = epoch, order
        yield sources[name][orders[name][1][place]]


@dataclass
class Trained:
    """The end of a training: ``best_step`` has the lowest validation loss, and its weights are the model's."""

    history: History
    best_step: int
    best_loss: float
    base_sha256: str


def train(
    model: JudgeModel,
    data: EncodedData,
    config: JudgeTrainConfig,
    *,
    on_step: Callable[[Metrics], None] | None = None,
    stop: Event | None = None,
    resume: bool = False,
) -> Trained:
    """Train a judge's model, and leave it with the weights of the lowest validation loss.

    The model has a fresh adapter, also when the training is resumed from the newest intact checkpoint. When ``stop`` is
    set, the training ends after the current step, with a checkpoint.
    """
    checkpoint.check_folder(config.out, resume=resume)
    optimizer = MasterAdamW(model.model, config.optim)
    learned = {name: param for name, param in model.model.named_parameters() if param.requires_grad}
    best: dict[str, torch.Tensor] = {}
    numbers: dict[str, float] = {"step": 0, "loss": math.inf, "since": 0}  # of the best, and validations since

    def save(folder: Path) -> None:
        model.model.save_pretrained(folder)
        save_file(best, folder / "best.safetensors", metadata={name: repr(one) for name, one in numbers.items()})

    identity = config.model_dump(mode="json", exclude_none=True, exclude=MUTABLE)
    identity["judge"].pop("name")  # another name is the way out where this one is taken
    weights = {entry.name: entry.weight for entry in config.data}
    identity |= {"weights": weights, "data_digest": data.digest, "base_sha256": model.base_sha256}
    first = done = checkpoint.resume(config, optimizer, identity) if resume else 0
    if done:
        with safe_open(checkpoint.folder(config.out, done) / "model/best.safetensors", framework="pt") as file:
            numbers = {name: float(one) if name == "loss" else int(one) for name, one in file.metadata().items()}
            best = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    write_config(config.out, config, {"data_digest": data.digest})
    history, start, written = History(config.out, done), time.monotonic(), done
    size = config.optim.batch_examples
    mixture = islice(mix(data.sources, data.weights, config.seed), done * size, None)
    try:
        while done < config.steps and numbers["since"] < config.validation.stop_after and not history.stopped:
            metrics = _step(model, optimizer, list(islice(mixture, size)), config, done)
            done += 1
            if done % config.validation.every == 0 or done == config.steps:
                metrics["validation_loss"] = loss = validation_loss(model, data.validation, config)
                numbers["since"] += 1
                if loss < numbers["loss"]:
                    best = {name: param.detach().clone() for name, param in learned.items()}
                    numbers = {"step": done, "loss": loss, "since": 0}
            recorded = history.add({"step": done, **metrics, "seconds": time.monotonic() - start})
            if done % config.checkpoint_every == 0:
                checkpoint.save(config, written := done, save, optimizer, identity)
            if on_step:
                on_step(recorded)
            history.stopped = stop is not None and stop.is_set() and done < config.steps
    except InvalidError:  # the loss is not finite: the last update may have ruined the weights
        written = done
        raise
    finally:
        if done > written and optimizer.updates == done - first:  # an interrupted update leaves no whole state
            checkpoint.save(config, done, save, optimizer, identity)
        optimizer.close()
    if not history.stopped:
        with torch.no_grad():
            for name, weight in best.items():
                learned[name].copy_(weight)
    return Trained(history, int(numbers["step"]), numbers["loss"], model.base_sha256)


def _step(
    model: JudgeModel, optimizer: MasterAdamW, rows: Sequence[Row], config: JudgeTrainConfig, step: int
) -> Metrics:
    """Take a step (from 0): its rate rises linearly, then falls linearly to ``final_lr`` times the highest one."""
    asked, start, total, optim = sum(len(row.branches) for row in rows), time.perf_counter(), 0.0, config.optim
    for loss in (one / max(1, asked) for one in model.losses(rows, optim.max_tokens)):
        total += float(loss.detach())
        if not math.isfinite(total):
            raise InvalidError(f"the loss of step {step + 1} is {total}", hint=_LOWER_LR)
        torch.autograd.backward(loss)
    rate = optimizer.learning_rate(step) * (1.0 - (1.0 - optim.final_lr) * step / max(1, config.steps))
    return {
        "loss": total,
        "questions": asked,
        "tokens": sum(row.size for row in rows),
        "grad_norm": optimizer.step(rate),
        "learning_rate": rate,
        "step_time": time.perf_counter() - start,
    }


@torch.no_grad()
def validation_loss(model: JudgeModel, rows: Sequence[Row], config: JudgeTrainConfig) -> float:
    """Return the mean cross-entropy over questions, in nats."""
    total = sum(map(float, model.losses(rows, config.optim.max_tokens)))
    if not math.isfinite(total):
        raise InvalidError(f"the validation loss is {total}", hint=_LOWER_LR)
    return total / sum(len(row.branches) for row in rows)
