"""Evolution of a rubric against people's labels: settings, candidates, and the gain of the best on held-out prompts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, model_validator

from rubricsvc.core.base import Name, UnitInterval, Value
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.rubric import Rubric

Objective = Literal["preferences", "scores", "verdicts"]
"""What is maximized: pairs in people's order, minus the squared error of scores, or verdicts that agree with labels."""

UNITS: dict[Objective, str] = {"preferences": "preference pair", "scores": "scored completion", "verdicts": "label"}
"""What each objective counts, in the singular."""

EvolutionStatus = Literal["running", "stopped", "budget_exhausted", "completed"]

Operator = Literal[
    "start",
    "jitter",
    "scale",
    "fit",
    "drop",
    "restore",
    "cross",
    "formula",
    "threshold",
    "template",
    "reword",
    "split",
    "pitfall",
]
"""How a candidate was made from its parents."""

MAX_CANDIDATES = 20_000
"""Children of an evolution."""


class Candidate(Value):
    """A rubric, and what changes about its judge."""

    rubric: Rubric = Field(description="The rubric.")
    template: Name | None = Field(default=None, description="Prompt template of the judge; null: the judge's own.")
    threshold: UnitInterval | None = Field(
        default=None, description="Probability from which a readout's value is 1, else 0; null: the value is it."
    )

    def judge(self, judge: Judge) -> Judge:
        """Return the judge with the template of this candidate, without its threshold."""
        return judge if self.template is None else judge.model_copy(update={"template": self.template})


class EvolutionSettings(Value):
    """How a rubric is evolved."""

    objective: Objective = Field(description="What is maximized.")
    seed: int = Field(default=0, description="Random seed of the parts and of all draws.")
    islands: int = Field(default=4, ge=1, le=64, description="Populations; every fourth generation exchanges parents.")
    children: int = Field(default=6, ge=1, le=1000, description="Children of an island in a generation.")
    generations: int = Field(default=8, ge=1, le=1000, description="Generations.")
    held_out: float = Field(default=0.4, gt=0.0, lt=1.0, description="Share of the prompts that are held out.")
    job_id: int | None = Field(default=None, description="Only what this job scored.")
    held_out_job_id: int | None = Field(default=None, description="Job with the held-out prompts, instead of a share.")
    templates: tuple[Name, ...] = Field(default=(), description="Prompt templates of the judge to try.")
    proposer: Name | None = Field(default=None, description="Judge whose model rewords, splits and adds criteria.")
    sampling: Sampling = Field(
        default=Sampling(temperature=0.7, max_tokens=2048), description="How proposals are sampled."
    )

    @property
    def planned(self) -> int:
        """The number of children."""
        return self.islands * self.children * self.generations

    @model_validator(mode="after")
    def _limited(self) -> EvolutionSettings:
        if self.planned > MAX_CANDIDATES:
            message = f"{self.planned} candidates are planned; expected at most {MAX_CANDIDATES}"
            raise ValueError(f"{message}: fewer generations, islands or children")
        return self


class SearchCase(Value):
    """A completion of the search part, and what people and the rubric found of it."""

    prompt: str
    completion: str
    finding: str


class ProposalRequest(Value):
    """What a model is asked to propose: other wordings or parts of a criterion, or pitfalls.

    ``sample`` distinguishes requests for the same.
    """

    operator: Operator
    rubric: Rubric
    key: str
    evidence: tuple[SearchCase, ...]
    sample: int


class ObjectiveChange(Value):
    """One objective before and after, on the same held-out units; the interval is cluster-robust over prompts."""

    objective: Objective = Field(description="What is measured.")
    units: int = Field(description="Pairs, scored completions or labels that both candidates have.")
    left_out: int = Field(description="Units without a reward or verdict on either side.")
    start: float = Field(description="Mean of the start.")
    best: float = Field(description="Mean of the best candidate.")
    difference: Estimate = Field(description="Best less start.")


