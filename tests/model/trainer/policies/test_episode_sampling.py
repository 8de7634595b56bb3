"""Sampling in an environment: what the policy wrote is learned, what the tools answered is context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
import torch

from rubricsvc.core.prompt import Prompt
from tests.model.trainer.policies.test_policy import plain_logprobs
from tests.model.trainer.tiny import PROMPTS, SAMPLING, tiny_config, tiny_policy
from trainer.algorithms import grpo
from trainer.environments.environment import Tool
from trainer.environments.episodes import EpisodeLimits
from trainer.environments.tool_calls import call_text
from trainer.policies.episode_sampling import Acting
from trainer.policies.policy import Policy
from trainer.policies.rollouts import Rollouts, join

CALL = call_text("reverse", text="live")


class Reversing:
    """An environment with one tool, whose results the tiny tokenizer has tokens for."""

    tools = (Tool("reverse", "reverse a text", {"text": "a text"}),)
    report = None

    def reset(self, prompt: Prompt) -> Reversing:
        return self

    def step(self, name: str, arguments: Mapping[str, str]) -> str:
        return arguments["text"][::-1]


class Scripted(Policy):
    """A policy of random tokens whose messages are read as those of a script, one list for each turn of the batch."""

    script: Iterator[Sequence[str]]

    def texts(self, rows: Sequence[Sequence[int]]) -> tuple[str, ...]:
        return tuple(next(self.script))


def scripted(*turns: Sequence[str], dtype: torch.dtype = torch.float64) -> Scripted:
    policy = tiny_policy(dtype=dtype, context=512)
    policy.__class__ = Scripted
    assert isinstance(policy, Scripted)
    policy.script = iter(turns)
    return policy


def sampled(policy: Policy, prompts: Sequence[Prompt] = PROMPTS[:2], group: int = 1, **sampling: object) -> Rollouts:
    policy.acting = Acting(Reversing(), EpisodeLimits(max_turns=3), max_tokens=80)
    # 3 tokens a turn: with an end token drawn by chance a turn may be shorter, which the tests take as it comes
    settings = SAMPLING.model_copy(update={"max_new_tokens": 3, **sampling})
    return policy.sample(prompts, group, settings, seed=3)


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every turn end within its tokens."""
    from trainer.policies import decoding

    draw = decoding.sample_tokens

    def ended(*args: object) -> tuple[torch.Tensor, torch.Tensor | None]:
        tokens, nucleus = draw(*args)  # type: ignore[arg-type]
        calls["drawn"] += 1
        return (torch.zeros_like(tokens) if calls["drawn"] % 3 == 0 else tokens), nucleus

    calls = {"drawn": 0}
    monkeypatch.setattr(decoding, "sample_tokens", ended)


@pytest.mark.usefixtures("ending")
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_logprobs_of_episodes_equal_plain_forward_passes(top_p: float) -> None:
    policy = scripted([CALL, "a report"], [CALL], ["a second report"])
    rollouts = sampled(policy, top_p=top_p)
    assert rollouts.texts == ("a second report", "a report")
    assert rollouts.from_environment_BT is not None
    assert rollouts.from_environment_BT.any(-1).tolist() == [True, False]
    logp, _ = policy.logprobs(rollouts, 1.0)
    assert not logp[~rollouts.written_BT].any()
    if top_p < 1:
        assert logp.isfinite().all()
        return
    for row in range(2):
        length = int(rollouts.mask_BT[row].sum())
        full = plain_logprobs(policy, rollouts, row, 1.0)
        expected = full.gather(-1, rollouts.ids_BT[row, :length].unsqueeze(-1)).squeeze(-1)
        written = rollouts.written_BT[row, :length]
        torch.testing.assert_close(logp[row, :length][written], expected[written])


@pytest.mark.usefixtures("ending")
def test_tokens_of_the_environment_have_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = scripted([CALL, CALL], [CALL, "report"], ["report"])
    rollouts = sampled(policy)
    computed: list[torch.Tensor] = []
    forward = policy.forward

    def kept(*args: object, **options: object) -> torch.Tensor:
        logits = forward(*args, **options)  # type: ignore[arg-type]
        logits.retain_grad()
        computed.append(logits)
        return logits

    monkeypatch.setattr(policy, "forward", kept)
    logp, _ = policy.logprobs(rollouts, 1.0)
    written = rollouts.written_BT
    loss = grpo.loss(logp, logp.detach(), torch.tensor([1.0, -1.0]), written, tokens=int(written.sum()))
    torch.autograd.backward(loss.value)
    grad = computed[1].grad  # logits after all tokens but the last: those of tokens 1, 2, …
    assert grad is not None
    moved = grad.abs().sum(-1) > 0
    assert torch.equal(moved, written[:, 1:])
    assert (rollouts.mask_BT & ~written).sum() > 0


@pytest.mark.usefixtures("ending")
def test_trajectory_has_calls_and_results() -> None:
    rollouts = sampled(scripted([CALL, "done"], ["It is 42."]))
    first, second = rollouts.completions("tiny", 0, tiny_config().sampling)
    assert [message.role for message in first.messages] == ["assistant", "tool", "assistant"]
    assert first.messages[0].tool_calls is not None
    assert first.messages[0].tool_calls[0].text == 'reverse({"text": "live"})'
    assert first.messages[1].content == "evil"
    assert first.text == "It is 42."
    assert first.sampling["tools"] == {"turns": 2, "calls/reverse": 1}
    assert second.sampling["tools"] == {"turns": 1}


def test_truncated_turn_ends_the_episode() -> None:
    policy = scripted(*[[CALL]] * 9)
    rollouts = sampled(policy, PROMPTS[:1], max_new_tokens=1)
    assert rollouts.truncated_B.tolist() == [True]
    assert int(rollouts.mask_BT.sum()) == 1


@pytest.mark.usefixtures("ending")
def test_same_seed_gives_same_episodes() -> None:
    turns = ([CALL, CALL], ["one", "two"])
    first, second = (sampled(scripted(*turns)) for _ in range(2))
    assert first.texts == second.texts == ("one", "two")


@pytest.mark.usefixtures("ending")
def test_join_and_select_keep_episodes() -> None:
    parts = [sampled(scripted([CALL, "a"], ["b"])), sampled(scripted(["c", "d"]))]
    joined = join(parts)
    assert joined.episodes is not None
    assert joined.texts == ("b", "a", "c", "d")
    assert joined.lengths.tolist() == [*parts[0].lengths.tolist(), *parts[1].lengths.tolist()]
    chosen = joined.select(torch.tensor([1, 2]))
    assert chosen.texts == ("a", "c")
    assert not chosen.from_environment_BT.any()  # type: ignore[union-attr]
    assert chosen.episodes == (joined.episodes[1], joined.episodes[2])
    assert replace(chosen, episodes=None).completions("tiny", 0, SAMPLING)[0].messages == ()
