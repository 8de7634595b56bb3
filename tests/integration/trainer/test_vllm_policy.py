"""A vLLM server writes the turns of a policy that learns research: with its weights, and with its probabilities."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from rubricsvc.cli.demo.command import TEMPLATE, DemoSize
from rubricsvc.core.prompt import Prompt
from tests.bench.vllm_server import SAMPLES_FOR_TRAINING, Server, vllm_server
from tests.cli import Cli
from trainer.config import SamplingConfig
from trainer.policies.policy import Policy
from trainer.policies.rollouts import Rollouts
from trainer.policies.sampling_server import SamplingServer

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed here: make test-vllm"),
]

PROMPTS = [Prompt.of("What is a descriptor in Python?"), Prompt.of("When is __getattr__ called?")]
SAMPLING = SamplingConfig(max_new_tokens=32)
CLOSE = 0.1
"""Mean difference of log-probabilities, in nats: the server computes in bfloat16, the policy in float32."""
SMALLEST = DemoSize(steps=2, demonstration_steps=6, prompts_per_step=1, group_size=4)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with vllm_server(block_size=32, reply_tokens=16, threads=1, cache_gib=1, options=SAMPLES_FOR_TRAINING) as running:
        yield running


def test_server_samples_with_the_weights_that_the_policy_has_now(server: Server, tmp_path: Path) -> None:
    policy = Policy.load("embedded", server=SamplingServer(server.base_url, tmp_path))
    assert policy.server is not None
    policy.server.check(policy)
    before = policy.sample(PROMPTS, 4, SAMPLING, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(0.1 * weight.std() * torch.randn(weight.shape, generator=generator))
    after = policy.sample(PROMPTS, 4, SAMPLING, seed=0)
    assert gap(policy, after) < CLOSE < 2 * CLOSE < gap(policy, before), "what was sampled before has other weights"


def gap(policy: Policy, rollouts: Rollouts) -> float:
    """Return the mean difference of the log-probabilities of the server and the policy, in nats."""
    assert rollouts.sampled_logp_BT is not None
    with torch.no_grad():
        logp_BT, _ = policy.logprobs(rollouts, SAMPLING.temperature)
    return float((logp_BT - rollouts.sampled_logp_BT)[rollouts.written_BT].abs().mean())


def test_policy_learns_research_from_the_trajectories_of_a_server(cli: Cli, server: Server, tmp_path: Path) -> None:
    assert cli("judges", "add", "embedded", "--embedded", "--no-probe").code == 0
    assert cli("collections", "add", "python", "--python").code == 0
    capabilities = ("--capability", "define", "--limit", "8")
    assert cli("prompts", "synthesize", "python", *capabilities, "--out", "tasks.jsonl").code == 0
    recipe = TEMPLATE.read_text().format(seed=0, **vars(SMALLEST)).partition("[eval]")[0]
    (tmp_path / "run.toml").write_text(recipe.replace("[sampling]", f'[sampling]\nserver = "{server.base_url}"'))
    ran = cli("runs", "start", "run.toml")
    assert ran.code == 0, ran.err
    steps = [json.loads(line) for line in (tmp_path / "research" / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == 2
    for step in steps:
        assert step["grad_norm"] > 0
        assert step["sampling/sampling_logp_difference/mean"] < CLOSE
        assert step["sampling/importance_sampling_ratio/mean"] == pytest.approx(1.0, abs=CLOSE)
    assert sum(step["tools/calls"] for step in steps) > 0
    stored = [cli("completions", "show", row["id"], "--json").json["completion"] for row in rollouts(cli)]
    assert len(stored) == SMALLEST.steps * SMALLEST.group_size
    calls = sum(len(message.get("tool_calls") or ()) for one in stored for message in one["messages"])
    assert calls >= sum(step["tools/calls"] for step in steps) * SMALLEST.group_size


def rollouts(cli: Cli) -> list[Any]:
    return cli("completions", "list", "--policy", "embedded", "--json").lines
