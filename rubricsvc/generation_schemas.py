"""Wire types of the generation of rubrics, shared by `rubricsvc.api` and `rubricsvc.client`."""

from __future__ import annotations

from pydantic import Field

from rubricsvc.core.base import Name
from rubricsvc.core.generation import Generation
from rubricsvc.queries import Id
from rubricsvc.schemas import MAX_BATCH, Ref, StoredRubric, Wire, example


class NewGeneration(Generation, Wire):
    """A job that generates rubrics."""

    model_config = example({"judge": "local-vllm", "prompts": [1, "sky-1"], "method": "one-shot"})

    judge: Id | Ref = Field(description="Id or name of the judge whose model writes.")
    prompts: tuple[Id | Ref, ...] = Field(
        min_length=1, max_length=MAX_BATCH, fail_fast=True, description="Prompts, by id or external id."
    )
    name: Name = Field("", description="Name of the job.")
    budget: float | None = Field(None, gt=0, description="US dollars that it may cost. Needs a price.")

    @property
    def generation(self) -> Generation:
        """The settings alone."""
        return Generation(**{name: getattr(self, name) for name in Generation.model_fields})


class GeneratedRubric(Wire):
    """The rubric that a job has generated for a prompt, or the reason why there is none."""

    prompt_id: int = Field(description="Id of the prompt.")
    rubric: StoredRubric | None = Field(None, description="The rubric version.")
    reason: str | None = Field(None, description="Why there is none.")
