"""The measures of single completions, by name."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.monitors.formats import bold, emoji, headings, lists
from trainer.monitors.length import length, shortness
from trainer.monitors.monitor import Measure
from trainer.monitors.phrases import refusals, self_praise, stock_phrases
from trainer.monitors.repetition import repetition
from trainer.monitors.scripts import other_script

MEANS: Mapping[str, Measure] = {
    "repetition": repetition,
    "other_script": other_script,
    "refusals": refusals,
    "stock_phrases": stock_phrases,
    "self_praise": self_praise,
    "lists": lists,
    "headings": headings,
    "bold": bold,
    "emoji": emoji,
}
"""Their means are metrics of a step."""
MEASURES: Mapping[str, Measure] = {**MEANS, "length": length, "shortness": shortness}
"""What the examples of an alarm have most of, by the alarm's sign."""
