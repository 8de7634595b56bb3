"""The check ``ifeval``: one instruction of IFEval (arXiv 2311.07911) or IFBench (arXiv 2507.02833), by its id.

An instruction is a function of the text and of its own named arguments; the types say what a file may give::

    @instruction("punctuation:no_comma")
    def no_comma(text: str) -> bool: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_type_hints

from pydantic import Field, JsonValue, ValidationError, create_model, model_validator

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.validation_messages import first_error
from workers.checks.registry import Args, check

Relation = Literal["less than", "at least"]
F = TypeVar("F", bound=Callable[..., bool])


@dataclass(frozen=True, slots=True)
class Instruction:
    """The function that decides, and the model of its arguments."""

    follows: Callable[..., bool]
    args: type[Args]


INSTRUCTIONS: dict[str, Instruction] = {}


def instruction(instruction_id: str) -> Callable[[F], F]:
    """Register the decorated function; its keyword arguments are those of the instruction."""

    def register(function: F) -> F:
        types = get_type_hints(function, include_extras=True)
        named = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        fields: dict[str, Any] = {p.name: (types[p.name], ... if p.default is p.empty else p.default) for p in named}
        INSTRUCTIONS[instruction_id] = Instruction(function, create_model(function.__name__, __base__=Args, **fields))
        return function

    return register


def register(follows: Mapping[str, Callable[[str], bool]]) -> None:
    """Register instructions without arguments, by their ids."""
    INSTRUCTIONS.update({name: Instruction(function, Args) for name, function in follows.items()})


def compare(count: int, relation: Relation, expected: int) -> bool:
    """Return whether the count satisfies the relation ``less than`` or ``at least``."""
    return count < expected if relation == "less than" else count >= expected


class IFEval(Args):
    """``instruction_id`` and ``kwargs`` as in the data sets; nulls are ignored.

    ``loose``: the text may also follow without its first line, its last, both, or its asterisks.
    """

    instruction_id: str
    kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    loose: bool = False

    @model_validator(mode="after")
    def _known(self) -> IFEval:
        if self.instruction_id not in INSTRUCTIONS:
            near = get_close_matches(self.instruction_id, INSTRUCTIONS, n=3)
            which = f"did you mean {' or '.join(near)}? " if near else ""
            raise ValueError(f"unknown instruction {self.instruction_id!r}; {which}docs/checks.md lists them")
        try:
            self.arguments()
        except ValidationError as error:
            args = INSTRUCTIONS[self.instruction_id].args
            field_path, message = first_error(error, model=args)
            takes = ", ".join(args.model_fields) or "no kwargs"
            raise ValueError(f"kwargs.{field_path}: {message}; {self.instruction_id} takes {takes}") from error
        return self

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the instruction, validated and in their types."""
        given = {name: value for name, value in self.kwargs.items() if value is not None}
        checked = INSTRUCTIONS[self.instruction_id].args.model_validate(given)
        return {name: getattr(checked, name) for name in type(checked).model_fields}


@check("ifeval", IFEval)
def ifeval(completion: Completion, prompt: Prompt, args: IFEval) -> float:
    """Return 1 if the text follows the instruction, else 0. An empty text follows none."""
    texts = dict.fromkeys(_variants(completion.text)) if args.loose else [completion.text]  # each once
    given, follows = args.arguments(), INSTRUCTIONS[args.instruction_id].follows
    return float(any(follows(text, **given) for text in texts if text.strip()))


def _variants(text: str) -> Iterator[str]:
    lines = text.split("\n")
    for part in (text, "\n".join(lines[1:]).strip(), "\n".join(lines[:-1]).strip(), "\n".join(lines[1:-1]).strip()):
        yield part
        yield part.replace("*", "")
