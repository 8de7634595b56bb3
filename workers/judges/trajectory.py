"""Trajectory: a trajectory is judged step by step, each time with everything before the step and nothing after it.

The question about a step is that of a readout or a written judge. The trajectory so far is in the completion's place
and only grows at its end: the prompt about step k begins with that about step k - 1 up to its criterion, so that a
prefix cache reads the trajectory once. `workers.scoring.trajectories` asks step after step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.trajectory import Step
from workers.judges import readout, written
from workers.judges.requests import join_notes
from workers.judges.template import JudgeTemplate, SharedPrompt, default_template
from workers.judges.untrusted import CleanText, clean, fence

VERSION = f"1, {readout.VERSION}, {written.VERSION}"
"""Part of the questions' fingerprint. Raise it when the same trajectory would be shown in another way, or the same
verdicts on its steps aggregated in another way."""

_FENCE_NAMES = {"assistant": "agent", "tool": "result"}
"""Names of the fences, where they differ from the role."""


@lru_cache(maxsize=512)
def step_judge(judge: Judge) -> Judge:
    """Return the judge that is asked about each step."""
    mode = "written" if judge.effective_trajectory.written else "readout"
    template = judge.template or default_template(judge)
    return judge.model_copy(update={"mode": mode, "template": template, "trajectory": None})


def segments(steps: Sequence[Step], size: int) -> dict[str, list[Step]]:
    """Return the steps in segments of ``size``, by name."""
    starts = range(0, len(steps), size)
    return {_name(start + 1, min(start + size, len(steps))): list(steps[start : start + size]) for start in starts}


def _name(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"


class TrajectoryPrompt:
    """The prompt about a trajectory, which grows segment by segment."""

    def __init__(self, template: JudgeTemplate, prompt: Prompt) -> None:
        self._template, self._prompt = template, prompt
        self._entries: list[str] = []
        self._texts: list[str] = []

    def extend(self, name: str, steps: Sequence[Step]) -> SharedPrompt:
        """Return the prompt up to and including these steps; its note is on them alone."""
        cleaned, fenced = [], []
        for message in (message for step in steps for message in step):
            named = f"[{message.name}]\n{message.text}" if message.role == "tool" and message.name else message.text
            text = clean(named)
            mark = fence(_FENCE_NAMES.get(message.role, message.role), text.text)
            cleaned.append(text)
            fenced.append(self._template.mark_empty(mark, text.text))
        body = "\n".join(fenced)
        self._entries.append(self._template.fill("entry", {"id": name.capitalize(), "completion": body}))
        self._texts.extend(text.text for text in cleaned)
        note = join_notes(*(text.note for text in cleaned))
        so_far = "\n\n".join(self._texts)
        answer = CleanText("\n\n".join(self._entries), f"{name}: {note}" if note else "")
        return self._template.render(self._prompt, answer, so_far, so_far)
