"""The check ``loops``: an agent that repeats its steps; ``distinct`` finds a text that repeats itself."""

from __future__ import annotations

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.trajectory import LoopDetector, steps_of
from workers.checks.registry import Args, CheckResult, check

_MAX_CHARS = 1000


class Loops(Args):
    """``calls``: a tool call that was made before with the same arguments counts as a repetition too."""

    calls: bool = False


@check("loops", Loops)
def loops(completion: Completion, prompt: Prompt, args: Loops) -> CheckResult:
    """Return 1 less the share of steps in loops; with ``calls``, of repeated calls where that is more."""
    detector = LoopDetector(tuple(steps_of(completion)))
    share = detector.share
    if args.calls and detector.calls:
        share = max(share, 1 - len(set(detector.calls)) / len(detector.calls))
    return CheckResult(1 - share, detector.text[:_MAX_CHARS] or "nothing repeats")
