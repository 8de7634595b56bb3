"""Evolution of a rubric: criteria are proposed, measured on labels or on rollouts, and kept where they separate better.

An evolution has steps, and each has at most one round: propose, measure, decide. Its buffer holds all criteria that it
has ever had, with what was measured of them; those that are frozen or active make the rubric.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from rubricsvc.core.base import Name, UnitInterval, Value
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.rubric import Criterion

BufferState = Literal["proposed", "active", "retired", "frozen"]
USED: frozenset[BufferState] = frozenset({"active", "frozen"})
"""States of the criteria that are in the newest version."""
RetirementReason = Literal["separation", "agreement", "limit"]
"""Its values do not differ within a group; they do not agree with the trusted judge or labels; others are better."""


class ProposalSource(Value):
    """Where a proposed criterion comes from. It is set by the evolution, and accepted from no caller."""

    judge: str = Field(description="Name of the judge whose model proposed it.")
    model: str = Field(description="Its model.")
    template: str = Field(description="Name of the prompt template.")
    template_digest: str = Field(description="SHA-256 of the template.")
    step: int = Field(description="Step of the run or of the evolution, from 0.")
    group: tuple[str, ...] = Field(description="SHA-256 of each completion that the model was shown.")


class BufferedCriterion(Value):
    """A criterion in the buffer of an evolution, with what was measured of it.

    ``separation`` and ``mean`` are those of the newest group that it was tried on. ``agreeing`` counts the ``pairs`` of
    completions that it orders as the trusted judge or people's labels do, over all its trials; ties count half.
    """

    criterion: Criterion = Field(description="The criterion; its weight is the proposed one.")
    state: BufferState = Field(description="proposed: not tried yet; active; retired: tried again later; frozen.")
    reason: RetirementReason | None = Field(None, description="Why it is retired.")
    source: ProposalSource | None = Field(None, description="Where it comes from; null if it was authored.")
    trials: int = Field(0, description="Groups of completions that it was tried on.")
    tested_step: int | None = Field(None, description="Step of the newest of them, from 0.")
    separation: float | None = Field(None, description="Standard deviation of its values within that group.")
    mean: UnitInterval | None = Field(None, description="Mean of its values in that group.")
    agreeing: float = Field(0.0, description="Pairs that are ordered as the reference orders them.")
    pairs: int = Field(0, description="Pairs that the reference does not tie.")

    @property
    def key(self) -> str:
        """The key in every rubric version."""
        return self.criterion.key


class RefusedProposal(Value):
    """A proposed criterion that is not tried, and why."""

    text: str = Field(description="Text of the criterion.")
    reason: str = Field(description="`duplicate of KEY`, or the rule of the linter and what it found.")


class EvolutionRound(Value):
    """What one round did, with criteria by key: stored when it has proposed, and again when it has decided."""

    decided: bool = Field(False, description="Whether its criteria have been measured and decided on.")
    failure: str | None = Field(None, description="Why nothing was proposed or tried; null if all went well.")
    proposed: tuple[str, ...] = Field((), description="Criteria that are new in the buffer.")
    refused: tuple[RefusedProposal, ...] = Field((), description="Proposals that are not tried.")
    untested: tuple[str, ...] = Field((), description="Criteria whose trial failed; they are tried again.")
    activated: tuple[str, ...] = Field((), description="Criteria that are active now, and were not before.")
    retired: tuple[str, ...] = Field((), description="Active criteria that are retired.")
    active: int = Field(0, description="Active criteria after the round.")
    raw_reply: str = Field("", description="The proposer's reply, as it came.")
    cost: float = Field(0.0, description="US dollars of the proposer's replies; 0 without a price.")
    score: float | None = Field(None, description="Share of people's pairs that the rubric orders as they do.")


class EvolutionRequest(Value):
    """How a rubric is evolved against people's labels."""

    judge: Name | None = Field(None, description="Judge that scored the rubric; by default, the most often.")
    proposer: Name | None = Field(None, description="Judge whose model proposes criteria.")
    rounds: int = Field(8, ge=1, le=1000, description="Rounds.")
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Random seed.")
    held_out: float = Field(0.4, gt=0.0, lt=1.0, description="Share of the prompts that are held out.")
    job_id: int | None = Field(None, description="Only what this job scored.")
    budget: float | None = Field(None, gt=0.0, description="US dollars that judge and proposer may cost.")


class HeldOutResult(Value):
    """What the evolved rubric gains over the start on prompts that took no part in the search."""

    prompts: int = Field(description="Held-out prompts with pairs; completions where all have one prompt.")
    units: int = Field(description="Pairs that both rubrics have rewards for.")
    left_out: int = Field(description="Pairs without a reward.")
    start: float = Field(description="Share of the pairs that the start orders as people do; ties count half.")
    best: float = Field(description="The same of the evolved rubric.")
    difference: Estimate = Field(description="Best less start; the interval is cluster-robust over prompts.")
    gain: bool = Field(description="Whether that interval is above 0.")


class EvolutionSummary(Value):
    """An evolution, and how far it is."""

    id: int = Field(description="Id of the evolution.")
    created_at: datetime = Field(description="Time at which it was started.")
    finished_at: datetime | None = Field(description="Time at which it ended; null for that of a training run.")
    run: str | None = Field(description="Training run whose rollouts it is measured on; null where that are labels.")
    prompt_id: int | None = Field(description="The prompt, where a training run evolves its rubric.")
    rubric: str = Field(description="The start, as name@version.")
    newest: str | None = Field(description="Newest version that it has written; null if it has not changed the start.")
    steps: int = Field(description="Steps that used it, or rounds on labels.")
    planned: int | None = Field(description="Rounds on labels that are planned.")
    cost: float = Field(description="US dollars that its proposals have cost, and on labels its jobs.")
    held_out: HeldOutResult | None = Field(description="Gain on held-out prompts, once it is measured.")


class EvolutionStep(Value):
    """The version that a step used, and the round that followed."""

    step: int = Field(description="Step, from 0.")
    used: str = Field(description="The version that it used, as name@version.")
    wrote: str | None = Field(description="The version that its round has written; null if it changed nothing.")
    round: EvolutionRound = Field(description="The round.")


class EvolutionReport(EvolutionSummary):
    """All that an evolution has found."""

    settings: EvolutionRequest | None = Field(description="How it is done; null where the run's record says it.")
    entries: tuple[BufferedCriterion, ...] = Field(description="The buffer.")
    rounds: tuple[EvolutionStep, ...] = Field(description="Steps with a round.")
    jobs: tuple[int, ...] = Field(description="Jobs that scored new criteria.")
