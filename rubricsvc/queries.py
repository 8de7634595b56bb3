"""Query parameters of the HTTP API: endpoints read requests by these classes, client methods take their fields."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from rubricsvc.core.base import MAX_ID, Name
from rubricsvc.core.rubric_analysis import FitTo, Signs
from rubricsvc.core.states import ItemSort, JobStatus, Outcome, RubricState
from rubricsvc.stats import RESAMPLES

MAX_LIMIT = 1000


def _plain_digits(value: object) -> object:
    """Reject integers in URLs that are not plain ASCII digits; Python accepts ``1_0`` and ``１`` too."""
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,20}", value):
        raise PydanticCustomError("plain_digits", "expected a whole number in plain digits")
    return value


Whole = Annotated[int, BeforeValidator(_plain_digits)]
Id = Annotated[Whole, Field(ge=1, le=MAX_ID)]
Ref = Annotated[str, Field(min_length=1, max_length=220)]


class Query(BaseModel):
    """Base class: unknown parameters are rejected; a list would be that of all."""

    model_config = ConfigDict(extra="forbid")


class Paging(Query):
    """Parameters of every list."""

    after: Whole = Field(0, ge=0, le=MAX_ID, description="`next` of the previous page.")
    limit: Whole = Field(50, ge=1, le=MAX_LIMIT, description="Maximum rows.")


class RubricFilters(Paging):
    """Parameters of the list of rubric versions."""

    name: Name | None = Field(None, description="Filter by name.")
    prompt_id: Id | Ref | None = Field(None, description="Filter by prompt: id or external id.")
    state: RubricState | None = Field(None, description="Filter by state of the review.")


class RubricQuery(Query):
    """Parameters of a rubric version."""

    allow_drafts: bool = Field(False, description="A name without an approved version means its newest draft.")


Pool = Annotated[
    Name | None, Field(description="Pool criteria by key, group, tag, or prefix of tags: axis of axis:accuracy.")
]


ALL = "*"  # in place of a rubric: all rubrics of a job, with their criteria pooled


class DeletionQuery(Query):
    """Parameters of a deletion."""

    dry_run: bool = Field(False, description="Only count the rows that would be deleted.")
    also: tuple[str, ...] = Field((), max_length=1000, description="More ids or names: all in one transaction.")


class AnalysisQuery(Query):
    """Parameters of the analysis of a rubric."""

    pool: Pool = None
    job_id: Id | None = Field(None, description="Only what this job scored.")
    judge: Name | None = Field(None, description="Judge; by default the job's, or the one with the most completions.")


class AgreementQuery(Query):
    """Parameters of a judge's agreement with people's labels."""

    job_id: Id | None = Field(None, description="Only what this job scored.")
    criterion: Name | None = Field(None, description="Only this criterion.")
    resamples: Whole = Field(RESAMPLES, ge=0, le=10_000, description="Draws of each interval; 0: no intervals.")


class CalibrationQuery(Query):
    """How a judge is calibrated."""

    name: Name | None = Field(None, min_length=1, description="Name of the new judge; by default NAME-calibrated.")
    job_id: Id | None = Field(None, description="Only what this job scored.")
    held_out: float = Field(0.3, ge=0.05, le=0.9, description="Share of the prompts to measure on.")


class FitQuery(AnalysisQuery):
    """How the weights of a rubric are fitted."""

    to: FitTo = Field(description="Overall scores, or the pairs of one person that they order.")
    signs: Signs = Field("keep", description="Whether weights keep their signs.")
    save: bool = Field(False, description="Store the weights as a draft version.")
    force: bool = Field(False, description="Store them even if the rubric was edited since.")


class CompletionFilters(Paging):
    """Parameters of the list of completions."""

    prompt_id: Id | Ref | None = Field(None, description="Filter by prompt: id or external id.")
    policy: Name | None = Field(None, description="Filter by policy.")


class JobFilters(Paging):
    """Parameters of the list of jobs."""

    status: JobStatus | None = Field(None, description="Filter by status.")


class JobQuery(Query):
    """Parameters of a job."""

    summary: bool = Field(False, description="Include the summary of an unfinished job.")


class RescoreQuery(Query):
    """Parameters of rescoring a job."""

    rubric: tuple[str, ...] = Field((), description="Rubric versions (name@version) to use in place of the newest.")
    budget: float | None = Field(None, gt=0, allow_inf_nan=False, description="Maximum cost in US dollars.")
    min_coverage: float | None = Field(None, ge=0, le=1, description="Used instead of the rubrics' own; asks no judge.")
    allow_drafts: bool = Field(False, description="Use given rubrics that are not approved.")


class ItemFilters(Paging):
    """Parameters of the list of a job's items."""

    limit: Whole = Field(100, ge=1, le=MAX_LIMIT, description="Maximum rows.")
    sort: ItemSort = Field("id", description="Order: by id, or by rising or falling reward; those without one last.")
    policy: Name | None = Field(None, description="Filter by policy.")
    verdicts: bool = Field(True, description="Include the verdicts.")


