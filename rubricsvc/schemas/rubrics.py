"""Wire types of rubrics: versions, their review, tests, lint and generation."""

from typing import get_args

from pydantic import Field
from pydantic.config import JsonDict

from rubricsvc.core.base import Name, Text, Value
from rubricsvc.core.generation import Generation
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_analysis import RubricTest, TestOutcome
from rubricsvc.core.states import ReviewAction, RubricOrigin, RubricState
from rubricsvc.lint import Finding, Severity
from rubricsvc.queries import Id, Ref
from rubricsvc.schemas.base import Batch, Stored, Wire, example
from rubricsvc.schemas.jobs import Key

_RUBRIC: JsonDict = {
    "criteria": [
        {"key": "scattering", "text": "Names Rayleigh scattering as the cause.", "weight": 10},
        {"key": "wrong-cause", "text": "Says that the sky reflects the sea.", "weight": -8},
    ]
}


class NewRubric(Wire):
    """A rubric version to store."""

    model_config = example({"name": "sky", "rubric": _RUBRIC, "prompt_id": 1})

    rubric: Rubric = Field(description="The rubric.")
    name: Name = Field(min_length=1, description="Name of the rubric; other content under a name is its next version.")
    prompt_id: Id | None = Field(None, description="The prompt that the rubric belongs to, if any.")
    parent: Id | Ref | None = Field(None, description="The version that it was edited from; 409 if already edited.")
    force: bool = Field(False, description="Store it as a branch if the parent has been edited already.")
    draft: bool = Field(False, description="Store it as a draft, to be reviewed.")


class StoredRubric(Stored):
    """A stored rubric version."""

    name: str = Field(description="Name of the rubric.")
    version: int = Field(description="Version of the name, from 1.")
    digest: str = Field(description="SHA-256 of the content.")
    prompt_id: int | None = Field(description="The prompt that the rubric belongs to, if any.")
    origin: str = Field(description=f"Origin: {', '.join(get_args(RubricOrigin))}.")
    state: RubricState = Field("approved", description="State of its review.")
    parent_id: int | None = Field(None, description="The version that it was edited from.")
    added_by: str | None = Field(None, description="The person or API key that added it.")
    note: str | None = Field(None, description="Why it is a draft: its newest comment; or who did a step already.")
    rubric: Rubric = Field(description="The rubric.")


class NewReview(Wire):
    """A step of a review."""

    model_config = example({"action": "reject", "comment": "Two questions in one criterion."})

    action: ReviewAction = Field(
        description="submit: draft to in_review. approve: in_review or retired to approved. reject: in_review to draft."
        " retire: approved to retired. comment: no change."
    )
    comment: Text | None = Field(None, max_length=10_000, description="Stored with it; reject and comment need it.")


class RubricEvent(Stored):
    """A step of a rubric version's review; a comment has the same state before and after."""

    rubric_id: int = Field(description="Id of the rubric version.")
    rubric: str = Field(description="Rubric version, as name@version.")
    from_state: RubricState = Field(description="State before.")
    to_state: RubricState = Field(description="State after.")
    by: str = Field(description="The person or API key.")
    comment: str | None = Field(description="The comment.")


class StoredRubricTest(Stored):
    """A test of a rubric version by its own examples."""

    rubric_id: int = Field(description="Id of the rubric version.")
    rubric: str = Field(description="Rubric version, as name@version.")
    by: str = Field(description="The person or API key that posted it.")
    outcome: TestOutcome = Field(description="Whether it passed; unmeasured if the judge could not be asked.")
    test: RubricTest = Field(description="Its results.")


class LintRequest(Value):
    """A rubric to find faults in."""

    rubric: Rubric = Field(description="The rubric.")
    prompt: Prompt | None = Field(default=None, description="Its prompt, for the rules that compare the two.")
    rules: tuple[Name, ...] = Field(default=(), description="Names of the rules to apply; by default all.")
    ignore: tuple[Name, ...] = Field(default=(), description="Names of rules to leave out.")
    severity: Severity = Field(default="info", description="Least severity of the findings.")


class LintReport(Value):
    """What is wrong with a rubric, the most severe first."""

    findings: tuple[Finding, ...] = Field(description="Findings.")


class NewGeneration(Generation, Wire):
    """A job that generates rubrics."""

    model_config = example({"judge": "local-vllm", "prompts": [1, "sky-1"], "method": "one-shot"})

    judge: Id | Ref = Field(description="Id or name of the judge whose model writes.")
    prompts: Batch[Id | Ref] = Field((), description="Prompts, by id or external id; by default all.")
    limit: int | None = Field(None, ge=1, description="Maximum number of prompts.")
    name: Name = Field("", description="Name of the job.")
    budget: float | None = Field(None, gt=0, description="US dollars that it may cost. Needs a price.")
    key: Key = None
