"""OpenAI's graders in their own JSON, and the rubrics that they are.

A grader becomes a rubric of one criterion, a multi grader one of a criterion a part; its reward is the number that
OpenAI's would be, on the grader's own scale. `docs/graders.md` says what is the same and what is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

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

Text = Annotated[str, Field(min_length=1)]


def _ordered(found: tuple[float, float]) -> tuple[float, float]:
    check_bounds(*found)
    return found


Range = Annotated[tuple[float, float], AfterValidator(_ordered)]
MOST_PARTS = 100
_LIMITS = {"cpu_s": 120, "wall_s": 120, "memory_mib": 2048, "disk_mib": 1024, "output_mib": 64}
"""What OpenAI gives a program: two minutes, 2 GB of memory, 1 GB of disk. A file's size is our own limit."""
_UNIT = Numeric(low=0.0, high=1.0)


def _that_grades(source: str) -> str:
    """Looked at and never run; what only a run can tell is told by the run."""
    try:
        tree = ast.parse(source, "grader.py")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"is not Python: {str(error) or 'it is nested too deep'}") from None
    if not {"grade", "*"} & set(_bound(tree)):
        raise ValueError("defines no function grade(sample, item)")
    return source


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that a module binds outside of its functions and classes; ``*`` for those that it imports unnamed."""
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


Program = Annotated[str, Field(min_length=1, max_length=MAX_LENGTH), AfterValidator(_that_grades)]
"""Python that defines ``grade(sample, item)``."""


class _Grader(Value):
    name: Name = ""  # OpenAI's own examples leave it out
    type: str
    pass_threshold: float | None = None  # for OpenAI's count of what passed; no reward depends on it
    id: str | None = None  # as OpenAI's evals have them

    @property
    def label(self) -> str:
        """Its name; its type, where it has none."""
        return self.name.strip() or self.type


class StringCheck(_Grader):
    """1 where ``input`` compares with ``reference``, else 0."""

    type: Literal["string_check"]
    input: TemplateText
    reference: TemplateText
    operation: Literal["eq", "ne", "like", "ilike"]

    def criterion(self, key: str) -> Criterion:
        args: dict[str, Any] = {"input": self.input, "reference": self.reference, "operation": self.operation}
        return Criterion(key=key, text=self.label, check=Check(name="string_check", args=args))


class TextSimilarity(_Grader):
    """How near ``input`` is to ``reference``, 0 to 1."""

    type: Literal["text_similarity"]
    input: TemplateText
    reference: TemplateText
    evaluation_metric: Literal[
        "cosine", "fuzzy_match", "bleu", "gleu", "meteor",
        "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l",
    ]  # fmt: skip

    def criterion(self, key: str) -> Criterion:
        args: dict[str, Any] = {"input": self.input, "reference": self.reference, "metric": self.evaluation_metric}
        return Criterion(key=key, text=self.label, check=Check(name="text_similarity", args=args))


class Python(_Grader):
    """What ``grade(sample, item)`` of ``source`` returns, within ``range``: a field of ours, [0, 1] without it."""

    type: Literal["python"]
    source: Program
    image_tag: str | None = None  # names packages of OpenAI's; here those are there that the worker has
    range: Range | None = None

    def criterion(self, key: str) -> Criterion:
        scale, more = _scale(self.range), {"range": list(self.range)} if self.range else {}
        args: dict[str, Any] = {"source": self.source, **_LIMITS, **more}
        return Criterion(key=key, text=self.label, scale=scale, check=Check(name="python", args=args))


class Input(Value):
    """A message to the model. What is not text is refused: nothing here looks at pictures or listens."""

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
    raise ValueError(f"expected text or input_text, found {kind or type(part).__name__}; only text can be judged here")


class OpenAISamplingParams(Value):
    """OpenAI's. ``reasoning_effort`` is read and not used: no engine here has such a knob."""

    temperature: float | None = Field(default=None, ge=0.0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    seed: int | None = None
    max_completion_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    max_completions_tokens: int | None = Field(default=None, ge=1, le=1_000_000)  # its name in some versions
    reasoning_effort: str | None = None

    @property
    def overrides(self) -> SamplingParams | None:
        most = self.max_completion_tokens or self.max_completions_tokens
        sampling = SamplingParams(temperature=self.temperature, top_p=self.top_p, seed=self.seed, max_tokens=most)
        return sampling if sampling != SamplingParams() else None


class _Model(_Grader):
    model: Text
    input: tuple[Input, ...] = Field(min_length=1)
    sampling_params: OpenAISamplingParams | None = None

    def custom_prompt(self, **labels: tuple[str, ...]) -> CustomPrompt:
        turns = tuple(Turn(role=message.role, content=message.content) for message in self.input)
        sampling = self.sampling_params.overrides if self.sampling_params else None
        return CustomPrompt(turns=turns, sampling=sampling, model=self.model, **labels)


class ScoreModel(_Model):
    """The number within ``range`` that the model gives."""

    type: Literal["score_model"]
    range: Range | None = None

    def criterion(self, key: str) -> Criterion:
        return Criterion(key=key, text=self.label, scale=_scale(self.range), custom_prompt=self.custom_prompt())


class LabelModel(_Model):
    """1 where the model chooses one of ``passing_labels``, else 0."""

    type: Literal["label_model"]
    labels: tuple[Text, ...] = Field(min_length=2)
    passing_labels: tuple[Text, ...] = Field(min_length=1)

    @field_validator("labels")
    @classmethod
    def _distinct(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        names = [label.strip() for label in labels]
        reject_duplicates("label", names)
        if "" in names:
            raise ValueError("a label has no name")
        return labels

    @field_validator("passing_labels")
    @classmethod
    def _among_the_labels(cls, passing: tuple[str, ...], others: ValidationInfo) -> tuple[str, ...]:
        strange = [label for label in passing if label not in others.data.get("labels", passing)]
        if strange:
            raise ValueError(f"{strange[0]!r} is not among the labels")
        return passing

    def criterion(self, key: str) -> Criterion:
        asked = self.custom_prompt(labels=self.labels, passing=self.passing_labels)
        return Criterion(key=key, text=self.label, scale=Binary(), custom_prompt=asked)


def _scale(found: Range | None) -> Scale:
    return Numeric(low=found[0], high=found[1]) if found else _UNIT


Part = Annotated[StringCheck | TextSimilarity | Python | ScoreModel | LabelModel, Field(discriminator="type")]


class Multi(_Grader):
    """Several graders by name, and the arithmetic that makes one number of theirs. There is no multi within a multi."""

    type: Literal["multi"]
    graders: dict[Annotated[Name, Field(min_length=1)], Part] = Field(min_length=1, max_length=MOST_PARTS)
    calculate_output: str

    @field_validator("calculate_output")
    @classmethod
    def _of_the_parts(cls, text: str, others: ValidationInfo) -> str:
        if "graders" in others.data:  # else they are told to be wrong already
            expressions.check(text, others.data["graders"])
        return text


Grader = StringCheck | TextSimilarity | Python | ScoreModel | LabelModel | Multi
GRADERS: dict[str, type[Grader]] = {
    get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(Grader)
}
"""By their ``type``."""


def parts_of(grader: Grader) -> dict[str, Any]:
    """The graders that are not multi, by the key of their criterion."""
    return dict(grader.graders) if isinstance(grader, Multi) else {grader.label: grader}


def rubric_of(grader: Grader) -> Rubric:
    """The rubric that the grader is: its reward is the grader's, on the grader's own scale."""
    formula = grader.calculate_output if isinstance(grader, Multi) else None
    criteria = tuple(part.criterion(key) for key, part in parts_of(grader).items())
    return Rubric(criteria=criteria, formula="calculate_output", expression=formula)
