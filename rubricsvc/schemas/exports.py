"""What is exported of a job, and the counts of an export."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, model_validator

from rubricsvc.schemas.base import Wire

ExportFormat = Literal["jsonl", "csv", "parquet", "datasets"]
ExportKind = Literal["completion", "sft", "dpo", "kto"]
_OPTIONS = {"top": ("sft",), "min_margin": ("dpo",), "noise": ("dpo", "kto"), "threshold": ("kto",)}
"""What kinds an option belongs to."""


class ExportQuery(Wire):
    """What is exported: rewards and verdicts with their texts, or examples for TRL's trainers."""

    kind: ExportKind = Field(
        "completion", description="A row for each completion, or examples for TRL: sft, dpo (pairs) or kto (labels)."
    )
    top: int | None = Field(None, ge=1, description="sft: completions of each prompt; by default the best one.")
    min_margin: float | None = Field(None, ge=0, description="dpo: minimum difference of the rewards.")
    noise: float | None = Field(
        None,
        ge=0,
        description="dpo, kto: standard deviation of a reward if the judge is asked again; by default as measured by"
        " `judges repeatability`.",
    )
    threshold: float | None = Field(
        None, description="kto: reward of a desirable completion; by default the mean of the prompt."
    )

    @model_validator(mode="after")
    def _options_of_the_kind(self) -> ExportQuery:
        for name, kinds in _OPTIONS.items():
            if getattr(self, name) is not None and self.kind not in kinds:
                raise ValueError(f"{name} is an option of kind {' or '.join(kinds)}")
        return self


@dataclass
class ExportCounts:
    """What an export has read and written, and how many examples were left out by reason.

    ``close``: a tie, or closer than ``min_margin``. ``uncertain``: within the judge's noise at 95 %. ``contradictory``:
    the same texts are ordered or labelled the other way, too. ``near_duplicates``: the texts repeat another example, or
    those of a pair each other. ``lower``: not among the best. ``single``: nothing to compare it with.
    """

    items: int = 0
    rows: int = 0
    without_reward: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    noise: float = 0.0
