"""Regular expressions with a time limit."""

from __future__ import annotations

from workers.checks.sandbox.child_process import Child

_matcher = Child(
    "pattern",
    """
import re
def answer(pattern, text, limit):
    count = 0
    for count, _ in enumerate(re.finditer(pattern, text), start=1):
        if count >= limit:
            break
    return count
""",
    "-S",
)


def search(pattern: str, text: str, *, limit: int, timeout_s: float) -> int:
    """Return the number of matches, counted up to ``limit``.

    Raises:
        ChildError: It took longer than ``timeout_s``.
    """
    return int(_matcher.ask(pattern, text, limit, timeout_s=timeout_s))
