"""Checkpoints: ``out/checkpoints/step-000050/`` holds all that a run needs to continue exactly.

::

    model/                   the policy, safetensors in its own type with its tokenizer; transformers and vLLM load it
    optimizer.safetensors    float32 master weights and Adam's moments
    state.json               the step, and the settings that a resumed run must share

There is no state of random numbers: those of a step depend on the seed and the step's number alone (see
`trainer.loop`), and so does the order of the data. A folder gets its final name only when it is complete.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rubricsvc.core.fingerprint import digest
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from trainer.config import TrainConfig
from trainer.optim import MasterAdamW
from trainer.policy import Policy
from trainer.rewards import Task

_MUTABLE_SETTINGS = {
    "steps",
    "out",
    "data.path",
    "data.format",
    "checkpoint_every",
    "keep_checkpoints",
    "max_unscored",
    "criterion_metrics",
    "policy.device",
    "optim.micro_batch",
    "judge.endpoint",
    "judge.service",
    "judge.timeout_s",
}
"""Settings that may change at a resume: they do not affect what is learned. Data is compared by content."""

Identity = dict[str, Any]
"""The settings that a resumed run must share, by dotted name, and the digest of its tasks."""


def identity(config: TrainConfig, tasks: Sequence[Task], std_floor: float) -> Identity:
    """Return what must be the same for a run to be resumed.

    ``std_floor`` is the number that ``optim.std_floor`` stands for: a judge may have been measured since.
    """
    flat: Identity = {}
    for name, value in config.model_dump(mode="json").items():
        flat |= {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
    fixed = {name: value for name, value in flat.items() if name not in _MUTABLE_SETTINGS and value is not None}
    return fixed | {
        "optim.std_floor": std_floor,
        "tasks": digest([[task.prompt.digest, task.rubric.digest] for task in tasks]),
    }


def write_config(config: TrainConfig, record: Mapping[str, Any]) -> None:
    """Write the configuration and ``record`` (plain data) to ``config.json``, where the run has a folder."""
    if config.out is not None:
        config.out.mkdir(parents=True, exist_ok=True)
        content = config.model_dump(mode="json") | dict(record)
        part = config.out / "config.part"
        part.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
        part.replace(config.out / "config.json")


def steps(out: Path) -> list[int]:
    """Return the steps that have a checkpoint, ascending."""
    names = (re.fullmatch("step-([0-9]{6,})", path.name) for path in (out / "checkpoints").glob("step-*"))
    return sorted(int(name[1]) for name in names if name)


def folder(out: Path, step: int) -> Path:
    """Return the folder of the checkpoint after ``step`` steps."""
    return out / "checkpoints" / f"step-{step:06d}"


def save(config: TrainConfig, step: int, policy: Policy, optimizer: MasterAdamW, identity: Identity) -> None:
    """Save the state after ``step`` steps, and keep the newest ``keep_checkpoints``. Without ``out`` do nothing."""
    if config.out is None:
        return
    final = folder(config.out, step)
    part = final.with_name(f".{final.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    policy.save(part / "model")
    save_file(optimizer.state(), part / "optimizer.safetensors")
    state = {"step": step, "identity": identity}
    (part / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")
    shutil.rmtree(final, ignore_errors=True)
    part.rename(final)
    for old in steps(config.out)[: -config.keep_checkpoints]:
        shutil.rmtree(folder(config.out, old))


def resume(config: TrainConfig, optimizer: MasterAdamW, identity: Identity) -> int:
    """Restore optimiser and policy from the newest checkpoint, and return the number of steps done.

    Raises:
        NotFoundError: there is no checkpoint.
        ConflictError: it was saved with another configuration or other data.
        InvalidError: it is damaged, or belongs to another model.
    """
    if config.out is None or not (saved := steps(config.out)):
        raise NotFoundError(f"no checkpoint in {config.out}", hint="start without --resume")
    newest = folder(config.out, saved[-1])
    try:
        state = json.loads((newest / "state.json").read_bytes())
        done, before = int(state["step"]), dict(state["identity"])
        tensors = load_file(newest / "optimizer.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        rest = f"to resume from {folder(config.out, saved[-2]).name}" if saved[1:] else "and start without --resume"
        message = f"{newest} is damaged: {type(error).__name__}: {error}"
        raise InvalidError(message, hint=f"delete the folder {rest}") from error
    for name in sorted(before.keys() | identity.keys()):
        if before.get(name) != identity.get(name):
            raise ConflictError(
                f"{newest} was saved with {name} = {before.get(name)}; now it is {identity.get(name)}",
                hint=f'restore the setting, or start a new run from there with policy.model = "{newest / "model"}"',
            )
    optimizer.restore(tensors)
    return done
