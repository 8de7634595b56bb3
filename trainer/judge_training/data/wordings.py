"""A criterion in several wordings, of which some are met where the others are not."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Wordings:
    """What is asked in several ways: ``met`` where the property holds, ``unmet`` where it does not."""

    family: str
    met: tuple[str, ...]
    unmet: tuple[str, ...]

    def sample(self, rng: Random, *, negated: bool) -> str:
        """Return one of the wordings, some with a full stop."""
        text = rng.choice(self.unmet if negated else self.met)
        return f"{text}." if rng.random() < 0.5 else text
