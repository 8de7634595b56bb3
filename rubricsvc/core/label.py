"""Labels: people's verdicts on one criterion of a completion, or on the completion as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, StringConstraints

from rubricsvc.core.base import MAX_NAME_LENGTH, UnitInterval, Value
from rubricsvc.core.rubric import Criterion
from rubricsvc.core.verdict import StorableText, Verdict

OVERALL = "overall"
"""The key of a score of the whole completion. If a rubric has such a criterion, the judge is asked for it too."""


Annotator = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_LENGTH)]


class Label(Value):
    """A person's verdict. ``value`` is in [0, 1] on the criterion's scale; None if the person could not decide."""

    criterion: str = Field(
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        description="Key of the criterion, or overall: the completion as a whole.",
    )
    annotator: Annotator = Field(description="Name of the person.")
    value: UnitInterval | None = Field(
        None, description="Value on the criterion's scale; null if the person could not tell."
    )
    note: StorableText | None = Field(None, max_length=20_000, description="Why, in the person's words.")

    @property
    def verdict(self) -> Verdict:
        """The label as a verdict, for `rubricsvc.reward`: scored, or abstained where the person could not tell."""
        if self.value is None:
            return Verdict.abstained(self.criterion, rationale=self.note)
        return Verdict.scored(self.criterion, self.value, rationale=self.note)


@dataclass(frozen=True, slots=True)
class JudgedLabel:
    """A label beside one judge's verdicts on the same completion under the same rubric.

    ``verdicts`` has the judge's newest verdicts by criterion, and is empty if it was not asked; ``reward`` was computed
    from them. ``criterion`` is None for an ``overall`` score under a rubric without such a criterion.
    """

    completion_id: int
    prompt_id: int
    rubric_id: int
    label: Label
    criterion: Criterion | None
    verdicts: Mapping[str, Verdict]
    reward: float | None = None
    completion_external_id: str | None = None

    @property
    def question(self) -> str:
        """What the person was asked: the criterion's question, or the key of a score of the whole completion."""
        return self.criterion.question if self.criterion is not None else self.label.criterion

    @property
    def verdict(self) -> Verdict | None:
        """The judge's verdict on the criterion of the label."""
        return self.verdicts.get(self.label.criterion)
