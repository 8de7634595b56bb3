"""Rubrics in a model's replies: read like input from outside, so that a reply is a whole rubric or an error.

A reply is a JSON object, ``{"criteria": [...]}``, in a code fence or bare; or, from small models, a numbered list with
lines ``1. [weight] text``.
"""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from rubricsvc.core import strict_json
from rubricsvc.core.base import Value
from rubricsvc.core.rubric import Binary, Check, Criterion, Level, Ordinal, Rubric, Source
from rubricsvc.core.untrusted import clean
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import RubricsvcError, cut
from workers import checks
from workers.checks import CHECKS
from workers.judges.calls import QuoteIndex

MIN_CRITERIA, MAX_CRITERIA = 2, 20
MAX_LISTED = 10  # criteria in a numbered list: a small model that writes more repeats itself
ALLOWED_CHECKS = frozenset(CHECKS) - {"code", "code_cheating", "python", "ifeval", "string_check", "text_similarity"}
"""Checks that a model may name: none that runs code, and none of other systems' files."""

HARD_RULE, PRINCIPLE = "hard-rule", "principle"
"""Tags of what is demanded explicitly, and of the rest."""

Documents = Mapping[str, str]  # texts that the generator was shown, by the name that a source may give

_NUMBERED = re.compile(r"\s*(\d{1,2})[.)]\s+(?:\[([+-]?\d{1,3}(?:\.\d{1,6})?)\]\s*)?(\S.*)")
_CODE_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)


class _Level(Level):
    """A level whose texts are short."""

    label: Annotated[str, Field(min_length=1, max_length=80)]
    text: Annotated[str, Field(max_length=400)] = ""


class _Source(Source):
    """A source with a passage."""

    document: Annotated[str, Field(min_length=1, max_length=200)]
    passage: Annotated[str, Field(min_length=12, max_length=2000)]
    clause: Annotated[str, Field(min_length=1, max_length=200)] | None = None


class _Criterion(Value):
    """A criterion as a model writes it: without what is a person's, such as the prompt of its own."""

    text: Annotated[str, Field(min_length=12, max_length=500)]
    weight: Annotated[float, Field(ge=-100, le=100)] = 1.0
    kind: Literal["hard rule", "principle"] = "principle"
    required: bool = False
    levels: Annotated[tuple[_Level, ...], Field(min_length=2, max_length=10)] | None = None
    check: Check | None = None
    reference: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    sources: Annotated[tuple[_Source, ...], Field(max_length=10)] | None = None


class _Rubric(Value):
    """A reply that is an object; it may also be the list alone."""

    criteria: list[_Criterion]


_LIST: TypeAdapter[list[_Criterion]] = TypeAdapter(list[_Criterion])


def read_rubric(
    text: str,
    *,
    truncated: bool = False,
    examples: Collection[str] = (),
    documents: Documents | None = None,
    evidence: Documents | None = None,
    least: int = MIN_CRITERIA,
    needs_positive: bool = True,
) -> Rubric:
    """Return the rubric in a reply.

    Text around a code fence or a numbered list is ignored. Duplicates are left out, and so is the last line of a list
    that was cut off. A cited passage must stand verbatim in the text that is named; only white space may differ.

    ``examples`` are texts of criteria that must not be copied, `normalized`. Sources may cite ``documents``, whose
    passages the judge is shown, and ``evidence``, whose passages it is not. ``least`` is the minimum of different
    criteria; with ``needs_positive`` one of them must have a positive weight.
    """
    body = _body_of(text)
    is_json = body.startswith(("[", "{"))
    given = _from_json(body, truncated) if is_json else _from_list(body, truncated=truncated)
    by_text: dict[str, _Criterion] = {}
    for one in given:
        by_text.setdefault(normalized(one.text), one)
    distinct = list(by_text.values())
    most = MAX_CRITERIA if is_json else MAX_LISTED
    if not least <= len(distinct) <= most:
        raise ValueError(f"expected {least} to {most} different criteria, found {len(distinct)}")
    if not all(one.weight for one in distinct):
        raise ValueError("expected weights other than 0")
    if needs_positive and not any(one.weight > 0 for one in distinct):
        raise ValueError("expected weights other than 0, and at least one positive")
    if copied := by_text.keys() & examples:
        raise ValueError(f"a criterion is copied from the example: {copied.pop()!r}")
    given_texts = {**(documents or {}), **(evidence or {})}
    indexes = {name: QuoteIndex(clean(body).text, body) for name, body in given_texts.items()}  # as they were shown
    numbered = enumerate(distinct, start=1)
    try:
        rubric = Rubric(criteria=tuple(_criterion(n, one, indexes, evidence or {}) for n, one in numbered))
        checks.validate(rubric)
    except ValidationError as error:
        raise ValueError(": ".join(filter(None, first_error(error)))) from error
    except RubricsvcError as error:
        raise ValueError(f"{error}; {error.hint}" if error.hint else str(error)) from error
    return rubric


