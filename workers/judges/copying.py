"""Replies that repeat the words of the judge's template in place of an answer."""

from __future__ import annotations

import re
import unicodedata
from difflib import SequenceMatcher

from rubricsvc.core.untrusted import clean

_MIN_RUN = 4
"""Words of a text that may not all stand together in the instructions."""
_MIN_LONG = 5
"""Words of a placeholder that may neither occur in a longer text nor, with some words changed, be the text."""
_MIN_RATIO = 0.65
"""Similarity in words (Ratcliff and Obershelp) from which a text is a placeholder with some words changed."""
_EXAMPLE = re.compile(r'"(\w+)": \[?<([^<>]+)>')
_WORD = re.compile(r"[^\W_]+")
_DIGITS = {"zero": "0", "one": "1", "two": "2"}


class TemplateWords:
    """The words of instructions, and of the placeholder of each field in their example of a reply."""

    def __init__(self, text: str) -> None:
        self._instructions = _joined(_words(text))
        self._placeholders = {field: _words(placeholder) for field, placeholder in _EXAMPLE.findall(text)}

    def repeated_by(self, field: str, text: str) -> bool:
        """Return whether a field's text repeats the instructions, or the field's name or placeholder.

        Case, punctuation, blanks and the spelling of digits do not count.
        """
        words, placeholder = _words(text), self._placeholders.get(field, [])
        if len(words) < 2:
            return words == [field]
        if words == placeholder[: len(words)] or (len(words) >= _MIN_RUN and _joined(words) in self._instructions):
            return True
        if len(placeholder) < _MIN_LONG:
            return False
        if _joined(placeholder) in _joined(words):
            return True
        if len(words) > 2 * len(placeholder):
            return False
        matcher = SequenceMatcher(None, words, placeholder, autojunk=False)
        return matcher.quick_ratio() >= _MIN_RATIO and matcher.ratio() >= _MIN_RATIO


def _words(text: str) -> list[str]:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", clean(text).text)
    return [_DIGITS.get(word, word) for word in _WORD.findall(text.casefold())]


def _joined(words: list[str]) -> str:
    return f" {' '.join(words)} "
