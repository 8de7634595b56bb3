"""Verdicts in words and numbers as values on a scale, of judges' replies and of people's labels.

A change of what is read is one of `workers.judges.written`: raise its version.
"""

import math
import re
from collections import Counter
from contextlib import suppress

from pydantic import TypeAdapter

from rubricsvc.core.base import UnitInterval
from rubricsvc.core.rubric import Binary, Numeric, Scale
from rubricsvc.core.untrusted import clean, nfkc
from rubricsvc.errors import InvalidError, cut

CANNOT_TELL = "cannot_tell"
_SEPARATORS = re.compile(r"[\s_]+|(?<=\w)-(?=\w)")
_SURROUNDING, _FINAL = " \"'*`\u201c\u201d", ".,;:!\u3002"
_NUMBER = re.compile(r"([-+]?(?:\d+(?:,\d{1,2}|\.\d*)?|\.\d+))(?:(?: ?/ ?| out of )(\d+\.?\d*)| ?(%))?")
_BINARY_WORDS = {"yes": 1.0, "true": 1.0, "1": 1.0, "no": 0.0, "false": 0.0, "0": 0.0}
_OF_PEOPLE = {"y": 1.0, "ja": 1.0, "n": 0.0, "nein": 0.0, "unmet": 0.0}  # in sheets, beside those that judges write
_PLAIN: TypeAdapter[float | None] = TypeAdapter(UnitInterval | None)


def level_values(scale: Scale) -> dict[str, float]:
    """Return the verdicts in words, as the judge sees and must write them, with their values in [0, 1]."""
    if isinstance(scale, Binary):
        return {"met": 1.0, "not_met": 0.0}
    if isinstance(scale, Numeric):
        return {}
    return {clean(level.label).text.strip(): level.value for level in scale.levels}


def written_value(scale: Scale | None, value: float | None) -> str:
    """Return a value in [0, 1] as people write it on a scale: a level, or a number; ``null`` without one."""
    if isinstance(scale, Numeric) and value is not None:
        return f"{scale.low + value * (scale.high - scale.low):.15g}"
    levels = level_values(scale) if scale is not None else {}
    return "null" if value is None else next((name for name, one in levels.items() if one == value), f"{value:.15g}")


def _folded(name: str) -> str:
    """Return a level's name without case, separators, final punctuation, invisible characters, quotes and markup."""
    text = nfkc(clean(name).text).replace("\u2212", "-").casefold()
    return _SEPARATORS.sub(" ", text.strip(_SURROUNDING).rstrip(_FINAL + _SURROUNDING)).strip()


def value_on_scale(scale: Scale, verdict: str | float) -> float | None:
    """Return the value in [0, 1] of a written verdict; None where the judge cannot tell.

    Raises:
        ValueError: The verdict is not on the scale.
    """
    if not isinstance(verdict, str | int | float) or (isinstance(verdict, float) and not math.isfinite(verdict)):
        raise ValueError(f"verdict {cut(repr(verdict), 80)} is not on the scale")
    values: dict[str, float | None] = {**level_values(scale), CANNOT_TELL: None}
    text = verdict.strip() if isinstance(verdict, str) else str(verdict).removesuffix(".0")
    if text in values:
        return values[text]
    bare, spellings = _folded(text), Counter(map(_folded, values))
    if bare and spellings[bare] == 1:
        return next(value for name, value in values.items() if _folded(name) == bare)
    if isinstance(scale, Binary) and (word := bare.removesuffix(".0")) in _BINARY_WORDS:
        return _BINARY_WORDS[word]
    digits = _NUMBER.fullmatch(bare) if isinstance(verdict, str) else None
    number = float(digits[1].replace(",", ".")) if digits else verdict
    numbers = {float(name): value for name, value in level_values(scale).items() if name.isdecimal()}
    top = scale.high if isinstance(scale, Numeric) else max(numbers, default=math.nan)
    same = digits is None or float(digits[2] or (100 if digits[3] else top)) == top
    if same and isinstance(scale, Numeric) and not isinstance(number, str | bool):
        if scale.low <= number <= scale.high:
            return (number - scale.low) / (scale.high - scale.low)
    elif same and digits and number in numbers:
        return numbers[number]
    seems = "" if isinstance(number, str) else "; the judge seems to use another scale"
    raise ValueError(f"verdict {cut(repr(verdict), 80)} is not on the scale{seems}")


def label_value(scale: Scale | None, text: str) -> float | None:
    """Return the value of a person's verdict in words, or in a number as a text: on a numeric scale one of that scale.

    On others a number in [0, 1] may be meant; null is no value. What else it is raises an InvalidError. A rating, as
    ``4 stars``, is only of levels that are named so, or of a numeric scale up to more than 1.
    """
    with suppress(ValueError):
        if scale is not None:
            return value_on_scale(scale, text)
    with suppress(ValueError):
        if scale is not None and not isinstance(scale, Binary) and not (isinstance(scale, Numeric) and scale.high <= 1):
            return value_on_scale(scale, text.removesuffix(" stars"))
    word = text.strip().casefold()
    if isinstance(scale, Binary) and word in _OF_PEOPLE:
        return _OF_PEOPLE[word]
    if not isinstance(scale, Numeric) or word == "null":
        with suppress(ValueError):
            return _PLAIN.validate_json(word.replace(",", ".", 1))
    number = f"{scale.low:g} to {scale.high:g}" if isinstance(scale, Numeric) else "0 to 1"
    names = level_values(scale) if scale is not None else ()
    message = f"unknown level {cut(repr(text), 60)}; expected {', '.join([*names, number, 'or null'])}"
    raise InvalidError(message, hint="write a level of the rubric, a number, true, false or null", path="value")
