"""Labels in, a judge's verdicts beside them, a calibrated judge out. The judge answers by a rule; all else is real."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from rubricsvc.core.verdict import Verdict
from rubricsvc.stats.calibration_fit import LEAST_LABELS, LEAST_PROMPTS
from rubricsvc.stats.overall import Overall
from tests.cli import Cli
from tests.instant_engine import InstantEngine
from workers.engines import ENGINES
from workers.engines.base import EngineRequest, Failure, Reply

pytestmark = pytest.mark.integration

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
            "completions": ["This looks good." if looks else "This looks bad."],
            "labels": {"good": {"ann": good, "bob": good if n % 10 else 1 - good}, "overall": {"ann": 0.25 + good / 2}},
        }
        lines.append(json.dumps(record))
    (tmp_path / "labels.jsonl").write_text("\n".join(lines))
    assert cli("label", "import", tmp_path / "labels.jsonl").code == 0
    assert cli("judge", "add", "sure", "--engine", "sure", "--model", "m", "--no-probe").code == 0
    return cli


def test_agreement_calibration_and_agreement_again(labelled: Cli) -> None:
    assert labelled("job", "submit", "--judge", "sure", "--wait").code == 0
    ran = labelled("judge", "agreement", "sure", "--json", "--resamples", 50)
    assert ran.code == 0, ran.err
    found = ran.json["overall"]
    assert (ran.json["labels"], ran.json["annotators"], found["pairs"], found["people_pairs"]) == (120, 2, 80, 40)
    assert 0.6 < found["figures"]["accuracy"]["value"] < 0.95
    assert found["figures"]["accuracy"]["low"] < found["figures"]["accuracy"]["value"]
    assert found["people"]["accuracy"]["value"] == pytest.approx(0.9)
    assert ran.json["calibrated"] is False and len(ran.json["worst"]) == 20
    assert ran.json["reward"]["figures"]["pearson"]["value"] > 0.3

    ran = labelled("judge", "calibrate", "sure", "--json")
    assert ran.code == 0, ran.err
    (family,) = ran.json["families"]
    assert ran.json["judge"] == "sure-calibrated" and family["family"] == "binary"
    assert family["after"]["brier"] < family["before"]["brier"] and family["after"]["ece"] < family["before"]["ece"]
    judges = {row["name"]: row["calibrated"] for row in labelled("judge", "list", "--json").lines}
    assert judges == {"sure": False, "sure-calibrated": True}

    assert labelled("job", "submit", "--judge", "sure-calibrated", "--wait").code == 0
    after = labelled("judge", "agreement", "sure-calibrated", "--json", "--resamples", 0).json["overall"]["figures"]
    assert after["ece"]["value"] < found["figures"]["ece"]["value"]
    (first, *_) = labelled("verdict", "list", "--job", 2, "--json").lines
    assert first["verdict"]["probability"] in (pytest.approx(0.98), pytest.approx(0.02))
    assert first["verdict"]["value"] != pytest.approx(first["verdict"]["probability"])
    assert labelled("job", "show", 2, "--json").json["judge_calibrated"] is True
    assert "is calibrated already" not in ran.err
    again = labelled("judge", "calibrate", "sure-calibrated", "--as", "twice", "--json")
    assert again.json["families"] == ran.json["families"], "fitted from what the model gave, not from what came of it"
    assert "sure-calibrated is calibrated already: its curves are fitted anew, from what the model itself" in again.err


def test_tables_for_people_have_every_part(labelled: Cli) -> None:
    labelled("job", "submit", "--judge", "sure", "--wait")
    ran = labelled("judge", "agreement", "sure", "--resamples", 0)
    assert ran.code == 0
    for words in (
        "not calibrated",
        "balanced_accuracy",
        "FIGURE",
        "only on a scale of more than two",
        "farthest apart",
    ):
        assert words in ran.out, words
    assert "(columns)" in ran.out
    ran = labelled("judge", "calibrate", "sure", "--method", "platt", "--as", "mine")
    assert ran.code == 0 and "platt" in ran.out and "kept as judge 'mine'" in ran.err
    ran = labelled("judge", "calibrate", "sure", "--overall", "--resamples", 0, "--out", "overall.json")
    assert ran.code == 0, ran.err
    assert "regression, person known" in ran.out
    overall = Overall.model_validate_json(Path("overall.json").read_text())
    told = [overall.predict([Verdict.scored("good", value)], "ann") for value in (0.98, 0.02)]
    assert set(overall.weights) == {"good"} and told[0] is not None and told[1] is not None and told[0] > told[1]


def test_a_regression_sees_how_a_readout_shared_the_levels(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Torn(InstantEngine):
        """Gives the middle level what the completion says; what it is worth stays the same."""

        async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
            middle = int(request.shared.split("Share ")[1].split()[0]) / 100
            return [
                Reply(label_mass={"A": (1 - middle) / 2, "B": middle, "C": (1 - middle) / 2}) for _ in request.questions
            ]

    monkeypatch.setitem(ENGINES, "torn", lambda _judge: Torn())
    criterion = {"key": "tone", "text": "Its tone.", "scale": {"cold": 0, "plain": 0.5, "warm": 1}}
    records = [
        {"prompt": f"{n}?", "criteria": [criterion], "completions": [f"Share {n} ."], "labels": {"overall": n / 100}}
        for n in range(0, 100, 2)
    ]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert cli("label", "import", "labels.jsonl").code == 0
    assert cli("judge", "add", "torn", "--engine", "torn", "--model", "m", "--no-probe").code == 0
    assert cli("job", "submit", "--judge", "torn", "--wait").code == 0
    found = cli("judge", "calibrate", "torn", "--overall", "--resamples", 0, "--json").json
    assert set(found["overall"]["weights"]) == {"tone=cold", "tone=plain", "tone=warm"}
    assert found["pooled"]["value"] > 0.99, "the value is 0.5 throughout, and tells nothing"


def test_what_is_not_there_is_explained_below_its_table(labelled: Cli, tmp_path: Path) -> None:
    criteria = [{"key": "good", "text": "Is good."}, {"key": "one", "text": "Is one."}]
    records = [
        {"id": f"z{n}", "prompt": f"Z{n}?", "criteria": criteria, "completions": ["Bad."], "labels": {"good": n < 4}}
        for n in range(6)
    ]
    records[0]["labels"] = {"good": [True, False], "one": 1}
    (tmp_path / "more.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert labelled("label", "import", "more.jsonl").code == 0
    assert labelled("job", "submit", "more.jsonl", "--judge", "sure", "--wait").code == 0
    out = labelled("judge", "agreement", "sure", "--job", 1, "--resamples", 30).out
    overall, criteria_table = out.split("CRITERION  PAIRS")[:2]
    assert "n/a: pearson, spearman: only on a scale of more than two levels" in overall
    assert "n/a: people's accuracy, " in overall and ": 2 pairs; a figure takes 5" in overall
    assert "n/a: people's alpha: 1 labelled by several; a figure takes 5" in overall
    assert "n/a: all figures of one: 1 pairs; a figure takes 5" in criteria_table
    assert "n/a: pearson, spearman of good: only on a scale of more than two levels" in criteria_table
    assert "intervals" not in criteria_table, "which has none"
    for args, why in (
        (("--resamples", 0), "0 draws; an interval takes 20"),
        (("--criterion", "good", "--resamples", 19), "19 draws; an interval takes 20"),
    ):
        assert f"n/a: intervals: {why}" in labelled("judge", "agreement", "sure", "--job", 1, *args).out


def test_how_many_labels_calibrating_takes_is_told_before_and_after(labelled: Cli) -> None:
    told = " ".join(labelled("judge", "calibrate", "--help").out.split())
    assert f"at least {LEAST_PROMPTS} prompts" in told and f"at least {LEAST_LABELS} labels" in told
    labelled("job", "submit", "--judge", "sure", "--limit", 3, "--wait")
    ran = labelled("judge", "calibrate", "sure")
    assert ran.code == 2 and "labels on at least 10 prompts, and there are usable ones on 3" in ran.err
    assert "hint: label answers to more prompts (`rubricsvc labels import FILE`), and let the judge" in ran.err


def test_each_criterion_has_all_its_figures_and_people_beside_the_judge(labelled: Cli, tmp_path: Path) -> None:
    criteria = [{"key": "kind", "text": "Is kind."}, {"key": "tone", "text": "Its tone is warm."}]
    records = [
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
    (tmp_path / "tones.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert labelled("label", "import", "tones.jsonl").code == 0
    assert labelled("job", "submit", "tones.jsonl", "--judge", "sure", "--wait").code == 0

    def table(out: str, start: str) -> list[list[str]]:
        lines = out[out.index(start) :].split("\n\n", maxsplit=1)[0].splitlines()
        return [re.split(r"  +", line.strip()) for line in lines]

    asked = ("judge", "agreement", "sure", "--job", 1, "--resamples", 30)
    ran = labelled(*asked)
    heading, kind, people, *_ = table(ran.out, "CRITERION")
    shown = "ACCURACY BALANCED F1 KAPPA WEIGHTED ALPHA AUROC ECE BRIER"
    assert heading[3:] == shown.split() and (kind[0], people[:2]) == ("kind", ["people", "12"])
    assert people[2:] == ["0.917", "0.916", "0.916", "0.832", "0.832", "0.839"], "of people there is no AUROC"
    assert "--full tells each criterion's intervals and confusion" in ran.err
    reward = table(ran.out, "reward against people's overall scores")
    assert [row[0] for row in reward[2:5]] == ["pearson", "spearman", "alpha"] and reward[1][-2:] == ["PEOPLE", "95%"]
    assert all(re.fullmatch(r"\[-?\d.\d\d, \d.\d\d\]", row[-1]) for row in reward[2:5])

    out = labelled(*asked, "--full").out
    assert "kind: 24 pairs, 0 left out, 12 among people" in out and "CRITERION  PAIRS" not in out
    part = out[out.index("kind: 24") : out.index("tone: ")]
    assert part.count("people's level (rows)") == 1
    accuracy = next(line for line in part.splitlines() if line.startswith("accuracy"))
    assert len(re.findall(r"\d\.\d+ +\[\d.\d\d, \d.\d\d\]", accuracy)) == 2, "the judge's and people's"

    one = labelled(*asked, "--criterion", "kind", "--json").json
    assert [group["name"] for group in one["criteria"]] == ["kind"] and one["criteria"][0]["confusion"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("agreement", "none"), "no judge 'none'"),
        (("agreement", "sure"), "has judged nothing of what is labelled"),
        (("agreement", "sure", "--criterion", "x"), "there are no labels of criterion 'x'"),
        (("calibrate", "sure", "--method", "magic"), "no method 'magic'"),
    ],
)
def test_what_cannot_be_told_is_said(labelled: Cli, args: tuple[str, ...], words: str) -> None:
    if "magic" in args:
        labelled("job", "submit", "--judge", "sure", "--wait")
    ran = labelled("judge", *args)
    assert ran.code in (2, 3) and words in ran.err and "hint: " in ran.err, ran.err
