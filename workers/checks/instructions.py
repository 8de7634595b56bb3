"""The check ``ifeval``: one instruction of IFEval (arXiv 2311.07911) or IFBench (arXiv 2507.02833), by its id.

An instruction is a function of the text and of its own arguments; their names determine their types::

    register({"keywords:frequency": lambda text, keyword, frequency, relation: ...})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import signature
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationError, create_model, model_validator

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.validation_messages import first_error
from workers.checks.registry import Args, check

Relation = Literal["less than", "at least"]
_Count = Annotated[int, Field(ge=0)]
_Position = Annotated[int, Field(ge=1)]
_Word = Annotated[str, Field(min_length=1)]
_Words = Annotated[tuple[_Word, ...], Field(min_length=1)]
_TYPES: dict[Any, str] = {
    Relation: "relation let_relation capital_relation",
    _Count: "frequency let_frequency capital_frequency num_paragraphs num_words num_sentences num_placeholders "
    "num_bullets num_highlights num_sections min_words max_words small_n n_start n_end",
    _Position: "nth_paragraph N n m",
    _Word: "keyword language first_word postscript_marker section_spliter prompt_to_repeat end_phrase keyword1 "
    "keyword2 keyword3 keyword4 keyword5 reference_text word options sep",
    _Words: "keywords forbidden_words",
    Annotated[str, Field(min_length=1, max_length=1)]: "letter",
    Annotated[float, Field(ge=0, le=100)]: "percentage",
}
_TYPE_BY_NAME = {name: type_ for type_, names in _TYPES.items() for name in names.split()}
"""The types of arguments; the data sets use the same names in all their instructions."""


INSTRUCTIONS: dict[str, tuple[Callable[..., bool], type[Args]]] = {}
"""The function that decides, and the model of its arguments, by id."""


def register(functions: Mapping[str, Callable[..., bool]]) -> None:
    """Register instructions by their ids."""
    for instruction_id, function in functions.items():
        fields: dict[str, Any] = {name: (_TYPE_BY_NAME[name], ...) for name in [*signature(function).parameters][1:]}
        INSTRUCTIONS[instruction_id] = function, create_model(instruction_id, __base__=Args, **fields)


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
            _, args = INSTRUCTIONS[self.instruction_id]
            field_path, message = first_error(error, model=args)
            takes = ", ".join(args.model_fields) or "no kwargs"
            raise ValueError(f"kwargs.{field_path}: {message}; {self.instruction_id} takes {takes}") from error
        return self

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the instruction, validated and in their types."""
        given = {name: value for name, value in self.kwargs.items() if value is not None}
        return dict(INSTRUCTIONS[self.instruction_id][1].model_validate(given))


@check("ifeval", IFEval)
def ifeval(completion: Completion, prompt: Prompt, args: IFEval) -> float:
    """Return 1 if the text follows the instruction, else 0. An empty text follows none."""
    lines, texts = completion.text.split("\n"), [completion.text]
    if args.loose:
        texts += ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
        texts += [text.replace("*", "") for text in texts]
    given, (follows, _) = args.arguments(), INSTRUCTIONS[args.instruction_id]
    return float(any(follows(text, **given) for text in texts if text.strip()))
