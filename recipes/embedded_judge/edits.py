"""Edits of a completion, by which it comes to meet a check or not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

_SENTENCE_END = re.compile(r"(?<=[.!?…])(?<!\n\d\.)(?<!\A\d\.) +")

Place = Literal["anywhere", "start", "end"]


def sentences(text: str) -> list[str]:
    """Split at spaces after ``.!?…``, but not after the number of a list item; line breaks are kept inside."""
    return [sentence for sentence in _SENTENCE_END.split(text.strip()) if sentence]


def added(text: str, sentence: str, place: Place, rng: Random) -> str:
    """Return the text with a sentence added; its own leading or trailing line breaks are kept."""
    if place == "end":
        if re.search(r"(?m)^(?:\||```|[-*+] |\d+[.)] )[^\n]*\s*\Z", text):
            return f"{text.rstrip()}\n\n{sentence.lstrip(' ')}"
        return text.rstrip() + (sentence if sentence[0].isspace() else f" {sentence}")
    if place == "start":
        between = "\n\n" if re.match(r"[#|`]|[-*+] |\d+[.)] ", text) else " "
        return sentence + ("" if sentence[-1].isspace() else between) + text.lstrip()
    if sentence[0].isspace() or sentence[-1].isspace():
        return added(text, sentence, "end" if sentence[0].isspace() else "start", rng)
    parts = sentences(text)
    parts.insert(rng.randint(0, len(parts)), sentence)
    return " ".join(parts)


def _items(text: str, rng: Random, marker: Callable[[int], str]) -> str:
    """Return the last sentences as list items, below the first one or by themselves."""
    parts = sentences(text)
    if len(parts) < 3:
        parts = [*parts, *rng.sample(_FILLERS, 3 - len(parts) + rng.randint(0, 1))]
    before = parts[:1] if len(parts) > 3 or (len(parts) == 3 and rng.random() < 0.4) else []
    lines = [f"{marker(n)} {' '.join(part.split())}" for n, part in enumerate(parts[len(before) :], 1)]
    return "\n".join([*before, *([""] if before else []), *lines])


_FILLERS = (
    "Take your time", "Ask around", "Keep it simple", "Look twice", "Write it down", "Start early", "Stay calm",
    "Bring a friend", "Check the price", "Rest afterwards",
)  # fmt: skip


def bullets(text: str, rng: Random) -> str:
    """Return the sentences as a bulleted list."""
    mark = rng.choice("-*+")
    return _items(text, rng, lambda _: mark)


def numbered(text: str, rng: Random) -> str:
    """Return the sentences as a numbered list."""
    end = rng.choice(".)")
    return _items(text, rng, lambda n: f"{n}{end}")


def any_list(text: str, rng: Random) -> str:
    """Return the sentences as a list."""
    return rng.choice((bullets, numbered))(text, rng)


def bold(text: str, rng: Random) -> str:
    """Return the text with a word or two in bold."""
    words = list(re.finditer(r"(?<![\w`*])[A-Za-z]{4,}(?: [A-Za-z]{4,})?(?![\w`*])", text))
    if not words:
        return text
    word = rng.choice(words)
    return f"{text[: word.start()]}**{word[0]}**{text[word.end() :]}"


def cite(text: str, rng: Random) -> str:
    """Return the text with a number in brackets after one of its sentences."""
    parts = sentences(text)
    at, number = rng.randrange(len(parts)), rng.randint(1, 9)
    parts[at] = re.sub(r"([.!?]?)\Z", rf" [{number}]\1", parts[at], count=1)
    return " ".join(parts)


def no_comma(text: str, rng: Random) -> str:
    """Return the text without commas."""
    return re.sub(r"\s*,", "", text)


def comma(text: str, rng: Random) -> str:
    """Return the text with a comma."""
    with_comma = ("Of course, it depends.", "Well, that is it.", "It is old, small and dark.")
    return text if "," in text else added(text, rng.choice(with_comma), "anywhere", rng)


def plain(text: str, rng: Random) -> str:
    """Return the text without Markdown's marks."""
    return re.sub(r"(?m)^(?:#{1,6}|[-*+]|\d+[.)]) |[*`|]", "", text)


