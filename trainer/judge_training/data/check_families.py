"""Kinds of checks in words, as ``checks.yaml`` has them, and the question that one of their wordings asks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check
from trainer.judge_training.data.edits import FIRST, LAST
from trainer.judge_training.data.yaml_files import load_yaml
from workers.checks.registry import CHECKS, CheckResult


class CheckFamily(BaseModel):
    """A kind of check: how it is worded and how a completion is made to meet it or not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str
    check: dict[str, dict[str, Any] | None]
    wordings: tuple[str, ...]
    negated: tuple[str, ...]
    insert: tuple[str, ...] = ()
    prepend: tuple[str, ...] = ()
    append: tuple[str, ...] = ()
    decoys: tuple[str, ...] = ()
    remove: tuple[tuple[str, str], ...] = ()
    edit: str = ""
    fill: Literal["", "word", "both", "phrase", "first", "last", "closing", "prompt", "language"] = ""

    @property
    def stage(self) -> int:
        """When it is edited: texts are replaced first, then sentences, structure, both ends, and the whole text."""
        if self.edit in FIRST or self.fill == "language":
            return 0
        if self.insert or not (self.edit or self.prepend or self.append or self.fill):
            return 1
        return 4 if self.edit in LAST else 2 if self.edit else 3

    @property
    def opens(self) -> bool:
        """Whether it must be at the very start of the text, as a heading."""
        return any(text.endswith("\n") for text in self.prepend)

    def checked(self, fields: Mapping[str, str]) -> Check:
        """Return the check with ``{name}`` replaced by the fields in its arguments."""
        [(name, args)] = self.check.items()
        text = json.dumps(args or {})
        for key, value in fields.items():
            text = text.replace(f"{{{key}}}", json.dumps(value)[1:-1])
        return Check(name=name, args=json.loads(text))


@cache
def check_families() -> tuple[CheckFamily, ...]:
    """Return the kinds of ``checks.yaml``."""
    return tuple(CheckFamily.model_validate(kind) for kind in load_yaml("checks.yaml"))


@dataclass(frozen=True, slots=True)
class Question:
    """A criterion in words, with the check that decides it: ``negated`` criteria are met where the check is not."""

    text: str
    check: Check
    negated: bool
    family: str

    @property
    def form(self) -> str:
        """The family and whether it is negated: labels are balanced within it."""
        return f"{self.family} {self.negated}"

    def label(self, prompt: Prompt, completion: Completion) -> float:
        """Return whether the completion meets the criterion, 1 or 0."""
        registered = CHECKS[self.check.name]
        result = registered.run(completion, prompt, registered.args.model_validate(self.check.args))
        value = result.value if isinstance(result, CheckResult) else result
        return 1.0 - value if self.negated else value


_STRUCTURE = re.compile(r"^(?:#|\||```|<<|[-*+] |\d+[.)] |P\.S)", re.MULTILINE)


def is_clear(kind: CheckFamily, text: str) -> bool:
    """Return whether a reader would count sentences and paragraphs, or see a comma, as the check does."""
    match kind.family:
        case "several_sentences" | "count_sentences":
            return bool(text.strip()) and "\n" not in text and not re.search(r"\.\.\.|…|\be\.g\.|\b[ap]\.m\.", text)
        case "paragraphs":
            return bool(text.strip()) and _STRUCTURE.search(text) is None
        case "comma":
            return bool(text.strip())
    return True
