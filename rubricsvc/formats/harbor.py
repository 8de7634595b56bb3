"""Harbor's ``judge.toml`` (harbor-rewardkit): criteria, how they are aggregated, and settings of the judge.

The settings of the judge are not part of a rubric: they are noted and left out. A ``negate`` criterion gives
1 − value; it becomes a criterion whose text asks for the opposite. An aggregation becomes the formula that computes
the same number, and is an error where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from rubricsvc.core.rubric import Binary, Criterion, Level, Numeric, Ordinal, Rubric, Scale
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import InvalidFileError
from rubricsvc.formats.foreign import keys_of, plain_weight, rubric_in
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

NEGATED = "The following does not hold: "
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FORMULAS = {"weighted-mean": "weighted_mean", "weighted-sum": "ldc_raw", "required-pass": "multichallenge_all"}
_FORMULAS |= {"all-pass": "multichallenge_all", "any-pass": "multichallenge_any"}
_AGGREGATIONS = {"verifiers": "weighted-mean", "weighted_mean": "weighted-mean", "rar_explicit": "weighted-mean"}
_AGGREGATIONS |= {"multichallenge_all": "all-pass", "multichallenge_any": "any-pass"}
_AGGREGATIONS |= {"ldc_raw": "weighted-sum", "verifiers_legacy": "weighted-sum"}


class _Strict(ForeignModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Criterion(_Strict):
    description: Text
    type: Literal["binary", "likert", "numeric", "rubric"] = "binary"
    name: str | None = None
    id: str | None = None
    points: Annotated[int, Field(ge=2)] = 5
    levels: Annotated[tuple[Text, ...], Field(max_length=10)] = ()
    min: float = 0.0
    max: float = 1.0
    weight: float = 1.0
    files: tuple[str, ...] = ()
    negate: bool | None = None
    optional: bool | None = None
    annotations: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_negated(self) -> bool:
        """Whether it is negated, by its field or by its annotation."""
        return "negative" in str(self.annotations.get("type", "")).lower() if self.negate is None else self.negate

    @property
    def is_optional(self) -> bool:
        """Whether it is optional, by its field or by its annotation."""
        return (
            "optional" in str(self.annotations.get("importance", "")).lower()
            if self.optional is None
            else self.optional
        )


class _Scoring(_Strict):
    aggregation: str = "weighted-mean"
    threshold: float = 0.5


class _File(_Strict):
    judge: dict[str, Any] = Field(default_factory=dict)
    criterion: Annotated[tuple[_Criterion, ...], Field(min_length=1)]
    scoring: _Scoring = _Scoring()


_JUDGE = {
    "judge", "model", "version", "files", "mode", "timeout", "reasoning_effort", "isolated", "cwd", "reference",
    "atif-trajectory", "atif_trajectory", "mcp_servers", "weight", "prompt_template", "samples", "guard",
}  # fmt: skip


def matches(first: Any) -> bool:
    """Return whether this document is a ``judge.toml``."""
    return (
        isinstance(first, dict) and isinstance(first.get("criterion"), list) and first.keys() <= set(_File.model_fields)
    )


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of the document."""
    given = entry.build(_File, entry.data)
    for name in sorted(given.judge.keys() - _JUDGE):
        entry.add("extra_forbidden", f"unknown field; expected one of {', '.join(sorted(_JUDGE))}", ("judge", name))
    formula = _formula(entry, given)
    criteria = []
    for place, (key, one) in enumerate(
        zip(keys_of([c.name or c.id for c in given.criterion]), given.criterion, strict=True)
    ):
        path = ("criterion", place)
        scale = _scale(entry, one, path)
        if one.files:
            entry.note("files", "the files that the judge may read are not part of a rubric", (*path, "files"))
        text = NEGATED + one.description if one.is_negated else one.description
        tags = ("optional",) * one.is_optional + ("likert",) * (one.type == "likert")
        criteria.append(entry.make(Criterion, path, key=key, text=text, weight=one.weight, scale=scale, tags=tags))
    if entry.errors:
        raise InvalidFileError(entry.errors)
    if given.judge:
        names = ", ".join(sorted(given.judge))
        entry.note(
            "judge", f"settings of the judge are not part of a rubric: {names}; see `rubricsvc judges add`", ("judge",)
        )
    rubric = entry.make(Rubric, ("criterion",), criteria=tuple(criteria), formula=formula)
    yield Record(None, rubric, name=rubric_name(entry.name), location=entry.location)


