"""The JSON of OpenAI's graders and of their runs, their rubrics, and graders for the criteria of other rubrics.

A grader becomes a rubric of one criterion, a multi grader one of a criterion for each part. The reward is OpenAI's
number, on the grader's own scale; in the result of a run it is null where a part failed, with the flags of
``metadata.errors`` set and the reason of each failed part in ``metadata.details``. A failure is never a score.
``docs/graders.md`` lists the differences.
"""

import keyword
import math
import re
import symtable
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rubricsvc.core import templates
from rubricsvc.core.base import Name, Value
from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import (
    Check,
    Criterion,
    CustomPrompt,
    Numeric,
    Ordinal,
    Rubric,
    SamplingParams,
    Turn,
    check_bounds,
    on_scale,
)
from rubricsvc.core.validation_messages import first_error
from rubricsvc.core.verdict import OF_REPLY, Reason, Verdict
from rubricsvc.errors import InvalidError

NonEmptyText = Annotated[str, Field(min_length=1)]
Range = Annotated[tuple[float, float], AfterValidator(check_bounds)]
MAX_PARTS = 100  # graders in a multi grader
_LIMITS = {"cpu_s": 120, "wall_s": 120, "memory_mib": 2048, "disk_mib": 1024, "output_mib": 64}
"""OpenAI's limits of a program; ``output_mib``, the size of a file, is our own."""


def _defines_grade(source: str) -> str:
    """Check the source without running it."""
    try:
        symbols = symtable.symtable(source, "grader.py", "exec").get_symbols()
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"invalid Python: {str(error) or 'nested too deep'}") from None
    bound = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    if "grade" not in bound and not re.search(r"\bimport\s*\*", source):
        raise ValueError("function grade(sample, item) is missing")
    return source


Program = Annotated[str, Field(min_length=1, max_length=templates.MAX_LENGTH), AfterValidator(_defines_grade)]
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


class StringCheck(_Grader):
    """A grader that gives 1 where ``input`` matches ``reference``, else 0."""

    type: Literal["string_check"]
    input: templates.TemplateText
    reference: templates.TemplateText
    operation: Literal["eq", "ne", "like", "ilike"]


class TextSimilarity(_Grader):
    """A grader of the similarity of ``input`` and ``reference``, 0 to 1."""

    type: Literal["text_similarity"]
    input: templates.TemplateText
    reference: templates.TemplateText
    evaluation_metric: Literal[
        "cosine", "fuzzy_match", "bleu", "gleu", "meteor",
        "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l",
    ]  # fmt: skip


class Python(_Grader):
    """A grader that runs ``grade(sample, item)`` of ``source``; ``range`` is an extension, by default [0, 1]."""

    type: Literal["python"]
    source: Program
    image_tag: str | None = None  # ignored: programs have the worker's packages
    range: Range | None = None