class PairedTest(Value):
    """An exact two-sided test of paired right and wrong decisions: McNemar's, on the ones that differ."""

    better: int = Field(description="Right with the best candidate only.")
    worse: int = Field(description="Right with the start only.")
    p: float = Field(description="Exact binomial probability of a difference of at least this size, given none.")


class HeldOutResult(Value):
    """What the best candidate gains over the start on prompts that took no part in the search."""

    prompts: int = Field(description="Held-out prompts with units; completions where all have one prompt.")
    objectives: tuple[ObjectiveChange, ...] = Field(description="The objective that was maximized, then the others.")
    mcnemar: PairedTest = Field(description="Over units. Units of one prompt are not independent.")
    by_prompt: PairedTest = Field(description="Over prompts, by which candidate is right more often.")
    gain: bool = Field(description="Whether the interval of the objective's difference is above 0.")


class PartCounts(Value):
    """What the parts of the labelled completions have."""

    search_units: int = Field(description="Units that candidates are scored on.")
    search_prompts: int = Field(description="Prompts that candidates are scored on.")
    held_out_units: int = Field(description="Held-out units.")
    held_out_prompts: int = Field(description="Held-out prompts.")
    left_out: int = Field(description="Labelled completions without a reward of the start.")


class CandidateSummary(Value):
    """A candidate without its content."""

    number: int = Field(description="Number in the evolution; 0 is the start.")
    generation: int = Field(description="Generation.")
    island: int = Field(description="Island.")
    operator: Operator = Field(description="How it was made.")
    parents: tuple[int, ...] = Field(description="Numbers of its parents.")
    criteria: int = Field(description="Criteria of its rubric.")
    score: float | None = Field(description="Objective on the largest part that it was scored on.")
    whole: bool = Field(description="Whether that is the whole search part.")
    reason: str | None = Field(description="Why there is no candidate, or no score.")


class EvolutionSummary(Value):
    """An evolution, and how far it is."""

    id: int = Field(description="Id of the evolution.")
    created_at: datetime = Field(description="Time at which it was started.")
    updated_at: datetime = Field(description="Time of its last step.")
    finished_at: datetime | None = Field(description="Time at which it ended.")
    status: EvolutionStatus = Field(description="Status.")
    rubric: str = Field(description="The start, as name@version.")
    judge: str = Field(description="Name of the judge.")
    objective: Objective = Field(description="What is maximized.")
    reached: int = Field(description="Number of the newest candidate.")
    planned: int = Field(description="Number of the last candidate.")
    candidates: int = Field(description="Candidates, the start included.")
    start_score: float | None = Field(description="Objective of the start on the search part.")
    best_score: float | None = Field(description="Highest objective on the search part.")
    best: int | None = Field(description="Number of the best candidate so far.")
    difference: Estimate | None = Field(description="Best less start on held-out prompts.")
    gain: bool | None = Field(description="Whether the interval of the difference is above 0.")
    budget: float | None = Field(description="US dollars that models may cost.")
    cost: float = Field(description="US dollars that models have cost.")


class EvolutionReport(Value):
    """All that an evolution has found."""

    summary: EvolutionSummary = Field(description="How far it is.")
    settings: EvolutionSettings = Field(description="How it is done.")
    parts: PartCounts = Field(description="Size of the parts.")
    held_out: HeldOutResult | None = Field(description="Comparison with the start; null until it is completed.")
    best: Candidate | None = Field(description="The best candidate so far.")
    start: Candidate = Field(description="The start.")
    judge: Judge | None = Field(description="The best candidate's judge, where it is another one than the start's.")
    changes: tuple[str, ...] = Field(description="What differs from the start, in words.")
    lineage: tuple[CandidateSummary, ...] = Field(description="The best candidate and its ancestors.")
    candidates: tuple[CandidateSummary, ...] = Field(description="All candidates.")
    jobs: tuple[int, ...] = Field(description="Jobs that scored candidates.")
    asked_again: int = Field(description="Questions to the proposer that had a stored reply.")
