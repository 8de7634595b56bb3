"""The clauses of a specification, by name: found by its headings and numbers, so that a citation can be verified."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NAME_CHARS = 120
_HEADING = re.compile(r"#{1,6}[ \t]+(\S.*?)[ \t#]*")
_NUMBER = re.compile(r"[ \t]{0,3}((?:§[ \t]?)?\d{1,3}(?:\.\d{1,3})*|\([a-z\d]{1,3}\))[.):]?[ \t]+\S.*")
_CODE = re.compile(r"[ \t]{0,3}(?:```|~~~)")


def clauses_of(text: str) -> dict[str, str]:
    """Return the clauses in order, by name. Headings without a text of their own are left out.

    A clause begins at a Markdown heading, whose text is its name, or at a number at the start of a line: then it has
    the heading's name and the number. Without either, each paragraph is a clause. A name that comes again is counted.
    """
    found = list(_marked(text))
    if len(found) < 2:
        paragraphs = [one.strip() for one in re.split(r"\n[ \t]*\n", text) if one.strip()]
        return {f"paragraph {number}": one for number, one in enumerate(paragraphs, start=1)}
    clauses: dict[str, str] = {}
    for name, lines in found:
        body = "\n".join(lines).strip()
        if not body or (_HEADING.fullmatch(lines[0]) and not "".join(lines[1:]).strip()):
            continue
        key, again = name, 1
        while key in clauses:
            again += 1
            key = f"{name} ({again})"
        clauses[key] = body
    return clauses


def _marked(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, lines) of each part that begins with a heading or a number; what comes before is the preamble."""
    heading, name, lines, in_code = "", "preamble", list[str](), False
    for line in text.splitlines():
        in_code ^= bool(_CODE.match(line))
        title, number = _HEADING.fullmatch(line), _NUMBER.fullmatch(line)
        if in_code or not (title or number):
            lines.append(line)
            continue
        if lines:
            yield name, lines
        if title:
            heading = " ".join(title[1].split())[:_NAME_CHARS]
        name = heading if title else " ".join(filter(None, (heading, number[1] if number else "")))
        lines = [line]
    yield name, lines
