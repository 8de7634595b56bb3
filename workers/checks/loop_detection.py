"""A check on an agent's trace: does it go round in circles? (A text that repeats itself is ``distinct``'s to find.)"""

from __future__ import annotations

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.trajectory import circling, steps_of
from workers.checks.registry import Args, CheckResult, check

_MOST_CHARS = 1000


class Loops(Args):
    """``calls``: a tool call that was made before, with the same arguments, counts as lost too."""

    calls: bool = False


@check("loops", Loops)
def loops(completion: Completion, prompt: Prompt, args: Loops) -> CheckResult:
    """1 less the share of a trace's steps that only go round (with ``calls``, of its calls, where that is more)."""
    found = circling(steps_of(completion))
    lost = found.share
    if args.calls and found.calls:
        lost = max(lost, 1 - len(set(found.calls)) / len(found.calls))
    return CheckResult(1 - lost, found.text[:_MOST_CHARS] or "nothing repeats")
