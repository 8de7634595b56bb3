"""Panels and cascades of judges on servers of their own, and of one panel in another."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from rubricsvc.core.judge import Calibration, Comparison, Curve, Endpoint, Judge, TrajectoryOptions, Voting
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, CustomPrompt, Numeric, Rubric, Turn
from rubricsvc.core.verdict import Reason, Verdict
from tests.instant_engine import InstantEngine
from tests.scripted_server import Script, ScriptedReply, ScriptedServer, error, labels, scripted_server
from workers.engines import make_engine
from workers.engines.base import EngineRequest, Failure, Reply
from workers.scoring.completions import score, score_group

RUBRIC = Rubric(
    criteria=(
        Criterion(key="why", text="Says why."),
        Criterion(key="short", text="Is short.", check=Check(name="words", args={"max": 9})),
        Criterion(key="how", text="Says how."),
    )
)
BAND = (0.3, 0.7)
NO = error(401)


def at(server: ScriptedServer, name: str, mode: Any = "readout") -> Judge:
    return Judge(name=name, model="m", mode=mode, endpoint=Endpoint(base_url=server.url, max_retries=0))


def scored(judge: Judge) -> dict[str, Verdict]:
    async def run() -> list[Verdict]:
        engine = make_engine(judge)
        try:
            return await score(engine, judge, RUBRIC, Prompt.of("Why?"), Completion(text="Because."))
        finally:
            await engine.aclose()

    return {verdict.criterion: verdict for verdict in asyncio.run(run())}


def why_and_how(why: float, how: float) -> Script:
    def script(_number: int, body: dict[str, Any]) -> ScriptedReply:
        share = why if "Says why." in body["messages"][-1]["content"] else how
        return labels(Yes=share, No=1 - share)

    return script


def test_panel_fails_when_fewer_than_half_score() -> None:
    with scripted_server(labels(Yes=0.9, No=0.1)) as up, scripted_server(NO) as down:
        pair = Judge(name="p", mode="panel", voting=Voting(rule="min"), members=(at(up, "a"), at(down, "b")))
        assert scored(pair)["why"].value == pytest.approx(0.9)
        three = Judge(name="p", mode="panel", members=(at(up, "a"), at(down, "b"), at(down, "c")))
        verdict = scored(three)["why"]
    assert (verdict.outcome, verdict.value, verdict.reason) == ("failed", None, Reason.REFUSED)
    assert [vote.outcome for vote in verdict.votes] == ["scored", "failed", "failed"]


def test_cascade_asks_next_member_only_if_uncertain() -> None:
    with scripted_server(why_and_how(0.95, 0.5)) as one, scripted_server(labels(Yes=0.2, No=0.8)) as two:
        cascade = Judge(name="c", mode="cascade", band=BAND, members=(at(one, "cheap"), at(two, "better")))
        found = scored(cascade)
    assert (one.count, two.count) == (2, 1) and "Says how." in two.requests[0]["messages"][-1]["content"]
    assert found["why"].value == pytest.approx(0.95) and found["how"].value == pytest.approx(0.2)
    assert [vote.by for vote in found["why"].votes] == ["cheap"]
    assert [vote.by for vote in found["how"].votes] == ["cheap", "better"]
    usage = found["how"].usage
    assert usage is not None and usage.prompt == 20


def test_cascade_uses_calibrated_probability() -> None:
    """0.95 means 0.49 here; whether a threshold makes it 0 or 1 is another matter, and so is a panel around it."""
    curve = Calibration(families={"binary": Curve(method="platt", slope=1.0, offset=-3.0)})
    with scripted_server(labels(Yes=0.95, No=0.05)) as one, scripted_server(labels(Yes=0.1, No=0.9)) as two:
        cheap, better = at(one, "cheap").model_copy(update={"calibration": curve}), at(two, "better")
        strict = cheap.model_copy(update={"threshold": 0.4, "name": "strict"})
        for first in (cheap, strict, Judge(name="p", mode="panel", members=(cheap, strict))):
            found = scored(Judge(name="c", mode="cascade", band=BAND, members=(first, better)))["why"]
            assert [vote.by for vote in found.votes] == [first.name, "better"]
            assert (found.value, found.calibrated) == (pytest.approx(0.1), None)
            assert found.votes[0].probability == pytest.approx(0.95)
        alone = scored(strict)["why"]
    assert (alone.value, alone.calibrated) == (1.0, pytest.approx(0.4862, abs=1e-4))


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
        str, str.upper, "<{}>.".format, lambda words: words.replace(" ", "_"),
        lambda words: words.replace("one", "1"),
    ]:  # fmt: skip
        for fields, rubric in JUDGES.values():
            judge = Judge.model_validate({"name": "c", "model": "m", **fields})
            completions = [Completion(text=text) for text in ("It says a.", "It says b and more.")]
            found = asyncio.run(score_group(Copying(variant), judge, rubric, Prompt.of("Why?"), completions))
            assert {verdict.reason for verdicts in found for verdict in verdicts} == {Reason.TEMPLATE_COPIED}
