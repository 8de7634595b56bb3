"""Criteria that a model proposes while a policy trains: their states, statistics, and the rubric that they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, Literal

from pydantic import Field

from rubricsvc.core.base import UnitInterval, Value, numbered_names
from rubricsvc.core.formulas import absolute_weights, formula_for
from rubricsvc.core.reward import check_formula
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError

BufferState = Literal["proposed", "active", "retired", "frozen"]
PROPOSED: Final = "proposed"
ACTIVE: Final = "active"
BUFFER_RETIRED: Final = "retired"
FROZEN: Final = "frozen"

RetirementReason = Literal["separation", "agreement", "limit"]
"""Its values do not differ within a group; they do not agree with the trusted judge or labels; others are better."""


class ProposalSource(Value):
    """Where a proposed criterion comes from. It is set by the run, and accepted from no caller."""

    judge: str = Field(description="Name of the judge whose model proposed it.")
    model: str = Field(description="Its model.")
    template: str = Field(description="Name of the prompt template.")
    template_digest: str = Field(description="SHA-256 of the template.")
    step: int = Field(description="Step of the run, from 0.")
    group: tuple[str, ...] = Field(description="SHA-256 of each completion that the model was shown.")


class BufferedCriterion(Value):
    """A criterion in the buffer of a prompt, with what was measured of it.

    ``separation`` and ``mean`` are those of the newest group that it was tried on. ``agreeing`` counts the ``pairs`` of
    completions that it orders as the trusted judge or people's labels do, over all its trials; ties count half.
    """

    criterion: Criterion = Field(description="The criterion; its weight is the proposed one.")
    state: BufferState = Field(description="proposed: not tried yet; active; retired: tried again later; frozen.")
    reason: RetirementReason | None = Field(default=None, description="Why it is retired.")
    source: ProposalSource | None = Field(default=None, description="Where it comes from; null if it was authored.")
    trials: int = Field(default=0, description="Groups of completions that it was tried on.")
    tested_step: int | None = Field(default=None, description="Step of the newest of them, from 0.")
    separation: float | None = Field(default=None, description="Standard deviation of its values within that group.")
    mean: UnitInterval | None = Field(default=None, description="Mean of its values in that group.")
    agreeing: float = Field(default=0.0, description="Pairs that are ordered as the reference orders them.")
    pairs: int = Field(default=0, description="Pairs that the reference does not tie.")
    reactivations: int = Field(default=0, description="Times that it was active again after it was retired.")

    @property
    def key(self) -> str:
        """The key in every rubric version."""
        return self.criterion.key

    @property
    def agreement(self) -> float | None:
        """The share of agreeing pairs, 0.5 by chance; None where nothing was compared."""
        return self.agreeing / self.pairs if self.pairs else None


class RefusedProposal(Value):
    """A proposed criterion that is not tried, and why."""

    text: str = Field(description="Text of the criterion.")
    reason: str = Field(description="`duplicate of KEY`, or the rule of the linter and what it found.")


class EvolutionRound(Value):
    """What one round did to the buffer of a prompt. Criteria are named by key."""

    failure: str | None = Field(default=None, description="Why nothing was proposed or tried; null if all went well.")
    proposed: tuple[str, ...] = Field(default=(), description="Criteria that are new in the buffer.")
    refused: tuple[RefusedProposal, ...] = Field(default=(), description="Proposals that are not tried.")
    untested: tuple[str, ...] = Field(default=(), description="Criteria whose trial failed; they are tried again.")
    activated: tuple[str, ...] = Field(default=(), description="Criteria that are active for the first time.")
    reactivated: tuple[str, ...] = Field(default=(), description="Retired criteria that are active again.")
    retired: tuple[str, ...] = Field(default=(), description="Active criteria that are retired.")
    active: int = Field(default=0, description="Active criteria after the round.")
    raw_reply: str = Field(default="", description="The proposer's reply, as it came.")
    cost: float = Field(default=0.0, description="US dollars of the proposer's replies; 0 without a price.")


def frozen_entries(base: Rubric) -> list[BufferedCriterion]:
    """Return the authored criteria as entries of a buffer."""
    return [BufferedCriterion(criterion=one, state=FROZEN) for one in base.criteria]


def next_keys(entries: Iterable[BufferedCriterion], count: int) -> list[str]:
    """Return keys for new criteria: evolved-1, evolved-2, …, which no entry has or has had."""
    taken = {entry.key for entry in entries}
    return list(islice((name for name in numbered_names("evolved", 1) if name not in taken), count))


def evolved_rubric(base: Rubric, entries: Sequence[BufferedCriterion], weight: float) -> Rubric:
    """Return the authored rubric with the active criteria after its own, in the order of the buffer.

    Each has a share ``weight`` of the sum of the authored absolute weights, with the sign that was proposed.
    """
    size = weight * sum(abs(criterion.weight) for criterion in base.criteria)
    active = [
        entry.criterion.model_copy(update={"weight": size if entry.criterion.weight > 0 else -size})
        for entry in entries
        if entry.state == ACTIVE
    ]
    return base.model_copy(update={"criteria": (*base.criteria, *active)}) if active else base


def check_evolvable(base: Rubric) -> None:
    """Raise an InvalidError unless criteria with small weights of either sign may be added to the rubric."""
    extended = base.model_copy(
        update={
            "criteria": (
                *base.criteria,
                *(Criterion(key=f"evolved {weight}", text="Is added.", weight=weight) for weight in (1, -1)),
            )
        }
    )
    try:
        check_formula(extended)
        summed = formula_for(extended, base.formula).weights is absolute_weights
    except ValueError:
        summed = False
    if not summed or base.groups or base.expression:
        raise InvalidError(
            f"criteria cannot be added to a rubric with the formula {base.formula!r}",
            hint="use a formula that sums weights of both signs, such as weighted_mean or healthbench",
            path="evolve",
        )
