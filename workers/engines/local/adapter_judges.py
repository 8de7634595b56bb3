"""Judges with a LoRA adapter on a model in the worker's process, among them the one that this package ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError
from rubricsvc.formats.passports import load_passport
from workers.engines.local.embedded_model import EMBEDDED, WHEEL_SHA256
from workers.engines.local.weights import (
    ADAPTER_CONFIG,
    BASE_FILE,
    JUDGE_FILE,
    PASSPORT_FILE,
    SHIPPED,
    SHIPPED_ADAPTER,
    adapter_folder,
    read_json,
    trained_on,
    weights_sha256,
)

_ENGINE = "transformers_local"


def shipped_judge(name: str) -> Judge:
    """Return the embedded model with the adapter that this package ships."""
    return judge_with_adapter(name, SHIPPED_ADAPTER, EMBEDDED)


def shipped_passport() -> Passport:
    """Return the passport of the shipped adapter."""
    return load_passport(SHIPPED / PASSPORT_FILE)


def judge_with_adapter(name: str, adapter: str, model: str | None = None, mode: str | None = None) -> Judge:
    """Return a judge with a LoRA adapter.

    Args:
        name: Name of the judge.
        adapter: Folder of the adapter, or ``embedded``. Its ``judge.json`` has the fields that it was trained for.
        model: Its base, by default the one that its folder names.
        mode: Mode of the judge, by default that of ``judge.json``, else readout.

    Raises:
        UnavailableError: A file of the adapter is missing.
        InvalidError: The base is not known, the adapter was trained for another mode, or a file is invalid.
    """
    folder = adapter_folder(adapter)
    digest = weights_sha256(folder)
    fields = read_json(folder / JUDGE_FILE)
    trained_mode = fields.get("mode", "readout") if (folder / JUDGE_FILE).is_file() else mode or "readout"
    if mode not in (None, trained_mode):
        hint = f"leave --mode out, or remove {JUDGE_FILE} from the folder"
        raise InvalidError(f"the adapter {folder} was trained for mode {trained_mode}, not {mode}", hint=hint)
    own: dict[str, Any] = {"name": name, "engine": _ENGINE, "model": model or _base_of(folder), "mode": trained_mode}
    own |= {"adapter": adapter if adapter == SHIPPED_ADAPTER else str(folder.resolve()), "weights_sha256": digest}
    try:
        return Judge.model_validate(fields | own)
    except ValidationError as error:
        path, message = first_error(error, model=Judge)
        raise InvalidError(f"{folder / JUDGE_FILE}: {path}: {message}", hint="see docs/judges.md", path=path) from error


def adapter_passport(judge: Judge) -> Passport | None:
    """Return the passport beside the judge's adapter, or None where there is none.

    Raises:
        InvalidError: The passport is invalid.
    """
    file = adapter_folder(judge.adapter) / PASSPORT_FILE if judge.adapter else None
    return load_passport(file) if file is not None and file.is_file() else None


def _base_of(folder: Path) -> str:
    if trained_on(folder).sha256 == WHEEL_SHA256:
        return EMBEDDED
    base = read_json(folder / BASE_FILE).get("model") or read_json(folder / ADAPTER_CONFIG).get(
        "base_model_name_or_path"
    )
    if not isinstance(base, str):
        raise InvalidError(f"the adapter {folder} does not name its base", hint="name it with --model")
    return base


def with_adapter_fields(judge: Judge) -> Judge:
    """Return the judge with what the folders of its adapters say: the digest, and the fields of ``judge.json``.

    Fields that the judge has itself are kept. Paths of folders become absolute.

    Raises:
        UnavailableError: A file of an adapter is missing or cannot be read.
        InvalidError: ``judge.json`` is invalid, or the adapter was trained for another mode.
    """

    def complete(leaf: Judge) -> Judge:
        if leaf.adapter is None:
            return leaf
        own = {name: getattr(leaf, name) for name in leaf.model_fields_set}
        trained = judge_with_adapter(leaf.name, leaf.adapter, leaf.model, own.get("mode"))
        fields = {name: getattr(trained, name) for name in trained.model_fields_set}
        return Judge.model_validate(fields | own | {"adapter": trained.adapter})

    return judge.map_leaves(complete)
