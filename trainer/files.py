"""Files that survive a loss of power: their content is on disk before a rename makes it visible."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: an error keeps the earlier content."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    sync(part)
    part.replace(path)
