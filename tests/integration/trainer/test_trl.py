"""TRL's GRPOTrainer trains SmolLM2 on the rewards of a service whose judge is a scripted server."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from rubricsvc import Client
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.rubric import Criterion, Rubric
from tests.databases import fresh_url
from tests.scripted_server import DROPPED, ScriptedReply, ScriptedServer, labels, scripted_server
from tests.service_process import service

STEPS = 3
COMPLETIONS = 4
"""Of a step of `tests.trl_run`."""

RUBRIC = Rubric(criteria=[Criterion(key="clear", text="Is clear.")])
QUESTIONS = ("What is a rubric?", "Why is the sky blue?", "What is two and two?")

pytestmark = pytest.mark.usefixtures("trl_installed")


def by_content(_number: int, body: dict[str, Any]) -> ScriptedReply:
    """Answer by the text of the question, so that completions differ in their rewards."""
    share = 0.02 + sum(map(ord, body["messages"][-1]["content"])) % 97 / 101
    return labels(Yes=share, No=1 - share)


def prepare(url: str, judge: ScriptedServer) -> list[dict[str, Any]]:
    """Store judge and rubric; return the rows of a dataset."""
    endpoint = Endpoint(base_url=judge.url, max_retries=0, outage_timeout_s=1.0, prompt_lists=False)
    with Client(url) as client:
        client.judges.add(Judge(name="scripted", model="scripted", endpoint=endpoint))
        client.rubrics.add(RUBRIC, "clear")
    return [{"prompt": [{"role": "user", "content": text}], "rubric": "clear@1"} for text in QUESTIONS]


def train(
    out: Path, url: str, rows: list[dict[str, Any]], *, coroutine: bool = False, **reward: Any
) -> subprocess.CompletedProcess[str]:
    """Train in a separate process."""
    given = {"judge": "scripted", **reward}
    options = {"url": url, "out": str(out), "steps": STEPS, "rows": rows, "reward": given, "async": coroutine}
    command = [sys.executable, "-m", "tests.trl_run", json.dumps(options)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


def logged(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """TRL's log of each step."""
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in json.loads(done.stdout.splitlines()[-1]) if "reward" in line]


def tables(out: Path) -> list[list[dict[str, Any]]]:
    """TRL's tables of completions, one for each step."""
    return [pyarrow.parquet.read_table(path).to_pylist() for path in sorted((out / "completions").glob("*.parquet"))]


def stored_rewards(client: Client, job_id: int) -> dict[str, float | None]:
    """The rewards of a job by the text of the completion."""
    items = client.iterate(client.jobs.items, job_id)
    return {client.completions.get(item.completion_id or 0).completion.text: item.reward for item in items}


@pytest.mark.parametrize("coroutine", [False, True])
def test_trl_rewards_equal_those_of_the_store(tmp_path: Path, coroutine: bool) -> None:
    out, database = tmp_path / "out", fresh_url("sqlite", tmp_path)
    with scripted_server(by_content) as judge, service(tmp_path, database) as url:
        log = logged(train(out, url, prepare(url, judge), coroutine=coroutine))
        with Client(url) as client:
            jobs = list(client.iterate(client.jobs.page))
            rewards = [stored_rewards(client, job.id) for job in jobs]
            steps = {row.completion.step for row in client.iterate(client.completions.page)}
    assert [job.name for job in jobs] == [f"trl step {step}" for step in (1, 2, 3)]
    assert steps == {0, 1, 2}
    for step, stored, table in zip(log, rewards, tables(out), strict=True):
        assert [row["rubric"] for row in table] == pytest.approx(
            [stored[row["completion"][0]["content"]] for row in table]
        )
        assert step["rewards/rubric/mean"] == pytest.approx(sum(row["rubric"] for row in table) / COMPLETIONS)
        assert step["rubric/unscored_fraction"] == 0
    assert len({reward for stored in rewards for reward in stored.values()}) > 2


class FailingJudge:
    """A judge whose server is stopped by the first question after those of the first step."""

    def __init__(self) -> None:
        self.failed = threading.Event()
        self.server = ScriptedServer(self.answer)
        self.server.start()
        self.stopper = threading.Thread(target=self.stop)
        self.stopper.start()

    def answer(self, number: int, body: dict[str, Any]) -> ScriptedReply:
        if number < COMPLETIONS:
            return by_content(number, body)
        self.failed.set()
        return DROPPED

    def stop(self) -> None:
        assert self.failed.wait(500)
        self.server.stop()

    def close(self) -> None:
        self.failed.set()
        self.stopper.join()


def test_trl_stops_when_the_judge_is_killed(tmp_path: Path) -> None:
    out, database, judge = tmp_path / "out", fresh_url("sqlite", tmp_path), FailingJudge()
    with service(tmp_path, database) as url:
        done = train(out, url, prepare(url, judge.server), timeout=30.0)
    judge.close()
    assert done.returncode == 1
    assert "UnavailableError" in done.stderr and "completions have no reward" in done.stderr, done.stderr[-3000:]
    assert len(tables(out)) == 1


def test_trl_skips_completions_of_a_killed_judge(tmp_path: Path) -> None:
    out, database, judge = tmp_path / "out", fresh_url("sqlite", tmp_path), FailingJudge()
    with service(tmp_path, database) as url:
        done = train(out, url, prepare(url, judge.server), on_failure="skip", max_unscored=1.0, timeout=30.0)
    judge.close()
    first, *_, last = logged(done)
    assert first["rubric/unscored_fraction"] == 0 and first["reward"] is not None
    assert (last["rubric/unscored_fraction"], last["reward"], last["loss"]) == (1, None, 0)
    assert f"{COMPLETIONS} of {COMPLETIONS} completions have no reward" in done.stderr
    assert all(row["rubric/null_reason"] for row in tables(out)[-1])


def test_async_grpo_takes_rewards_of_its_groups(tmp_path: Path) -> None:
    """AsyncGRPO needs a GPU and vLLM; this is its scoring of two groups, with a reward that was pickled."""
    with scripted_server(by_content) as judge, service(tmp_path, fresh_url("sqlite", tmp_path)) as url:
        prepare(url, judge)
        command = [sys.executable, "-m", "tests.trl_groups", url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        with Client(url) as client:
            stored = [stored_rewards(client, job.id) for job in client.jobs.page()]
    groups = [dict(group) for group in json.loads(done.stdout.splitlines()[-1])]
    assert sorted(groups, key=str) == sorted(stored, key=str)
    assert None not in {reward for group in groups for reward in group.values()}
