"""Statements in other words, by rules that keep what is stated."""

from __future__ import annotations

import random
import re

from recipes.embedded_judge.alterations.frames import restated
from recipes.embedded_judge.alterations.tables import (
    NUMBERS,
    exchanges,
    lines,
    outside_code,
    pattern,
    phrase_pattern,
    replaced,
)
from recipes.embedded_judge.documents import lower_first

_WORD = re.compile(r"(?:a |[a-z]{2,} |`|[A-Z])")
_CLAUSE = re.compile(
    r"^(If|When|Because|Although|Since|While|Unless|After|Before|Once) ([^,;:()]+), (?:then )?([^;:]+)\.$"
)
_TRAILING = re.compile(r"^([^,;:()]+?) (if|when|because|although|unless) ([^,;:()]+)\.$")
_NO_MOVE = re.compile(
    r"\b(?:only|even|just|right|except|as|and|or|that|whether|which|not|then|such|than)$|\b(?:whether|if)\b"
)


def paraphrase(sentence: str, rng: random.Random, names: frozenset[str] = frozenset()) -> str:
    """Return the sentence in other words, or the same sentence where no rule applies."""
    text = restated(sentence, rng)
    if rng.random() < 0.5:
        text = _moved(text, names)
    for rule in (_result_first, _pairs_swapped, _numbers_respelled):
        if rng.random() < 0.5:
            text = rule(text)
    text = _synonyms(text, rng)
    return _without_fillers(text, rng)


_RETURNS = re.compile(
    r"^(`[^`]+`|This (?:function|method)|The (?:function|method) `[^`]+`) returns ((?:a|an|the|True) .+)\.$"
)
_PAIR = re.compile(r"(`[^`]+`) (and|or) (`[^`]+`)(?! and| or|,)")
_NUMBER = re.compile(r"(?<![\w`.:,/+%(-])(?:[2-9]|10|two|three|four|five|six|seven|eight|nine|ten)(?= [a-z]| `)")
_SPELLED = {word: str(number) for number, word in enumerate(NUMBERS, start=2)}
_SPELLED |= {digits: word for word, digits in _SPELLED.items()}


def _result_first(text: str) -> str:
    found = _RETURNS.match(text)
    if found and re.search(r" or | and |, |\bit\b", found.group(2)):
        return text
    return f"What {lower_first(found.group(1))} returns is {found.group(2)}." if found else text


def _pairs_swapped(text: str) -> str:
    """Return the text with "`x` and `y`" as "`y` and `x`"; not in longer lists, or where the order counts."""
    if re.search(r"\brespectively\b|\bfrom\b|\bin that order\b|\bthen\b|\bbetween\b", text):
        return text
    return _PAIR.sub(
        lambda m: m.group() if text[: m.start()].endswith(("`, ", "`,")) else f"{m.group(3)} {m.group(2)} {m.group(1)}",
        text,
    )


def _numbers_respelled(text: str) -> str:
    """Return the text with "two" as "2" and the reverse."""
    return _NUMBER.sub(lambda m: _SPELLED[m.group()] if outside_code(text, m) else m.group(), text)


def _synonyms(text: str, rng: random.Random) -> str:
    """Return the text with most phrases of the table exchanged; each place once."""
    choices = exchanges("synonyms")
    found = [
        m for m in phrase_pattern("synonyms").finditer(text) if outside_code(text, m) and m.group().lower() in choices
    ]
    for match in reversed(found):
        if rng.random() < 0.8:
            text = replaced(text, match, rng.choice(choices[match.group().lower()]))
    return text


def _without_fillers(text: str, rng: random.Random) -> str:
    for match in reversed(list(pattern(lines("droppable")).finditer(text))):
        if rng.random() < 0.7 and outside_code(text, match) and text[match.end() : match.end() + 1] == " ":
            before = text[: match.start()]
            if before.endswith(" ") and not before.endswith((", ", "not ", "and ", "or ")):
                text = before + text[match.end() + 1 :]
    return text


def _moved(sentence: str, names: frozenset[str]) -> str:
    """Return the sentence with its condition at the other end."""
    first = _CLAUSE.match(sentence)
    if first and "," not in first.group(3):
        word, clause, main = first.groups()
        return f"{main[:1].upper()}{main[1:]} {word.lower()} {clause}." if _WORD.match(main) else sentence
    last = _TRAILING.match(sentence)
    if last and not _NO_MOVE.search(last.group(1)) and len(last.group(1).split()) > 2:
        main, word, clause = last.groups()
        if f" {word} " in f" {main} " or sum(f" {other} " in clause for other in ("if", "when", "because")):
            return sentence
        return f"{word.capitalize()} {clause}, {lower_first(main, names)}."
    return sentence
