"""The training loop of a judge: mix, encode, loss, step; validate, keep the best weights, checkpoint.

The examples of a step depend on the seed and on the number of examples drawn before alone, so that a resumed training
equals one that was never interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from rubricsvc.errors import ConflictError, InvalidError
from trainer import checkpoint
from trainer.history import History, Metrics
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.encoding import Row
from trainer.judge_training.model import JudgeModel, cross_entropy, micro_batches, preference_loss, reads_of
from trainer.optim import MasterAdamW
from workers.engines.local.weights import read_json

Batch = tuple[list[Row], list[tuple[Row, Row]]]
"""The rows of a step: examples, and pairs of rows of which the first is preferred."""


@dataclass(frozen=True)
class EncodedData:
    """What a judge learns from.

    Attributes:
        batch: Returns the rows of a step (from 0); the same step gives the same rows.
        validation: Rows that are not trained on, for early stopping.
        digest: SHA-256 of all examples, which a resumed training must share.
        validation_pairs: Pairs of rows that are not trained on, the preferred one first.
        datasets: Digest and number of completions of each data set, by name, to say which one changed.
    """

    batch: Callable[[int], Batch]
    validation: Sequence[Row]
    digest: str
    validation_pairs: Sequence[tuple[Row, Row]] = ()
    datasets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass
class Trained:
    """The end of a training: ``best_step`` has the lowest validation loss, and its weights are the model's."""

    history: History
    best_step: int
    best_loss: float
    base_sha256: str


@dataclass
class _Best:
    """The weights of the lowest validation loss so far, and how many validations have not improved on it."""

    step: int = 0
    loss: float = math.inf
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    since: int = 0

    def update(self, step: int, loss: float, model: JudgeModel) -> None:
        self.since += 1
        if loss < self.loss:
            self.step, self.loss, self.weights, self.since = step, loss, model.trained_weights(), 0


