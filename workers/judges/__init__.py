"""Ways of asking a model: ``readout`` reads one token's probabilities, ``written`` a JSON verdict, ``comparative`` the
scores of a group, ``trajectory`` either of the first two after each step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from rubricsvc.core.judge import Judge, Voting
from rubricsvc.core.panel import gather, total
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from workers.engines import factory_of
from workers.engines.base import EngineRequest, Failure, Question, Reply
from workers.judges import comparative, readout, trajectory, written
from workers.judges import custom_prompt as own
from workers.judges.requests import Asked, Call, joined
from workers.judges.template import Shown, Template, load

MODES = {"readout": readout, "written": written, "comparative": comparative, "trajectory": trajectory}

SEVERAL = {"comparative", "trajectory"}
"""Modes that show several things in the completion's place."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How one judge is asked about one rubric: all that does not depend on the completion.

    ``questions`` are those of the calls, each as often as the judge is asked (``voting.samples``), side by side.
    ``mode`` repairs and reads where the judge's own does not. ``settled`` criteria share calls with open ones, and get
    no verdict.
    """

    judge: Judge
    template: Template
    calls: tuple[Call, ...]
    questions: tuple[Question, ...]
    voting: Voting
    mode: Any = None
    settled: frozenset[str] = frozenset()

    def ask(self, prompt: Prompt, completion: Completion) -> tuple[EngineRequest, Shown]:
        """The ask about one completion, and what the judge is shown of it."""
        shown = self.template.shared(prompt, completion)
        return self.about(shown), shown

    def about(self, shown: Shown) -> EngineRequest:
        """The ask about what is shown."""
        thinking, sampling = self.judge.thinking, self.judge.sampling
        if thinking:
            sampling = sampling.model_copy(update={"max_tokens": sampling.max_tokens + thinking.budget_tokens})
        return EngineRequest(
            self.template.system,
            shown.text,
            self.questions,
            sampling,
            self.judge.max_context,
            thinking=thinking is not None,
        )

    def repairs(self, replies: list[Reply | Failure]) -> dict[int, Question]:
        """What to ask again, by the reply's place: replies that cannot be read, sent back with the fault."""
        found = {
            place: self._mode.repair(call, reply, self.judge, self.template)
            for place, (call, reply) in enumerate(zip(self._asked(), replies, strict=True))
            if isinstance(reply, Reply)
        }
        return {
            place: replace(question, sample=place % self.voting.samples)
            for place, question in found.items()
            if question
        }

    def read(self, replies: list[Reply | Failure], shown: Shown) -> list[Verdict]:
        """Return one verdict for each open criterion, in the rubric's order."""
        return [verdict for verdict in self._read_all(replies, shown) if verdict.criterion not in self.settled]

    def _read_all(self, replies: list[Reply | Failure], shown: Shown) -> list[Verdict]:
        read = [self._read(call, reply, shown) for call, reply in zip(self._asked(), replies, strict=True)]
        several = self.voting.samples
        if several == 1:
            return [verdict for verdicts in read for verdict in verdicts]
        found: list[Verdict] = []
        for number, call in enumerate(self.calls):
            rounds = read[number * several : (number + 1) * several]
            for asked, votes in zip(call.asked, zip(*rounds, strict=True), strict=True):
                named = {f"sample {n}": verdict for n, verdict in enumerate(votes, start=1)}
                found.append(gather(asked.criterion, named, self.voting.rule))
        return found

    def _read(self, call: Call, reply: Reply | Failure, shown: Shown) -> list[Verdict]:
        if isinstance(reply, Failure):
            return call.failed(reply.reason, reply.detail, reply, shown)
        verdicts: list[Verdict] = self._mode.read(call, reply, self.judge, shown)
        return verdicts

    @property
    def _mode(self) -> Any:
        return self.mode or MODES[self.judge.mode]

    def _asked(self) -> Iterator[Call]:
        """The call of each question."""
        return (call for call in self.calls for _ in range(self.voting.samples))


Asker = Callable[[Plan, Shown], Awaitable[list[Verdict]]]
"""Asks a plan's questions about what is shown; one verdict for each, in the plan's order. Never raises."""


def mended(first: Reply, second: Reply | Failure) -> Reply:
    """The reply after its repair; the tokens and the time of both. The first one, where the repair brought none."""
    if isinstance(second, Failure):
        return replace(first, note=joined(first.note, f"its repair failed: {second.reason} {second.detail}") or "")
    usage, latency = total((first.usage, second.usage)), first.latency_s + second.latency_s
    note = joined(second.note, "asked again: one repair") or ""
    return replace(second, usage=usage, latency_s=latency, note=note, first_text=first.text)


def validate(judge: Judge) -> None:
    """See that a judge can be asked at all: its engine, its endpoint, its template; of a panel or a cascade those of
    its members.

    Raises:
        InvalidError: one of them is not there or cannot be used; ``path`` names it.
    """
    if judge.members:
        for member in judge.members:
            validate(member)
        return
    factory_of(judge)
    template = load(judge)
    if template.shows_several != (judge.mode in SEVERAL):
        raise InvalidError(
            f"template {template.name!r} is not for a {judge.mode} judge",
            hint="leave the template out: each mode has its own",
            path="judge.template",
        )


@lru_cache(maxsize=512)
def plan(judge: Judge, rubric: Rubric, settled: frozenset[str] = frozenset()) -> Plan:
    """Return how a judge is asked about the criteria of a rubric that are not ``settled``.

    A call is asked whole when any of its criteria is open: what shares a call decides its verdicts.

    Raises:
        InvalidError: the judge's template does not exist or lacks a section, or a scale cannot be asked in its mode.
    """
    template, voting = load(judge), judge.voting or Voting()
    calls: list[Call] = []
    for criteria in composition(judge, rubric):
        if still_open := sum(criterion.key not in settled for criterion in criteria):
            asked = [Asked(criterion, f"C{number}") for number, criterion in enumerate(criteria, start=1)]
            made = MODES[judge.mode].calls(asked, judge, template)
            calls += [replace(call, shares=still_open) for call in made]
    return Plan(judge, template, tuple(calls), _questions(calls, voting), voting, settled=settled)


def composition(judge: Judge, rubric: Rubric) -> list[tuple[Criterion, ...]]:
    """Return which judged criteria share a call, in the rubric's order; those with a custom prompt are left out."""
    criteria = [c for c in rubric.criteria if c.check is None and c.custom_prompt is None]
    writes = (
        judge.mode == "written"
        or (judge.mode == "trajectory" and judge.effective_trajectory.written)
        or (judge.mode == "comparative" and judge.effective_comparison.written)
    )
    size = (judge.criteria_per_call or max(len(criteria), 1)) if writes else 1
    return [tuple(criteria[start : start + size]) for start in range(0, len(criteria), size)]


def own_plan(judge: Judge, asked: Asked, prompt: Prompt, completion: Completion) -> tuple[Plan, Shown]:
    """The plan for a criterion that brings its own question, about one completion, and what is shown.

    Raises:
        PlaceholderError: the question names what the item or the completion has not.
        InvalidError: a judge of this mode cannot be asked it.
    """
    posed = own.pose(asked, judge, prompt, completion)
    calls, voting = (posed.call,), judge.voting or Voting()
    return Plan(posed.judge, posed.template, calls, _questions(calls, voting), voting, own), posed.shown


def _questions(calls: Sequence[Call], voting: Voting) -> tuple[Question, ...]:
    return tuple(replace(call.question, sample=n) for call in calls for n in range(voting.samples))
