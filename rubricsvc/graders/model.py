"""The JSON of OpenAI's graders, and their conversion to rubrics.

A grader becomes a rubric of one criterion, a multi grader one of a criterion for each part. The reward is OpenAI's
number, on the grader's own scale. ``docs/graders.md`` lists the differences.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, JsonValue, ValidationInfo, field_validator

from rubricsvc.core import expressions
from rubricsvc.core.base import Name, Value
from rubricsvc.core.rubric import (
    Binary,
    Check,
    Criterion,
    CustomPrompt,
    Numeric,
    Rubric,
    SamplingParams,
    Scale,
    Turn,
    check_bounds,
    reject_duplicates,
)
from rubricsvc.core.templates import MAX_LENGTH, TemplateText

NonEmptyText = Annotated[str, Field(min_length=1)]


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    check_bounds(*bounds)
    return bounds


Range = Annotated[tuple[float, float], AfterValidator(_ordered)]
MAX_PARTS = 100
"""Graders in a multi grader."""

_LIMITS = {"cpu_s": 120, "wall_s": 120, "memory_mib": 2048, "disk_mib": 1024, "output_mib": 64}
"""OpenAI's limits of a program; ``output_mib``, the size of a file, is our own."""
_UNIT = Numeric(low=0.0, high=1.0)


def _defines_grade(source: str) -> str:
    """Check the source without running it."""
    try:
        tree = ast.parse(source, "grader.py")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"invalid Python: {str(error) or 'nested too deep'}") from None
    if not {"grade", "*"} & set(_bound_names(tree)):
        raise ValueError("function grade(sample, item) is missing")
    return source


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module binds outside of functions and classes; ``*`` stands for a star import."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        nodes += ast.iter_child_nodes(node)


Program = Annotated[str, Field(min_length=1, max_length=MAX_LENGTH), AfterValidator(_defines_grade)]
"""Python that defines ``grade(sample, item)``."""


class _Grader(Value):
    name: Name = ""  # missing in OpenAI's own examples
    type: str
    pass_threshold: float | None = None  # only for OpenAI's count of passed items
    id: str | None = None  # in OpenAI's evals

    @property
    def label(self) -> str:
        """The name, or the type without one."""
        return self.name.strip() or self.type


class _Comparison(_Grader):
    input: TemplateText
    reference: TemplateText

    def comparison(self, key: str, **args: JsonValue) -> Criterion:
        check = Check(name=self.type, args={"input": self.input, "reference": self.reference, **args})
        return Criterion(key=key, text=self.label, check=check)


class StringCheck(_Comparison):
    """A grader that gives 1 where ``input`` matches ``reference``, else 0."""

    type: Literal["string_check"]
    operation: Literal["eq", "ne", "like", "ilike"]

    def criterion(self, key: str) -> Criterion:
        """Return the grader as a criterion."""
        return self.comparison(key, operation=self.operation)


class TextSimilarity(_Comparison):
    """A grader of the similarity of ``input`` and ``reference``, 0 to 1."""

    type: Literal["text_similarity"]
    evaluation_metric: Literal[
        "cosine", "fuzzy_match", "bleu", "gleu", "meteor",
        "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l",
    ]  # fmt: skip

    def criterion(self, key: str) -> Criterion:
        """Return the grader as a criterion."""
        return self.comparison(key, metric=self.evaluation_metric)


class Python(_Grader):
    """A grader that runs ``grade(sample, item)`` of ``source``; ``range`` is an extension, by default [0, 1]."""

    type: Literal["python"]
    source: Program
    image_tag: str | None = None  # ignored: programs have the worker's packages
    range: Range | None = None

    def criterion(self, key: str) -> Criterion:
        """Return the grader as a criterion."""
        args: dict[str, Any] = {"source": self.source, **_LIMITS}
        if self.range:
            args["range"] = list(self.range)
        return Criterion(key=key, text=self.label, scale=_scale(self.range), check=Check(name="python", args=args))


class Input(Value):
    """A message to the model. Anything but text is an error."""

    role: Literal["system", "developer", "user", "assistant"]
    content: TemplateText
    type: Literal["message"] | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _text(cls, content: Any) -> Any:
        parts = content if isinstance(content, list) else [content]
        return "\n".join(map(_text_of, parts)) if parts and not isinstance(content, str) else content


