"""A judge that fills in the example of its instructions gets no score, however it is asked."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

from rubricsvc.core.judge import Comparison, Judge, TrajectoryOptions
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, CustomPrompt, Numeric, Rubric, Turn
from rubricsvc.core.verdict import Reason
from tests.instant_engine import InstantEngine
from workers.engines.base import EngineRequest, Failure, Reply
from workers.scoring.completions import score_group

PLAIN = Rubric(criteria=tuple(Criterion(key=key, text=f"Says {key}.") for key in "ab"))
CUSTOM = CustomPrompt(turns=(Turn(role="user", content="Is this right? {{sample.output_text}}"),))
OWN = Rubric(criteria=(Criterion(key="a", text="Is right.", scale=Numeric(), custom_prompt=CUSTOM),))
JUDGES: dict[str, tuple[dict[str, Any], Rubric]] = {
    "written": ({"mode": "written"}, PLAIN),
    "several": ({"mode": "written", "criteria_per_call": 0}, PLAIN),
    "pairwise": ({"mode": "comparative", "comparison": Comparison(kind="pairwise", written=True)}, PLAIN),
    "groupwise": ({"mode": "comparative"}, PLAIN),
    "trajectory": ({"mode": "trajectory", "trajectory": TrajectoryOptions(written=True)}, PLAIN),
    "custom": ({"mode": "written"}, OWN),
}


class Copying(InstantEngine):
    """Fills the form of a reply with the words of its example, changed by ``variant``."""

    def __init__(self, variant: Callable[[str], str]) -> None:
        super().__init__()
        self.variant = variant

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        return [
            Reply(json.dumps(self._copy("".join(turn["content"] for turn in request.messages(one)), one.schema or {})))
            for one in request.questions
        ]

    def _copy(self, text: str, schema: dict[str, Any]) -> dict[str, Any]:
        words = {field: self.variant(words) for field, words in re.findall(r'"(\w+)": \[?<([^<>]+)>', text)}
        form = schema["properties"]
        if "scores" in form:
            letters = form["scores"]["items"]["properties"]["answer"]["enum"]
            return {"scores": [{"answer": id_, "rationale": words["rationale"], "score": 1} for id_ in letters]}
        if "steps" in form:
            return {"steps": [{field: words[field] for field in ("description", "conclusion")}], "result": 1}
        forms = form["verdicts"]["items"]["anyOf"] if "verdicts" in form else [schema]
        verdicts = [
            {
                "criterion": one["properties"]["criterion"]["enum"][0],
                "rationale": words["rationale"],
                "evidence": [words["evidence"]],
                "verdict": one["properties"]["verdict"]["enum"][0],
            }
            for one in forms
        ]
        return {"verdicts": verdicts} if "verdicts" in form else verdicts[0]


def test_score_fails_a_judge_that_copies_its_example() -> None:
    for variant in [
        str,
        str.upper,
        "<{}>.".format,
        lambda words: words.replace(" ", "_"),
        lambda words: words.replace("one", "1"),
    ]:
        for fields, rubric in JUDGES.values():
            judge = Judge.model_validate({"name": "c", "model": "m", **fields})
            completions = [Completion(text=text) for text in ("It says a.", "It says b and more.")]
            found = asyncio.run(score_group(Copying(variant), judge, rubric, Prompt.of("Why?"), completions))
            assert {verdict.reason for verdicts in found for verdict in verdicts} == {Reason.TEMPLATE_COPIED}
