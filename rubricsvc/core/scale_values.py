"""Verdicts in words and numbers as values on a scale, of judges' replies and of people's labels.

A change of what is read is one of `workers.judges.written`: raise its version.
"""

import math
import re
import unicodedata
from collections import Counter

from rubricsvc.core.rubric import Binary, Numeric, Scale
from rubricsvc.core.untrusted import clean
from rubricsvc.errors import cut

CANNOT_TELL = "cannot_tell"
_SEPARATORS = re.compile(r"[\s_]+|(?<=\w)-(?=\w)")
_SURROUNDING, _FINAL = " \"'*`\u201c\u201d", ".,;:!\u3002"
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+))(?: ?/ ?(\d+\.?\d*))?")
_BINARY_WORDS = {"yes": 1.0, "true": 1.0, "1": 1.0, "no": 0.0, "false": 0.0, "0": 0.0}


def level_values(scale: Scale) -> dict[str, float]:
    """Return the verdicts in words, as the judge sees and must write them, with their values in [0, 1]."""
    if isinstance(scale, Binary):
        return {"met": 1.0, "not_met": 0.0}
    if isinstance(scale, Numeric):
        return {}
    return {clean(level.label).text.strip(): level.value for level in scale.levels}


def _folded(name: str) -> str:
    """Return a level's name without case, separators, final punctuation, invisible characters, quotes and markup."""
    text = unicodedata.normalize("NFKC", clean(name).text).replace("\u2212", "-").casefold()
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
    if isinstance(scale, Binary) and bare in _BINARY_WORDS:
        return _BINARY_WORDS[bare]
    digits = _NUMBER.fullmatch(bare) if isinstance(verdict, str) else None
    number = float(digits[1]) if digits else verdict
    if isinstance(scale, Numeric) and not isinstance(number, str | bool):
        same = digits is None or float(digits[2] or scale.high) == scale.high
        if same and scale.low <= number <= scale.high:
            return (number - scale.low) / (scale.high - scale.low)
    seems = "" if isinstance(number, str) else "; the judge seems to use another scale"
    raise ValueError(f"verdict {cut(repr(verdict), 80)} is not on the scale{seems}")
