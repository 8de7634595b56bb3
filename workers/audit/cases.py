"""What an audit starts from: tasks with rubrics and a completion of which it is known what it meets.

A trajectory judge is asked about the last step of a trajectory.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from rubricsvc.core.judge import Mode
from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.trajectory import steps_of
from rubricsvc.errors import InvalidError
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import Record

_FOLDER = Path(__file__).parent
MET_THRESHOLD = 0.5
"""A criterion counts as met from this value on."""


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
    def labelled(self) -> tuple[str, ...]:
        """The keys of the criteria with a known verdict."""
        return (*self.met, *self.unmet)

    @property
    def task(self) -> tuple[str, str]:
        """The digests of the prompt and the rubric."""
        return self.prompt.digest, self.rubric.digest


@lru_cache
def built_in(mode: Mode = "readout") -> tuple[AuditCase, ...]:
    """Return the built-in cases: for each task a bad completion (meets nothing) and a good one (meets all)."""
    if mode == "trajectory":
        return _trajectories()
    cases: list[AuditCase] = []
    for entry in InputFile(_FOLDER / "cases.yaml").entries():
        task: dict[str, Any] = entry.data
        rubric = Rubric(criteria=tuple(Criterion(key=key, text=text) for key, text in task["criteria"].items()))
        prompt, keys = Prompt.of(task["task"]), tuple(task["criteria"])
        cases += AuditCase(prompt, rubric, task["bad"], unmet=keys), AuditCase(prompt, rubric, task["good"], met=keys)
    return tuple(cases)


def from_records(records: Iterable[Record], *, source: str = "the file") -> tuple[AuditCase, ...]:
    """Return cases from records with one completion and its labels, without checked and negative criteria."""
    cases = tuple(case for record in records if (case := _labelled(record)) is not None)
    if not any(case.unmet for case in cases):
        hint = "an audit needs completions with labels under 0.5 (docs/formats.md, labels)"
        raise InvalidError(f"{source}: no completion is labelled as missing a criterion", hint=hint)
    return cases


def _labelled(record: Record) -> AuditCase | None:
    if record.prompt is None or record.rubric is None or len(record.completions) != 1:
        return None
    judged = _judged(record.rubric)
    values = {label.criterion: label.value for label in record.labels if label.value is not None}
    met = tuple(key for key, value in values.items() if key in judged and value >= MET_THRESHOLD)
    unmet = tuple(key for key, value in values.items() if key in judged and value < MET_THRESHOLD)
    (completion,) = record.completions
    family = record.prompt.tags[0] if record.prompt.tags else completion.policy
    case = AuditCase(record.prompt, record.rubric, completion.text, met, unmet, family)
    return case if case.labelled else None


def _judged(rubric: Rubric) -> tuple[str, ...]:
    """Return the keys of the positive criteria without a check."""
    return tuple(c.key for c in rubric.criteria if c.check is None and c.weight > 0)


def sample(cases: Sequence[AuditCase], limit: int) -> tuple[AuditCase, ...]:
    """Return whole tasks, at least one, with up to ``limit`` cases; tasks with something to attack come first."""
    by_task: dict[tuple[str, str], list[AuditCase]] = {}
    for case in cases:
        by_task.setdefault(case.task, []).append(case)
    shuffled = random.Random(0).sample(list(by_task.values()), len(by_task))
    shuffled.sort(key=lambda task: not attackable(task))
    taken: list[AuditCase] = []
    for task in shuffled:
        if not taken or len(taken) + len(task) <= limit:
            taken += task
    return tuple(taken)


def attackable(cases: Sequence[AuditCase]) -> list[AuditCase]:
    """Return the cases with an unmet criterion."""
    return [case for case in cases if case.unmet]


def paired(cases: Sequence[AuditCase]) -> tuple[AuditCase, ...]:
    """Return the attackable cases that have a better completion of the same task, with its text."""
    good = {case.task: case.text for case in cases if case.met and not case.unmet}
    return tuple(replace(case, better=good[case.task]) for case in attackable(cases) if case.task in good)


def one_per_task(cases: Sequence[AuditCase]) -> list[AuditCase]:
    """Return the first attackable case of each task."""
    return list({case.task: case for case in reversed(attackable(cases))}.values())[::-1]


PROGRESS = Criterion(
    key="progress",
    text="The agent makes progress towards the goal: after this step it is nearer to what the task asks for, or knows"
    " something about the way there that it did not know before.",
)
"""The criterion of `rubricsvc rubrics init --trajectory`."""


def _trajectories() -> tuple[AuditCase, ...]:
    """Return the built-in cases: for each task a trajectory with a bad last step, and one with a good last step."""
    cases: list[AuditCase] = []
    for entry in InputFile(_FOLDER / "trajectories.yaml").entries():
        task: dict[str, Any] = entry.data
        prompt, rubric, claim = Prompt.of(task["task"]), Rubric(criteria=(PROGRESS,)), task["claim"]
        for last, met, unmet in (("bad", (), (PROGRESS.key,)), ("good", (PROGRESS.key,), ())):
            messages = tuple(chain.from_iterable(map(_step, [*task["steps"], task[last]])))
            text = task[last]["says"]
            cases.append(AuditCase(prompt, rubric, text, met, unmet, messages=messages, claim=claim))
    return tuple(cases)


def _step(data: dict[str, Any]) -> list[Message]:
    call = ToolCall(name=data["tool"], arguments=json.dumps(data["arguments"]))
    return [
        Message(role="assistant", content=data["says"], tool_calls=(call,)),
        Message(role="tool", name=call.name, content=data["result"]),
    ]


def saying(case: AuditCase, text: str, *, with_calls: bool) -> AuditCase:
    """Return the case whose last step says ``text``, with the calls of the step and their results or without."""
    *before, (first, *others) = steps_of(case.completion)
    step = [first.model_copy(update={"content": text}), *others]
    last = step if with_calls else [Message(role="assistant", content=text)]
    return replace(case, text=text, messages=(*chain.from_iterable(before), *last))


def repeated(case: AuditCase, steps: int, times: int, text: str) -> AuditCase:
    """Return the case whose last step is replaced by the ``steps`` before it, again; then the agent says ``text``."""
    before = steps_of(case.completion)[:-1]
    (first, *others), *rest = before[-steps:]
    again = [first.model_copy(update={"content": text or first.content}), *others, *chain.from_iterable(rest)]
    return replace(case, text=again[0].text, messages=(*chain.from_iterable(before), *again * times))
