"""The tables of words.yaml, and the few forms of English that they need."""

from __future__ import annotations

import re
from functools import cache

from workers.packaged_yaml import load_yaml

NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _words() -> dict[str, str]:
    return load_yaml(__package__, "words.yaml")  # type: ignore[no-any-return]


@cache
def lines(table: str) -> tuple[str, ...]:
    """Return the rows of a table of single phrases."""
    return tuple(line.strip() for line in _words()[table].splitlines() if line.strip())


@cache
def exchanges(table: str) -> dict[str, tuple[str, ...]]:
    """Return what may take the place of each phrase of a table of pairs."""
    found: dict[str, tuple[str, ...]] = {}
    for line in lines(table):
        left, mark, right = re.split(r"\s+([|>])\s+", line)
        found[left] = (*found.get(left, ()), right)
        if mark == "|":
            found[right] = (*found.get(right, ()), left)
    return found


@cache
def phrase_pattern(table: str) -> re.Pattern[str]:
    """Return a pattern of the phrases of a table of pairs, and of the fixed ones, which have no exchange."""
    return pattern((*exchanges(table), *lines("fixed")))


@cache
def term_groups() -> dict[str, list[tuple[str, ...]]]:
    """Return the groups of terms of one kind in which each term is, by the term in small letters."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for row in lines("kinds"):
        group = tuple(term.strip() for term in row.split(","))
        for term in group:
            groups.setdefault(term.lower(), []).append(group)
    return groups


@cache
def term_pattern() -> re.Pattern[str]:
    """Return a pattern of the terms that have groups."""
    return pattern(tuple(term_groups()))


@cache
def words_of(table: str) -> frozenset[str]:
    """Return the words of a table of single words."""
    return frozenset(_words()[table].split())


@cache
def base_forms() -> dict[str, str]:
    """Return the base form of each verb's third person."""
    return {third_person(verb): verb for verb in words_of("verbs")}


@cache
def third_person(verb: str) -> str:
    """Return the verb's form after "it"."""
    if verb in ("have", "be", "do"):
        return {"have": "has", "be": "is", "do": "does"}[verb]
    if verb.endswith(("s", "x", "ch", "sh", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


@cache
def pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern of whole phrases, the longest first, in small letters or at the beginning of a sentence."""
    ordered = sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    return re.compile(rf"(?<![\w`'.-])(?:{'|'.join(map(re.escape, ordered))})(?![\w`'-]|\.\w)", re.IGNORECASE)


def outside_code(text: str, found: re.Match[str]) -> bool:
    """Whether a match lies outside of code in backticks and of quotations."""
    before = text[: found.start()]
    return before.count("`") % 2 == 0 and before.count('"') % 2 == 0


def replaced(text: str, found: re.Match[str], by: str) -> str:
    """Return the text with a match replaced; the first letter stays a capital, and a or an fits the next word."""
    old = found.group()
    if old[:1].isupper() and not (len(old) > 1 and old.isupper()):
        by = by[:1].upper() + by[1:]
    return with_articles(f"{text[: found.start()]}{by}{text[found.end() :]}")


_ARTICLE = re.compile(r"\b([Aa])n? (?=(`?)([A-Za-z][\w-]*))")
_CONSONANT = re.compile(r"uni(?!n|m)|unary|us[eau]|uti|utf|eu|one\b|once\b|u\b", re.IGNORECASE)


def with_articles(text: str, codes: bool = False) -> str:
    """Return the text with "a" or "an" as the next word's first sound asks for; before code only if ``codes``."""

    def article(found: re.Match[str]) -> str:
        word = found.group(3)
        if (found.group(2) and not codes) or word[:2].isupper() or (found.group(2) and not word[:1].isalpha()):
            return found.group()
        vowel = word.startswith(("hour", "honest")) or (word[0] in "aeiouAEIOU" and not _CONSONANT.match(word))
        return f"{found.group(1)}{'n' if vowel else ''} "

    return _ARTICLE.sub(article, text)
