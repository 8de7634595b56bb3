"""Wire types of imported files."""

from __future__ import annotations

from pydantic import Field

from rubricsvc.core.states import RubricState
from rubricsvc.schemas.base import FileProblem, Wire


class ImportedFile(Wire):
    """What a file added. The ids are in the file's order, and include what existed before."""

    file: str = Field("", description="Name of the file.")
    new: dict[str, int] = Field({}, description="Rows that were added, by noun.")
    existing: dict[str, int] = Field({}, description="Rows that existed before, by noun.")
    rubric_ids: list[int] = Field([], description="Ids of the rubric versions.")
    rubrics: list[str] = Field([], description="The rubrics as name@version.")
    new_rubrics: list[str] = Field([], description="Those that were added.")
    completion_ids: list[int] = Field([], description="Ids of the completions.")
    label_ids: list[int] = Field([], description="Ids of the labels.")
    omitted_labels: int = Field(0, description="Labels whose rubric or completion was not imported.")
    superseded: dict[str, int] = Field({}, description="Rubrics that exist as an earlier version, with the newest.")
    not_approved: dict[str, RubricState] = Field(
        {}, description="Rubrics (name@version) that are not approved, with their states."
    )
    skipped: list[FileProblem] = Field([], description="Errors of the records that were skipped.")
    skipped_count: int = Field(0, description="Errors of the records that were skipped, listed or not.")
    notes: list[FileProblem] = Field([], description="What was read in another way than it was written.")
    skipped_records: int = Field(0, description="Records that were skipped.")
