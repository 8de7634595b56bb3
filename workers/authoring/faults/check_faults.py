"""Texts that violate a check, made from one that meets it, by the arguments of the check and not by running it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from rubricsvc.core.rubric import Check
from workers.authoring.sentences import sentences

_CITATION = re.compile(r"\s*\[[^\]\n]+\]")
_MARKUP = re.compile(r"(?m)^[ \t]*(?:#{1,6}|[-*+]|\d+[.)])[ \t]+|^[ \t]*\|.*\n?")
_FRENCH = "Cette réponse est écrite dans une autre langue que celle de la question, et elle le reste jusqu'à la fin."

_SEPARATORS = {"words": " ", "sentences": " ", "paragraphs": "\n\n", "characters": " "}
_UNITS: dict[str, Callable[[str], list[str]]] = {
    "words": str.split,
    "sentences": sentences,
    "paragraphs": lambda text: re.split(r"\n\s*\n", text.strip()),
    "characters": list,
}


def violations(check: Check, text: str) -> Iterator[str]:
    """Yield changed texts that the check should not accept; none for a check without a rule."""
    args: dict[str, Any] = check.args
    match check.name:
        case "words" | "sentences" | "paragraphs" | "characters":
            yield from _of_another_length(check.name, args, text)
        case "contains" if args.get("mode", "any") == "none":
            yield f"{text.rstrip()} {' '.join(map(str, args.get('terms', [])[:1]))}"
        case "contains":
            yield re.sub("|".join(map(re.escape, map(str, args.get("terms", [])))), "", text, flags=re.IGNORECASE)
        case "regex" if not args.get("absent"):
            yield re.sub(str(args.get("pattern", "")), "", text)
        case "headings" | "lists" | "tables":
            yield _MARKUP.sub("", text)
        case "cites" | "supported" | "quotes":
            yield _CITATION.sub("", text)
        case "language":
            yield _FRENCH
        case "format" | "json_schema":
            yield f"Here is the answer:\n{text[: len(text) // 2]}"


def _of_another_length(name: str, args: dict[str, Any], text: str) -> Iterator[str]:
    """Yield the text with less than half of the minimum, and with more than one and a half times the maximum."""
    between = "" if name == "characters" else _SEPARATORS[name]
    units = _UNITS[name](text)
    if least := args.get("min"):
        yield between.join(units[: int(0.4 * least)])
    if (most := args.get("max")) and units:
        times = int(1.6 * most) // len(units) + 1
        yield _SEPARATORS[name].join([text.strip()] * times) if name != "characters" else text * times
