"""Wire types of tests of rubrics, shared by `rubricsvc.api` and `rubricsvc.client`."""

from __future__ import annotations

from pydantic import Field

from rubricsvc.core.rubric_test import RubricTest, TestOutcome
from rubricsvc.schemas import Stored


class StoredRubricTest(Stored):
    """A test of a rubric version by its own examples."""

    rubric_id: int = Field(description="Id of the rubric version.")
    rubric: str = Field(description="Rubric version, as name@version.")
    by: str = Field(description="The person who ran it.")
    outcome: TestOutcome = Field(description="Whether it passed; unmeasured if the judge could not be asked.")
    test: RubricTest = Field(description="Its results.")
