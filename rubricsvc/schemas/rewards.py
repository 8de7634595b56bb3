"""Wire types of rewards: completions of many prompts, scored in one job."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from rubricsvc.core.base import Name, Text
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import JobStatus
from rubricsvc.queries import MAX_REWARD_SECONDS, Id
from rubricsvc.schemas.base import MAX_BATCH, Ref, Wire, example
from rubricsvc.schemas.jobs import Item, Key, MinCoverage


def _tag(value: object) -> str:
    """Return which member of the unions below a value is; names in brackets are no part of an error's path."""
    return "[plain]" if isinstance(value, int | str) else "[value]"


_Plain = Tag("[plain]")
_Value = Tag("[value]")
_Stored = Annotated[Id | Ref, _Plain]

GivenPrompt = Annotated[_Stored | Annotated[Prompt, _Value], Discriminator(_tag)]
"""A prompt, or the id or external id of a stored one."""

GivenRubric = Annotated[_Stored | Annotated[Rubric, _Value], Discriminator(_tag)]
"""A rubric, or the id, name, name@version or digest of a stored one."""

GivenCompletion = Annotated[Annotated[Id | Text, _Plain] | Annotated[Completion, _Value], Discriminator(_tag)]
"""A completion, its text alone, or the id of a stored one."""


class NewRewards(Wire):
    """Completions of several prompts, to be scored in one job."""

    model_config = example(
        {
            "judge": "local-vllm",
            "prompts": [1, {"messages": [{"role": "user", "content": "Why is the sky blue?"}]}],
            "rubrics": ["sky@1"],
            "completions": [["Air scatters short waves more than long ones.", "The sea."], ["It is painted."]],
        }
    )

    judge: Id | Ref = Field(description="Id or name.")
    judge_digest: str | None = Field(None, description="Refuse another judge of this name, with 409.")
    prompts: tuple[GivenPrompt, ...] = Field(
        min_length=1, max_length=MAX_BATCH, fail_fast=True, description="Prompts, or their ids or external ids."
    )
    rubrics: tuple[GivenRubric | None, ...] = Field(
        (),
        max_length=MAX_BATCH,
        fail_fast=True,
        description="A rubric for each prompt, or one for all: a rubric, or id, name (newest approved version),"
        " name@version or digest. Null, or none at all: the prompt's own.",
    )
    completions: tuple[Annotated[tuple[GivenCompletion, ...], Field(min_length=1)], ...] = Field(
        min_length=1,
        max_length=MAX_BATCH,
        fail_fast=True,
        description="The completions of each prompt: texts, values or ids.",
    )
    timeout: float = Field(
        30.0, ge=0, le=MAX_REWARD_SECONDS, description="Seconds to wait; after that the response is 202."
    )
    name: Name = Field("", description="Name of the job.")
    budget: float | None = Field(None, gt=0, description="US dollars that the judge may cost. Needs a price.")
    min_coverage: MinCoverage = None
    allow_drafts: bool = Field(False, description="Use rubrics that are not approved.")
    key: Key = None


class Rewards(Wire):
    """The rewards of a job."""

    job_id: int = Field(description="Id of the job.")
    judge: str = Field(description="Name of the judge.")
    status: JobStatus = Field(description="Status of the job.")
    workers: int | None = Field(description="Running workers, if the job is not finished.")
    rewards: tuple[Item, ...] = Field(
        description="Items without their verdicts, in the order of the request (prompt by prompt); of a job by id."
    )
