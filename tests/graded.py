"""The verdict of an OpenAI grader that is a check, on one completion."""

from typing import Any

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats.openai_grader import parse
from rubricsvc.graders.model import rubric_of
from workers import checks

ITEM = {"answer": "Paris", "rows": [3, 4]}


def found(text: str, **grader: Any) -> Verdict:
    rubric = rubric_of(parse({"name": "g", **grader}))
    checks.validate(rubric)
    (verdict,) = checks.run(rubric, Prompt.of("?", item=ITEM), Completion(text=text))
    return verdict
