"""The verdicts of one judge on the completions of one rubric version, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rubricsvc.core.rubric import Rubric
from rubricsvc.stats.intervals import Floats, Ints


@dataclass(frozen=True, slots=True)
class VerdictMatrix:
    """N completions and C criteria.

    Attributes:
        completions: Ids [N].
        prompts: Ids [N] of their prompts.
        rewards: Stored rewards [N], NaN where there is none.
        lengths: Characters [N].
        values: Values of the verdicts [N, C], NaN where there is none.
        failed: Failed verdicts [C]; ``abstained`` those without a finding.
        spreads: Mean standard deviation of the votes behind a verdict [C], NaN without votes.
    """

    rubric_id: int
    name: str
    rubric: Rubric
    completions: Ints
    prompts: Ints
    rewards: Floats
    lengths: Floats
    values: Floats
    failed: Ints
    abstained: Ints
    spreads: Floats

    @property
    def independent(self) -> Ints:
        """What an interval treats as independent: the prompts, or the completions where all have one prompt."""
        return self.prompts if len(self.prompts) and np.ptp(self.prompts) > 0 else self.completions

    def aligned(self, completions: Ints) -> Floats:
        """Return the values of these completions [M, C], NaN where they are not among its own."""
        place = {id_: row for row, id_ in enumerate(self.completions.tolist())}
        rows = np.array([place.get(id_, -1) for id_ in completions.tolist()], np.int64)
        padded = np.vstack([self.values, np.full((1, self.values.shape[1]), np.nan)])
        return padded[rows]
