"""Ways of asking a model: ``readout`` reads one token's probabilities, ``written`` reads a JSON verdict."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from workers.engines import factory_of
from workers.engines.base import Ask, Failure, Question, Reply
from workers.judges import readout, written
from workers.judges.calls import Asked, Call
from workers.judges.template import Shown, Template, load

MODES = {"readout": readout, "written": written}


@dataclass(frozen=True, slots=True)
class Plan:
    """How one judge is asked about one rubric: all that does not depend on the completion."""

    judge: Judge
    template: Template
    calls: tuple[Call, ...]
    questions: tuple[Question, ...]

    def ask(self, prompt: Prompt, completion: Completion) -> tuple[Ask, Shown]:
        """The ask about one completion, and what the judge is shown of it."""
        shown = self.template.shared(prompt, completion)
        ask = Ask(self.template.system, shown.text, self.questions, self.judge.sampling, self.judge.max_context)
        return ask, shown

    def read(self, replies: list[Reply | Failure], shown: Shown) -> list[Verdict]:
        """One verdict for each judged criterion, in the rubric's order."""
        mode = MODES[self.judge.mode]
        verdicts: list[Verdict] = []
        for call, reply in zip(self.calls, replies, strict=True):
            if isinstance(reply, Failure):
                verdicts += call.failed(reply.reason, reply.detail, reply, shown)
            else:
                verdicts += mode.read(call, reply, self.judge, shown)
        return verdicts


def validate(judge: Judge) -> None:
    """See that a judge can be asked at all: its engine, its endpoint, its template.

    Raises:
        InvalidError: one of them is not there or cannot be used; ``path`` names it.
    """
    factory_of(judge)
    load(judge)


@lru_cache(maxsize=512)
def plan(judge: Judge, rubric: Rubric, fingerprint: str, settled: frozenset[str] = frozenset()) -> Plan:
    """The plan for a judge and a rubric, made once; its verdicts carry ``fingerprint``. ``settled`` is not asked again.

    Raises:
        InvalidError: the judge's template does not exist or lacks a section, or a scale cannot be asked in its mode.
    """
    template = load(judge)
    asked = [
        Asked(criterion, f"C{number}", fingerprint)
        for number, criterion in enumerate(rubric.criteria, start=1)
        if criterion.check is None and criterion.key not in settled
    ]
    calls = tuple(MODES[judge.mode].calls(asked, judge, template))
    return Plan(judge, template, calls, tuple(call.question for call in calls))
