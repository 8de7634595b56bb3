"""The training loop of a judge: mix, loss, step; validate, keep the best weights, checkpoint.

The examples of a step depend on the seed and on the number of examples drawn before alone, so that a resumed training
equals one that was never interrupted.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Event
from typing import TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from rubricsvc.core.fingerprint import digest
from rubricsvc.errors import InvalidError
from rubricsvc.stats import OnProgress
from trainer import checkpoint
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.data import Dataset, Split, sample
from trainer.judge_training.model import Encoder, JudgeModel, Row, cross_entropy, micro_batches
from trainer.optim import MasterAdamW
from trainer.recording import History, Metrics

T = TypeVar("T")
_LOWER_LR = "lower optim.lr, and start again"
_MUTABLE = {"checkpoint_every", "data", "description", "device", "keep_checkpoints", "license", "not_for", "out"}
_MUTABLE |= {"test_examples"}
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
    split: Split,
    encoder: Encoder,
    config: JudgeTrainConfig,
    on_progress: OnProgress = lambda done, total, note: None,
) -> EncodedData:
    """Return the rows to learn from, and those of the validation part.

    Examples that are longer than the judge's context are left out and counted in the data set's ``left_out``.
    """
    weights = {entry.name: entry.weight for entry in config.data if not datasets[entry.name].absent}
    known, validation = split.parts["train"], sample(split.parts["validation"], config.validation.max_examples)
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


def mix(sources: Mapping[str, Sequence[T]], weights: Mapping[str, float], seed: int, *, start: int = 0) -> Iterator[T]:
    """Yield examples without end, from the sources in proportion to their weights.

    The proportion is of examples, not of targets, and already holds in short stretches: the next example is of the
    source that has fallen furthest behind its share. Each source is shuffled again in each of its epochs. The order
    depends on the sources, the weights and the seed only; ``start`` examples were drawn before.
    """
    total = sum(weights.values())
    shares = {name: weight / total for name, weight in sorted(weights.items()) if weight}
    counts = dict.fromkeys(shares, 0)
    orders: dict[str, tuple[int, list[int]]] = {}
    drawn = 0
    while True:
        drawn += 1
        name = max(shares, key=lambda one: shares[one] * drawn - counts[one])
        epoch, place = divmod(counts[name], len(sources[name]))
        counts[name] += 1
        if drawn <= start:
            continue
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


@dataclass
class _Best:
    """The model of a training with its best weights so far, and how many validations have not improved on them."""

    model: JudgeModel
    step: int = 0
    loss: float = math.inf
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    since: int = 0

    def update(self, step: int, loss: float) -> None:
        self.since += 1
        if loss < self.loss:
            self.step, self.loss, self.weights, self.since = step, loss, self.model.trained_weights(), 0

    def save(self, folder: Path) -> None:
        self.model.model.save_pretrained(folder)
        metadata = {name: repr(getattr(self, name)) for name in ("step", "loss", "since")}
        save_file(self.weights, folder / "best.safetensors", metadata=metadata)

    def load(self, folder: Path) -> None:
        with safe_open(folder / "best.safetensors", framework="pt") as file:
            numbers = file.metadata()
            self.weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        self.step, self.since, self.loss = int(numbers["step"]), int(numbers["since"]), float(numbers["loss"])


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
    optimizer, best = MasterAdamW(model.model, config.optim), _Best(model)
    identity = config.model_dump(mode="json", exclude_none=True, exclude=_MUTABLE)
    identity["judge"].pop("name")  # another name is the way out where this one is taken
    weights = {entry.name: entry.weight for entry in config.data}
    identity |= {"weights": weights, "data_digest": data.digest, "base_sha256": model.base_sha256}
    first = done = checkpoint.resume(config, optimizer, identity) if resume else 0
    if done:
        best.load(checkpoint.folder(config.out, done) / "model")
    checkpoint.write_config(config.out, config, {"data_digest": data.digest})
    history, start, written = History(config.out, done), time.monotonic(), done
    size = config.optim.batch_examples
    mixture = mix(data.sources, data.weights, config.seed, start=done * size)
    try:
        while done < config.steps and best.since < config.validation.stop_after and not history.stopped:
            metrics = _step(model, optimizer, list(islice(mixture, size)), config, done)
            done += 1
            if done % config.validation.every == 0 or done == config.steps:
                metrics["validation_loss"] = validation_loss(model, data.validation, config)
                best.update(done, metrics["validation_loss"])
            recorded = history.add({"step": done, **metrics, "seconds": time.monotonic() - start})
            if done % config.checkpoint_every == 0:
                checkpoint.save(config, written := done, best.save, optimizer, identity)
            if on_step:
                on_step(recorded)
            history.stopped = stop is not None and stop.is_set() and done < config.steps
    except InvalidError:  # the loss is not finite: the last update may have ruined the weights
        written = done
        raise
    finally:
        if done > written and optimizer.updates == done - first:  # an interrupted update leaves no whole state
            checkpoint.save(config, done, best.save, optimizer, identity)
        optimizer.close()
    if not history.stopped:
        model.restore(best.weights)
    return Trained(history, best.step, best.loss, model.base_sha256)


def _step(
    model: JudgeModel, optimizer: MasterAdamW, rows: Sequence[Row], config: JudgeTrainConfig, step: int
) -> Metrics:
    """Take a step (from 0): its rate rises linearly, then falls linearly to ``final_lr`` times the highest one."""
    asked, start, total, optim = sum(len(row.branches) for row in rows), time.perf_counter(), 0.0, config.optim
    for part in micro_batches(rows, optim.max_tokens):
        loss = cross_entropy(part, model.log_masses(part)) / max(1, asked)
        total += float(loss.detach())
        if not math.isfinite(total):
            raise InvalidError(f"the loss of step {step + 1} is {total}", hint=_LOWER_LR)
        torch.autograd.backward(loss)
    rate = optim.lr * min(1.0, (step + 1) / max(1, optim.warmup_steps))
    rate *= 1.0 - (1.0 - optim.final_lr) * step / max(1, config.steps)
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
    parts = micro_batches(rows, config.optim.max_tokens)
    total = sum(float(cross_entropy(part, model.log_masses(part))) for part in parts)
    if not math.isfinite(total):
        raise InvalidError(f"the validation loss is {total}", hint=_LOWER_LR)
    return total / sum(len(row.branches) for row in rows)
