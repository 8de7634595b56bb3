"""The record of a run that is killed again and again has each step and evaluation once, with all completions."""

import multiprocessing
import random
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Event

import pytest
import torch
from sqlalchemy import func, select

from rubricsvc.services.runs import Runs
from rubricsvc.settings import get_settings
from rubricsvc.store import runs
from rubricsvc.store.session import Database
from rubricsvc.store.tables import EvaluationCompletionRow, EvaluationRewardRow, RolloutRow, RunMetricsRow
from tests.cli import Cli, cli
from tests.model.trainer.held_out import eval_config, evaluation
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_policy
from trainer import recording
from trainer.evaluation import LINES
from trainer.loop import train
from trainer.recording import RunRecorder
from trainer.rewards import CallableRewards
from trainer.run import KEY as RUN

__all__ = ["cli"]

KILLS = 3
STEPS = 30
SIZE = 8
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


def run(out: Path, url: str) -> None:
    """Start or resume the run, which saves a checkpoint after every third step and evaluates after every second."""
    torch.set_num_threads(1)
    config = eval_config(out, steps=STEPS, checkpoint_every=3)
    stop, resume = Event(), (out / "config.json").exists()
    db = Database(url)
    with RunRecorder(Runs(db), "killed-1", out, stop) as recorder:
        rewards = CallableRewards(share_of_a)
        options = {"stop": stop, "resume": resume, "record": {RUN: "killed-1"}}
        options["evaluation"] = evaluation(config, recorder=recorder)
        train(tiny_policy(), TASKS, rewards, config, recorder=recorder, **options)  # type: ignore[arg-type]
    db.close()


def begin(out: Path, url: str) -> ForkServerProcess:
    process = FORKS.Process(target=run, args=(out, url))
    process.start()
    return process


def test_record_of_a_killed_run_has_each_step_and_evaluation_once(
    cli: Cli, each_db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", each_db.url)
    get_settings.cache_clear()
    out, chance = tmp_path / "killed", random.Random(0)
    for kill in range(KILLS):
        process = begin(out, each_db.url)
        while len(recording.read(out)) < STEPS * (kill + 1) // (KILLS + 1) and process.is_alive():
            time.sleep(0.005)
        time.sleep(chance.uniform(0.0, 0.05))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        shown = cli("runs", "show", out, "--json").json
        assert (shown["id"], shown["status"], shown["rollouts"]) == (1, "running", SIZE * shown["steps"])
        assert 0 <= len(recording.read(out)) - shown["steps"] <= 1, "the step that it was killed in"
    process = begin(out, each_db.url)
    process.join()
    assert process.exitcode == 0

    shown = cli("runs", "show", out, "--json").json
    assert (shown["id"], shown["status"], shown["steps"], shown["steps_total"]) == (1, "finished", STEPS, STEPS)
    assert (shown["rollouts"], shown["unscored"]) == (SIZE * STEPS, 0)
    lines = recording.read(out)
    assert cli("runs", "show", 1, "--last", STEPS, "--json").lines == lines
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    with each_db.read() as session:
        places = select(RolloutRow.step, RolloutRow.place).order_by(RolloutRow.step, RolloutRow.place)
        assert session.execute(places).all() == [(s, p) for s in range(1, STEPS + 1) for p in range(SIZE)]
        assert session.scalar(select(func.count()).select_from(RunMetricsRow)) == STEPS
        means = select(RolloutRow.step, func.avg(RolloutRow.reward)).group_by(RolloutRow.step)
        by_step = dict(session.execute(means).all())
        assert [by_step[line["step"]] for line in lines] == pytest.approx([line["reward"] for line in lines])
        assert runs.rollout_counts(session, 1) == (SIZE * STEPS, 0)
        evaluations = list(Runs(each_db).evaluations(1))
        per_evaluation = select(func.count()).group_by(EvaluationCompletionRow.evaluation_id)
        assert set(session.scalars(per_evaluation.select_from(EvaluationCompletionRow))) == {6 * 4}
        assert session.scalar(select(func.count()).select_from(EvaluationRewardRow)) == 2 * 24 * len(evaluations)
    assert sorted(one.step for one in evaluations) == list(range(0, STEPS + 1, 2))
    assert {one.step: one.line for one in evaluations} == {line["step"]: line for line in recording.read(out, LINES)}
