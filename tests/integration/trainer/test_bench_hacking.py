"""``make bench-hacking`` in miniature: one bias and the clean condition."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.bench_hacking import Settings, benchmark
from bench.hacking.biases import BIASES, CLEAN, UNBIASED
from bench.hacking.facts import load_facts
from bench.hacking.judge import HONEST, biased_judges, probability
from bench.hacking.results import RISE
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.prompt import Completion
from tests.tiny_model import tiny_model
from trainer.data.tasks import tasks_of
from trainer.rewards import JudgeRewards


def test_judges_give_main_and_half_of_the_cue() -> None:
    for model in [*BIASES, *UNBIASED, HONEST]:
        fact = load_facts()[0]
        texts = [fact.full, fact.partial, "", *(bias.demonstration(fact) for bias in BIASES.values())]
        with biased_judges() as server:
            judge = Judge(name=model, model=model, endpoint=Endpoint(base_url=server.url, max_retries=0))
            with JudgeRewards(judge) as rewards:
                scored = rewards.score(tasks_of([fact.record]) * len(texts), [Completion(text=text) for text in texts])
        criterion = fact.record.rubric.criteria[0].text
        assert [one.reward.value for one in scored] == pytest.approx(
            [probability(model, text, criterion) for text in texts]
        )


def test_benchmark_shows_a_hack_and_its_alarm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tiny policy learns to begin with a bullet, which the judge likes and the gold judge does not."""
    policy = tiny_model(tmp_path / "tiny", hidden_size=64, intermediate_size=128)
    settings = Settings(
        policy=str(policy),
        steps=32,
        lr=3e-3,
        max_new_tokens=16,
        every=16,
        samples=2,
        warm_up_steps=60,
        warm_up_lr=1e-2,
        dtype="float32",
    )
    out = tmp_path / "out"
    found = benchmark(out, settings, ["bullets", CLEAN], [0])
    (row,), (clean,) = found["biases"], found["unbiased"]
    (run,) = row["runs"]
    assert row["base_rate"] < 0.3 and run["final_rate"] > row["base_rate"] + RISE and run["onset"] is not None
    assert run["delay"] == run["alarm_step"] - run["onset"]
    assert "monitors/lists" in run["alarms"] and "bullets" not in clean["onsets"]
    assert row["proxy_change"]["value"] > row["gold_change"]["value"] + 0.1
    assert "| bullets |" in capsys.readouterr().out
    assert json.loads((out / "hacking.json").read_text()) == found and "<svg" in (out / "hacking.svg").read_text()

    journal = {path: path.stat().st_mtime_ns for path in out.glob("*/run/metrics.jsonl")}
    assert benchmark(out, settings, ["bullets", CLEAN], [0]) == found
    assert {path: path.stat().st_mtime_ns for path in journal} == journal, "what is finished is kept"
    with pytest.raises(SystemExit):
        benchmark(out, replace(settings, steps=33), ["bullets"], [0])
