"""Invented facts about people, towns and companies: sentences in several equivalent wordings, and their denials.

They bring everyday English, numbers, and roles that can be exchanged, of which technical documents have few.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from recipes.embedded_judge.alterations.tables import NUMBERS, with_articles
from rubricsvc.core.prompt import Document
from workers.packaged_yaml import load_yaml

_SLOT = re.compile(r"\{(\w)\}")
_SENTENCES = (8, 14)
"""Fewest and most sentences of an invented document."""


@dataclass(frozen=True)
class Fact:
    """A sentence that was read with a frame: the frame's number, whether it affirms, and what is in the slots."""

    frame: int
    affirms: bool
    wording: int
    slots: Mapping[str, str]

    def wordings(self) -> list[str]:
        """Return the sentences that state the fact, the one that was read among them."""
        return [_filled(template, self.slots) for template in _templates(self.frame, self.affirms)]


def _tables() -> dict[str, Any]:
    return load_yaml(__package__, "frames.yaml")  # type: ignore[no-any-return]


@cache
def _fillers() -> dict[str, tuple[str, ...]]:
    """Return what may stand in each slot; numbers and years are not listed."""
    return {
        letter: tuple(word.strip() for word in words.split(","))
        for letters, words in _tables()["slots"].items()
        for letter in str(letters)
    }


@cache
def fillers() -> frozenset[str]:
    """Return the names that may begin an invented sentence."""
    return frozenset(word.split()[0] for words in _fillers().values() for word in words if word[0].isupper())


@cache
def _canonical() -> dict[str, str]:
    return {word.lower(): word for words in _fillers().values() for word in words}


@cache
def _kinds() -> dict[str, str]:
    """Return the slots of the same kind for each slot."""
    return {letter: str(letters) for letters in _tables()["slots"] for letter in str(letters)}


def _templates(frame: int, affirms: bool) -> list[str]:
    return _tables()["frames"][frame]["states" if affirms else "denies"]  # type: ignore[no-any-return]


def _filled(template: str, slots: Mapping[str, str]) -> str:
    text = _SLOT.sub(lambda found: slots[found.group(1)], template)
    return with_articles(f"{text[:1].upper()}{text[1:]}.")


@dataclass(frozen=True)
class _Reader:
    """A wording of a frame: a pattern, and the words that a sentence must have for it."""

    frame: int
    affirms: bool
    wording: int
    pattern: re.Pattern[str]
    words: frozenset[str]


@cache
def _readers() -> list[_Reader]:
    readers = []
    for frame, _ in enumerate(_tables()["frames"]):
        for affirms in (True, False):
            for wording, template in enumerate(_templates(frame, affirms)):
                parts = _SLOT.split(re.sub(r"\ba (?=\{)", "an? ", template))
                form = "".join(rf"(?P<{part}>[\w ]+)" if n % 2 else part for n, part in enumerate(parts))
                words = frozenset(re.findall(r"\w+", _SLOT.sub("", template).lower())) - {"a", "s"}
                readers.append(_Reader(frame, affirms, wording, re.compile(rf"{form}\.", re.IGNORECASE), words))
    return readers


@lru_cache(maxsize=65536)
def read(sentence: str) -> Fact | None:
    """Return the fact that an invented sentence states, or None for any other sentence."""
    words = set(re.findall(r"\w+", sentence.lower()))
    for reader in _readers() if "`" not in sentence else ():
        if reader.words <= words and (found := reader.pattern.fullmatch(sentence)):
            slots = {letter: _canonical().get(text.lower(), text.lower()) for letter, text in found.groupdict().items()}
            if all(_fits(letter, text) for letter, text in slots.items()):
                return Fact(reader.frame, reader.affirms, reader.wording, slots)
    return None


def _fits(letter: str, text: str) -> bool:
    if letter in "NY":
        return text.isdecimal() or (letter == "N" and text in NUMBERS)
    return text in _fillers()[letter]


def restated(sentence: str, rng: random.Random) -> str:
    """Return an invented sentence in another of its wordings; any other sentence as it is."""
    fact = read(sentence)
    others = [text for text in fact.wordings() if text != sentence] if fact else []
    return rng.choice(others) if others else sentence


def altered(fact: Fact, rng: random.Random) -> dict[str, list[str]]:
    """Return sentences that state something else, by kind of alteration."""
    fillers, kinds = _fillers(), _kinds()
    made: dict[str, list[str]] = {"negated": [], "number": [], "name": [], "order": []}
    made["negated"] = replace(fact, affirms=not fact.affirms).wordings()
    for letter, text in fact.slots.items():
        if letter in "NY":
            made["number"].append(_with(fact, letter, _other_number(text, letter == "Y", rng)))
            continue
        others = [word for word in fillers[letter] if word not in fact.slots.values()]
        made["name"].append(_with(fact, letter, rng.choice(others)))
        twin = kinds[letter].replace(letter, "")
        if twin in fact.slots and twin > letter and not _tables()["frames"][fact.frame].get("symmetric"):
            swapped = replace(fact, slots={**fact.slots, letter: fact.slots[twin], twin: text})
            made["order"].append(swapped.wordings()[fact.wording])
    return made


def _with(fact: Fact, letter: str, text: str) -> str:
    return replace(fact, slots={**fact.slots, letter: text}).wordings()[fact.wording]


def _other_number(text: str, year: bool, rng: random.Random) -> str:
    if text in NUMBERS:
        return rng.choice([word for word in NUMBERS if word != text])
    number = int(text)
    if year:
        return str(number + rng.choice((-40, -13, -10, -3, -2, -1, 1, 2, 5, 10, 11, 30)))
    near = (number + 1, number + 2, number + 10, number * 2, number * 10, max(2, number // 2), max(3, number - 1))
    return str(rng.choice([other for other in near if other != number]))


def invented_documents(seed: int, count: int) -> Iterator[Document]:
    """Yield documents of invented facts, each about a few people, towns and companies."""
    for number in range(count):
        yield _invented(f"invented.{seed}.{number}")


def _invented(ident: str) -> Document:
    rng = random.Random(ident)
    cast = {letters: rng.sample(words, min(4, len(words))) for letters, words in _casts().items()}
    sentences = []
    for frame in rng.sample(range(len(_tables()["frames"])), rng.randint(*_SENTENCES)):
        template = rng.choice(_templates(frame, affirms=rng.random() < 0.8))
        sentences.append(_filled(template, _slots(template, cast, rng)))
    people = {letter: name for letters, names in cast.items() for letter, name in zip(letters, names, strict=False)}
    title = _SLOT.sub(lambda found: people[found.group(1)], rng.choice(_tables()["titles"]))
    return Document(id=ident, text=" ".join(sentences), title=title)


def _casts() -> dict[str, tuple[str, ...]]:
    return {str(letters): _fillers()[str(letters)[0]] for letters in _tables()["slots"]}


def _slots(template: str, cast: Mapping[str, list[str]], rng: random.Random) -> dict[str, str]:
    slots = {"N": str(rng.choice((*range(2, 20), *range(20, 100, 5), 120, 150, 300)))}
    slots["Y"] = str(rng.randint(1880, 2020))
    for letters, words in cast.items():
        chosen = rng.sample(words, len(letters))
        slots |= dict(zip(letters, chosen, strict=True))
    return {letter: slots[letter] for letter in _SLOT.findall(template)}
