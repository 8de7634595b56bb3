"""Generation of rubrics: settings, what a method is given, findings of the gate, and where a rubric comes from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from rubricsvc.core.base import Name, Text, UnitInterval, Value
from rubricsvc.core.judge import Sampling
from rubricsvc.core.prompt import Completion, Prompt

Method = Literal["one-shot", "reference-guided", "contrastive", "principles", "traces", "grounded"]

MAX_REDRAWS = 20
NO_RUBRIC = "no_rubric"  # the reason of a prompt without a rubric, none of whose samples was one


class Specification(Value):
    """A document that says what completions should be like: a model specification, a house style, a character.

    The text of a job's specification is stored under its digest, and left out of the settings.
    """

    name: Annotated[Name, Field(min_length=1)] = Field(description="Name by which criteria cite it.")
    text: Annotated[Text, Field(min_length=1, max_length=1_000_000)] | None = Field(
        None, description="The document; Markdown headings and numbers at the start of a line begin clauses."
    )
    digest: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="SHA-256 of a text that is stored already.")

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if (self.text is None) == (self.digest is None):
            raise ValueError("expected a text, or the digest of a stored one")
        return self


class Research(Value):
    """What the generator may read before it writes."""

    collection: Annotated[Name, Field(min_length=1)] = Field(description="Name of the collection of documents.")
    digest: str | None = Field(None, description="SHA-256 of the collection's content; by default, as it is.")
    queries: int = Field(4, ge=1, le=20, description="Maximum number of queries.")
    documents: int = Field(6, ge=1, le=20, description="Maximum number of documents that are opened.")
    characters: int = Field(24_000, ge=4_000, le=1_000_000, description="Maximum characters of documents that it sees.")


class Generation(Value):
    """How rubrics are generated: the settings of a job."""

    method: Method = Field("one-shot", description="Way of writing a rubric.")
    sampling: Sampling = Field(Sampling(temperature=0.7, max_tokens=4096), description="How rubrics are sampled.")
    repairs: int = Field(2, ge=0, le=2, description="Times that a reply is sent back with its error.")
    redraws: int = Field(3, ge=0, le=MAX_REDRAWS, description="Further samples, with the next seeds, for no rubric.")
    references: Name | None = Field(None, description="Policy whose completions are references, beside the prompt's.")
    better: Name | None = Field(None, description="Contrastive: policy whose completions are the better ones.")
    worse: Name | None = Field(None, description="Contrastive: policy whose completions are the worse ones.")
    specification: Specification | None = Field(None, description="Principles: the specification.")
    research: Research | None = Field(None, description="Grounded: the collection to read first.")
    gate: bool = Field(True, description="Try each rubric on completions that are known to be bad.")
    gate_judge: Name | None = Field(None, description="Judge of the gate; by default the one that generates.")
    empty_max: UnitInterval = Field(0.1, description="Maximum reward of an empty completion.")


class ProbeReward(Value):
    """The reward of a completion on which a rubric was tried; null with the reason where there is none."""

    reward: float | None = Field(description="Reward by the rubric's formula.")
    null_reason: str | None = Field(None, description="Why there is no reward.")
    reasons: dict[str, str] = Field({}, description="What the judge says, by criterion, with its quotes.")


class PreferenceAgreement(Value):
    """How many pairs of completions a rubric orders as people do; ties count half. ``low`` and ``high``: 95 %."""

    completions: int = Field(description="Completions with an overall label and a reward.")
    pairs: int = Field(description="Pairs with different labels.")
    agreement: float = Field(description="Share of the pairs that the rewards order in the same way.")
    low: float | None = Field(description="Lower end of the interval; null with too few completions.")
    high: float | None = Field(description="Upper end of the interval.")
    shown: int = Field(0, description="Completions among them that the generator was shown.")


class GateFindings(Value):
    """What a rubric gives to completions whose quality is known without people."""

    judge: str = Field(description="Name of the judge.")
    probes: dict[str, ProbeReward] = Field(
        description="Rewards by probe: empty, praise, reference, shuffled, truncated, own, better, worse, off_topic."
    )
    preferences: PreferenceAgreement | None = Field(None, description="Agreement with labels; null: not measured.")
    refused_by: tuple[str, ...] = Field(
        (), description="Reasons against it: empty, praise, off_topic, contrast, preferences, unmeasured."
    )


class SourceText(Value):
    """A text that the generator was shown."""

    name: str = Field(description="Name by which criteria cite it.")
    digest: str = Field(description="SHA-256 of the text.")
    omitted: int | None = Field(None, description="Characters of it that were not shown; null: none.")


class ResearchNotes(Value):
    """What a generator looked for and read. ``Provenance.sources`` has the documents that it was shown."""

    collection: str = Field(description="Name of the collection.")
    digest: str = Field(description="SHA-256 of its content.")
    queries: tuple[str, ...] = Field(description="Queries.")
    left_out: tuple[str, ...] = Field((), description="Opened documents of which nothing was shown.")
    withheld: int = Field(0, description="Characters not shown because they address a model: docs/generating.md.")


class Provenance(Value):
    """Where a generated rubric comes from. It is set by the workers, and accepted from no caller."""

    method: Method = Field(description="Way of writing.")
    job_id: int = Field(description="Id of the job.")
    judge: str = Field(description="Name of the judge that wrote it.")
    model: str = Field(description="Its model.")
    template: str = Field(description="Name of the prompt template.")
    template_digest: str = Field(description="SHA-256 of the template.")
    sampling: Sampling = Field(description="Sampling of the reply.")
    redraws: int = Field(description="Samples before this one that were no rubric.")
    repairs: int = Field(description="Times that this sample was sent back.")
    sources: tuple[SourceText, ...] = Field((), description="Texts that the generator was shown.")
    research: ResearchNotes | None = Field(None, description="What the generator read first.")
    raw_reply: str = Field(description="The reply, as it came; empty where the model was not needed.")
    cleaned: str | None = Field(None, description="What was removed from the reply or disarmed in it; null: nothing.")
    gate: GateFindings | None = Field(None, description="Findings of the gate; null without one.")


class Contrast(NamedTuple):
    """Completions of one prompt of different quality, the best and the worst first."""

    better: tuple[Completion, ...]
    worse: tuple[Completion, ...]


class AuthoringTask(NamedTuple):
    """What a rubric is written for, and what it may be written from and tried on.

    ``references`` are the prompt's own, and completions of the policy that the settings name; ``own`` is a completion
    of the prompt, ``other`` a reference or completion of another one. ``labelled`` completions have the mean of their
    overall labels; ``trajectories`` (method traces) that or their reward, where they have one. ``contrast`` is None
    where no completion is better than another. ``collections_dir`` is a folder on this machine (method grounded).
    """

    prompt: Prompt
    references: tuple[str, ...] = ()
    own: Completion | None = None
    other: str | None = None
    labelled: Sequence[tuple[Completion, float]] = ()
    contrast: Contrast | None = None
    trajectories: Sequence[tuple[Completion, float | None]] = ()
    specification: Specification | None = None
    collections_dir: Path | None = None
