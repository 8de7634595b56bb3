"""Labels in, a judge's verdicts beside them, a calibrated judge out. The judge answers by a rule; all else is real."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rubricsvc.stats.calibration_fit import MIN_LABELS, MIN_PROMPTS
from tests.cli import Cli, add_judge
from tests.instant_engine import InstantEngine
from workers.engines import ENGINES
from workers.engines.base import EngineRequest, Failure, Reply

PROMPTS = 40


class Sure(InstantEngine):
    """Right four times in five, and always sure: the completion says what it will find."""

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        share = 0.98 if "looks good" in request.shared else 0.02
        return [Reply(label_mass={"Yes": share, "No": 1 - share}) for _ in request.questions]


@pytest.fixture
def labelled(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Two people's labels on one criterion of forty prompts' completions; a judge has scored all of them."""
    monkeypatch.setitem(ENGINES, "sure", lambda _judge: Sure())
    draw = random.Random(0)
    lines = []
    for n in range(PROMPTS):
        good = n % 2
        looks = good if draw.random() < 0.8 else 1 - good
        record = {
            "id": f"q{n}",
            "prompt": f"Question {n}?",
            "criteria": [{"key": "good", "text": "Is good."}],
            "completions": [{"id": f"own{n}", "text": "This looks good." if looks else "This looks bad."}],
            "labels": {"good": {"ann": good, "bob": good if n % 10 else 1 - good}, "overall": {"ann": 0.25 + good / 2}},
        }
        lines.append(json.dumps(record))
    (tmp_path / "labels.jsonl").write_text("\n".join(lines))
    assert cli("labels", "import", tmp_path / "labels.jsonl").code == 0
    add_judge(cli, "sure", engine="sure")
    return cli


def test_calibrate_improves_the_calibration_error(labelled: Cli) -> None:
    assert labelled("jobs", "submit", "--judge", "sure", "--wait").code == 0
    ran = labelled("judges", "agreement", "sure", "--json", "--resamples", 50)
    assert ran.code == 0, ran.err
    overall = ran.json["pooled"]
    assert (ran.json["labels"], ran.json["annotators"], overall["pairs"], overall["annotator_pairs"]) == (
        120,
        2,
        80,
        40,
    )
    assert 0.6 < overall["metrics"]["accuracy"]["value"] < 0.95
    assert overall["metrics"]["accuracy"]["low"] < overall["metrics"]["accuracy"]["value"]
    assert overall["inter_annotator"]["accuracy"]["value"] == pytest.approx(0.9)
    assert ran.json["calibrated"] is False and len(ran.json["worst"]) == 20
    assert ran.json["reward"]["metrics"]["pearson"]["value"] > 0.3

    ran = labelled("judges", "calibrate", "sure", "--json")
    assert ran.code == 0, ran.err
    (family,) = ran.json["families"]
    assert ran.json["judge"] == "sure-calibrated" and family["family"] == "binary"
    assert family["after"]["brier"] < family["before"]["brier"] and family["after"]["ece"] < family["before"]["ece"]
    judges = {row["name"]: row["judge"]["calibration"] for row in labelled("judges", "list", "--json").lines}
    assert judges["sure"] is None and judges["sure-calibrated"]

    assert labelled("jobs", "submit", "--judge", "sure-calibrated", "--wait").code == 0
    after = labelled("judges", "agreement", "sure-calibrated", "--json", "--resamples", 0).json["pooled"]["metrics"]
    assert after["ece"]["value"] < overall["metrics"]["ece"]["value"]
    (first, *_) = labelled("verdicts", "list", "--job", 2, "--json").lines
    assert first["verdict"]["probability"] in (pytest.approx(0.98), pytest.approx(0.02))
    assert first["verdict"]["value"] != pytest.approx(first["verdict"]["probability"])
    again = labelled("judges", "calibrate", "sure-calibrated", "--as", "twice", "--json")
    assert again.json["families"] == ran.json["families"], "fitted from what the model gave, not from what came of it"


def test_calibrate_refuses_too_few_labels(labelled: Cli) -> None:
    help_text = " ".join(labelled("judges", "calibrate", "--help").out.split())
    assert f"at least {MIN_PROMPTS} prompts" in help_text and f"at least {MIN_LABELS} labels" in help_text
    labelled("jobs", "submit", "--judge", "sure", "--limit", 3, "--wait")
    ran = labelled("judges", "calibrate", "sure")
    assert ran.code == 2 and "rubricsvc labels import" in ran.err and "rubricsvc jobs submit" in ran.err
