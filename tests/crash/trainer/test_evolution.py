"""A run whose rubrics evolve, killed again and again, uses the same versions as one that was never interrupted."""

import hashlib
import json
import os
import string
from pathlib import Path
from typing import Any

import torch

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.store.session import Database, by_id, page_of
from rubricsvc.store.tables import EvolutionStepRow, RubricRow
from tests.crash.trainer.killing import FORKS, begin, end, run_killed
from tests.databases import sqlite_at
from tests.letter_judge import JUDGE, proposal, uses
from tests.model.trainer.tiny import PROMPTS, tiny_config, tiny_policy
from tests.scripted_server import ScriptedReply, scripted_server, text_reply
from trainer import checkpoint, recording
from trainer.data.tasks import Task
from trainer.evolution import OnlineEvolution
from trainer.loop import train
from trainer.rewards import JudgeRewards

KILLS = 8
STEPS = 24
EVERY = 2
TASKS = [Task(prompt, Rubric(criteria=[Criterion(key="good", text=uses("a"), weight=2)])) for prompt in PROMPTS]
FORKS.set_forkserver_preload([__name__])
TIMES = {"step_time", "sample_time", "score_time", "train_time", "evolve_time", "monitor_time"}


def propose(_number: int, request: dict[str, Any]) -> ScriptedReply:
    """Propose letters that depend on nothing but the request."""
    seed = hashlib.sha256(json.dumps(request["messages"]).encode()).digest()
    chosen = [string.ascii_lowercase[byte % 26] for byte in seed[:3]]
    return text_reply(proposal(*chosen[:2], pitfalls=chosen[2:]))


def run(out: Path, url: str, proposer: str) -> None:
    """Start or resume the run."""
    torch.set_num_threads(1)
    judge = Judge(name="proposer", model="scripted", endpoint=Endpoint(base_url=proposer, max_retries=0))
    evolve = {"proposer": judge, "every": EVERY, "max_active": 2, "retest_every": 4, "shown": 3}
    config = tiny_config(steps=STEPS, out=out, checkpoint_every=3, evolve=evolve)
    assert config.evolve is not None
    evolutions = Evolutions(Database(url))
    with JudgeRewards(JUDGE) as rewards, OnlineEvolution(config.evolve, evolutions, out.name, rewards) as evolution:
        resume = (out / "config.json").exists()
        train(tiny_policy(), TASKS, rewards, config, resume=resume, evolution=evolution)


def outcome(out: Path, url: str) -> dict[str, Any]:
    """All that must be the same: weights, versions of steps, rounds, buffers and metrics."""
    db = Database(url)
    with db.read() as session:
        steps = page_of(session, EvolutionStepRow, 0, 9999)
        assert {row.evolution.run for row in steps} == {out.name}
        versions = by_id(session, RubricRow, [row.rubric_id for row in steps])
        used = {(row.evolution.prompt_id, row.step): (versions[row.rubric_id].digest, row.round) for row in steps}
        buffers = {(row.evolution.prompt_id, row.step): row.entries for row in steps}
    db.close()
    saved = checkpoint.folder(out, STEPS)
    names = ("optimizer.safetensors", "model/model.safetensors")
    return {
        "weights": [(saved / name).read_bytes() for name in names],
        "used": used,
        "buffers": buffers,
        "metrics": [{k: v for k, v in step.items() if k not in TIMES} for step in recording.read(out)],
    }


def test_train_killed_while_rubrics_evolve_uses_the_same_versions(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    urls = [sqlite_at(tmp_path / f"{name}.db") for name in ("whole", "killed")]
    with scripted_server(propose) as server:
        assert end(begin(run, whole, urls[0], server.url)) == 0
        rounds, calls = STEPS // EVERY * 2, server.count
        assert calls <= rounds
        run_killed(run, killed, urls[1], server.url, kills=KILLS, steps=STEPS, later=0.1)
        assert server.count - calls <= calls + KILLS * 2, "only rounds that were under way are asked about again"
    first, second = outcome(whole, urls[0]), outcome(killed, urls[1])
    for name, value in first.items():
        assert second[name] == value, name
    digests = [digest for digest, _ in first["used"].values()]
    assert len(set(digests)) > len(TASKS), "the rubrics have evolved"
    assert any(step.get("evolve/retired") for step in first["metrics"])
    mode = (checkpoint.folder(killed, STEPS) / "model" / "model.safetensors").stat().st_mode
    umask = os.umask(0)
    os.umask(umask)
    assert mode & 0o777 == 0o666 & ~umask
