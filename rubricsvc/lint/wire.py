"""Wire types of `POST /v1/rubrics/lint`, shared by `rubricsvc.api` and `rubricsvc.client`."""

from __future__ import annotations

from pydantic import Field

from rubricsvc.core.base import Name, Value
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.lint.registry import Finding, Severity


class LintRequest(Value):
    """A rubric to find faults in."""

    rubric: Rubric = Field(description="The rubric.")
    prompt: Prompt | None = Field(default=None, description="Its prompt, for the rules that compare the two.")
    rules: tuple[Name, ...] = Field(default=(), description="Names of the rules to apply; by default all.")
    ignore: tuple[Name, ...] = Field(default=(), description="Names of rules to leave out.")
    severity: Severity = Field(default="info", description="Least severity of the findings.")


class LintReport(Value):
    """What is wrong with a rubric, the gravest first."""

    findings: tuple[Finding, ...] = Field(description="Findings.")