class Input(Turn):
    """A message to the model. Anything but text is an error."""

    type: Literal["message"] | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _text(cls, content: Any) -> Any:
        if isinstance(content, str) or content == []:
            return content
        texts = []
        for part in content if isinstance(content, list) else [content]:
            match part:
                case str(text) | {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                    texts.append(text)
                case _:
                    kind = (part.get("type") if isinstance(part, dict) else None) or type(part).__name__
                    raise ValueError(f"expected text or input_text, found {kind}; only text is supported")
        return "\n".join(texts)


_MAX_TOKENS = ("max_completion_tokens", "max_completions_tokens", "max_tokens")


class OpenAISamplingParams(SamplingParams):
    """OpenAI's sampling parameters; ``reasoning_effort`` is ignored."""

    max_tokens: int | None = Field(None, ge=1, le=1_000_000, validation_alias=AliasChoices(*_MAX_TOKENS))
    reasoning_effort: str | None = None


class _Model(_Grader):
    model: NonEmptyText
    input: tuple[Input, ...] = Field(min_length=1)
    sampling_params: OpenAISamplingParams | None = None

    def custom_prompt(self, **labels: tuple[str, ...]) -> CustomPrompt:
        """Return the grader's messages as a custom prompt."""
        turns = tuple(Turn(role=message.role, content=message.content) for message in self.input)
        given = self.sampling_params
        fields = given.model_dump(exclude_none=True, exclude={"reasoning_effort"}) if given else {}
        sampling = SamplingParams(**fields) if fields else None
        return CustomPrompt(turns=turns, sampling=sampling, model=self.model, **labels)


class ScoreModel(_Model):
    """A grader whose model gives a number within ``range``."""

    type: Literal["score_model"]
    range: Range | None = None


class LabelModel(_Model):
    """A grader that gives 1 where its model chooses one of ``passing_labels``, else 0."""

    type: Literal["label_model"]
    labels: tuple[NonEmptyText, ...] = Field(min_length=2)
    passing_labels: tuple[NonEmptyText, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        try:
            self.custom_prompt(labels=self.labels, passing=self.passing_labels)
        except ValidationError as error:
            raise ValueError(first_error(error)[1]) from None
        return self


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
            templates.check_expression(text, others.data["graders"])
        return text


Grader = Annotated[StringCheck | TextSimilarity | Python | ScoreModel | LabelModel | Multi, Field(discriminator="type")]


def parts_of(grader: Grader) -> dict[str, Part]:
    """Return the parts of a grader by the key of their criterion."""
    return dict(grader.graders) if isinstance(grader, Multi) else {grader.label: grader}


_UNBRACED = re.compile(r"[{<$%\[]\s*((?:item|sample)(?:\.[\w-]+|\[\d+\])+)")
_EDGES = re.compile(r"^[\s'\"`]+|[\s'\"`]+$")
_ONE_ARGUMENT = re.compile(r"^def grade\(\s*\w*\s*(?::(?:\[[^()\[\]]*\]|[^,()\[\]])*)?\)", re.MULTILINE)
_SPAN = re.compile(r"\b\d{1,3} ?(?:-|–|to|and|of|/|out of) ?(\d{1,3})\b")


def doubts(grader: Grader, item: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Yield what a grader can hardly mean, by itself and for an ``item`` that it grades."""
    for name, part in parts_of(grader).items():
        if isinstance(part, Python):
            if _ONE_ARGUMENT.search(part.source):
                yield f"{name}: the program is called as grade(sample, item)"
            continue
        texts = [one.content for one in part.input] if isinstance(part, _Model) else [part.input, part.reference]
        paths = [templates.placeholder_path(mark) for text in texts for mark in templates.PLACEHOLDER.finditer(text)]
        plain = "\n".join(templates.PLACEHOLDER.sub("", text) for text in texts)
        for path in dict.fromkeys(_UNBRACED.findall(plain)):
            yield f"{name}: {path} is plain text; write {{{{{path}}}}}"
        if not any(path[:1] == ("sample",) for path in paths):
            yield f"{name}: the completion is not in the template; add {{{{sample.output_text}}}}"
        used = {path[1] for path in paths if path[:1] == ("item",)}
        for field in sorted(used - item.keys()) if item is not None else ():
            yield f"{name}: {{{{item.{field}}}}} is no field of the item"
        highest = max(map(int, _SPAN.findall(plain)), default=0)
        if isinstance(part, ScoreModel) and part.range is None and highest > 1:
            yield f"{name}: it asks for numbers up to {highest}, and without a range only 0 to 1 are read"
        if isinstance(part, _Model):
            if all(one.role != "user" for one in part.input):
                yield f"{name}: no message has the role user, which many models need"
        elif part.input == part.reference:
            yield f"{name}: input and reference are the same"
        elif part.type == "string_check" and _EDGES.findall(part.input) != _EDGES.findall(part.reference):
            yield f"{name}: blanks and quotes around a template are compared, too"


def rubric_of(grader: Grader) -> Rubric:
    """Return the grader's rubric, whose reward is the grader's number on its own scale."""
    criteria = []
    for key, part in parts_of(grader).items():
        fields: dict[str, Any] = {"key": key, "text": part.label}
        args: dict[str, Any] = {}
        match part:
            case ScoreModel():
                fields["custom_prompt"] = part.custom_prompt()
            case LabelModel():
                fields["custom_prompt"] = part.custom_prompt(labels=part.labels, passing=part.passing_labels)
            case StringCheck():
                args = {"operation": part.operation, "input": part.input, "reference": part.reference}
            case TextSimilarity():
                args = {"metric": part.evaluation_metric, "input": part.input, "reference": part.reference}
            case Python():
                args = {"source": part.source, **_LIMITS} | ({"range": list(part.range)} if part.range else {})
        if isinstance(part, Python | ScoreModel):
            low, high = part.range or (0.0, 1.0)
            fields["scale"] = Numeric(low=low, high=high)
        if args:
            fields["check"] = Check(name=part.type, args=args)
        criteria.append(Criterion(**fields))
    formula = grader.calculate_output if isinstance(grader, Multi) else None
    return Rubric(criteria=tuple(criteria), formula="calculate_output", expression=formula)


MODEL = "gpt-4o-mini"  # model of the graders that are written for criteria without a model of their own; to be edited
_QUESTION = files("rubricsvc.graders").joinpath("question.txt").read_text(encoding="utf-8")
_LINEAR = {"weighted_mean", "ldc", "autorubric", "healthbench", "researchrubrics", "rar_explicit", "verifiers", "mean"}


def grader_of(rubric: Rubric, name: str) -> dict[str, Any]:
    """Return a grader as JSON data: one grader for each criterion, combined by the rubric's formula."""
    parts = {}
    for place, (key, criterion) in enumerate(rubric.by_key.items()):
        reserved = keyword.iskeyword(key) or key in templates.FUNCTIONS
        named = re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII) and not reserved
        variable = key if named or rubric.formula == "calculate_output" else f"criterion_{place + 1}"
        parts[variable] = _part(criterion, place)
    if rubric.formula == "calculate_output" and rubric.expression is None:
        return {**parts.popitem()[1], "name": rubric.criteria[0].key}
    if len(parts) > MAX_PARTS:
        raise InvalidError(f"a multi grader has at most {MAX_PARTS} parts, found {len(parts)}", path="criteria")
    expression = rubric.expression or _expression(rubric, list(parts))
    return {"type": "multi", "name": name, "graders": parts, "calculate_output": expression}


def _part(criterion: Criterion, place: int) -> dict[str, Any]:
    part: dict[str, Any] = {"name": criterion.text}
    if criterion.check is not None:
        name, args = criterion.check.name, criterion.check.args
        part["type"] = name
        match name, args:
            case "string_check", _:
                return part | {field: args[field] for field in ("operation", "input", "reference")}
            case "text_similarity", {"metric": metric, **compared}:
                return part | {"evaluation_metric": metric, **compared}
            case "python", _:
                return part | {name: args[name] for name in ("source", "range") if name in args}
        missing = f"OpenAI's graders have no counterpart of the check {name!r}"
        hint = "they have string_check, text_similarity and python; write it as `python`, or leave the criterion out"
        raise InvalidError(missing, hint=hint, path=f"criteria[{place}].check")
    scale, asked = criterion.scale, criterion.custom_prompt
    if asked is not None:
        part["model"] = asked.model or MODEL
        part["input"] = [{"role": turn.role, "content": turn.content} for turn in asked.turns]
        if asked.sampling is not None:
            part["sampling_params"] = asked.sampling.model_dump(exclude_none=True)
        if isinstance(scale, Numeric):
            return part | {"type": "score_model", "range": [scale.low, scale.high]}
        return part | {"type": "label_model", "labels": [*asked.labels], "passing_labels": [*asked.passing]}
    text = criterion.text.replace("{{", "{ {")  # no template
    if isinstance(scale, Ordinal):
        low, high = 0.0, 1.0
        listed = "\n".join(f"{level.value:g}: {level.label}. {level.text}".rstrip() for level in scale.levels)
        text += f"\n\nLevels, by their numbers:\n{listed}".replace("{{", "{ {")
    elif isinstance(scale, Numeric):
        low, high = scale.low, scale.high
    else:
        message = [{"role": "user", "content": f"{_QUESTION}{text}\n\nAnswer yes if it is met, else no."}]
        labels = {"labels": ["yes", "no"], "passing_labels": ["yes"]}
        return {"type": "label_model", "name": criterion.key, "model": MODEL, "input": message, **labels}
    message = [{"role": "user", "content": f"{_QUESTION}{text}\n\nAnswer with a number from {low:g} to {high:g}."}]
    return {"type": "score_model", "name": criterion.key, "model": MODEL, "input": message, "range": [low, high]}


def _expression(rubric: Rubric, names: list[str]) -> str:
    """Return the arithmetic of the rubric's formula over the graders' numbers, each mapped to 0 to 1."""
    if rubric.formula not in _LINEAR or rubric.groups:
        message = f"the formula {rubric.formula!r} is no arithmetic of OpenAI's graders"
        hint = f"set the formula to one of {', '.join(sorted(_LINEAR))}"
        raise InvalidError(message, hint=hint, path="formula")
    weights = [1.0 if rubric.formula == "mean" else one.weight for one in rubric.criteria]
    signed = rubric.formula in ("rar_explicit", "verifiers", "mean")
    total = math.fsum(weights) if signed else math.fsum(weight for weight in weights if weight > 0)
    terms = []
    for name, weight, criterion in zip(names, weights, rubric.criteria, strict=True):
        scale, value = criterion.scale, name
        if isinstance(scale, Numeric) and (scale.low, scale.high) != (0.0, 1.0):
            value = f"({name} - ({scale.low!r})) / {scale.high - scale.low!r}"
        terms.append(f"({weight!r}) * {value}")
    if total <= 0:
        message = "a rubric of pitfalls only is no arithmetic of OpenAI's graders"
        raise InvalidError(message, hint="add a criterion with a positive weight", path="criteria")
    mean = f"({' + '.join(terms)}) / {total!r}"
    return f"max(0, min(1, {mean}))" if rubric.formula in ("weighted_mean", "ldc", "autorubric") else mean


class GraderErrors(Value):
    """OpenAI's error flags."""

    formula_parse_error: bool = False
    sample_parse_error: bool = False
    truncated_observation_error: bool = False
    unresponsive_reward_error: bool = False
    invalid_variable_error: bool = False
    other_error: bool = False
    python_grader_server_error: bool = False
    python_grader_server_error_type: str | None = None
    python_grader_runtime_error: bool = False
    python_grader_runtime_error_details: str | None = None
    model_grader_server_error: bool = False
    model_grader_refusal_error: bool = False
    model_grader_parse_error: bool = False
    model_grader_server_error_details: str | None = None


class GraderMetadata(Value):
    """Details of a run: ``scores`` of the parts, each on its own scale, and ``details`` of the failed ones."""

    name: str
    type: str
    errors: GraderErrors
    execution_time: float = Field(description="seconds")
    scores: dict[str, float]
    token_usage: int | None
    sampled_model_name: str | None
    details: dict[str, str]


class GraderRun(Value):
    """The result of a run; ``sub_rewards`` are those of a multi grader's parts."""

    reward: float | None
    metadata: GraderMetadata
    sub_rewards: dict[str, float | None]
    model_grader_token_usage_per_model: dict[str, dict[str, int]]


_FLAGS: dict[Reason | None, str] = {
    **dict.fromkeys(OF_REPLY | {Reason.NO_ANSWER}, "model_grader_parse_error"),
    Reason.DECLINED: "model_grader_refusal_error",
    Reason.NO_VARIABLE: "invalid_variable_error",
    Reason.NOT_JSON: "sample_parse_error",
    Reason.TOO_LONG: "truncated_observation_error",
}


def run_of(
    grader: Grader,
    rubric: Rubric,
    verdicts: Iterable[Verdict],
    *,
    models: Mapping[str, str],
    seconds: float,
    unanswered: str = "",
) -> GraderRun:
    """Return the result of a run of ``seconds``.

    ``models`` are the models that were asked, by criterion; ``unanswered`` is why verdicts are missing, if any are.
    """
    by_key = {verdict.criterion: verdict for verdict in verdicts}
    reward = reward_or_null(rubric, by_key.values())
    failed = {key: v for key, v in by_key.items() if v.value is None}
    failures = {key: ": ".join(filter(None, (str(v.reason or v.outcome), v.detail))) for key, v in failed.items()}
    missing = dict.fromkeys(rubric.by_key.keys() - by_key.keys(), unanswered or "no answer")
    flags: dict[str, bool | str] = {"unresponsive_reward_error": True} if missing else {}
    for key, verdict in failed.items():
        match parts_of(grader)[key]:
            case _ if verdict.reason in _FLAGS:
                flags[_FLAGS[verdict.reason]] = True
            case Python() if verdict.reason is Reason.NO_SANDBOX:
                flags |= {"python_grader_server_error": True, "python_grader_server_error_type": "no_sandbox"}
            case Python():
                flags["python_grader_runtime_error"] = True
                flags["python_grader_runtime_error_details"] = verdict.detail or ""
            case StringCheck() | TextSimilarity():
                flags["other_error"] = True
            case _ if verdict.reason is None:
                flags["model_grader_parse_error"] = True
            case _:
                flags |= {"model_grader_server_error": True, "model_grader_server_error_details": failures[key]}
    details = failures | missing
    if reward.value is None and not flags:  # every part has a number, but their formula has no value
        flags["formula_parse_error"] = True
        details["calculate_output"] = reward.null_reason or ""
    scores = {key: on_scale(rubric.by_key[key].scale, v.value) for key, v in by_key.items() if v.value is not None}
    spent: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for key, verdict in by_key.items():
        if verdict.usage is not None and key in models:
            prompt, completion, cached = verdict.usage.prompt, verdict.usage.completion, verdict.usage.cached or 0
            counts = {"prompt_tokens": prompt, "completion_tokens": completion, "cached_tokens": cached}
            spent[models[key]].update(counts, total_tokens=prompt + completion)
    return GraderRun(
        reward=reward.value,
        metadata=GraderMetadata(
            name=grader.label,
            type=grader.type,
            errors=GraderErrors.model_validate(flags),
            execution_time=seconds,
            scores=scores,
            token_usage=sum(tokens["total_tokens"] for tokens in spent.values()) if spent else None,
            sampled_model_name=", ".join(sorted({models[key] for key in by_key if key in models})) or None,
            details=details,
        ),
        sub_rewards={key: scores.get(key) for key in rubric.by_key} if isinstance(grader, Multi) else {},
        model_grader_token_usage_per_model={model: dict(counts) for model, counts in spent.items()},
    )
