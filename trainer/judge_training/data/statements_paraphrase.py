"""Statements in other words, by rules that keep what is stated."""

from __future__ import annotations

import random
import re

from trainer.judge_training.data.documents_text import lower_first
from trainer.judge_training.data.statements_tables import exchanges, lines, outside_code, pattern, replaced

_CLAUSE = re.compile(
    r"^(If|When|Because|Although|Since|While|Unless|After|Before|Once) ([^,;:()]+), (?:then )?([^;:]+)\.$"
)
_TRAILING = re.compile(r"^([^,;:]+?) (if|when|because|although|unless|before|after|once) ([^,;:]+)\.$")
_NO_MOVE = re.compile(r"\b(?:only|even|just|as|and|or|that|whether|which|not|then|such)$")
_PRONOUN = re.compile(r"\b(?:it|its|they|them|their|this|these|such|that)\b", re.IGNORECASE)


def paraphrase(sentence: str, rng: random.Random) -> str:
    """Return the sentence in other words, or the same sentence where no rule applies."""
    text = _moved(sentence) if rng.random() < 0.5 else sentence
    text = _synonyms(text, rng)
    return _without_fillers(text, rng)


def _synonyms(text: str, rng: random.Random) -> str:
    """Return the text with most phrases of the table exchanged; each place once."""
    choices = exchanges("synonyms")
    found = [
        m
        for m in pattern((*choices, *lines("fixed"))).finditer(text)
        if outside_code(text, m) and m.group().lower() in choices
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


def _moved(sentence: str) -> str:
    """Return the sentence with its condition at the other end."""
    first = _CLAUSE.match(sentence)
    if first and "," not in first.group(3):
        word, clause, main = first.groups()
        return f"{main[:1].upper()}{main[1:]} {word.lower()} {clause}."
    last = _TRAILING.match(sentence)
    if last and not _NO_MOVE.search(last.group(1)) and len(last.group(1).split()) > 2:
        main, word, clause = last.groups()
        if f" {word} " in f" {main} " or sum(f" {other} " in clause for other in ("if", "when", "because")):
            return sentence
        return f"{word.capitalize()} {clause}, {lower_first(main)}."
    return sentence
