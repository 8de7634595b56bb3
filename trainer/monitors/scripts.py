"""Language mix, by the scripts that a completion is written in (Latin, Cyrillic, Han)."""

from __future__ import annotations

import unicodedata
from functools import cache

_FAMILIES = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "KATAKANA-HIRAGANA": "CJK"}


def other_script(prompt: str, text: str) -> float:
    """Return the share of a text's letters in a script that its prompt has no letter of; 0 without letters."""
    scripts = set(_scripts(prompt))
    letters = _scripts(text)
    return sum(script not in scripts for script in letters) / len(letters) if letters and scripts else 0.0


def _scripts(text: str) -> list[str]:
    """Return the script of each letter; full-width letters and other compatible forms are those they stand for."""
    return [_script(char) for char in unicodedata.normalize("NFKC", text) if char.isalpha()]


@cache
def _script(char: str) -> str:
    """Return the script of a letter: the first word of its Unicode name."""
    name = unicodedata.name(char, "UNKNOWN").split()[0]
    return _FAMILIES.get(name, name)
