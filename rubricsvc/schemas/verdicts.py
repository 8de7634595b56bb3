"""Wire types of verdicts."""

from __future__ import annotations

from pydantic import Field

from rubricsvc.core.verdict import Verdict
from rubricsvc.schemas.base import Stored


class StoredVerdict(Stored):
    """A stored verdict."""

    completion_id: int = Field(description="Id of the completion.")
    rubric_id: int = Field(description="Id of the rubric version.")
    judge_id: int = Field(description="Id of the judge.")
    verdict: Verdict = Field(description="The verdict.")
