"""The base of a training, and the trained judge as files: an adapter in peft's format, or a whole model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.formats.passports import dump_passport
from trainer.files import replace_text, sync
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.encoding import Encoder
from trainer.judge_training.model import JudgeModel
from workers.engines.local.conversation import Conversation
from workers.engines.local.models import default_device, dtype_name, model_folder, open_pretrained
from workers.engines.local.weights import (
    ADAPTER_CONFIG,
    BASE_FILE,
    JUDGE_FILE,
    PASSPORT_FILE,
    ModelWeights,
    base_sha256,
    copy_permissions,
    weights_sha256,
)

FOLDER = "judge"
"""Folder of the trained judge, in the training's ``out``."""

_ASKED = {"mode", "template", "sampling", "threshold", "min_answer_mass", "max_context", "calibration"}
"""Fields of a judge that its training depends on."""


def open_base(config: JudgeTrainConfig) -> tuple[JudgeModel, Encoder, Any]:
    """Return the base to train, with a fresh adapter if one is trained; the encoder of its judge; its tokenizer.

    Raises:
        UnavailableError: It cannot be fetched or read.
        InvalidError: There is no such device, or the model has no modules of these names.
    """
    judge = config.judge
    dtype = getattr(torch, config.dtype or dtype_name(config.device))
    base, tokenizer = open_pretrained(judge.model, dtype, revision=judge.revision)
    try:
        base = base.to(config.device or default_device())
    except (RuntimeError, AssertionError) as error:  # no such device, or torch was built without it
        message = f"device {config.device!r}: {str(error).splitlines()[0]}"
        raise InvalidError(message, hint='leave it out, or use "cpu"', path="device") from error
    if base.device.type == "meta":
        raise InvalidError(f"device {config.device!r} holds no weights", hint='use "cpu"', path="device")
    sha256 = base_sha256(judge.model, model_folder(ModelWeights(judge.model, judge.revision)))
    lora = config.lora if config.method == "lora" else None
    model = JudgeModel(base, lora, seed=config.seed, base_sha256=sha256)
    return model, Encoder(judge, Conversation(tokenizer), base.config.max_position_embeddings), tokenizer


def export(model: JudgeModel, tokenizer: Any, config: JudgeTrainConfig) -> Judge:
    """Write the trained weights to ``out/judge`` and return the judge that is asked with them.

    A folder that has these weights already is kept, with the results of their examination.

    Raises:
        UnavailableError: The folder cannot be written.
    """
    final = config.out / FOLDER
    part = final.with_name(f".{FOLDER}.part")
    with _writing(final):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        model.save(part)
        copy_permissions(part)
        if config.method == "lora":
            _normalise(part, config.judge, model.base_sha256)
        else:
            tokenizer.save_pretrained(part)
        write_judge(part, config.judge)
        trained = weights_sha256(part)
        if not _has_weights(final, trained):
            shutil.rmtree(final, ignore_errors=True)
            part.rename(final)
            sync(final.parent)
        shutil.rmtree(part, ignore_errors=True)
    place = {"adapter" if config.method == "lora" else "model": str(final.resolve())}
    return Judge.model_validate(config.judge.model_dump() | place | {"weights_sha256": trained})


def _has_weights(folder: Path, sha256: str) -> bool:
    try:
        return weights_sha256(folder) == sha256
    except UnavailableError:  # no such folder, or no weights in it
        return False


def write_judge(folder: Path, judge: Judge) -> None:
    """Write the fields that the weights were trained for to ``judge.json``.

    Raises:
        UnavailableError: The disk is full, say.
    """
    fields = judge.model_dump(mode="json", include=_ASKED, exclude_defaults=True)
    with _writing(folder):
        replace_text(folder / JUDGE_FILE, json.dumps(fields, indent=2, sort_keys=True) + "\n")


def write_passport(folder: Path, passport: Passport) -> None:
    """Write ``passport.json`` beside the weights.

    Raises:
        UnavailableError: The disk is full, say.
    """
    text = StringIO()
    dump_passport(passport, text)
    with _writing(folder):
        replace_text(folder / PASSPORT_FILE, text.getvalue())


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        hint = "check the free disk space and the permissions, then continue with --resume"
        raise UnavailableError(f"cannot write the trained judge to {folder}: {error}", hint=hint) from error


def _normalise(folder: Path, judge: Judge, base_sha256: str) -> None:
    """Keep of peft's files what loads the adapter; equal trainings give equal bytes, without paths of a machine."""
    path = folder / ADAPTER_CONFIG
    fields = json.loads(path.read_text(encoding="utf-8"))
    fields["base_model_name_or_path"] = judge.model
    fields["target_modules"] = sorted(fields["target_modules"])
    path.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "README.md").unlink(missing_ok=True)
    base = {"model": judge.model, "base_sha256": base_sha256}
    (folder / BASE_FILE).write_text(json.dumps(base, indent=2) + "\n", encoding="utf-8")
