"""Regular expressions under a time limit that holds."""

from __future__ import annotations

from workers.checks.sandbox.child_process import Child

_matcher = Child(
    "pattern",
    """
import re
def answer(pattern, text, limit):
    found = 0
    for found, _ in enumerate(re.finditer(pattern, text), start=1):
        if found >= limit:
            break
    return found
""",
    "-S",
)


def search(pattern: str, text: str, *, limit: int, timeout_s: float) -> int:
    """How many matches there are, counted up to ``limit``.

    Raises:
        ChildError: no answer within ``timeout_s``.
    """
    return int(_matcher.ask(pattern, text, limit, timeout_s=timeout_s))
