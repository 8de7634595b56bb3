"""`rubricsvc judges probe`, and the same questions before a judge is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli import Cli, stored
from tests.scripted_server import ScriptedReply, labels, scripted_server, text_reply


def sees_greetings(_: int, body: dict[str, Any]) -> ScriptedReply:
    """Answer the test questions of ``judges add``."""
    met = "greets the user" in body["messages"][-1]["content"]
    if body.get("logprobs"):
        return labels(Yes=0.75, No=0.25) if met else labels(Yes=0.04, No=0.96)
    return text_reply(json.dumps(written("met" if met else "not_met")))


def written(verdict: str) -> dict[str, Any]:
    return {"criterion": "C1", "rationale": "So it is.", "evidence": [], "verdict": verdict}


def test_add_asks_the_judge_first(cli: Cli) -> None:
    with scripted_server(sees_greetings) as server:
        ran = cli("judges", "add", "good", "--url", server.url, "--model", "m", "--json")
        assert len(server.requests) == 2
    assert ran.code == 0, ran.err
    assert ran.json["name"] == "good" and "P(yes) 0.75" in ran.err and "P(yes) 0.04" in ran.err
    assert "warning" not in ran.err
    assert stored(cli, "good")["endpoint"]["base_url"] == server.url
    assert [row["name"] for row in cli("judges", "list", "--json").lines] == ["good"]


@pytest.mark.parametrize("mode", ["readout", "written"])
def test_add_warns_of_a_judge_that_agrees_with_everything(cli: Cli, mode: str) -> None:
    agrees = labels(Yes=0.75, No=0.25) if mode == "readout" else text_reply(json.dumps(written("met")))
    with scripted_server(agrees) as server:
        ran = cli("judges", "add", "yes", "--url", server.url, "--model", "m", "--mode", mode)
        assert ran.code == 0 and "warning: yes" in ran.err and "hint: " in ran.err
        assert stored(cli, "yes")["mode"] == mode
        probed = cli("judges", "probe", "yes", "--json")
    assert (probed.code, probed.json["distinguished"], probed.json["difference"]) == (4, False, 0.0)
    assert "warning: yes" in probed.err


def test_probe_prints_value_seconds_tokens_and_cost(cli: Cli) -> None:
    with scripted_server(sees_greetings) as server:
        endpoint = {"base_url": server.url, "price": {"prompt": 1000.0, "completion": 0.0}}
        judge = {"name": "good", "model": "m", "endpoint": endpoint}
        ran = cli("judges", "add", "-f", "-", stdin=json.dumps(judge))
        assert ran.code == 0 and "22 tokens, $0.02" in ran.err
        ran = cli("judges", "probe", "good", "--json")
        table = cli("judges", "probe", "good")
    assert (ran.code, table.code, ran.json["distinguished"]) == (0, 0, True)
    assert ran.json["difference"] == pytest.approx(0.71)
    assert ran.json["usage"] == {"prompt": 20, "cached": None, "completion": 2, "cost": pytest.approx(0.02)}
    assert [(one["criterion"], one["value"]) for one in ran.json["verdicts"]] == [
        ("met", pytest.approx(0.75)),
        ("not_met", pytest.approx(0.04)),
    ]
    assert "0.71" in table.out and "P(yes) 0.75 (met)" in table.err
    assert cli("judges", "probe", "good").code == 3, "the server has stopped"
    assert cli("judges", "probe", "unknown").code == 3
