"""Evolution of a rubric: criteria are proposed, measured on labels or on rollouts, and kept where they separate better.

An evolution has steps, and each has at most one round: propose, measure, decide. Its buffer holds all criteria that it
has ever had, with what was measured of them; those that are frozen or active make the rubric.
"""

from datetime import datetime
from typing import Literal

from pydantic import Field

from rubricsvc.core.base import Name, UnitInterval, Value
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.generation import NO_RUBRIC
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric

BufferState = Literal["proposed", "active", "retired", "frozen"]
MAX_COUNT = 10**9
USED: frozenset[BufferState] = frozenset({"active", "frozen"})  # states of the criteria that are in the newest version
RetirementReason = Literal["separation", "agreement", "limit"]
"""Its values do not differ within a group; they do not agree with the trusted judge or labels; others are better."""


class BufferedCriterion(Value):
    """A criterion in the buffer of an evolution, with what was measured of it; the reference is a judge or people."""

    criterion: Criterion = Field(description="The criterion; its weight is the proposed one.")
    state: BufferState = Field(description="proposed: not tried yet; active; retired: tried again later; frozen.")
    reason: RetirementReason | None = Field(None, description="Why it is retired.")
    trials: int = Field(0, ge=0, le=MAX_COUNT, description="Groups of completions that it was tried on.")
    tested_step: int | None = Field(None, ge=0, le=MAX_COUNT, description="Step of the newest of them, from 0.")
    separation: float | None = Field(None, ge=0.0, description="Standard deviation of its values in the newest group.")
    mean: UnitInterval | None = Field(None, description="Mean of its values in that group.")
    agreeing: float = Field(0.0, ge=0.0, description="Pairs ordered as the reference orders them; ties are half.")
    pairs: int = Field(0, ge=0, le=MAX_COUNT, description="Pairs that the reference does not tie.")

    @property
    def key(self) -> str:
        """The key in every rubric version."""
        return self.criterion.key


class EvolutionRound(Value):
    """What one round did, with criteria by key: stored when it has proposed, and again when it has decided."""

    decided: bool = Field(False, description="Whether its criteria have been measured and decided on.")
    failure: str | None = Field(None, description="Why nothing was proposed or tried; null if all went well.")
    proposed: tuple[str, ...] = Field((), description="Criteria that are new in the buffer.")
    refused: dict[str, str] = Field({}, description="Proposals that are not tried: `duplicate of KEY`, or a lint rule.")
    untested: tuple[str, ...] = Field((), description="Criteria whose trial failed; they are tried again.")
    activated: tuple[str, ...] = Field((), description="Criteria that are active now, and were not before.")
    retired: tuple[str, ...] = Field((), description="Active criteria that are retired.")
    active: int = Field(0, ge=0, le=MAX_COUNT, description="Active criteria after the round.")
    proposer: str = Field("", description="Name of the judge whose model proposed.")
    model: str = Field("", description="Its model.")
    template_digest: str = Field("", description="SHA-256 of the prompt template.")
    shown: tuple[str, ...] = Field((), description="SHA-256 of each completion that the model was shown.")
    raw_reply: str = Field("", description="Its reply, as it came.")
    cost: float = Field(0.0, ge=0.0, le=MAX_COUNT, description="US dollars of the replies; 0 without a price.")
    score: UnitInterval | None = Field(None, description="Share of people's pairs that the rubric orders as they do.")

    @property
    def asked_again(self) -> bool:
        """Whether the proposer failed in a way that another time may not: what it cost is recorded."""
        return not self.decided and self.failure is not None and not self.failure.startswith(NO_RUBRIC)


class EvolutionRequest(Value):
    """Which rubric is evolved against people's labels, and how."""

    rubric: int | str = Field(description="Rubric: id or name@version.")
    judge: Name | None = Field(None, description="Judge; by default the one that scored the most completions.")
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


class EvolutionData(Value):
    """N completions that a judge scored under the start and people gave overall scores, and P pairs of them."""

    id: int = Field(0, description="Id of the evolution.")
    rubric: Rubric = Field(description="The start.")
    prompt_id: int | None = Field(description="The prompt that it belongs to, if any.")
    judge: str = Field(description="Name of the judge.")
    completions: tuple[int, ...] = Field(description="Ids [N].")
    clusters: tuple[int, ...] = Field(description="What is independent [N]: prompts, or completions of the one prompt.")
    held_out: tuple[bool, ...] = Field(description="Whether the completion takes no part in the search [N].")
    scores: tuple[float, ...] = Field(description="People's mean scores [N].")
    values: dict[str, tuple[float | None, ...]] = Field(description="The judge's values [N], by criterion.")
    pairs: tuple[tuple[int, int], ...] = Field(description="Places [P, 2] of the preferred one and the other.")


Approve = Literal["auto", "human"]


class NewEvolutionStep(Value):
    """A step of a training run."""

    run: Name = Field(min_length=1, max_length=120, description="Key of the run.")
    step: int = Field(ge=0, le=MAX_COUNT, description="Step, from 0.")
    approve: Approve = Field(description="Whether versions are approved when they are written, or by people.")
    tasks: tuple[tuple[Prompt, Rubric, Name, Name], ...] = Field(
        description="Prompts with their authored rubrics; the external id of the prompt and the rubric's name, if new."
    )


class EvolutionState(Value):
    """The version that a step uses for a task, and what is recorded of the round that follows."""

    id: int = Field(description="Id of the evolution.")
    rubric: Rubric = Field(description="The version.")
    entries: tuple[BufferedCriterion, ...] = Field(description="The buffer.")
    round: EvolutionRound | None = Field(description="The round, if the step is repeated.")


class NewEvolutionRound(Value):
    """A round to record: when it has proposed, again when it has decided, and once more at the end of a search."""

    step: int = Field(ge=0, le=MAX_COUNT, description="Step, from 0.")
    round: EvolutionRound = Field(description="The round.")
    entries: tuple[BufferedCriterion, ...] = Field(description="The buffer after it.")
    rubric: Rubric | None = Field(None, description="The rubric that it has decided on.")
    approve: Approve = Field("human", description="Whether that is approved at once.")
    result: HeldOutResult | None = Field(None, description="Of the end: its rubric is a draft of the start's name.")


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
