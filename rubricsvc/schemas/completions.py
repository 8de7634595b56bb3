"""Wire types of prompts and completions, of judges' verdicts on them and of people's labels."""

from typing import Any

from pydantic import Field
from pydantic.config import JsonDict

from rubricsvc.core.base import Name
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.verdict import Label, Verdict
from rubricsvc.queries import Id, Ref
from rubricsvc.schemas.base import Batch, Stored, Wire, example

_ASKED: JsonDict = {"role": "user", "content": "Why is the sky blue?"}
_ANSWERED: JsonDict = {"text": "Air scatters short waves more than long ones.", "policy": "my-model", "step": 0}
_LABELLED: JsonDict = {"criterion": "scattering", "annotator": "ann", "value": 1.0}


class NewPrompt(Wire):
    """A prompt to store."""

    model_config = example({"prompt": {"messages": [_ASKED]}, "external_id": "sky-1"})

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


class NewCompletion(Wire):
    """A completion to store."""

    model_config = example({"prompt_id": 1, "completion": _ANSWERED})

    prompt_id: Id = Field(description="Id of the prompt.")
    completion: Completion = Field(description="The completion.")


class NewCompletions(Wire):
    """Completions to store."""

    completions: Batch[NewCompletion] = Field(min_length=1, description="Completions, of any prompts.")


class StoredCompletion(Stored):
    """A stored completion."""

    digest: str = Field(description="SHA-256 of the content.")
    prompt_id: int = Field(description="Id of the prompt.")
    completion: Completion = Field(description="The completion.")


class StoredVerdict(Stored):
    """A stored verdict."""

    completion_id: int = Field(description="Id of the completion.")
    rubric_id: int = Field(description="Id of the rubric version.")
    judge_id: int = Field(description="Id of the judge.")
    verdict: Verdict = Field(description="The verdict.")


class NewLabel(Wire):
    """A label with its completion and rubric."""

    completion_id: Id = Field(description="Id of the completion.")
    rubric: Id | Ref = Field(description="Id, name (newest approved version), name@version or digest.")
    label: Label = Field(description="The label.")


class NewLabels(Wire):
    """Labels to store."""

    model_config = example({"labels": [{"completion_id": 1, "rubric": "sky", "label": _LABELLED}]})

    labels: Batch[NewLabel] = Field(min_length=1, description="Labels, of any completions.")
    replace: bool = Field(False, description="Overwrite an earlier label of the same annotator.")

    @classmethod
    def arguments(cls, **fields: Any) -> dict[str, Any]:
        """Accept triples of completion id, rubric and label."""
        names, given = tuple(NewLabel.model_fields), fields.get("labels", ())
        triples = (isinstance(one, tuple) and len(one) == len(names) for one in given)
        labels = zip(given, triples, strict=True)
        return fields | {"labels": [dict(zip(names, one, strict=True)) if three else one for one, three in labels]}


class StoredLabel(Stored):
    """A stored label. Digests name its completion and rubric in every database."""

    completion_id: int = Field(description="Id of the completion.")
    rubric_id: int = Field(description="Id of the rubric version.")
    label: Label = Field(description="The label.")
    rubric: str = Field(description="Rubric version, as name@version.")
    prompt_digest: str = Field(description="SHA-256 of the prompt.")
    completion_digest: str = Field(description="SHA-256 of the completion.")
    rubric_digest: str = Field(description="SHA-256 of the rubric.")
