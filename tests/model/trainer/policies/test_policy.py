"""The policy: sharing a prompt in a group equals a plain forward pass of each completion."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rubricsvc.core.prompt import Prompt
from tests.model.trainer.tiny import PROMPTS, SAMPLING, tiny_policy
from trainer.policies.policy import Policy
from trainer.policies.rollouts import Rollouts


def sampled(policy: Policy, seed: int = 0, **sampling: object) -> Rollouts:
    settings = SAMPLING.model_copy(update=sampling)
    return policy.sample(PROMPTS[:3], 4, settings, seed)


def plain_logprobs(policy: Policy, rollouts: Rollouts, row: int, temperature: float) -> Tensor:
    """One completion after its prompt, without padding, cache or sharing."""
    prompt = rollouts.prompt_of_B[row]
    question = rollouts.prompt_ids_QP[prompt][rollouts.prompt_mask_QP[prompt]]
    answer = rollouts.ids_BT[row][rollouts.mask_BT[row]]
    logits = policy.model(input_ids=torch.cat([question, answer]).unsqueeze(0)).logits[0, len(question) - 1 : -1]
    logp: Tensor = (logits / temperature).log_softmax(-1)
    return logp


def brute_force_nucleus(probs: list[float], top_p: float) -> list[int]:
    """Return the most probable tokens up to the first whose mass reaches ``top_p``."""
    nucleus: list[int] = []
    for token in sorted(range(len(probs)), key=lambda i: -probs[i]):
        nucleus.append(token)
        if sum(probs[i] for i in nucleus) >= top_p:
            break
    return nucleus


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_equal_plain_forward_passes(temperature: float) -> None:
    policy = tiny_policy(dtype=torch.float64)
    rollouts = sampled(policy)
    weights = torch.linspace(-1, 1, rollouts.ids_BT.numel(), dtype=torch.float64).view_as(rollouts.ids_BT)
    logp, entropy = policy.logprobs(rollouts, temperature)
    (logp * weights).sum().backward()
    shared = [param.grad.clone() for param in policy.model.parameters()]
    policy.model.zero_grad()
    for row in range(len(rollouts.texts)):
        length = int(rollouts.lengths[row])
        full = plain_logprobs(policy, rollouts, row, temperature)
        expected = full.gather(-1, rollouts.ids_BT[row, :length].unsqueeze(-1)).squeeze(-1)
        torch.testing.assert_close(logp[row, :length], expected)
        torch.testing.assert_close(entropy[row, :length], -(full.exp() * full).sum(-1))
        assert not logp[row, length:].any()
        (expected * weights[row, :length]).sum().backward()
    # Llama's norms compute in float32 in any case
    torch.testing.assert_close(shared, [param.grad for param in policy.model.parameters()], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("top_p", [0.2, 0.7, 0.97])
def test_logprobs_with_top_p_are_of_the_truncated_distribution(top_p: float) -> None:
    policy = tiny_policy(dtype=torch.float64)
    rollouts = sampled(policy, top_p=top_p)
    with torch.no_grad():
        logp, entropy = policy.logprobs(rollouts, 1.0)
    for row in range(len(rollouts.texts)):
        for place, token in enumerate(rollouts.ids_BT[row, : int(rollouts.lengths[row])].tolist()):
            probs = plain_logprobs(policy, rollouts, row, 1.0)[place].exp().tolist()
            nucleus = brute_force_nucleus(probs, top_p)
            assert token in nucleus
            assert float(logp[row, place].exp()) == pytest.approx(probs[token] / sum(probs[i] for i in nucleus))
            shares = [probs[i] / sum(probs[j] for j in nucleus) for i in nucleus]
            assert float(entropy[row, place]) == pytest.approx(-sum(s * math.log(s) for s in shares), abs=1e-9)
        assert not logp[row, int(rollouts.lengths[row]) :].any()
    part = rollouts.select(torch.tensor([2, 7]))
    torch.testing.assert_close(policy.logprobs(part, 1.0)[0].detach(), logp[[2, 7], : part.ids_BT.shape[1]])


def test_sample_ends_completion_with_end_token() -> None:
    policy = tiny_policy()
    rollouts = sampled(policy, max_new_tokens=40)
    assert 0 < rollouts.truncated_B.sum() < len(rollouts.texts)
    for row, length in enumerate(rollouts.lengths.tolist()):
        ids = rollouts.ids_BT[row, :length].tolist()
        assert (ids[-1] == 0) == (not rollouts.truncated_B[row])
        assert 0 not in ids[:-1]
        assert len(rollouts.texts[row]) == length - (ids[-1] == 0)


def test_logprobs_of_empty_completion() -> None:
    policy = tiny_policy()
    rollouts = sampled(policy)
    empty = replace(rollouts, ids_BT=torch.zeros_like(rollouts.ids_BT), mask_BT=torch.arange(8).expand(12, 8) < 1)
    logp, _ = policy.logprobs(empty.select(torch.arange(12)), 1.0)
    assert logp.shape == (12, 1)
    assert (logp < 0).all()


def test_encode_uses_chat_template_or_plain_text() -> None:
    policy = tiny_policy()
    assert policy.tokenizer.decode(policy.encode([Prompt.of("hello")])[0][0]) == "hello"
    policy.tokenizer.chat_template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}assistant"
    ids, mask = policy.encode([Prompt.of("hello"), Prompt.of("hi")])
    assert policy.tokenizer.decode(ids[0]) == "user hello assistant"
    assert policy.tokenizer.decode(ids[1][mask[1]]) == "user hi assistant"
    assert not mask[1, :3].any()


def test_save_then_load(tmp_path: Path) -> None:
    policy = tiny_policy(dtype=torch.bfloat16)
    policy.save(tmp_path)
    again = Policy.load(str(tmp_path), dtype="bfloat16", device="cpu")
    assert again.model.dtype == torch.bfloat16
    assert sampled(again).texts == sampled(policy).texts
