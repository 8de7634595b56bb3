"""Sampling by a server: what it samples is learned, with the weights that the policy has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rubricsvc.errors import InvalidError, UnavailableError
from tests.model.trainer.tiny import PROMPTS, SAMPLING, TASKS, share_of_a, tiny_config, tiny_policy
from tests.policy_server import PolicyServer
from trainer.loop import train
from trainer.policies.policy import Policy
from trainer.policies.sampling_server import SamplingServer
from trainer.rewards.source import CallableRewards

REWARDS = CallableRewards(share_of_a)


@pytest.fixture
def server() -> Iterator[PolicyServer]:
    with PolicyServer(tiny_policy(seed=1)).running() as running:
        yield running


@pytest.fixture
def policy(server: PolicyServer, tmp_path: Path) -> Policy:
    policy = tiny_policy()
    policy.server = SamplingServer(server.url, tmp_path)
    return policy


def test_server_samples_with_the_weights_of_the_policy(policy: Policy, server: PolicyServer, tmp_path: Path) -> None:
    rollouts = policy.sample(PROMPTS[:2], 3, SAMPLING, seed=5)
    assert (rollouts.ids_BT.shape[0], rollouts.prompt_of_B.tolist()) == (6, [0, 0, 0, 1, 1, 1])
    assert rollouts.sampled_logp_BT is not None
    logp, _ = policy.logprobs(rollouts, SAMPLING.temperature)
    torch.testing.assert_close(logp, rollouts.sampled_logp_BT, atol=1e-4, rtol=1e-4)
    rows = [ids[mask].tolist() for ids, mask in zip(rollouts.ids_BT, rollouts.mask_BT, strict=True)]
    assert rollouts.texts == policy.texts(rows)
    assert rollouts.truncated_B.tolist() == [row[-1] != 0 for row in rows]
    assert server.loads == 1
    assert len({request["seed"] for request in server.requests}) == 6
    policy.sample(PROMPTS[:1], 1, SAMPLING, seed=5)
    assert server.loads == 1, "the server has these weights"
    with torch.no_grad():
        next(iter(policy.model.parameters())).mul_(1.5)
    changed = policy.sample(PROMPTS[:1], 1, SAMPLING, seed=5)
    assert server.loads == 2
    assert changed.sampled_logp_BT is not None
    torch.testing.assert_close(policy.logprobs(changed, 1.0)[0], changed.sampled_logp_BT, atol=1e-4, rtol=1e-4)
    assert not list(tmp_path.iterdir()), "the weights are not kept twice"


@pytest.mark.parametrize("field", ["fail_at", "replaced_after"])
def test_run_is_resumed_after_its_server_failed(
    policy: Policy, server: PolicyServer, tmp_path: Path, field: str
) -> None:
    config = tiny_config(steps=3, out=tmp_path / "run", checkpoint_every=0)
    setattr(server, field, 12)  # in the second step of 8 completions
    with pytest.raises(UnavailableError) as caught:
        train(policy, TASKS, REWARDS, config)
    assert caught.value.path == "sampling.server"
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000001"]
    again = tiny_policy()
    again.server = policy.server
    history = train(again, TASKS, REWARDS, config, resume=True)
    assert [step["step"] for step in history.steps] == [1, 2, 3]
    assert history.steps[-1]["sampling/sampling_logp_difference/max"] < 1e-3


@pytest.mark.parametrize(
    ("fields", "valid"),
    [
        ({"processed": False}, False),
        ({"device": "cpu"}, False),
        ({"device": "cpu", "tied": False}, True),
        ({"device": "cuda"}, True),
    ],
)
def test_check_refuses_a_server_that_would_sample_otherwise(
    policy: Policy, server: PolicyServer, fields: dict[str, object], valid: bool
) -> None:
    for name, value in fields.items():
        setattr(server, name, value)
    assert policy.server is not None
    if valid:
        policy.server.check(policy)
        return
    with pytest.raises(InvalidError) as caught:
        policy.server.check(policy)
    assert caught.value.path == "sampling.server"
