"""Statements altered so that they say something else in almost the same words."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise

from recipes.embedded_judge.alterations.frames import altered, read
from recipes.embedded_judge.alterations.tables import (
    NUMBERS,
    base_forms,
    exchanges,
    outside_code,
    phrase_pattern,
    replaced,
    term_groups,
    term_pattern,
    third_person,
    with_articles,
)

ALTERATIONS = ("negated", "number", "name", "order", "opposite", "quantifier")

_AUXILIARY = re.compile(
    r"(?<![\w`.-])(?:is|are|was|were|will|should|must|may|might|could|would|can|has been|have been|has|have)(?= \w| `)"
)
_NO_NEGATION_BEFORE = re.compile(
    r"\b(?:whether|all|every|each|any|no|none|neither|nothing|unless|not|never|only|either)\b", re.I
)
_NO_NEGATION_AFTER = re.compile(
    r" (?:not|never|only|no|both|either|neither|also|always|any|nothing|none|n't|to|just|yet|in fact)\b"
)
_NEGATION = re.compile(
    r"\b(is|are|was|were|will|should|must|may|might|could|would|can|has|have|be|does|do)(?: not|(not))\b"
    r"(?! (?:only|yet|necessarily|just))"
)
_NO_REMOVAL_AFTER = re.compile(r"\b(?:any|either|yet|nor|but|until|unless|at all|anything|even|or not)\b")
_DO = re.compile(r"\b(does|do) not (\w+)")
_NUMBER = re.compile(rf"(?<![\w`.:,/+-])(?:\d+|{'|'.join(NUMBERS)}|first|second|third|twice)(?![\w`:/+-]|[.,]\d)")
_ORDINALS = ("first", "second", "third", "fourth")
_COUNTED = re.compile(
    r" (?:time|argument|element|item|line|parameter|form|case|part|digit|character|operand|value|call|step|field|one)\b"
)
_BOUND = re.compile(
    r"\b(?:at least|at most|than|up to|or more|exceeds?|under|over|below|above|within) $", re.IGNORECASE
)
_WHETHER = re.compile(
    r"\b(?:whether|(?:determin|check|test|indicat|decid|know|find|see|ask|specif)\w* (?:out )?if)\b", re.I
)
_CODE = re.compile(r"`([^`\s]+)`")
_SYMMETRIC = re.compile(
    r"\b(?:and|or|nor|equivalent|equals?|same|identical|between|both|either|neither|alias|synonym|different|differs?|with|vs)\b|,|/"
)


def alterations(sentence: str, names: Sequence[str], rng: random.Random) -> dict[str, str]:
    """Return altered forms of a sentence, at most one of each of ``ALTERATIONS``.

    Args:
        sentence: A statement.
        names: Code names of the same document, one of which may take another's place.
        rng: Chooses among the possible alterations of a kind.
    """
    makers: dict[str, Iterable[str]] = {
        "negated": _negated(sentence),
        "number": _numbers(sentence, rng),
        "name": _names(sentence, names, rng),
        "order": _orders(sentence),
        "opposite": _exchanged(sentence, "opposites"),
        "quantifier": _exchanged(sentence, "quantifiers"),
    }
    if fact := read(sentence):
        makers = dict(altered(fact, rng))
    found = {}
    for kind, made in makers.items():
        possible = sorted({text for text in made if text != sentence and _sound(text)})
        if possible:
            found[kind] = rng.choice(possible)
    return found


_ODD = re.compile(
    r"\b(\w+) \1\b|\bnot (?:not|no|never)\b|\bno no\b|\b(?:always|never) (?:always|never)\b", re.IGNORECASE
)


def _sound(text: str) -> bool:
    return not _ODD.search(text)


def _negated(sentence: str) -> Iterator[str]:
    if re.search(r"\b(?:not|cannot)\b", sentence):
        yield from _affirmed(sentence)
        return
    for found in _AUXILIARY.finditer(sentence):
        before, after = sentence[: found.start()], sentence[found.end() :]
        inside = not outside_code(sentence, found) or before.count("(") > before.count(")")
        if inside or _NO_NEGATION_BEFORE.search(before) or _WHETHER.search(before) or _NO_NEGATION_AFTER.match(after):
            continue
        negated = _negated_auxiliary(found.group(), before, after)
        if negated:
            yield f"{before}{negated}{after}"
            return
    for found in _simple_verb().finditer(sentence):
        before = sentence[: found.start()]
        if outside_code(sentence, found) and not (_NO_NEGATION_BEFORE.search(before) or _WHETHER.search(before)):
            yield f"{before}does not {base_forms()[found.group(1)]}{sentence[found.end(1) :]}"
            return


def _negated_auxiliary(word: str, before: str, after: str) -> str | None:
    if word == "can":
        return "cannot"
    if word in ("has been", "have been"):
        return f"{word.split(maxsplit=1)[0]} not been"
    if word not in ("has", "have"):
        return f"{word} not"
    if not re.match(r" (?:a|an|the|its|their|one|two|three|to)\b", after):
        return None
    if word == "has":
        return "does not have"
    return None if re.search(r"\b(?:to|can|may|must|will|should|could|would|might) $", before) else "do not have"


@cache
def _simple_verb() -> re.Pattern[str]:
    third = "|".join(sorted(base_forms().keys() - {"has", "is", "does", "lists", "sets", "means"}))
    object_ = "a|an|the|its|their|that|whether|in|on|to|for|from|with|as|by|into|one|two|three|another|True|False|None"
    return re.compile(rf"(?<=[\w`)] )({third})(?= (?:{object_})\b| `)")


def _affirmed(sentence: str) -> Iterator[str]:
    for found in _NEGATION.finditer(sentence):
        before, after = sentence[: found.start()], sentence[found.end() :]
        if not outside_code(sentence, found) or _NO_REMOVAL_AFTER.search(after):
            continue
        auxiliary = found.group(1)
        if auxiliary in ("does", "do"):
            verb = _DO.match(sentence, found.start())
            if not verb or re.search(r"\b(?:only|if|whether)$", before.strip()):
                continue
            base = verb.group(2)
            if auxiliary == "does" and base not in base_forms().values():
                continue
            yield f"{before}{third_person(base) if auxiliary == 'does' else base}{sentence[verb.end() :]}"
        else:
            yield f"{before}{auxiliary}{after}"


def _numbers(sentence: str, rng: random.Random) -> Iterator[str]:
    for found in _NUMBER.finditer(sentence):
        word = found.group()
        if not outside_code(sentence, found):
            continue
        if word in _ORDINALS:
            if _COUNTED.match(sentence[found.end() :]):
                choices: Sequence[str] = [other for other in _ORDINALS if other != word]
            else:
                continue
        elif word == "twice":
            choices = ["three times", "four times", "once"]
        elif word in NUMBERS:
            choices = [other for other in NUMBERS[:6] if other != word]
        else:
            number = int(word) if len(word) < 12 else 0
            if number < 2 or (len(word) > 1 and word[0] == "0"):
                continue
            near = [number + 1, number + 2, number * 2, number * 10, max(2, number - 1), max(2, number // 2)]
            choices = [str(other) for other in dict.fromkeys(near) if other != number]
        choices = [other for other in choices if not re.search(rf"\b{other}\b", sentence)]
        if choices and not _BOUND.search(sentence[: found.start()]):
            yield replaced(sentence, found, rng.choice(choices))


_SHAPES = {
    "special call": r"(?:\w+\.)*__\w+__\(.*\)",
    "special": r"(?:\w+\.)*__\w+__",
    "call": r"[\w.]+\(.*\)",
    "exception": r"(?:\w+\.)*[A-Z]\w+(?:Error|Warning|Exception|Exit|Iteration|Interrupt)",
    "singleton": r"True|False|None|NotImplemented|Ellipsis",
    "constant": r"[A-Z][A-Z0-9_]+",
    "class": r"(?:\w+\.)*[A-Z]\w+",
    "word": r"[a-z_]+",
    "dotted": r"[a-z_]\w*\.[\w.]+",
    "other": r"\w+",
}


@cache
def _shape(name: str) -> str:
    """Return which kind of name it is, or nothing for another piece of code."""
    return next((shape for shape, form in _SHAPES.items() if re.fullmatch(form, name)), "")


def code_names(text: str) -> list[str]:
    """Return the names set in backticks, each once, in order."""
    return [name for name in dict.fromkeys(_CODE.findall(text)) if _shape(name)]


def _names(sentence: str, names: Sequence[str], rng: random.Random) -> Iterator[str]:
    there = code_names(sentence)
    for name in there:
        others = [other for other in names if other not in there and _shape(other) == _shape(name)]
        if others:
            yield with_articles(sentence.replace(f"`{name}`", f"`{rng.choice(others)}`"), codes=True)
    lowered = sentence.lower()
    for found in term_pattern().finditer(sentence):
        for group in _groups(sentence, found):
            others = [term for term in group if not re.search(rf"\b{re.escape(term.lower())}\b", lowered)]
            if others:
                yield replaced(sentence, found, rng.choice(others))


def _groups(sentence: str, found: re.Match[str]) -> list[tuple[str, ...]]:
    """Return the groups of a term; none in code, and after code, where "sets" and "lists" are verbs."""
    if not outside_code(sentence, found) or sentence[: found.start()].endswith("` "):
        return []
    return term_groups()[found.group().lower()]


def _orders(sentence: str) -> Iterator[str]:
    for left, right in _exchangeable(sentence):
        between = sentence[left.end() : right.start()]
        truth = {left.group().lower(), right.group().lower()} == {"true", "false"}
        if left.group() == right.group() or len(between.split()) > 12:
            continue
        if _SYMMETRIC.search(between) and not (truth and re.search(r"\b(?:if|when|otherwise)\b", sentence)):
            continue
        if not re.search(r"\w", between):
            continue
        a, b = left.group(), right.group()
        if len({a.isupper(), b.isupper()}) > 1:
            continue
        if a[:1].isupper() and b[:1].islower():
            a, b = a[:1].lower() + a[1:], b[:1].upper() + b[1:]
        yield with_articles(f"{sentence[: left.start()]}{b}{between}{a}{sentence[right.end() :]}", codes=True)


def _exchangeable(sentence: str) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    codes = [found for found in _CODE.finditer(sentence) if _shape(found.group(1))]
    for left, right in pairwise(codes):
        if sentence.count(left.group()) == sentence.count(right.group()) == 1 and (
            _shape(left.group(1)) == _shape(right.group(1))
        ):
            yield left, right
    by_group: dict[tuple[str, ...], list[re.Match[str]]] = {}
    for found in term_pattern().finditer(sentence):
        for group in _groups(sentence, found):
            by_group.setdefault(group, []).append(found)
    for terms in by_group.values():
        if len(terms) == 2:
            yield terms[0], terms[1]


_AT_THE_START = ("every", "each")
_NOT_AT_THE_START = ("sometimes", "often", "usually", "commonly", "only", "all the")


def _exchanged(sentence: str, table: str) -> Iterator[str]:
    """Yield the sentence with one phrase of the table exchanged, if the sentence does not have the other phrase too."""
    choices = exchanges(table)
    for found in phrase_pattern(table).finditer(sentence):
        phrase = found.group().lower()
        begins = found.start() == 0
        if not outside_code(sentence, found) or phrase in (_NOT_AT_THE_START if begins else _AT_THE_START):
            continue
        if re.search(r"\bnot (?:the )?$", sentence[: found.start()], re.IGNORECASE):
            continue
        if phrase == "only" and sentence[: found.start()].endswith(", "):
            continue
        for other in choices.get(phrase, ()):
            if not re.search(rf"\b{other}\b", sentence, re.IGNORECASE) or other in phrase or phrase in other:
                yield replaced(sentence, found, other)
