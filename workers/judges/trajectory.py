"""Trajectory: an agent's trace is judged step by step, each time with all that came before it and nothing after.

The question about a step is an ordinary one, read as any readout or written verdict. The trace so far stands in the
completion's place and only grows at its end: what the model reads about step k begins with all it read about step
k - 1 before the criterion, so that a prefix cache pays for the trace once. `workers.scoring.trajectories`
asks step after step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Message, Prompt
from rubricsvc.core.trajectory import Step
from rubricsvc.errors import InvalidError
from workers.engines.base import Question, Reply
from workers.judges import readout, written
from workers.judges.requests import Asked, Call, joined
from workers.judges.template import Shown, Template, name_of
from workers.judges.untrusted import Clean, clean, fence

VERSION = f"1, {readout.VERSION}, {written.VERSION}"
"""Part of the verdicts' fingerprint. Raise it when the same trace would be shown in another way, or the same verdicts
on its steps made into another one."""

_NAMES = {"assistant": "agent", "tool": "result"}
"""What a role's text is fenced as; other roles have their own name."""


@lru_cache(maxsize=512)
def of_steps(judge: Judge) -> Judge:
    """The judge that is asked about each step."""
    mode = "written" if judge.effective_trajectory.written else "readout"
    return judge.model_copy(update={"mode": mode, "template": judge.template or name_of(judge), "trajectory": None})


def segments(steps: Sequence[Step], size: int) -> dict[str, list[Step]]:
    """The steps in pieces of ``size``, by what they are called."""
    starts = range(0, len(steps), size)
    return {_called(start + 1, min(start + size, len(steps))): list(steps[start : start + size]) for start in starts}


def _called(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"


class Trail:
    """What the judge is shown of a trace, piece after piece."""

    def __init__(self, template: Template, prompt: Prompt) -> None:
        self._template, self._prompt = template, prompt
        self._entries: list[str] = []
        self._texts: list[str] = []

    def then(self, name: str, steps: Sequence[Step]) -> Shown:
        """The trace up to and with these steps; the note is on them alone."""
        cleaned = [(message, clean(_told(message))) for step in steps for message in step]
        body = "\n".join(self._fenced(message, text) for message, text in cleaned)
        self._entries.append(self._template.fill("entry", {"id": name.capitalize(), "completion": body}))
        self._texts.extend(text.text for _, text in cleaned)
        note = joined(*(text.note for _, text in cleaned))
        so_far = "\n\n".join(self._texts)
        answer = Clean("\n\n".join(self._entries), f"{name}: {note}" if note else "")
        return self._template.around(self._prompt, answer, so_far, so_far)

    def _fenced(self, message: Message, text: Clean) -> str:
        return self._template.marked_empty(fence(_NAMES.get(message.role, message.role), text.text), text.text)


def _told(message: Message) -> str:
    return f"[{message.name}]\n{message.text}" if message.role == "tool" and message.name else message.text


def calls(asked: list[Asked], judge: Judge, template: Template) -> list[Call]:
    """Never any: the questions are those of `of_steps`.

    Raises:
        InvalidError: always.
    """
    raise InvalidError("a trajectory judge is asked step by step", hint="score it through workers.scoring.completions")


def repair(call: Call, reply: Reply, judge: Judge, template: Template) -> Question | None:
    """None: see `calls`."""
    return None


def read(call: Call, reply: Reply, judge: Judge, shown: Shown) -> list[object]:
    """Nothing: see `calls`."""
    return []
