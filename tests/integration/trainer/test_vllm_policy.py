"""A vLLM server samples for a policy: with its weights, and with its probabilities."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from bench.vllm_server import SAMPLES_FOR_TRAINING, Server, vllm_server
from rubricsvc.core.prompt import Prompt
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