class ReportQuery(Query):
    """Parameters of a job's report."""

    completions: Whole = Field(
        10, ge=0, le=MAX_LIMIT, description="Number of completions in each list: worst, best, without a reward."
    )


class BestOfNQuery(Query):
    """Parameters of best-of-n: whose rewards choose, and by which gold."""

    job: tuple[Id, ...] = Field(min_length=1, description="Job whose rewards choose; repeat it to compare judges.")
    gold: Ref = Field(description="Id of a job of another judge, or labels.")
    n: Whole | None = Field(None, ge=2, description="Largest n; by default the fewest samples of a prompt.")


class CompareQuery(Query):
    """Parameters of a comparison: with which job, of what."""

    b: Id | None = Field(None, description="The other job; by default the same, by its two policies.")
    by: Literal["completion", "prompt"] | None = Field(None, description="What to pair; by default what both scored.")
    pool: Pool = None
    policy_a: Name | None = Field(None, description="Only completions of this policy, of the first job.")
    policy_b: Name | None = Field(None, description="Only completions of this policy, of the other job.")


MAX_REWARD_SECONDS = 50.0  # clients and proxies often close a connection that is silent for a minute


class RewardsQuery(Query):
    """Parameters of a job's rewards."""

    timeout: float = Field(
        0.0, ge=0, le=MAX_REWARD_SECONDS, allow_inf_nan=False, description="Seconds to wait until the job is finished."
    )


class VerdictFilters(Paging):
    """Parameters of the list of verdicts."""

    limit: Whole = Field(100, ge=1, le=MAX_LIMIT, description="Maximum rows.")
    job_id: Id | None = Field(None, description="Filter by job.")
    completion_id: Id | None = Field(None, description="Filter by completion.")
    outcome: Outcome | None = Field(None, description="Filter by outcome.")


class RunFilters(Paging):
    """Parameters of the list of training runs."""

    key: Name | None = Field(None, description="Filter by the key that the run was created with.")


class EvaluationFilters(Paging):
    """Parameters of the list of a run's evaluations."""

    name: Name | None = Field(None, description="Filter by name: `step`, or that of a baseline.")


class EvaluationCompletionFilters(Paging):
    """Parameters of the list of the completions of a run's evaluations."""

    limit: Whole = Field(100, ge=1, le=MAX_LIMIT, description="Maximum rows.")
    evaluation_id: Id | None = Field(None, description="Filter by evaluation.")
    verdicts: bool = Field(True, description="Include the verdicts.")


class RolloutFilters(Paging):
    """Parameters of the list of a run's rollouts."""

    limit: Whole = Field(100, ge=1, le=MAX_LIMIT, description="Maximum rows.")
    step: Whole | None = Field(None, ge=1, le=MAX_ID, description="Filter by step.")
    verdicts: bool = Field(True, description="Include the verdicts.")


class LabelFilters(Paging):
    """Parameters of the list of labels."""

    limit: Whole = Field(100, ge=1, le=MAX_LIMIT, description="Maximum rows.")
    completion_id: Id | None = Field(None, description="Filter by completion.")
    rubric_id: Id | Ref | None = Field(None, description="Filter by rubric: id, name, name@version or digest.")
    annotator: Name | None = Field(None, description="Filter by annotator.")
    job_id: Id | None = Field(None, description="Filter by the completions of a job.")


class JudgedFilters(Paging):
    """Parameters of the list of what a judge judged."""

    job_id: Id | None = Field(None, description="Only what this job scored.")


class LabelledFilters(JudgedFilters):
    """Parameters of the list of labelled completions."""

    rubric: Id | Ref | None = Field(None, description="Only the questions of this version, under any of its name.")
    annotators: tuple[Name, ...] = Field((), description="Only labels of these people.")


ImportNoun = Literal["rubrics", "prompts", "completions", "labels"]


class ImportQuery(Query):
    """Parameters of an import."""

    name: Name = Field("file", description="File name; its ending selects YAML, JSON, JSONL, CSV or Excel.")
    noun: ImportNoun | None = Field(
        None, description="What is wanted of the file; by default all. Completions are imported without rubrics."
    )
    format: Name | None = Field(None, description="A format of docs/formats.md; detected by default.")
    rubric_name: Name | None = Field(None, description="Name of the rubric, for a file with one.")
    min_coverage: float | None = Field(None, ge=0, le=1, description="Set it in all rubrics of the file.")
    replace_labels: bool = Field(False, description="Overwrite earlier labels of the same people.")
    skip_invalid: bool = Field(False, description="Skip invalid records instead of rejecting the file.")
    parent: Name | None = Field(
        None, description="The version that the only rubric was edited from; 409 if it has been edited already."
    )
    force: bool = Field(False, description="Store the rubric as a branch if the parent has been edited already.")
    draft: bool = Field(False, description="Store the rubrics as drafts, to be reviewed.")


class EvolutionFilters(Paging):
    """Parameters of the list of evolutions."""

    run: str | None = Field(None, description="Filter by training run.")
    prompt: int | str | None = Field(None, description="Filter by prompt: id, or id in its file.")
