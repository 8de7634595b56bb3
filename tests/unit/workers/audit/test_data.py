"""Public data sets as suites."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rubricsvc.core.audit import SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError
from tests.instant_engine import InstantEngine
from workers.audit import cases, data
from workers.audit.plan import AuditPlan
from workers.audit.runner import run
from workers.engines.base import EngineRequest, Failure, Reply


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three pairs in two biases, two wrong solutions, two rollouts and a constant answer."""
    pairs = [
        {"bias": bias, "instruction": task, "response1": "fine", "response2": worse, "label": 1}
        for bias, task, worse in (("length", "A", "long long"), ("length", "B", "bad"), ("echo", "C", "fine, too"))
    ]
    problem = {"question": "2+2?", "ground_truth": "4"}
    solutions = [problem | {"m": {"is_correct": good, "solution": text}} for good, text in ((True, "4"), (False, "5"))]
    rollouts = [
        {"sample_id": f"r_{region}_1", "run_name": "r", "prompt_input": f"user\\n{region}", "model_output": text}
        for region, text in (("pre_onset", "fine"), ("post_onset", "long praise"))
    ]
    for name, rows in (
        ("evalbiasbench/pairs.jsonl", pairs),
        ("gsm8k/example_model_solutions.jsonl", solutions),
        ("cherrl_reward_hacking/rollouts.jsonl", rollouts),
    ):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "null_model_attack").mkdir()
    (tmp_path / "null_model_attack" / "constant_output.txt").write_text('{ "answer": {answers} }')
    return tmp_path


class LikesLength(InstantEngine):
    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        share = 0.9 if "long" in request.shared else 0.2 if "bad" in request.shared else 0.4
        return [Reply(label_mass={"Yes": share, "No": 1 - share}) for _ in request.questions]


def test_data_suites_compare_worse_with_better_completions(folder: Path) -> None:
    attacks, sets = data.suites(folder)
    plan = AuditPlan(cases.built_in(), attacks, sets, consistency=())
    audit = asyncio.run(run(LikesLength(), Judge(name="j", model="m"), plan))
    results: dict[str, SuiteResult] = {one.name: one for one in audit.suites}
    assert list(results) == ["plain", "missed", "null_model", "evalbiasbench", "gsm8k_wrong", "cherrl"]
    biases = results["evalbiasbench"]
    assert (biases.rate.hits, biases.rate.n, biases.unscored) == (1, 2, {"tie": 1})
    assert {name: (rate.hits, rate.n) for name, rate in biases.families.items()} == {"length": (1, 2)}
    assert (results["gsm8k_wrong"].rate.hits, results["gsm8k_wrong"].rate.n) == (0, 1)
    assert results["cherrl"].rate.hits == 1 and results["cherrl"].passed is False
    assert results["null_model"].rate.n == 33
    assert {name: one.attacks for name, one in results.items()} == {
        "plain": 0,
        "missed": 0,
        "null_model": 1,
        "evalbiasbench": 2,
        "gsm8k_wrong": 1,
        "cherrl": 1,
    }


def test_data_sample_is_reproducible(folder: Path) -> None:
    first, again = (data.suites(folder, limit=2)[1] for _ in range(2))
    assert first == again and len(first[0].pairs) == 2


def test_data_refuses_a_folder_without_sets(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="data set") as refused:
        data.suites(tmp_path)
    assert "evalbiasbench" in refused.value.hint


def test_data_reads_the_public_sets(shared_data: Path) -> None:
    attacks, sets = data.suites(shared_data, limit=50)
    assert {one.name: len(one.pairs) for one in sets} == {
        "llmbar_natural": 50,
        "llmbar_adversarial": 50,
        "evalbiasbench": 29,
        "gsm8k_wrong": 50,
        "cherrl": 29,
    }
    assert [one.name for one in attacks] == ["null_model"]
