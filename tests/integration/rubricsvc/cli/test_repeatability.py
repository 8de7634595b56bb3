"""`judges repeatability`: what is asked, stored and printed."""

from __future__ import annotations

import random

import pytest

from tests.cli import Cli, add_judge
from tests.instant_engine import InstantEngine
from workers.engines import ENGINES
from workers.engines.base import EngineRequest, Failure, Reply


class Noisy(InstantEngine):
    """Answers 0.5, give or take the same amount."""

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        shares = [random.choice((0.45, 0.55)) for _ in request.questions]
        return [Reply(label_mass={"Yes": share, "No": 1 - share}) for share in shares]


@pytest.fixture
def noisy(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setitem(ENGINES, "instant", lambda judge: Noisy())
    add_judge(cli, "j")
    return cli


def test_repeatability_is_stored_with_the_judge(noisy: Cli) -> None:
    ran = noisy("judges", "repeatability", "j", "--repeats", 4, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["source"] == "built-in cases" and ran.json["completions"] == 24
    assert 0.03 < ran.json["criteria"]["binary"]["value"] < 0.07
    assert 0.015 < ran.json["reward"]["value"] < 0.06 and ran.json["reward"]["low"] is not None
    shown = noisy("judges", "show", "j", "--json").json
    assert shown["repeatability"] == {name: value for name, value in ran.json.items() if name != "judge"}
