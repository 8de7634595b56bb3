"""Panels and cascades of judges on servers of their own, and of one panel in another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rubricsvc.core.judge import Calibration, Curve, Endpoint, Judge, Voting
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason, Verdict
from tests.scripted_server import Script, ScriptedReply, ScriptedServer, error, labels, scripted_server
from workers.engines import make_engine
from workers.scoring.completions import score

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
    assert (one.count, two.count) == (2, 1)
    assert "Says how." in two.requests[0]["messages"][-1]["content"]
    assert found["why"].value == pytest.approx(0.95)
    assert found["how"].value == pytest.approx(0.2)
    assert [vote.by for vote in found["why"].votes] == ["cheap"]
    assert [vote.by for vote in found["how"].votes] == ["cheap", "better"]
    usage = found["how"].usage
    assert usage is not None
    assert usage.prompt == 20


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