def _formula(entry: Entry, given: _File) -> str:
    """Return the formula of the aggregation; one that no formula computes is an error."""
    path, aggregation = ("scoring", "aggregation"), given.scoring.aggregation.replace("_", "-")
    binary = all(one.type == "binary" for one in given.criterion)
    optional = [place for place, one in enumerate(given.criterion) if one.is_optional]
    if aggregation == "threshold":
        hint = "import it as weighted-mean, and apply the threshold to the rewards"
        entry.add("formula", f"no formula computes the aggregation 'threshold'; {hint}", path)
    elif aggregation not in _FORMULAS:
        entry.expected("literal_error", f"one of {', '.join([*_FORMULAS, 'threshold'])}", aggregation, path)
    elif aggregation == "required-pass" and optional:
        message = "no formula computes 'required-pass' beside optional criteria"
        entry.add("formula", f"{message}; remove the optional ones, or use weighted-mean", ("criterion", optional[0]))
    elif aggregation not in ("weighted-sum",):
        for place, one in enumerate(given.criterion):
            if one.weight < 0:
                message = f"negative weights need aggregation 'weighted-sum', found {aggregation!r}"
                entry.add("formula", message, ("criterion", place, "weight"))
    if aggregation in ("all-pass", "any-pass", "required-pass") and not binary:
        entry.note("formula", "Harbor passes a value of 1, this formula one of 0.99 and above", path)
    return _FORMULAS.get(aggregation, "weighted_mean")


def _scale(entry: Entry, one: _Criterion, path: FieldPath) -> Scale:
    if one.type in ("likert", "numeric") and one.is_negated:
        message = "a number cannot be negated here: reword the criterion so that more is better, or describe levels"
        entry.add("shape", f'{message} (type = "rubric")', (*path, "negate"))
    elif one.type == "likert":
        return Numeric(low=1.0, high=float(one.points))
    elif one.type == "numeric":
        return entry.make(Numeric, path, low=one.min, high=one.max)
    elif one.type == "rubric" and len(one.levels) < 2:
        entry.add("length", f"expected 2 to 10 levels, found {len(one.levels)}", (*path, "levels"))
    elif one.type == "rubric":
        most = len(one.levels) - 1
        values = [1.0 - n / most if one.is_negated else n / most for n in range(most + 1)]
        pairs = enumerate(zip(values, one.levels, strict=True))
        return Ordinal(levels=tuple(Level(label=str(n), value=value, text=text) for n, (value, text) in pairs))
    return Binary()


def dump(record: Record) -> Iterator[Row]:
    """Yield the one document of a rubric."""
    aggregation = _AGGREGATIONS.get(record.rubric.formula) if record.rubric else None
    rubric = rubric_in(record, "harbor", pitfalls=aggregation != "weighted-mean")
    if aggregation is None or rubric.groups:
        groups = " with groups" if rubric.groups else ""
        message = f"no aggregation of Harbor computes the formula {rubric.formula!r}{groups}"
        hint = f"it has {', '.join(_FORMULAS)}: set the formula to one of {', '.join(_AGGREGATIONS)}"
        raise InvalidError(message, hint=hint, path="formula")
    tables = [_table(criterion) for criterion in rubric.criteria]
    yield {"criterion": tables, "scoring": {"aggregation": aggregation}}


def _table(criterion: Criterion) -> Row:
    negate = criterion.text.startswith(NEGATED)
    table: Row = {"description": criterion.text.removeprefix(NEGATED)}
    if _NAME.fullmatch(criterion.key):
        table["name"] = criterion.key
    match criterion.scale:
        case Ordinal(levels=levels) if len(levels) <= 10:
            ordered = sorted(levels, key=lambda level: level.value, reverse=negate)
            table |= {"type": "rubric", "levels": [level.text or level.label for level in ordered]}
        case Numeric(low=1.0, high=high) if high.is_integer() and "likert" in criterion.tags:
            table |= {"type": "likert", "points": int(high)}
        case Numeric(low=low, high=high):
            table |= {"type": "numeric", "min": low, "max": high}
    if negate and not isinstance(criterion.scale, Numeric):
        table["negate"] = True
    elif negate:
        table["description"] = criterion.text
    if "optional" in criterion.tags:
        table["optional"] = True
    return table | {"weight": plain_weight(criterion.weight)}
