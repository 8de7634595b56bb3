"""Labels in, a judge's verdicts beside them, a calibrated judge out. The judge answers by a rule; all else is real."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

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
    assert labelled("jobs", "show", 2, "--json").json["judge_calibrated"] is True
    again = labelled("judges", "calibrate", "sure-calibrated", "--as", "twice", "--json")
    assert again.json["families"] == ran.json["families"], "fitted from what the model gave, not from what came of it"


def test_agreement_and_calibrate_print_tables(labelled: Cli) -> None:
    labelled("jobs", "submit", "--judge", "sure", "--wait")
    ran = labelled("judges", "agreement", "sure", "--resamples", 0)
    assert ran.code == 0
    for word in (
        "calibrated",
        "balanced_accuracy",
        "METRIC",
        "n/a: pearson, spearman, kendall",
        "ANNOTATOR",
        "REASON",
    ):
        assert word in ran.out, word
    ran = labelled("judges", "calibrate", "sure", "--as", "mine")
    assert ran.code == 0 and "METHOD" in ran.out and "'mine'" in ran.err


def import_labels(cli: Cli, path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("\n".join(map(json.dumps, records)))
    assert cli("labels", "import", path).code == 0
    assert cli("jobs", "submit", path, "--judge", "sure", "--wait").code == 0


def test_agreement_prints_why_something_is_missing(labelled: Cli, tmp_path: Path) -> None:
    criteria = [{"key": "good", "text": "Is good."}, {"key": "one", "text": "Is one."}]
    records: list[dict[str, Any]] = [
        {"id": f"z{n}", "prompt": f"Z{n}?", "criteria": criteria, "completions": ["Bad."], "labels": {"good": n < 4}}
        for n in range(6)
    ]
    records[0]["labels"] = {"good": [True, False], "one": 1}
    import_labels(labelled, tmp_path / "more.jsonl", records)
    lines = labelled("judges", "agreement", "sure", "--job", 1, "--resamples", 30).out.splitlines()
    assert "pearson, spearman, kendall" in [line.split(": ")[1] for line in lines if line.startswith("n/a: ")]
    few = labelled("judges", "agreement", "sure", "--job", 1, "--criterion", "one")
    assert "n/a: pairwise_accuracy, auroc, accuracy, " in few.out and "METRIC" not in few.out
    for args in (("--resamples", 0), ("--criterion", "good", "--resamples", 19)):
        assert "n/a: intervals: " in labelled("judges", "agreement", "sure", "--job", 1, *args).out


def test_calibrate_refuses_too_few_labels(labelled: Cli) -> None:
    help_text = " ".join(labelled("judges", "calibrate", "--help").out.split())
    assert f"at least {MIN_PROMPTS} prompts" in help_text and f"at least {MIN_LABELS} labels" in help_text
    labelled("jobs", "submit", "--judge", "sure", "--limit", 3, "--wait")
    ran = labelled("judges", "calibrate", "sure")
    assert ran.code == 2 and "rubricsvc labels import" in ran.err and "rubricsvc jobs submit" in ran.err


def test_agreement_prints_annotators_beside_the_judge(labelled: Cli, tmp_path: Path) -> None:
    criteria = [{"key": "kind", "text": "Is kind."}, {"key": "tone", "text": "Its tone is warm."}]
    records: list[dict[str, Any]] = [
        {
            "id": f"t{n}",
            "prompt": f"T{n}?",
            "criteria": criteria,
            "completions": ["This looks good." if n % 3 else "Bad."],
            "labels": {
                "kind": {"ann": n % 2, "bob": n % 2 if n else 1},
                "tone": n % 5 > 2,
                "overall": {"ann": n % 4 / 4, "bob": n % 4 / 4 if n > 3 else 0.5},
            },
        }
        for n in range(12)
    ]
    import_labels(labelled, tmp_path / "tones.jsonl", records)
    asked = ("judges", "agreement", "sure", "--job", 1, "--resamples", 30)
    out = labelled(*asked).out
    annotators = next(line.split() for line in out.splitlines() if line.startswith("- annotators  "))
    assert annotators == ["-", "annotators", "12", "0.917", "0.916", "0.916", "0.832", "0.832", "0.839"]
    kind = labelled(*asked, "--criterion", "kind").out
    accuracy = next(line for line in kind.splitlines() if line.startswith("accuracy"))
    assert len(re.findall(r"\d\.\d+ +\[\d.\d\d, \d.\d\d\]", accuracy)) == 2, "the judge's and the annotators'"
    one = labelled(*asked, "--criterion", "kind", "--json").json
    assert [group["name"] for group in one["criteria"]] == ["kind"] and one["criteria"][0]["confusion"]
    assert set(one["criteria"][0]["inter_annotator"]) > {"accuracy", "kappa", "alpha"}


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("agreement", "none"), 3),
        (("agreement", "sure"), 2),
        (("agreement", "sure", "--criterion", "x"), 2),
        (("calibrate", "none"), 3),
    ],
)
def test_agreement_and_calibrate_refuse_what_is_not_there(labelled: Cli, args: tuple[str, ...], code: int) -> None:
    ran = labelled("judges", *args)
    assert ran.code == code and "hint: " in ran.err, ran.err


def test_agreement_and_calibrate_use_labels_of_an_earlier_version(labelled: Cli, tmp_path: Path) -> None:
    """The rubric is edited after it was labelled; the judge scores only the new version."""
    lines = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    for line in lines:
        line["criteria"] = [{"key": "fine", "text": "Is good.", "weight": 3}, "Is new."]
        del line["labels"]
    (tmp_path / "second.jsonl").write_text("\n".join(map(json.dumps, lines)))
    ran = labelled("rubrics", "import", tmp_path / "second.jsonl", "--json")
    assert ran.json["new_rubrics"][0].endswith("@2")
    assert labelled("jobs", "submit", tmp_path / "second.jsonl", "--judge", "sure", "--wait").code == 0
    report = labelled("judges", "agreement", "sure", "--json", "--resamples", 0).json
    assert [(one["name"], one["pairs"]) for one in report["criteria"]] == [("fine", 80)]
    assert report["pooled"]["excluded"] == {} and report["reward"]["pairs"] == 40
    assert labelled("judges", "calibrate", "sure", "--json").json["families"][0]["labels"] == 80
