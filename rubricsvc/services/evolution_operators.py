"""Which operators an evolution has, and why one without any is refused."""

from __future__ import annotations

from rubricsvc.core.evolution import Candidate, EvolutionSettings, Operator
from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError
from rubricsvc.services.evolution_columns import asks_together
from rubricsvc.stats.evolution.fitting import weights_decide

WEIGHTS: tuple[Operator, ...] = ("jitter", "scale", "formula")
SUBSETS: tuple[Operator, ...] = ("drop", "restore", "cross")
PROPOSED: tuple[Operator, ...] = ("reword", "split", "pitfall")
"""Operators of a proposer."""


def available_operators(settings: EvolutionSettings, start: Candidate, judge: Judge) -> tuple[Operator, ...]:
    """Return the operators that need no proposer and can change the objective.

    A judge that is asked several criteria in a call is asked another question if one of them is left out: its rubric
    keeps all of them.
    """
    found: list[Operator] = []
    if settings.objective != "verdicts":
        found += WEIGHTS
        found += ["fit"] * weights_decide(start.rubric)
        found += () if asks_together(judge) else SUBSETS
    if judge.mode == "readout" and judge.threshold is None:
        found.append("threshold")
    if settings.templates:
        found.append("template")
    return tuple(found)


def check_operators(settings: EvolutionSettings, start: Candidate, judge: Judge) -> None:
    """Raise an InvalidError if nothing can be changed, or the judge's verdicts depend on other completions."""
    if any(leaf.mode == "comparative" for leaf in judge.leaf_judges):
        message = f"judge {judge.name!r} compares completions: its verdicts depend on the group"
        raise InvalidError(message, hint="evolve with a readout or written judge: --judge NAME", path="judge")
    if settings.templates and judge.members:
        message = f"judge {judge.name!r} is a {judge.mode}: its members have the templates"
        raise InvalidError(message, hint="leave --template out", path="templates")
    if not available_operators(settings, start, judge) and settings.proposer is None:
        message = "weights change no verdict, and there is nothing else to change"
        raise InvalidError(message, hint="give --template NAME or --proposer JUDGE, or another --objective")
