"""Repetition within a completion."""

from __future__ import annotations

from rubricsvc.core.trajectory import distinct_share
from trainer.monitors.monitor import words

RUN = 4
"""Words of a run."""


def repetition(prompt: str, text: str) -> float:
    """Return the share of runs of four words that occurred before in the text (seq-rep-4, 1908.04319)."""
    return 1.0 - distinct_share(words(text), RUN)
