"""An agent's trajectory judged step by step, and the verdict from its steps."""

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
from workers.judges.template import inner_judge

_MAX_CHARS = 500


async def score_trajectory(
    judge: Judge,
    rubric: Rubric,
    prompt: Prompt,
    completion: Completion,
    *,
    answered: frozenset[str],
    ask: judges.Asker,
) -> list[Verdict]:
    """Return a verdict on each open criterion, whose votes are the verdicts on the steps.

    The steps are asked about in order, so that a prefix cache holds the trajectory so far. After a step that is too
    long, no further step is asked about. Where the verdict is that on the last segment, it alone is asked about.

    Raises:
        InvalidError: The judge's template cannot be used, or a scale cannot be asked in its mode.
    """
    plan = judges.plan(inner_judge(judge), rubric, answered)
    steps = steps_of(completion)
    so_far, by_step = trajectory.TrajectoryPrompt(plan.template, prompt), dict[str, list[Verdict]]()
    last: list[Verdict] = []
    *names, final = segments = trajectory.segments(steps, judge.effective_trajectory.segment)
    asked = {final} if judge.effective_trajectory.value == "last" else {*names, final}
    for name, piece in segments.items():
        shown = so_far.extend(name, piece)
        if name in asked:
            if not last or any(verdict.reason != Reason.TOO_LONG for verdict in last):
                last = await ask(plan, shown)
            by_step[name] = last
    criteria = [rubric.by_key[verdict.criterion] for verdict in last]
    repetition = LoopDetector(tuple(steps)).text[:_MAX_CHARS]
    return [
        _whole(judge, criterion, {name: verdicts[number] for name, verdicts in by_step.items()}, repetition)
        for number, criterion in enumerate(criteria)
    ]


def _whole(judge: Judge, criterion: Criterion, steps: Mapping[str, Verdict], repetition: str) -> Verdict:
    """Return the verdict on a trajectory: the last step's, or that of at least half of the steps."""
    rule = judge.effective_trajectory.value
    verdict = resolve_cascade(steps)
    if rule != "last":
        verdict = aggregate(criterion, steps, rule).model_copy(update={"latency_s": verdict.latency_s})
    return verdict.model_copy(
        update={"detail": join_notes(verdict.detail, repetition and f"the trace repeats: {repetition}")}
    )
