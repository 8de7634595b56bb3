"""Probe a judge: ask it about a criterion that is plainly met and one that is plainly not."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rubricsvc.core.judge import Judge
from rubricsvc.core.panel import total_usage
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Usage, Verdict
from workers.engines.base import Engine
from workers.scoring.completions import score_group

PROMPT = Prompt.of("Say hello.")
COMPLETION = Completion(text="Hello! Nice to meet you.")
OTHER = Completion(text="Boil the eggs for six minutes.")
"""What a comparative judge is shown beside it; each criterion fits one of the two."""

RUBRIC = Rubric(
    criteria=(
        Criterion(key="met", text="The answer greets the user."),
        Criterion(key="not_met", text="The answer says how long to boil eggs."),
    )
)

MIN_DIFFERENCE = 0.5
"""Difference of the two values, each from 0 to 1, from which a judge distinguishes the criteria."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The verdicts of a judge on the two criteria, and the ``seconds`` that both took together."""

    met: Verdict
    not_met: Verdict
    seconds: float

    @property
    def verdicts(self) -> tuple[Verdict, Verdict]:
        """Both verdicts."""
        return self.met, self.not_met

    @property
    def difference(self) -> float | None:
        """The value on the met criterion less that on the other; None where one of them has no value."""
        if self.met.value is None or self.not_met.value is None:
            return None
        return self.met.value - self.not_met.value

    @property
    def probability_difference(self) -> float | None:
        """P(yes) of the met criterion less that of the other; None where one of them has no probability."""
        if self.met.probability is None or self.not_met.probability is None:
            return None
        return self.met.probability - self.not_met.probability

    @property
    def is_close(self) -> bool:
        """Whether only a threshold distinguishes the criteria: their probabilities are nearly the same."""
        difference = self.probability_difference
        return self.passed and difference is not None and difference < MIN_DIFFERENCE

    @property
    def passed(self) -> bool:
        """Whether the judge distinguishes the criteria."""
        return self.difference is not None and self.difference >= MIN_DIFFERENCE

    @property
    def usage(self) -> Usage | None:
        """The tokens and the cost of both verdicts; None where none are counted."""
        return total_usage(verdict.usage for verdict in self.verdicts)


async def probe(engine: Engine, judge: Judge) -> Probe:
    """Ask ``judge`` about both criteria of `RUBRIC`, in one request to the engine."""
    shown = (COMPLETION, OTHER) if judge.mode == "comparative" else (COMPLETION,)
    start = time.perf_counter()
    (met, not_met), *_ = await score_group(engine, judge, RUBRIC, PROMPT, shown)
    return Probe(met, not_met, time.perf_counter() - start)