class _Saved:
    """What a checkpoint has beside the optimiser's state: the model, and the best weights so far."""

    def __init__(self, model: JudgeModel, best: _Best) -> None:
        self._model, self._best = model, best

    def save(self, folder: Path) -> None:
        self._model.save(folder)
        numbers = {"step": self._best.step, "loss": self._best.loss, "since": self._best.since}
        metadata = {name: repr(number) for name, number in numbers.items()}
        save_file(self._best.weights, folder / "best.safetensors", metadata=metadata)

    def load(self, folder: Path) -> None:
        with safe_open(folder / "best.safetensors", framework="pt") as file:
            numbers = file.metadata()
            self._best.weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        self._best.step, self._best.since = int(numbers["step"]), int(numbers["since"])
        self._best.loss = float(numbers["loss"])


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

    Args:
        model: The model, with a fresh adapter or the weights of the base, also when the training is resumed.
        data: What it learns from.
        config: Settings; checkpoints and metrics are written to ``config.out``.
        on_step: Called with the metrics of each step.
        stop: When set, the training ends after the current step, with a checkpoint.
        resume: Continue from the newest intact checkpoint.

    Raises:
        InvalidError: A loss or its gradient is not finite, or no checkpoint is intact.
        ConflictError: ``out`` holds a training and ``resume`` is False, or it was configured otherwise, or with other
            data.
        UnavailableError: A checkpoint cannot be written. The training can be resumed.
    """
    checkpoint.check_folder(config.out, resume=resume)
    _check_data(config.out, data)
    optimizer, best = MasterAdamW(model.model, config.optim), _Best()
    saved, identity = _Saved(model, best), _identity(config, data, model.base_sha256)
    first = done = checkpoint.resume(config, optimizer, identity) if resume else 0
    if done:
        saved.load(checkpoint.folder(config.out, done) / "model")
    checkpoint.write_config(config.out, config, {"data_digest": data.digest, "datasets": data.datasets})
    history, start, written = History(config.out, done), time.monotonic(), done
    try:
        while done < config.steps and best.since < config.validation.stop_after and not history.stopped:
            metrics = _step(model, optimizer, data.batch(done), config, done)
            done += 1
            if done % config.validation.every == 0 or done == config.steps:
                metrics["validation_loss"] = validation_loss(model, data.validation, config, data.validation_pairs)
                best.update(done, metrics["validation_loss"], model)
            recorded = history.add({"step": done, **metrics, "seconds": time.monotonic() - start})
            if done % config.checkpoint_every == 0:
                checkpoint.save(config, written := done, saved, optimizer, identity)
            if on_step:
                on_step(recorded)
            history.stopped = stop is not None and stop.is_set() and done < config.steps
    except InvalidError:  # the loss is not finite: the last update may have ruined the weights
        written = done
        raise
    finally:
        if done > written and optimizer.updates == done - first:  # an interrupted update leaves no whole state
            checkpoint.save(config, done, saved, optimizer, identity)
        optimizer.close()
    if not history.stopped:
        model.restore(best.weights)
    return Trained(history, best.step, best.loss, model.base_sha256)


def _check_data(out: Path, data: EncodedData) -> None:
    """Check that checkpoints in ``out`` are of the same data.

    Raises:
        ConflictError: They are not; names the data sets that changed, with their completions.
    """
    before = read_json(out / "config.json")
    if not checkpoint.steps(out) or before.get("data_digest") in (None, data.digest):
        return
    old, new = before.get("datasets", {}), data.datasets
    sizes = {name: [one.get(name, {}).get("completions", 0) for one in (old, new)] for name in sorted({*old, *new})}
    changes = [
        f"{name} {sizes[name][0]} → {sizes[name][1]} completions" for name in sizes if old.get(name) != new.get(name)
    ]
    message = f"the data changed since {out} was trained: {', '.join(changes) or 'its order'}"
    raise ConflictError(message, hint="train in another folder (another `out`), or restore the data", path="data")


def _step(model: JudgeModel, optimizer: MasterAdamW, batch: Batch, config: JudgeTrainConfig, step: int) -> Metrics:
    rows, pairs = batch
    reads = sum(len(reads_of(row)) for row in rows)
    count = max(1, reads + len(pairs))
    losses, start = [0.0, 0.0], time.perf_counter()
    for part in micro_batches(rows, config.optim.max_tokens):
        loss = cross_entropy(part, model.log_masses(part)) / count
        losses[0] += _backward(loss, step)
    for pair in pairs:
        loss = preference_loss(pair, model.log_masses(pair)) / count
        losses[1] += _backward(loss, step)
    norm = optimizer.step(learning_rate(config, step))
    tokens = sum(row.size for row in rows) + sum(row.size for pair in pairs for row in pair)
    return {
        "loss": sum(losses),
        "cross_entropy": losses[0] * count / reads if reads else None,
        "preference_loss": losses[1] * count / len(pairs) if pairs else None,
        "reads": reads,
        "tokens": tokens,
        "grad_norm": norm,
        "learning_rate": learning_rate(config, step),
        "step_time": time.perf_counter() - start,
    }


def _backward(loss: torch.Tensor, step: int) -> float:
    """Compute the gradient of a loss; return its value.

    Raises:
        InvalidError: It is not finite.
    """
    value = _finite(float(loss.detach()), f"the loss of step {step + 1}")
    torch.autograd.backward(loss)
    return value


def _finite(value: float, what: str) -> float:
    if not math.isfinite(value):
        raise InvalidError(f"{what} is {value}", hint="lower optim.lr, and start again")
    return value


def learning_rate(config: JudgeTrainConfig, step: int) -> float:
    """Return the learning rate of ``step`` (from 0): a linear rise, then a linear fall to ``final_lr`` times it."""
    optim = config.optim
    rise = min(1.0, (step + 1) / max(1, optim.warmup_steps))
    return optim.lr * rise * (1.0 - (1.0 - optim.final_lr) * step / max(1, config.steps))


@torch.no_grad()
def validation_loss(
    model: JudgeModel, rows: Sequence[Row], config: JudgeTrainConfig, pairs: Sequence[tuple[Row, Row]] = ()
) -> float:
    """Return the mean over reads (cross-entropy, in nats) and pairs (Bradley-Terry), as the loss of a step.

    Raises:
        InvalidError: It is not finite.
    """
    parts = micro_batches(rows, config.optim.max_tokens)
    total = sum(float(cross_entropy(part, model.log_masses(part))) for part in parts)
    total += sum(float(preference_loss(pair, model.log_masses(pair))) for pair in pairs)
    count = sum(len(reads_of(row)) for row in rows) + len(pairs)
    return _finite(total / count, "the validation loss")


_MUTABLE = {
    "checkpoint_every",
    "data",
    "description",
    "device",
    "exclude",
    "keep_checkpoints",
    "license",
    "not_for",
    "out",
    "test_examples",
}
"""Settings that may change at a resume: they do not affect what is learned. Data is compared by content."""


def _identity(config: JudgeTrainConfig, data: EncodedData, base_sha256: str) -> dict[str, Any]:
    """Return what a resumed training must share with the one before."""
    fixed = config.model_dump(mode="json", exclude_none=True, exclude=_MUTABLE)
    fixed["judge"].pop("name")  # another name is the way out where this one is taken
    weights = {entry.name: entry.weight for entry in config.data}
    content = {"data_digest": data.digest, "base_sha256": base_sha256}
    return fixed | {"weights": weights, "pairs": sorted(config.paired)} | content
