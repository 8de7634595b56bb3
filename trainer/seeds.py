"""Seeds of independent streams of random numbers."""

from __future__ import annotations

import hashlib


def stream_seed(seed: int, purpose: str, number: int) -> int:
    """Return the seed of a stream, 56 bits: neighbouring seeds, purposes and numbers share nothing."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}/{number}".encode()).digest()[:7])
