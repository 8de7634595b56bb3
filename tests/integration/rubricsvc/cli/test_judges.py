"""``judges`` and ``agreement`` of a database."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.settings import get_settings
from rubricsvc.stats.calibration_fit import MIN_LABELS, MIN_PROMPTS
from rubricsvc.store.session import Database
from tests.cli import Cli, add_judge, stored
from tests.instant_engine import InstantEngine
from tests.made_passport import made_passport
from tests.rows import invalidate
from tests.scripted_server import ScriptedReply, error, labels, scripted_server, text_reply
from tests.service_process import running
from workers.engines import ENGINES
from workers.engines.base import EngineRequest, Failure, Reply


@pytest.mark.parametrize(
    ("answer", "reason", "hint"),
    [
        (error(401, "no key"), "refused", "--api-key-env"),
        (ScriptedReply("Yes"), "no_logprobs", "--mode written"),
        (error(403, "You are not allowed to request logprobs from this model"), "no_logprobs", "--mode written"),
        (error(404, "The model `m` does not exist."), "refused", "scripted"),
        (error(400, "unknown model"), "refused", "scripted"),
    ],
)
def test_add_refuses_a_judge_that_does_not_answer(cli: Cli, answer: ScriptedReply, reason: str, hint: str) -> None:
    with scripted_server(answer) as server:
        ran = cli("judges", "add", "bad", "--url", server.url, "--model", "m")
        assert ran.code == 3 and reason in ran.err and hint in ran.err
        assert cli("judges", "list", "--json").out == ""
        assert cli("judges", "add", "bad", "--url", server.url, "--model", "m", "--no-probe").code == 0


def test_add_file_names_line_and_field(cli: Cli, tmp_path: Path) -> None:
    cases = [
        ("endpoint: {timeout_s: 1.0e9}", 3, "endpoint.timeout_s"),
        ("endpoint:\n  max_retries: 21", 4, "endpoint.max_retries"),
        ("endpoint: {base_url: foo}", 3, "endpoint.base_url"),
        ("sampling: {max_tokens: 1000000000}", 3, "sampling.max_tokens"),
        ("threshold: 2", 3, "threshold"),
        ("temperature: 0.5", 3, "temperature"),
        ("mode: comparative\ncomparison: {group_size: 27}", 4, "comparison.group_size"),
        ("mode: trajectory\ntrajectory: {value: best}", 4, "trajectory.value"),
        ("mode: panel\nmembers: [none, x]", 4, "members[0]"),
        ("thinking: {budget_tokens: 9}", 1, ""),
        ("model: other", 3, ""),
    ]
    for fields, line, path in cases:
        (tmp_path / "judge.yaml").write_text(f"name: x\nmodel: m\n{fields}\n")
        ran = cli("judges", "add", "-f", "judge.yaml", "--no-probe")
        assert ran.code == 2 and f"judge.yaml:{line}" in ran.err and path in ran.err, ran.err
        assert "--skip-invalid" not in ran.err
        assert cli("judges", "list", "--json").out == ""


def test_show_yaml_is_read_back_as_the_same_judge(cli: Cli) -> None:
    add_judge(cli, "a", mode="written", sampling={"temperature": 0.5}, voting={"samples": 2})
    add_judge(cli, "b", endpoint={"concurrency": 3}, threshold=0.4)
    add_judge(cli, "c", mode="cascade", members=["a", "b"], band=[0.3, 0.7])
    for name in ("a", "b", "c"):
        digest = cli("judges", "show", name, "--json").json["digest"]
        file = cli("judges", "show", name, "--yaml").out.replace(f"name: {name}", "name: copy", 1)
        ran = cli("judges", "add", "-f", "-", "--no-probe", "--json", stdin=file.replace("copy", f"copy-{name}"))
        assert (ran.code, ran.json["digest"]) == (0, digest), ran.err
        assert stored(cli, f"copy-{name}")["endpoint"] == stored(cli, name)["endpoint"]


def test_update_changes_the_endpoint_only(cli: Cli) -> None:
    add_judge(cli, "x", engine="openai_http", endpoint={"base_url": "http://127.0.0.1:9/v1", "concurrency": 3})
    before = cli("judges", "show", "x", "--json").json
    ran = cli("judges", "add", "x", "--url", "http://127.0.0.1:10/v1", "--api-key-env", "KEY", "--no-probe")
    assert ran.code == 0, ran.err
    after = cli("judges", "show", "x", "--json").json
    assert after["digest"] == before["digest"]
    endpoint = after["judge"]["endpoint"]
    assert (endpoint["base_url"], endpoint["api_key_env"], endpoint["concurrency"]) == (
        "http://127.0.0.1:10/v1",
        "KEY",
        3,
    )


def test_stored_judge_with_an_invalid_address_is_listed_and_can_be_updated(cli: Cli) -> None:
    add_judge(cli, "old", engine="openai_http", endpoint={"base_url": "http://127.0.0.1:9/v1"})
    add_judge(cli, "p", mode="panel", members=[{"name": n, "model": n} for n in "ab"])
    db = Database(get_settings().database_url)
    invalidate(db, "old", base_url="http://user:secret@host/v1")
    db.close()
    listed = cli("judges", "list", "--json")
    assert listed.code == 0
    old, panel = listed.lines
    assert "judges add -f" in old["error"] and "secret" not in old["error"] and panel["error"] is None
    assert cli("judges", "show", "old", "--json").json["error"] == old["error"]
    cli("rubrics", "import", "-", stdin='{"name": "r", "prompt": "Why?", "criteria": ["A."], "completions": ["B."]}\n')
    refused = cli("jobs", "submit", "--judge", "old")
    assert refused.code == 2 and "judges add -f" in refused.err
    add_judge(cli, "old", engine="openai_http", endpoint={"base_url": "http://127.0.0.1:10/v1"})
    assert [row["error"] for row in cli("judges", "list", "--json").lines] == [None, None]
    assert cli("jobs", "submit", "--judge", "old").code == 0


@pytest.fixture
def passport(tmp_path: Path) -> Path:
    path = tmp_path / "passport.json"
    with path.open("w") as stream:
        stream.write(made_passport().model_dump_json(exclude_none=True) + "\n")
    return path


def test_add_stores_the_passport_with_the_judge(cli: Cli, passport: Path) -> None:
    add_judge(cli, "quick", "--passport", passport)
    whole = made_passport().model_dump(mode="json")
    shown = cli("judges", "show", "quick", "--json").json
    assert shown["has_passport"] is True
    assert cli("judges", "show", "quick", "--passport", "--json").json == whole
    assert cli("judges", "list", "--json").json["has_passport"] is True
    add_judge(cli, "quick")
    assert cli("judges", "show", "quick", "--passport", "--json").json == whole


def test_passport_prints_tables(cli: Cli, passport: Path) -> None:
    add_judge(cli, "quick", "--passport", passport)
    out = cli("judges", "show", "quick", "--passport").out
    figures = ("0.94 [0.9299, 0.9501]", "0.09 [0.08, 0.1]", "0.0071")
    assert all(text in out for text in ("bag of words", "CC-BY-4.0", "Texts in languages", *figures))


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


def test_add_of_a_file_asks_again(cli: Cli) -> None:
    with scripted_server(sees_greetings) as server:
        judge = {"name": "good", "model": "m", "endpoint": {"base_url": server.url}}
        ran = cli("judges", "add", "-f", "-", stdin=json.dumps(judge))
        assert ran.code == 0 and "P(yes) 0.75 (met)" in ran.err
        file = cli("judges", "show", "good", "--yaml").out
        assert "P(yes) 0.75 (met)" in cli("judges", "add", "-f", "-", stdin=file).err
    assert cli("judges", "add", "-f", "-", stdin=file).code == 3, "the server has stopped"


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


class Sure(InstantEngine):
    """Right four times in five, and always sure: the completion says what it will find."""

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        share = 0.98 if "looks good" in request.shared else 0.02
        return [Reply(label_mass={"Yes": share, "No": 1 - share}) for _ in request.questions]


def write_labels(folder: Path, right: float) -> Path:
    """Two people's labels on one criterion of forty prompts' completions; `Sure` predicts the share ``right``."""
    draw, lines, path = random.Random(0), [], folder / "labels.jsonl"
    for n in range(40):
        good = n % 2
        looks = good if draw.random() < right else 1 - good
        record = {
            "id": f"q{n}",
            "prompt": f"Question {n}?",
            "criteria": [{"key": "good", "text": "Is good."}],
            "completions": [{"id": f"own{n}", "text": "This looks good." if looks else "This looks bad."}],
            "labels": {"good": {"ann": good, "bob": good if n % 10 else 1 - good}, "overall": {"ann": 0.25 + good / 2}},
        }
        lines.append(json.dumps(record))
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def labelled(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setitem(ENGINES, "sure", lambda _judge: Sure())
    assert cli("labels", "import", write_labels(tmp_path, 0.8)).code == 0
    add_judge(cli, "sure", engine="sure")
    return cli


def test_calibrate_improves_the_calibration_error(labelled: Cli) -> None:
    assert labelled("jobs", "submit", "--judge", "sure", "--wait").code == 0
    ran = labelled("judges", "agreement", "sure", "--json")
    assert ran.code == 0, ran.err
    overall = ran.json["pooled"]
    assert (ran.json["labels"], ran.json["annotators"]) == (120, 2)
    assert (overall["pairs"], overall["annotator_pairs"]) == (80, 40)
    assert 0.6 < overall["metrics"]["accuracy"]["value"] < 0.95
    assert overall["metrics"]["accuracy"]["low"] < overall["metrics"]["accuracy"]["value"]
    assert overall["inter_annotator"]["accuracy"]["value"] == pytest.approx(0.9)
    assert ran.json["calibrated"] is False and len(ran.json["worst"]) == 20
    assert ran.json["reward"]["metrics"]["spearman"]["value"] > 0.3

    ran = labelled("judges", "calibrate", "sure", "--json")
    assert ran.code == 0, ran.err
    (family,) = ran.json["families"]
    assert ran.json["judge"] == "sure-calibrated" and family["family"] == "binary"
    assert family["after"]["brier"] < family["before"]["brier"] and family["after"]["ece"] < family["before"]["ece"]
    judges = {row["name"]: row["judge"]["calibration"] for row in labelled("judges", "list", "--json").lines}
    assert judges["sure"] is None and judges["sure-calibrated"]

    assert labelled("jobs", "submit", "--judge", "sure-calibrated", "--wait").code == 0
    after = labelled("judges", "agreement", "sure-calibrated", "--json").json["pooled"]["metrics"]
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


def test_repeatability_of_a_job_asks_about_a_random_sample(noisy: Cli) -> None:
    for number in range(4):
        record = {"prompt": f"Why {number}?", "criteria": [f"A {number}."], "completions": ["B.", "C."]}
        assert noisy("rubrics", "import", "-", "--name", f"r{number}", stdin=json.dumps(record) + "\n").code == 0
    assert noisy("jobs", "submit", "--judge", "j", "--wait").code == 0
    first, again = (noisy("judges", "repeatability", "j", "--job", 1, "--limit", 3, "--json").json for _ in range(2))
    assert first["completions"] == again["completions"] == 3 and first["source"] == "job 1"


def test_measurements_are_stored_at_a_service(labelled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert labelled("jobs", "submit", "--judge", "sure", "--wait").code == 0
    db = Database(get_settings().database_url)
    with running(db) as url:
        monkeypatch.setenv("RUBRICSVC_URL", url)
        add_judge(labelled, "new", engine="sure")
        assert labelled("judges", "repeatability", "new", "--job", 1, "--limit", 5, "--json").json["completions"] == 5
        assert labelled("judges", "audit", "new", "--json").code in (0, 4)
        shown = labelled("judges", "show", "new", "--json").json
        assert shown["newest_audit"]["audit"]["suites"] and shown["repeatability"]["completions"] == 5
    db.close()
