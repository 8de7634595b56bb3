"""Wire types of completions."""

from __future__ import annotations

from pydantic import Field
from pydantic.config import JsonDict

from rubricsvc.core.prompt import Completion
from rubricsvc.queries import Id
from rubricsvc.schemas.base import MAX_BATCH, Stored, Wire, example

_COMPLETION: JsonDict = {"text": "Air scatters short waves more than long ones.", "policy": "my-model", "step": 0}


class NewCompletion(Wire):
    """A completion to store."""

    model_config = example({"prompt_id": 1, "completion": _COMPLETION})

    prompt_id: Id = Field(description="Id of the prompt.")
    completion: Completion = Field(description="The completion.")


class NewCompletions(Wire):
    """Completions to store."""

    completions: tuple[NewCompletion, ...] = Field(
        min_length=1, max_length=MAX_BATCH, fail_fast=True, description="Completions, of any prompts."
    )


class StoredCompletion(Stored):
    """A stored completion."""

    digest: str = Field(description="SHA-256 of the content.")
    prompt_id: int = Field(description="Id of the prompt.")
    completion: Completion = Field(description="The completion.")
