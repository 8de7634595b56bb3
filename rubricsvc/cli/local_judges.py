"""Judges with a model in the worker's process: the embedded one, and bases with a LoRA adapter."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rubricsvc.cli.models import judge_from_options, with_leaves
from rubricsvc.cli.output import echo
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
    adapter_folder,
    check_sha256,
    read_json,
    trained_on,
    weights_sha256,
)

_ENGINE = "transformers_local"


def embedded_judge(name: str, mode: str | None = None, *, untrained: bool = False, shipped: Path = SHIPPED) -> Judge:
    """Return a judge with the embedded model, and print what it can be relied on for.

    A readout has the adapter in the folder ``shipped`` merged, where there is one. Other modes, which it was not
    trained for, and ``untrained`` judges have the bare model.
    """
    judge = None if untrained or mode not in (None, "readout") else shipped_judge(name, shipped)
    if judge is None:
        if mode not in (None, "readout") and not untrained and shipped.is_dir():
            echo(f"mode {mode} asks the bare model: the shipped adapter was trained for readouts")
        judge = judge_from_options(name=name, engine=_ENGINE, model=EMBEDDED, mode=mode or "readout")
    describe_embedded([judge])
    return judge


def shipped_judge(name: str, shipped: Path = SHIPPED) -> Judge | None:
    """Return the embedded model with the adapter in the folder ``shipped``, or None where there is no such folder."""
    return judge_with_adapter(name, EMBEDDED, EMBEDDED, folder=shipped) if shipped.is_dir() else None


def judge_with_adapter(
    name: str, adapter: str, model: str | None = None, mode: str | None = None, *, folder: Path | None = None
) -> Judge:
    """Return a judge with a LoRA adapter.

    Args:
        name: Name of the judge.
        adapter: Folder of the adapter, or ``embedded``. Its ``judge.json`` has the fields that it was trained for.
        model: Its base, by default the one that its folder names.
        mode: Mode of the judge, by default that of ``judge.json``, else readout.
        folder: Where the adapter is, if not in its own place.

    Raises:
        UnavailableError: A file of the adapter is missing, or not the one of ``judge.json``.
        InvalidError: The base is not known, the adapter was trained for another mode, or a file is invalid.
    """
    folder = folder or adapter_folder(adapter)
    digest = weights_sha256(folder)
    fields = read_json(folder / JUDGE_FILE)
    check_sha256(folder, fields.get("weights_sha256", digest), digest)
    trained_mode = fields.get("mode", "readout") if (folder / JUDGE_FILE).is_file() else mode or "readout"
    if mode not in (None, trained_mode):
        hint = f"leave --mode out, or remove {JUDGE_FILE} from the folder"
        raise InvalidError(f"the adapter {folder} was trained for mode {trained_mode}, not {mode}", hint=hint)
    own: dict[str, Any] = {"name": name, "engine": _ENGINE, "model": model or _base_of(folder), "mode": trained_mode}
    own |= {"adapter": adapter if adapter == EMBEDDED else str(folder.resolve()), "weights_sha256": digest}
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


def with_digests(judge: Judge) -> Judge:
    """Return the judge with the digest of each adapter that has none, and with absolute paths of their folders.

    Raises:
        UnavailableError: A file of an adapter is missing or cannot be read.
    """

    def complete(leaf: Judge) -> Judge:
        if leaf.adapter is None:
            return leaf
        folder = adapter_folder(leaf.adapter)
        place = leaf.adapter if leaf.adapter == EMBEDDED else str(folder.resolve())
        digest = leaf.weights_sha256 or weights_sha256(folder)
        return leaf.model_copy(update={"adapter": place, "weights_sha256": digest})

    return with_leaves(judge, complete)


def describe_embedded(added: Iterable[Judge]) -> None:
    """Print what judges with the embedded model can be relied on for."""
    leaves = [leaf for judge in added for leaf in judge.leaf_judges if leaf.model == EMBEDDED]
    if any(leaf.adapter is None for leaf in leaves):
        echo("the embedded 135M model without an adapter is for trying things out: it is hardly better than chance")
    for leaf in leaves:
        if leaf.adapter == EMBEDDED:
            echo(
                "embedded: SmolLM2-135M with the shipped adapter; what it can judge and what it cannot, once added "
                f"(`rubricsvc judges add {leaf.name} --embedded`): `rubricsvc judges passport {leaf.name}`"
            )
