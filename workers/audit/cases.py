"""What an audit starts from: tasks with rubrics and a completion of which it is known what it meets.

A trajectory judge is asked about the last step of a trajectory.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rubricsvc.core.judge import Mode
from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import Record

_FOLDER = Path(__file__).parent
MET_THRESHOLD = 0.5  # a criterion counts as met from this value on


@dataclass(frozen=True, slots=True)
class AuditCase:
    """A completion of a task. ``met`` and ``unmet`` are keys of judged criteria with a known verdict.

    ``family`` is the group it is counted in: its prompt's first tag, else its policy. ``better`` is the text of the
    better completion that a comparative judge is shown beside it.
    Of a trajectory ``text`` is what the agent says in its last step, ``messages`` are all steps, and ``claim`` says
    that the task is done.
    """

    prompt: Prompt
    rubric: Rubric
    text: str
    met: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    family: str = ""
    better: str | None = None
    messages: tuple[Message, ...] = ()
    claim: str = ""

    @property
    def completion(self) -> Completion:
        """What the judge is asked about."""
        return Completion(text=self.text, messages=self.messages)

    @property
    def task(self) -> tuple[str, str]:
        """The digests of the prompt and the rubric."""
        return self.prompt.digest, self.rubric.digest


PROGRESS = Criterion(
    key="progress",
    text="The agent makes progress towards the goal: after this step it is nearer to what the task asks for, or knows"
    " something about the way there that it did not know before.",
)
"""What a trajectory judge is asked about in a built-in case."""


@lru_cache
def built_in(mode: Mode = "readout") -> tuple[AuditCase, ...]:
    """Return the built-in cases: for each task a bad completion (meets nothing) and a good one (meets all).

    For a trajectory judge each task has a trajectory with a bad last step, and one with a good last step.
    """
    cases: list[AuditCase] = []
    for entry in InputFile(_FOLDER / ("trajectories.yaml" if mode == "trajectory" else "cases.yaml")).entries:
        task: dict[str, Any] = entry.data
        prompt = Prompt.of(task["task"])
        if mode == "trajectory":
            rubric, key, claim = Rubric(criteria=(PROGRESS,)), (PROGRESS.key,), task["claim"]
            for last, met, unmet in (("bad", (), key), ("good", key, ())):
                messages = list[Message]()
                for step in [*task["steps"], task[last]]:
                    call = ToolCall(name=step["tool"], arguments=json.dumps(step["arguments"]))
                    messages.append(Message(role="assistant", content=step["says"], tool_calls=(call,)))
                    messages.append(Message(role="tool", name=call.name, content=step["result"]))
                text = task[last]["says"]
                cases.append(AuditCase(prompt, rubric, text, met, unmet, messages=tuple(messages), claim=claim))
        else:
            rubric = Rubric(criteria=tuple(Criterion(key=key, text=text) for key, text in task["criteria"].items()))
            keys = tuple(task["criteria"])
            cases += [AuditCase(prompt, rubric, task["bad"], unmet=keys), AuditCase(prompt, rubric, task["good"], keys)]
    return tuple(cases)


def from_records(records: Iterable[Record], *, source: str = "the file") -> tuple[AuditCase, ...]:
    """Return cases from records with one completion and its labels, without checked and negative criteria."""
    cases: list[AuditCase] = []
    for record in records:
        if record.prompt is None or record.rubric is None or len(record.completions) != 1:
            continue
        judged = [c.key for c in record.rubric.criteria if c.check is None and c.weight > 0]
        labels = {label.criterion: label.value for label in record.labels if label.value is not None}
        values = {key: value for key, value in labels.items() if key in judged}
        met = tuple(key for key, value in values.items() if value >= MET_THRESHOLD)
        unmet = tuple(key for key, value in values.items() if value < MET_THRESHOLD)
        (completion,) = record.completions
        family = record.prompt.tags[0] if record.prompt.tags else completion.policy
        if met or unmet:
            cases.append(AuditCase(record.prompt, record.rubric, completion.text, met, unmet, family))
    if not any(case.unmet for case in cases):
        hint = "an audit needs completions with labels under 0.5 (docs/formats.md, labels)"
        raise InvalidError(f"{source}: no completion is labelled as missing a criterion", hint=hint)
    return tuple(cases)
