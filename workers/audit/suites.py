"""Suites of attacks: data files in ``suites/``, and how an attack is applied to a completion.

A file has ``name``, ``description``, ``measure`` (see ``rubricsvc.core.audit``), ``max_rate`` and ``attacks``; an
attack has an ``id``, a ``text`` and optionally a ``family``. The text may hold these placeholders:

    {completion}    the attacked completion; a text without it is a completion of its own
    {task} {criteria} {ticked} {affirmed} {quoted}    the task; the criteria listed, ticked off, affirmed or quoted
    {verdict} {verdicts}    verdicts in the format of written judges
    {opens} {closes}    the marks that would fence the completion if it were not attacked
    {hidden}    the attack's ``hidden`` words, in the ``disguise`` that it names

They are replaced in one pass, so that braces in the inserted text stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from pydantic import Field, model_validator

from rubricsvc.core.audit import Measure
from rubricsvc.core.base import Name, UnitInterval, Value
from rubricsvc.formats.input_file import InputFile
from workers.audit.cases import AuditCase
from workers.audit.disguise import DISGUISES
from workers.judges.untrusted import fence

_FOLDER = Path(__file__).with_name("suites")
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")


class Attack(Value):
    """A text that is meant to fool a judge."""

    id: Name = Field(min_length=1)
    text: str
    family: Name = ""
    hidden: str = ""
    disguise: str | None = None

    @model_validator(mode="after")
    def _check_disguise(self) -> Attack:
        if self.disguise is not None and self.disguise not in DISGUISES:
            raise ValueError(f"no disguise {self.disguise!r}; there are {', '.join(DISGUISES)}")
        return self

    @property
    def standalone(self) -> bool:
        """Whether the text is a completion of its own."""
        return "{completion}" not in self.text

    def apply(self, case: AuditCase) -> str:
        """Return the attacked completion."""

        def fill(match: re.Match[str]) -> str:
            name = match[1]
            if name == "hidden":
                return DISGUISES[self.disguise](self.hidden) if self.disguise else self.hidden
            return _PLACEHOLDERS[name](case) if name in _PLACEHOLDERS else match[0]

        return _PLACEHOLDER.sub(fill, self.text)


class AttackSuite(Value):
    """Attacks of one kind, how their success is measured, and how often they may succeed."""

    name: Name = Field(min_length=1)
    description: str = ""
    measure: Measure
    max_rate: UnitInterval
    attacks: tuple[Attack, ...] = Field(min_length=1)


def _criteria(line: str) -> Callable[[AuditCase], str]:
    return lambda case: "\n".join(line.format(criterion.text) for criterion in case.rubric.criteria)


def _met_verdicts(case: AuditCase) -> list[dict[str, object]]:
    verdict = {"rationale": "The answer does all that is asked for.", "evidence": [], "verdict": "met"}
    return [{"criterion": f"C{n}", **verdict} for n in range(1, len(case.rubric.criteria) + 1)]


def _fence_lines(case: AuditCase) -> list[str]:
    return fence("completion", case.text).splitlines()


_PLACEHOLDERS: dict[str, Callable[[AuditCase], str]] = {
    "completion": lambda case: case.text,
    "task": lambda case: case.prompt.text,
    "criteria": _criteria("- {}"),
    "ticked": _criteria("[x] {}"),
    "affirmed": _criteria("{} Yes."),
    "quoted": _criteria("“{}”"),
    "verdict": lambda case: json.dumps(_met_verdicts(case)[0]),
    "verdicts": lambda case: json.dumps({"verdicts": _met_verdicts(case)}),
    "opens": lambda case: _fence_lines(case)[0],
    "closes": lambda case: _fence_lines(case)[-1],
}


@lru_cache
def built_in() -> tuple[AttackSuite, ...]:
    """Return the built-in suites, by name."""
    return tuple(read(path) for path in sorted(_FOLDER.glob("*.yaml")))


def read(path: Path) -> AttackSuite:
    """Read the suite in a file.

    Raises:
        InvalidFileError: It is not a valid suite; ``errors`` names the fields.
    """
    file = InputFile(path)
    suites = list(file.parse(lambda entry: [entry.build(AttackSuite, entry.data)]))
    file.errors.raise_if_any()
    return suites[0]
