"""What rules are given and find, and their texts and patterns."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From the most severe."""

EmptyValue = Callable[[Criterion, Prompt | None], float | None]
"""Returns the value that a criterion's check gives an empty completion; None if that cannot be said."""


class Finding(Value):
    """What a rule has to say about a rubric, or about one criterion of it."""

    rule: str = Field(description="Name of the rule.")
    severity: Severity = Field(description="How grave it is.")
    criterion: str | None = Field(None, description="Key of the criterion; null if it is about the rubric.")
    message: str = Field(description="What is wrong.")
    fix: str = Field(description="What to write instead.")


LintHit = tuple[Criterion | None, str]
"""One place where a rule is broken, and the message; without a criterion it is about the rubric."""


@dataclass(frozen=True)
class Subject:
    """A rubric to look at, with its prompt where it has one."""

    rubric: Rubric
    prompt: Prompt | None = None
    empty_value: EmptyValue | None = None

    @cached_property
    def judged(self) -> tuple[Criterion, ...]:
        """The criteria whose text a judge reads: no check decides them, and no custom prompt replaces the text."""
        return tuple(one for one in self.rubric.criteria if one.check is None and one.custom_prompt is None)


_DATA = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))
ADVICE: dict[str, dict[str, Any]] = _DATA["rules"]
"""Severity and texts of each rule, by name."""
_PARTS: dict[str, str] = {name: text.replace("\n", "") for name, text in _DATA["patterns"].items()}


def pattern(name: str) -> re.Pattern[str]:
    """Return a pattern of ``rules.toml`` with the patterns that it names as ``<<name>>``."""
    text = _PARTS[name]
    while "<<" in text:
        text = re.sub(r"<<(\w+)>>", lambda found: _PARTS[found[1]], text)
    return re.compile(text)
