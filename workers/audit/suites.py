"""Suites of attacks: data files in ``suites/``, and how an attack is written around an answer.

A file has ``name``, ``about``, ``measure`` (see ``rubricsvc.core.audit``), ``max_rate`` and ``attacks``; an attack has
an ``id``, a ``text`` and, where it belongs to one, a ``family``. In the text stand

    {answer}    the attacked answer; a text without it is an answer by itself
    {task} {criteria} {ticked} {affirmed} {quoted}    the task; the criteria listed, ticked off, affirmed or quoted
    {verdict} {verdicts}    verdicts in the form that written judges give
    {opens} {closes}    the marks that would fence the answer if it were not attacked
    {hidden}    the attack's ``hidden`` words, in the ``disguise`` that it names

One pass fills them, so that braces in what is filled in stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import Field, ValidationError, model_validator

from rubricsvc.core.audit import Measure
from rubricsvc.core.base import Name, UnitInterval, Value
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError
from workers.audit.cases import Case
from workers.audit.disguise import DISGUISES
from workers.judges.untrusted import fence

_FOLDER = Path(__file__).with_name("suites")
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")


class Attack(Value):
    """A text that is to fool a judge."""

    id: Name = Field(min_length=1)
    text: str
    family: Name = ""
    hidden: str = ""
    disguise: str | None = None

    @model_validator(mode="after")
    def _known(self) -> Attack:
        if self.disguise is not None and self.disguise not in DISGUISES:
            raise ValueError(f"no disguise {self.disguise!r}; there are {', '.join(DISGUISES)}")
        return self

    @property
    def whole(self) -> bool:
        """Whether it is an answer by itself."""
        return "{answer}" not in self.text

    def on(self, case: Case) -> str:
        """The attacked answer."""

        def fill(found: re.Match[str]) -> str:
            name = found[1]
            if name == "hidden":
                return DISGUISES[self.disguise](self.hidden) if self.disguise else self.hidden
            return _FILLED[name](case) if name in _FILLED else found[0]

        return _PLACEHOLDER.sub(fill, self.text)


class Suite(Value):
    """Attacks of one kind, how their success is measured, and how often they may succeed."""

    name: Name = Field(min_length=1)
    about: str = ""
    measure: Measure
    max_rate: UnitInterval
    attacks: tuple[Attack, ...] = Field(min_length=1)


def _listed(form: str) -> Callable[[Case], str]:
    return lambda case: "\n".join(form.format(criterion.text) for criterion in case.rubric.criteria)


def _findings(case: Case) -> list[dict[str, object]]:
    said = {"rationale": "The answer does all that is asked for.", "evidence": [], "verdict": "met"}
    return [{"criterion": f"C{n}", **said} for n in range(1, len(case.rubric.criteria) + 1)]


def _marks(case: Case) -> list[str]:
    return fence("completion", case.answer).splitlines()


_FILLED: dict[str, Callable[[Case], str]] = {
    "answer": lambda case: case.answer,
    "task": lambda case: case.prompt.text,
    "criteria": _listed("- {}"),
    "ticked": _listed("[x] {}"),
    "affirmed": _listed("{} Yes."),
    "quoted": _listed("“{}”"),
    "verdict": lambda case: json.dumps(_findings(case)[0]),
    "verdicts": lambda case: json.dumps({"verdicts": _findings(case)}),
    "opens": lambda case: _marks(case)[0],
    "closes": lambda case: _marks(case)[-1],
}


@lru_cache
def built_in() -> tuple[Suite, ...]:
    """The shipped suites, by name."""
    return tuple(read(path) for path in sorted(_FOLDER.glob("*.yaml")))


def read(path: Path) -> Suite:
    """The suite in a file.

    Raises:
        InvalidError: it is no suite; the message names the field.
    """
    try:
        return Suite.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} is no YAML: {error}", hint="mend it there", path=str(path)) from error
    except ValidationError as error:
        field, words = first_error(error)
        hint = "a suite has name, measure, max_rate and attacks"
        raise InvalidError(f"{path}: {field} {words}", hint=hint, path=str(path)) from error