def _text_of(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
        return str(part["text"])
    raise ValueError(f"expected text or input_text, found {kind or type(part).__name__}; only text is supported")


class OpenAISamplingParams(Value):
    """OpenAI's sampling parameters; ``reasoning_effort`` is ignored."""

    temperature: float | None = Field(default=None, ge=0.0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    seed: int | None = None
    max_completion_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    max_completions_tokens: int | None = Field(default=None, ge=1, le=1_000_000)  # another name in some versions
    reasoning_effort: str | None = None

    @property
    def overrides(self) -> SamplingParams | None:
        """The parameters that are set, if any."""
        max_tokens = self.max_completion_tokens or self.max_completions_tokens
        sampling = SamplingParams(temperature=self.temperature, top_p=self.top_p, seed=self.seed, max_tokens=max_tokens)
        return sampling if sampling != SamplingParams() else None


class _Model(_Grader):
    model: NonEmptyText
    input: tuple[Input, ...] = Field(min_length=1)
    sampling_params: OpenAISamplingParams | None = None

    def custom_prompt(self, **labels: tuple[str, ...]) -> CustomPrompt:
        """Return the grader's messages as a custom prompt."""
        turns = tuple(Turn(role=message.role, content=message.content) for message in self.input)
        sampling = self.sampling_params.overrides if self.sampling_params else None
        return CustomPrompt(turns=turns, sampling=sampling, model=self.model, **labels)


class ScoreModel(_Model):
    """A grader whose model gives a number within ``range``."""

    type: Literal["score_model"]
    range: Range | None = None

    def criterion(self, key: str) -> Criterion:
        """Return the grader as a criterion."""
        return Criterion(key=key, text=self.label, scale=_scale(self.range), custom_prompt=self.custom_prompt())


class LabelModel(_Model):
    """A grader that gives 1 where its model chooses one of ``passing_labels``, else 0."""

    type: Literal["label_model"]
    labels: tuple[NonEmptyText, ...] = Field(min_length=2)
    passing_labels: tuple[NonEmptyText, ...] = Field(min_length=1)

    @field_validator("labels")
    @classmethod
    def _distinct(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        names = [label.strip() for label in labels]
        reject_duplicates("label", names)
        if "" in names:
            raise ValueError("labels must not be blank")
        return labels

    @field_validator("passing_labels")
    @classmethod
    def _among_the_labels(cls, passing: tuple[str, ...], others: ValidationInfo) -> tuple[str, ...]:
        unknown = [label for label in passing if label not in others.data.get("labels", passing)]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not among the labels")
        return passing

    def criterion(self, key: str) -> Criterion:
        """Return the grader as a criterion."""
        prompt = self.custom_prompt(labels=self.labels, passing=self.passing_labels)
        return Criterion(key=key, text=self.label, scale=Binary(), custom_prompt=prompt)


def _scale(bounds: Range | None) -> Scale:
    return Numeric(low=bounds[0], high=bounds[1]) if bounds else _UNIT


Part = Annotated[StringCheck | TextSimilarity | Python | ScoreModel | LabelModel, Field(discriminator="type")]


class Multi(_Grader):
    """Several graders by name, combined by an expression. A multi grader cannot contain another."""

    type: Literal["multi"]
    graders: dict[Annotated[Name, Field(min_length=1)], Part] = Field(min_length=1, max_length=MAX_PARTS)
    calculate_output: str

    @field_validator("calculate_output")
    @classmethod
    def _of_the_parts(cls, text: str, others: ValidationInfo) -> str:
        if "graders" in others.data:  # otherwise they have errors of their own
            expressions.check(text, others.data["graders"])
        return text


Grader = StringCheck | TextSimilarity | Python | ScoreModel | LabelModel | Multi
GRADERS: dict[str, type[Grader]] = {
    get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(Grader)
}
"""The graders by ``type``."""


def parts_of(grader: Grader) -> dict[str, Any]:
    """Return the parts of a grader by the key of their criterion."""
    return dict(grader.graders) if isinstance(grader, Multi) else {grader.label: grader}


def rubric_of(grader: Grader) -> Rubric:
    """Return the grader's rubric, whose reward is the grader's number on its own scale."""
    formula = grader.calculate_output if isinstance(grader, Multi) else None
    criteria = tuple(part.criterion(key) for key, part in parts_of(grader).items())
    return Rubric(criteria=criteria, formula="calculate_output", expression=formula)
