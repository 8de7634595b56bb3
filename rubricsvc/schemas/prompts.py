"""Wire types of prompts."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from pydantic.config import JsonDict

from rubricsvc.core.base import Name
from rubricsvc.core.prompt import Prompt
from rubricsvc.schemas.base import Stored, Wire, example

_PROMPT: JsonDict = {"messages": [{"role": "user", "content": "Why is the sky blue?"}]}


class NewPrompt(Wire):
    """A prompt to store."""

    model_config = example({"prompt": _PROMPT, "external_id": "sky-1"})

    prompt: Prompt = Field(description="The prompt.")
    external_id: Name | None = Field(None, description="The prompt's id in its source.")

    @classmethod
    def arguments(cls, **fields: Any) -> dict[str, Any]:
        """Accept a prompt's text alone."""
        prompt = fields.get("prompt")
        return fields | ({"prompt": Prompt.of(prompt)} if isinstance(prompt, str) else {})


class StoredPrompt(Stored):
    """A stored prompt."""

    digest: str = Field(description="SHA-256 of the content.")
    external_id: str | None = Field(description="The prompt's id in its source.")
    prompt: Prompt = Field(description="The prompt.")
