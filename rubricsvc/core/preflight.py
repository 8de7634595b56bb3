"""What is checked before a training run starts: a row for each check, and whether the run may start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from rubricsvc.core.base import Text, Title, Value


class PreflightCheck(Value):
    """A check of a run before it starts.

    Only a check that ``refuses`` keeps a run from starting where it is not passed; others are warnings.
    """

    name: Title = Field(description="Name of the check.")
    value: Text = Field(description="What was measured, with its interval where it has one.")
    limit: Text = Field(description="What passes.")
    passed: bool | None = Field(description="Whether it was passed; null where nothing was measured.")
    refuses: bool = Field(default=False, description="Whether a run does not start where it was not passed.")
    advice: Text = Field(default="", description="What to do where it was not passed or not measured.")


class StoredPreflight(Value):
    """The sampled checks of a run, as its folder keeps them. ``identity`` names what they hold for."""

    identity: str
    created_at: datetime
    checks: tuple[PreflightCheck, ...]


def refusing(checks: Sequence[PreflightCheck]) -> list[PreflightCheck]:
    """Return the checks that keep a run from starting."""
    return [check for check in checks if check.refuses and check.passed is False]