def _body_of(text: str) -> str:
    """Return what is in the first code fence of a reply, or the whole reply, cleaned."""
    text = clean(text).text.strip()
    fenced = _CODE_FENCE.search(text)
    return fenced[1].strip() if fenced else text


def cleaning_note(text: str) -> str | None:
    """Return what is removed from a reply or disarmed in it when it is read; None: nothing."""
    try:
        _, escaped = _parsed(_body_of(text))
    except ValueError:  # a list
        escaped = ""
    return "; ".join(filter(None, (clean(text).note, escaped))) or None


def normalized(text: str) -> str:
    """Return the words of a text, case-folded."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def criteria_texts(text: str) -> frozenset[str]:
    """Return the normalized texts of the criteria in an example: a numbered list, or JSON after its first brace."""
    found = [one.text for one in _from_list(text[text.find("1. [") :], truncated=False)] if "1. [" in text else []
    found += re.findall(r'\{"text": "([^"]+)"', text)
    return frozenset(map(normalized, found))


def _from_json(text: str, truncated: bool) -> list[_Criterion]:
    """Return the criteria of a JSON object or list, or raise a ValueError with the place of what is wrong."""
    try:
        value = _parsed(text)[0]
        return _LIST.validate_python(value) if text.startswith("[") else _Rubric.model_validate(value).criteria
    except ValidationError as error:
        raise ValueError(": ".join(filter(None, first_error(error, model=_Rubric)))) from None
    except ValueError as error:
        problem = "the reply was cut off: write fewer or shorter criteria" if truncated else str(error)
        raise ValueError(problem) from None


def _parsed(text: str) -> tuple[Any, str]:
    """Return the value of a JSON text, its strings cleaned since escapes may stand for any character, and the note."""
    root: list[Any] = [strict_json.parse(text)]
    strings: list[str] = []
    containers: list[Any] = [root]
    while containers:
        container = containers.pop()
        for place, one in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(one, str):
                strings.append(one)
                container[place] = clean(one).text
            elif isinstance(one, list | dict):
                containers.append(one)
    return root[0], clean("\n".join(strings)).note


def _from_list(text: str, *, truncated: bool) -> list[_Criterion]:
    """Return the criteria of the lines that are numbered from 1, up to the first other line."""
    criteria: list[_Criterion] = []
    rows = text.splitlines()
    for place, row in enumerate(rows):
        match = _NUMBERED.fullmatch(row)
        if match and int(match[1]) == len(criteria) + 1:
            if truncated and place == len(rows) - 1:
                break
            fields = {"text": match[3].replace("**", "").strip(), "weight": float(match[2] or 1.0)}
            try:
                criteria.append(_Criterion.model_validate(fields))
            except ValidationError as error:
                raise ValueError(f"line {match[1]}: {': '.join(first_error(error))}") from error
        elif criteria and row.strip():
            break
    return criteria


def _criterion(number: int, given: _Criterion, indexes: Mapping[str, QuoteIndex], hidden: Documents) -> Criterion:
    """Return the criterion, or raise a ValueError unless each passage stands in the text that it names.

    The judge is not shown the passages of the ``hidden`` texts.
    """
    path = f"criteria.{number - 1}"
    if given.check and given.levels:
        raise ValueError(f"{path}: a criterion has a check or levels, not both")
    if given.check and given.check.name not in ALLOWED_CHECKS:
        raise ValueError(f"{path}.check.name: expected one of {', '.join(sorted(ALLOWED_CHECKS))}")
    sources = tuple(Source(**one.model_dump()) for one in given.sources or ())
    for one in given.sources or ():
        if one.document not in indexes:
            names = ", ".join(indexes) or "none: leave sources out"
            problem = f"expected one of the given texts ({names}), found {one.document!r}"
            raise ValueError(f"{path}.sources.document: {problem}")
        if indexes[one.document].locate(one.passage).start is None:
            raise ValueError(f"{path}.sources.passage: {cut(repr(one.passage), 80)} does not stand in {one.document!r}")
    levels = tuple(Level(**one.model_dump()) for one in given.levels or ())
    return Criterion(
        key=f"c{number}",
        text=given.text,
        weight=given.weight,
        scale=Ordinal(levels=levels) if levels else Binary(),
        check=given.check,
        required=given.required,
        tags=(HARD_RULE if given.kind == "hard rule" else PRINCIPLE,),
        reference=given.reference,
        passages=tuple(one.passage for one in sources if one.passage and one.document not in hidden) or None,
        sources=sources or None,
    )
