"""Bases and adapters merged into Hugging Face folders: for vLLM in the worker, and for serving with ``vllm serve``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock

from rubricsvc.core.fingerprint import digest
from rubricsvc.errors import UnavailableError
from workers.engines.local.models import open_merged
from workers.engines.local.weights import ModelWeights, copy_permissions


def write_merged(out: Path, weights: ModelWeights) -> None:
    """Write a base with its adapter merged, and its tokenizer, into the folder ``out``.

    The weights have the type that the base is stored in.

    Raises:
        UnavailableError: The base or the adapter cannot be read, or has another digest.
        InvalidError: The adapter does not fit the base.
    """
    merged, tokenizer = open_merged(weights, "auto")
    merged.save_pretrained(out)
    tokenizer.save_pretrained(out)
    copy_permissions(out)


def merged_folder(cache: Path, weights: ModelWeights) -> Path:
    """Return the merged model in the cache folder, written by the first call of all processes.

    Raises:
        UnavailableError: As `write_merged`, or it cannot be stored.
        InvalidError: As `write_merged`.
    """
    place = cache / "merged"
    name = digest(weights.model, weights.revision, weights.sha256 or weights.adapter)
    target = place / name
    try:
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place / f"{name}.lock"):
            if not target.is_dir():
                # A folder of its own, so that only a complete model gets the final name. A killed process leaves it.
                with TemporaryDirectory(prefix=f"{name}.", dir=place) as work:
                    write_merged(Path(work) / name, weights)
                    (Path(work) / name).replace(target)
    except OSError as error:
        raise UnavailableError(
            f"cannot store the merged model of {weights.model} and {weights.adapter} in {place}: {error}",
            hint="set RUBRICSVC_CACHE_DIR to a writable folder with free space for the model",
        ) from error
    return target