def markdown(text: str, rng: Random) -> str:
    """Return the text with some Markdown."""
    return rng.choice((bold, bullets, lambda given, _: f"## Answer\n\n{given}"))(text, rng)


def paragraphs(text: str, rng: Random) -> str:
    """Return the text in two paragraphs or more."""
    parts = sentences(text)
    if len(parts) < 2:
        parts.append("There is more to say about it.")
    for at in sorted(rng.sample(range(1, len(parts)), rng.randint(1, min(2, len(parts) - 1))), reverse=True):
        parts[at - 1 : at + 1] = [f"{parts[at - 1]}\n\n{parts[at]}"]
    return " ".join(parts)


def several(text: str, rng: Random) -> str:
    """Return the text with a second sentence."""
    return text if len(sentences(text)) > 1 else f"{text} {rng.choice(_FILLERS)}."


def one_sentence(text: str, rng: Random) -> str:
    """Return one of the sentences."""
    return rng.choice(sentences(text) or [text])


def duplicate(text: str, rng: Random) -> str:
    """Return the text with one of its longer sentences said twice."""
    parts = sentences(text)
    longer = [n for n, part in enumerate(parts) if len(part) > 20]
    if longer:
        parts.insert(rng.randint(0, len(parts)), parts[rng.choice(longer)])
    return " ".join(parts)


def quote(text: str, rng: Random) -> str:
    """Return the text in quotation marks."""
    return '"' + text.strip().replace('"', "'") + '"'


def half_quote(text: str, rng: Random) -> str:
    """Return the text without quotation marks at its ends, or with one at one end only."""
    text = text.strip().strip('"')
    return rng.choice((text, text, f'"{text}', f'{text}"'))


def as_json(text: str, rng: Random) -> str:
    """Return a JSON object with the text in it."""
    key = rng.choice(("answer", "text", "summary", "note", "message"))
    data = rng.choice(({key: text}, {key: text, "part": 1}, {"topic": "general", key: text}, {"ok": True, key: text}))
    return json.dumps(data, ensure_ascii=False, indent=rng.choice((None, None, 2)))


def broken_json(text: str, rng: Random) -> str:
    """Return the text itself, or something that only looks like JSON."""
    if rng.random() < 0.5:
        return text
    good = as_json(text, rng)
    return rng.choice((good[:-1], good[1:], good.replace('"', "'"), good.replace(":", " ", 1), f"Here it is: {good}"))


EDITS: dict[str, tuple[Callable[[str, Random], str] | None, Callable[[str, Random], str] | None]] = {
    "list": (any_list, None),
    "bullets": (bullets, None),
    "numbered": (numbered, None),
    "bold": (bold, None),
    "cite": (cite, None),
    "no_comma": (no_comma, comma),
    "plain": (plain, markdown),
    "paragraphs": (paragraphs, None),
    "several": (several, one_sentence),
    "duplicate": (duplicate, None),
    "quote": (quote, half_quote),
    "json": (as_json, broken_json),
    "upper": (lambda text, _: text.upper(), None),
    "lower": (lambda text, _: text.lower(), None),
}
"""By name: what makes a text meet the check, and what makes it not."""

FIRST = ("several", "empty", "short", "long")
"""Edits that replace the text; they come before the others."""

LAST = ("no_comma", "plain", "quote", "json", "upper", "lower")
"""Edits of the whole text; they come after the others."""

ARRANGED = ("list", "bullets", "numbered", "paragraphs")
"""Edits that arrange the sentences in lines; one of them at most."""


def without(text: str, patterns: Sequence[tuple[str, str]]) -> str:
    """Return the text with the patterns replaced, and with a capital at its start."""
    for pattern, replacement in patterns:
        text = re.sub(pattern, replacement, text)
    text = text.strip()
    return text[:1].upper() + text[1:] if patterns else text
