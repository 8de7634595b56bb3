"""What ``runs start`` measures beside training."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from rubricsvc.core.audit import Audit, Rate, SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.schemas.runs import EQUAL_COMPUTE
from rubricsvc.services.runs import Runs
from rubricsvc.settings import get_settings
from rubricsvc.store import judges
from rubricsvc.store.session import Database
from tests.cli import Cli, add_judge
from tests.integration.test_client import running
from tests.tiny_model import tiny_model
from trainer.config import ServiceJudge
from trainer.run import audit_at_service as status_at_service
from trainer.run import prepare

CONFIG = """
steps = 3
policy = {model = "policy", dtype = "float32"}
data = {path = "rubrics.yaml"}
judge = {name = "letters", engine = "letters", model = "m"}
sampling = {prompts_per_step = 2, group_size = 2, max_new_tokens = 8}
"""
EVAL = """
[eval]
every = 2
samples = 2
"""


@pytest.fixture
def config(tmp_path: Path, rubric_file: Path) -> Path:
    tiny_model(tmp_path / "policy")
    (tmp_path / "held-out.yaml").write_text("- {id: three, prompt: What is three?, criteria: [Says three.]}\n")
    path = tmp_path / "first.toml"
    path.write_text(f'{CONFIG}{EVAL}path = "held-out.yaml"\njudges = ["quick"]\n')
    return path


def test_runs_start_evaluates_and_baselines_are_shown_beside(cli: Cli, config: Path, tmp_path: Path) -> None:
    unknown = cli("runs", "start", config)
    assert (unknown.code, "eval.judges.0" in unknown.err) == (3, True)
    add_judge(cli)
    ran = cli("runs", "start", config)
    assert ran.code == 0, ran.err
    assert "1 held-out prompt" in ran.err
    run = tmp_path / "runs" / "first"
    lines = cli("runs", "show", run, "--evaluations", "--json").lines
    assert [line["step"] for line in lines] == [0, 2, 3] and lines[0]["gold"] == "quick"
    assert set(lines[0]["scores"]) == {"reward", "quick"}
    record = json.loads((run / "config.json").read_text())
    assert record["eval"]["judges"][0]["engine"] == "instant", "the record has the whole judge"

    evaluated = prepare(config).evaluate()
    assert evaluated is not None and {line["baseline"] for line in evaluated} == {*EQUAL_COMPUTE}
    config.write_text(config.read_text() + "baselines = true\n")
    done = cli("runs", "start", config, "--resume")
    assert done.code == 0 and "has all 3 steps" in done.err, done.err
    table = cli("runs", "show", run, "--evaluations").out
    assert "best_of_n_supervised" in table and "quick (gold)" in table
    assert len(cli("runs", "show", run, "--evaluations", "--json").lines) == 6
    assert cli("runs", "show", 1, "--evaluations").out == table, "by its id"

    for ref in (1, run):
        assert cli("runs", "report", ref, "--out", "run.html").code == 0
        page = Path("run.html").read_text()
        for text in ("What is three?", "best of n supervised", "eval.every", "Highest rewards", "quick"):
            assert text in page
        assert "<script" not in page and "http://www.w3.org" in page


def test_report_and_evaluations_are_read_from_the_record(cli: Cli, config: Path, tmp_path: Path) -> None:
    """The folder of a run on another machine is not here."""
    add_judge(cli)
    config.write_text(config.read_text() + "baselines = true\n")
    assert cli("runs", "start", config).code == 0
    lines = cli("runs", "show", 1, "--evaluations", "--json").lines
    whole = Runs(Database(get_settings().database_url)).report(1)
    shutil.rmtree(tmp_path / "runs")
    again = cli("runs", "show", 1, "--evaluations", "--json")
    assert again.lines == lines
    assert [line.get("baseline", line["step"]) for line in lines] == [0, 2, 3, *EQUAL_COMPUTE]
    assert cli("runs", "report", 1, "--out", "run.html").code == 0
    page = Path("run.html").read_text()
    for text in ("best of n supervised", "What is three?", "step 3"):
        assert text in page
    report = Runs(Database(get_settings().database_url)).report(1)
    assert report == whole, "the folder adds nothing"
    assert list(report.columns) == ["step 0", "step 2", "step 3", "best of n"]
    (columns,) = report.samples.values()
    assert list(columns) == list(report.columns)
    assert all(set(one.scores) == {"reward", "quick"} for one in columns.values())
    assert all([v.criterion for v in one.verdicts] == ["c1"] for one in (*columns.values(), *report.widest))
    assert report.highest and all(one.verdicts for one in report.highest)


JUDGE = Judge(name="j", model="m")


def audit(*, rate: float, fingerprint: str = "f") -> Audit:
    found = Rate(n=10, hits=round(10 * rate), value=rate)
    suite = SuiteResult(name="s", measure="met", rate=found, max_rate=0.1, passed=rate <= 0.1)
    return Audit(digest="d", fingerprint=fingerprint, suites=(suite,))


def test_status_at_service_has_the_newest_audit(db: Database) -> None:
    with running(db) as url:
        judge = ServiceJudge(service=url, name="j")
        assert status_at_service(judge).audit is None
        with db.write() as session:
            judges.add(session, JUDGE)
        assert status_at_service(judge).record == {"judge_audit": None}
        with db.write() as session:
            for rate in (0.0, 0.5):
                judges.add_audit(session, 1, audit(rate=rate))
        found = status_at_service(judge)
    assert found.audit is not None and found.audit.id == 2
    assert found.message.startswith("judge j did not pass audit 2 of 20") and found.message.endswith(": s")
    assert found.record["judge_audit"]["rates"] == {"s": 0.5}


def test_runs_start_refuses_trackers_that_are_not_installed(cli: Cli, rubric_file: Path, tmp_path: Path) -> None:
    missing = [name for name in ("tensorboard", "trackio", "wandb") if find_spec(name) is None]
    if not missing:
        pytest.skip("all trackers are installed")
    (tmp_path / "first.toml").write_text(f"trackers = {missing}\n{CONFIG}")  # and there is no policy
    ran = cli("runs", "start", "first.toml")
    assert (ran.code, (tmp_path / "runs").exists()) == (3, False)
    assert f"rubricsvc[{','.join(missing)}]" in ran.err


def test_runs_compare_pairs_held_out_prompts_and_refuses_other_judges(
    cli: Cli, rubric_file: Path, tmp_path: Path
) -> None:
    tiny_model(tmp_path / "policy")
    prompts = [f"- {{id: p{n}, prompt: What is {n}?, criteria: [Says a.]}}\n" for n in range(7)]
    (tmp_path / "held-out.yaml").write_text("".join(prompts[:6]))
    (tmp_path / "others.yaml").write_text("".join(prompts[1:]))
    base = f'{CONFIG}{EVAL}path = "held-out.yaml"\n'
    changes = {
        "first": base,
        "fast": base + "[optim]\nlr = 0.01\n",
        "part": base.replace("held-out", "others"),
        "other": base.replace('model = "m"', 'model = "n"').replace('name = "letters"', 'name = "letters-n"'),
        "plain": CONFIG,
    }
    for name, text in changes.items():
        (tmp_path / f"{name}.toml").write_text(text)
        ran = cli("runs", "start", f"{name}.toml")
        assert ran.code == 0, ran.err

    (found,) = cli("runs", "compare", 1, Path("runs", "fast"), "--json").lines
    assert {path: b for path, (_, b) in found["config"].items()} == {"optim.lr": 0.01}
    assert found["notes"] == []
    before, last = found["scores"]
    assert (last["prompts"], last["variant"], last["score"]) == (6, "B", "reward")
    assert last["difference"]["low"] <= last["difference"]["value"] <= last["difference"]["high"]
    first, fast = (cli("runs", "show", ref, "--evaluations", "--json").lines[-1] for ref in (1, 2))
    means = [line["scores"]["reward"]["mean"]["value"] for line in (first, fast)]
    assert [row["mean"]["value"] for row in (before, last)] == means

    (part,) = cli("runs", "compare", 1, 3, "--json").lines
    assert part["scores"][1]["prompts"] == 5 and "1 in A only, 1 in B only" in part["notes"][0]

    (other,) = cli("runs", "compare", 1, 4, "--json").lines
    assert other["scores"][1]["result"] == "not_comparable"

    shown = cli("runs", "compare", 1, 5)
    assert shown.code == 0 and "eval.samples" in shown.out and "B has no evaluation" in shown.out
    assert (cli("runs", "compare", 1, 99).code, cli("runs", "compare", 1, tmp_path).code) == (3, 3)
