"""An agent's trace judged step by step: what is asked, and the verdict that comes of it."""

from __future__ import annotations

from collections.abc import Mapping

from rubricsvc.core.judge import Judge
from rubricsvc.core.panel import aggregate, resolve_cascade
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.trajectory import LoopDetector, steps_of
from rubricsvc.core.verdict import Reason, Verdict
from workers import judges
from workers.judges import trajectory
from workers.judges.requests import join_notes

_MOST_CHARS = 500


async def score_trajectory(
    judge: Judge,
    rubric: Rubric,
    prompt: Prompt,
    completion: Completion,
    *,
    answered: frozenset[str],
    ask: judges.Asker,
) -> list[Verdict]:
    """A verdict on each open criterion, whose votes are the verdicts on the steps.

    One step after the other, so that an engine with a prefix cache finds the trace so far in it. Where a step is too
    long to be asked about, those after it are as well, and are not asked.

    Raises:
        InvalidError: the judge's template cannot be used, or a scale cannot be asked in its mode.
    """
    plan = judges.plan(trajectory.step_judge(judge), rubric, answered)
    steps = steps_of(completion)
    trail, found = trajectory.TrajectoryPrompt(plan.template, prompt), dict[str, list[Verdict]]()
    last: list[Verdict] = []
    for name, piece in trajectory.segments(steps, judge.effective_trajectory.segment).items():
        if not last or any(verdict.reason != Reason.TOO_LONG for verdict in last):
            last = await ask(plan, trail.extend(name, piece))
        found[name] = last
    criteria = [rubric.by_key[verdict.criterion] for verdict in last]
    circles = LoopDetector(tuple(steps)).text[:_MOST_CHARS]
    return [
        _whole(judge, criterion, {name: verdicts[number] for name, verdicts in found.items()}, circles)
        for number, criterion in enumerate(criteria)
    ]


def _whole(judge: Judge, criterion: Criterion, steps: Mapping[str, Verdict], circles: str) -> Verdict:
    """The verdict on a trace: of the last look, or of at least half of all looks."""
    rule = judge.effective_trajectory.value
    verdict = resolve_cascade(steps)
    if rule != "last":
        verdict = aggregate(criterion, steps, rule).model_copy(update={"latency_s": verdict.latency_s})
    return verdict.model_copy(
        update={"detail": join_notes(verdict.detail, circles and f"the trace repeats: {circles}")}
    )
