"""Checkpoints: ``out/checkpoints/step-000050/`` holds all that a run needs to continue exactly.

::

    model/                   the weights, safetensors: a policy in its own type with its tokenizer, which transformers
                             and vLLM load, or a judge's adapter or model with the best weights so far
    optimizer.safetensors    float32 master weights and Adam's moments
    state.json               the step, and the settings that a resumed run must share
    SHA256SUMS               checksums of all files, as of sha256sum

There is no state of random numbers: those of a step depend on the seed and the step's number alone (see
`trainer.loop`), and so does the order of the data. A folder gets its final name only when it is complete and on disk.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rubricsvc.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from trainer.config import Identity, TrainConfig
from trainer.optim import MasterAdamW
from trainer.recording import sync

if TYPE_CHECKING:
    from trainer.judge_training.config import JudgeTrainConfig

log = logging.getLogger(__name__)

_SUMS = "SHA256SUMS"


def steps(out: Path) -> list[int]:
    """Return the steps that have a checkpoint, ascending."""
    names = (re.fullmatch("step-([0-9]{6,})", path.name) for path in (out / "checkpoints").glob("step-*"))
    return sorted(int(name[1]) for name in names if name)


def has_run(out: Path) -> bool:
    """Return whether the folder holds a run that can be resumed."""
    return (out / "config.json").is_file() or bool(steps(out))


def check_folder(out: Path, *, resume: bool) -> None:
    """Check that ``out`` holds a run if one is to be resumed, and no checkpoint otherwise.

    Raises:
        NotFoundError: There is no run to resume.
        ConflictError: There is a run that would be overwritten.
    """
    if resume and not has_run(out):
        raise NotFoundError(f"no training run in {out}", hint="start without --resume")
    if not resume and steps(out):
        hint = "resume it (--resume), or choose another `out`"
        raise ConflictError(f"{out} holds a training run already", hint=hint)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep other processes from training in ``out``, which is made."""
    lock = FileLock(out / ".lock", timeout=0)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        message = f"another process is training in {out}"
        raise ConflictError(message, hint="wait for it, or choose another `out`") from error
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidError(f"{out} is not a folder", hint="choose another `out`", path="out") from error
    except OSError as error:
        raise UnavailableError(f"cannot write to {out}: {error.strerror}", hint="choose another `out`") from error
    try:
        yield
    finally:
        lock.release()


def is_finished(out: Path, step: int) -> bool:
    """Return whether the newest checkpoint is intact, and of this step or a later one."""
    saved = steps(out)
    if not saved or saved[-1] < step:
        return False
    try:
        _verify(folder(out, saved[-1]))
    except (OSError, ValueError):
        return False
    return True


def folder(out: Path, step: int) -> Path:
    """Return the folder of the checkpoint after ``step`` steps."""
    return out / "checkpoints" / f"step-{step:06d}"


def save(
    config: TrainConfig | JudgeTrainConfig,
    step: int,
    write_model: Callable[[Path], None],
    optimizer: MasterAdamW,
    identity: Identity,
) -> None:
    """Save the state after ``step`` steps, and keep the newest ``keep_checkpoints``. Without ``out`` do nothing.

    ``write_model`` writes the model to a folder.
    """
    if config.out is None:
        return
    with complete_folder(folder(config.out, step)) as part:
        write_model(part / "model")
        save_file(optimizer.state(), part / "optimizer.safetensors")
        state = {"step": step, "identity": identity}
        (part / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")
    for old in steps(config.out)[: -config.keep_checkpoints]:
        shutil.rmtree(folder(config.out, old))


@contextmanager
def complete_folder(final: Path) -> Iterator[Path]:
    """Name a folder to write, a ``state.json`` among its files, that gets the name ``final`` when it is on disk.

    Its files get checksums, and may be read by those who may read ``state.json``.
    """
    part = final.with_name(f".{final.name}.part")
    for unfinished in final.parent.glob(".step-*.part"):  # of a process that was killed
        shutil.rmtree(unfinished, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        yield part
        files = sorted(path for path in part.rglob("*") if path.is_file())
        for path in files:
            shutil.copymode(part / "state.json", path)  # safetensors lets only their owner read weights
        lines = [f"{_sha256(path)}  {path.relative_to(part).as_posix()}\n" for path in files]
        (part / _SUMS).write_text("".join(lines), encoding="utf-8")
        for path in (*files, part / _SUMS, *(path for path in part.rglob("*") if path.is_dir()), part):
            sync(path)
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
        sync(final.parent)
    except (OSError, SafetensorError) as error:
        hint = "check the free disk space and the permissions, then continue with --resume"
        raise UnavailableError(f"cannot save the checkpoint {final}: {error}", hint=hint) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def resume(config: TrainConfig | JudgeTrainConfig, optimizer: MasterAdamW, identity: Identity) -> int:
    """Restore optimiser and policy from the newest intact checkpoint, and return the number of steps done.

    A damaged checkpoint is named in a warning and renamed, so that it does not count as one of ``keep_checkpoints``. An
    error leaves optimiser and policy as they were. A run that has no checkpoint yet has done 0 steps.
    """
    if config.out is None:
        raise NotFoundError("a run without `out` cannot be resumed", hint="set `out`")
    check_folder(config.out, resume=True)
    damaged: dict[int, str] = {}
    hint = ""
    for step in reversed(steps(config.out)):
        saved = folder(config.out, step)
        try:
            _verify(saved)
            state = json.loads((saved / "state.json").read_bytes())
            done = int(state["step"])
            check_identity(saved, dict(state["identity"]), identity)
            optimizer.restore(load_file(saved / "optimizer.safetensors"))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            damaged[step] = str(error) if isinstance(error, InvalidError) else f"{type(error).__name__}: {error}"
            hint = hint or getattr(error, "hint", "")
            continue
        for number, problem in damaged.items():
            at = folder(config.out, number)
            aside = at.with_name(f"damaged-{at.name}")
            shutil.rmtree(aside, ignore_errors=True)
            at.rename(aside)
            log.warning("the checkpoint %s is damaged (%s); it is now %s", at, problem, aside.name)
        if damaged:
            log.warning("continuing from %s; steps %d to %d are repeated", saved, done + 1, max(damaged))
        return done
    if damaged:
        problems = "; ".join(f"{folder(config.out, step)}: {problem}" for step, problem in damaged.items())
        hint = hint or "restore one from a copy, or choose another `out`"
        raise InvalidError(f"no checkpoint is intact: {problems}", hint=hint)
    log.warning("%s has no checkpoint yet: the run begins with its first step", config.out)
    return 0


def check_identity(saved: Path, before: Identity, now: Identity) -> None:
    """Check that a checkpoint was saved with the settings and the tasks of now."""
    changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    if not changed:
        return
    fields = [f"{name} = {before.get(name)} (now {now.get(name)})" for name in changed if name != "tasks"]
    fields += ["other prompts or rubric versions"] * ("tasks" in changed)
    hint = "restore them, choose another `out`, or delete the folder of the run"
    if "tasks" in changed:
        hint = f"{hint}; a rubric of the store is named with its version as NAME@VERSION"
    path = "data" if changed[0] == "tasks" else changed[0]
    raise ConflictError(f"{saved} was saved with {', '.join(fields)}", hint=hint, path=path)


def _verify(saved: Path) -> None:
    """Raise an error that names the first file of a checkpoint that is missing, or not as it was saved."""
    lines = (saved / _SUMS).read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    for name in sorted({*sums, "optimizer.safetensors", "state.json"}):
        if _sha256(saved / name) != sums.get(name):
            raise InvalidError(f"{name} does not have the checksum in {_SUMS}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
