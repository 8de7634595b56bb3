"""What a check is: a function of a completion, its prompt, and the model of its arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from rubricsvc.core.prompt import Completion, Prompt


class Args(BaseModel):
    """Base of the arguments of a check. Unknown arguments are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The value of a check, and the rationale that is stored with its verdict."""

    value: float
    rationale: str


@dataclass(frozen=True, slots=True)
class CheckType:
    """A check: its version, the model of its arguments, and the function."""

    version: int
    args: type[Args]
    run: Callable[[Completion, Prompt, Any], float | CheckResult]
