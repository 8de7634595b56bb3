"""Episodes sampled here and by a server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError, UnavailableError
from tests.model.trainer.policies.test_policy import plain_logprobs
from tests.model.trainer.tiny import PROMPTS, SAMPLING, TASKS, share_of_a, tiny_config, tiny_policy
from tests.policy_server import PolicyServer
from trainer.algorithms.losses import TokenBatch, Totals, loss
from trainer.config import OptimConfig
from trainer.environments.episodes import Acting, EpisodeLimits
from trainer.environments.tool_calls import Tool, call_text
from trainer.loop import train
from trainer.policies import policy as episode_sampling
from trainer.policies.policy import Policy
from trainer.policies.rollouts import Rollouts, token_tree
from trainer.policies.sampling_server import SamplingServer
from trainer.rewards import CallableRewards

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
    policy = tiny_policy(dtype=dtype, context=1024)
    policy.__class__ = Scripted
    assert isinstance(policy, Scripted)
    policy.script = iter(turns)
    return policy


def sampled(policy: Policy, prompts: Sequence[Prompt] = PROMPTS[:2], group: int = 1, **sampling: object) -> Rollouts:
    policy.acting = Acting(Reversing(), EpisodeLimits(max_turns=3), max_tokens=80)
    # 3 tokens a turn: with an end token drawn by chance a turn may be shorter, which the tests take as it comes
    settings = SAMPLING.model_copy(update={"max_new_tokens": 3, **sampling})
    return policy.sample(prompts, group, settings, seed=3)


@pytest.mark.usefixtures("ending")
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_logprobs_of_episodes_equal_plain_forward_passes(top_p: float) -> None:
    policy = scripted([CALL, "a report"], [CALL], ["a second report"])
    rollouts = sampled(policy, top_p=top_p)
    assert rollouts.texts == ("a second report", "a report") and rollouts.from_environment_BT is not None
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
def test_tokens_of_the_environment_have_no_gradient() -> None:
    policy = scripted([CALL, CALL], [CALL, "report"], ["report"])
    rollouts = sampled(policy)
    computed: list[torch.Tensor] = []

    def keep(_module: object, inputs: tuple[torch.Tensor, ...]) -> None:
        inputs[0].retain_grad()
        computed.append(inputs[0])

    policy.model.get_output_embeddings().register_forward_pre_hook(keep)
    logp, _ = policy.logprobs(rollouts, 1.0)
    written = rollouts.written_BT
    totals = Totals(int(written.sum()), 2, 8)
    batch = TokenBatch(logp, logp.detach(), torch.tensor([1.0, -1.0]), written, totals)
    torch.autograd.backward(loss(batch, OptimConfig()).value)
    grad, before = computed[0].grad, token_tree(rollouts).before_BT[written].unique()
    assert grad is not None and (rollouts.mask_BT & ~written).sum() > 0
    assert torch.equal((grad.squeeze(0).abs().sum(-1) > 0).nonzero().flatten(), before)


class Deciding(Policy):
    """A policy whose tokens decide whether a message is a call or a report."""

    def texts(self, rows: Sequence[Sequence[int]]) -> tuple[str, ...]:
        return tuple(CALL if row[0] % 3 else "a report" for row in rows)


@pytest.mark.parametrize("acts", [False, True])
def test_sequences_leave_the_batch_and_are_sampled_as_if_alone(monkeypatch: pytest.MonkeyPatch, *, acts: bool) -> None:
    """With any rule of when they leave it, tokens are the same; the batch is smaller, and shorter with episodes."""
    forward, computed = Policy.forward, list[int]()

    def counted(policy: Policy, ids: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        computed.append(len(ids))
        return forward(policy, ids, *args, **options)

    monkeypatch.setattr(Policy, "forward", counted)
    results = []
    for refill in (1, 4, 100):
        monkeypatch.setattr(episode_sampling, "REFILL", refill)
        policy = tiny_policy(dtype=torch.float64, context=1024)
        policy.__class__ = Deciding
        policy.acting = Acting(Reversing(), EpisodeLimits(max_turns=4), max_tokens=400) if acts else None
        computed.clear()
        rollouts = policy.sample(PROMPTS, 2, SAMPLING.model_copy(update={"max_new_tokens": 40}), seed=3)
        results.append((sum(computed), len(computed), rollouts))
    (whole, passes, first), (rows, fewer, _), (least, _, _) = results
    for _, _, other in results[1:]:
        assert torch.equal(other.ids_BT, first.ids_BT) and torch.equal(other.mask_BT, first.mask_BT)
    assert least < rows < whole and (fewer < passes or not acts)
    assert not acts or max(one.turns for one in first.episodes or ()) > 1
    policy.acting = None
    alone = policy.sample(PROMPTS[:1], 1, SAMPLING, seed=3)
    assert acts or torch.equal(alone.ids_BT, first.ids_BT[:1, : alone.ids_BT.shape[1]])


class Waiting(Reversing):
    """Its tool does not answer the first episode before the second has called it a second time."""

    def __init__(self) -> None:
        self.begun, self.calls, self.released = 0, 0, Event()

    def reset(self, prompt: Prompt) -> WaitingEpisode:
        self.begun += 1
        return WaitingEpisode(self, is_first=self.begun == 1)


class WaitingEpisode:
    report = None

    def __init__(self, environment: Waiting, *, is_first: bool) -> None:
        self.environment, self.is_first = environment, is_first

    def step(self, name: str, arguments: Mapping[str, str]) -> str:
        if self.is_first:
            assert self.environment.released.wait(60)
        else:
            self.environment.calls += 1
            if self.environment.calls == 2:
                self.environment.released.set()
                time.sleep(1.0)  # the thread of the first episode goes on meanwhile
        return arguments["text"][::-1]


@pytest.mark.usefixtures("ending")
def test_episode_with_a_slow_tool_sits_out_and_is_sampled_as_if_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_sampling, "GRACE_S", 2.0)
    prompts, greedy = [Prompt.of("say a"), Prompt.of("tell me something long")], {"top_p": 1e-9}
    alone = sampled(scripted([CALL], ["a slow report"]), prompts[:1], **greedy)
    policy = scripted([CALL, CALL], [CALL], ["a slow report", "a quick report"])
    policy.acting = Acting(Waiting(), EpisodeLimits(max_turns=5, tool_timeout_s=60.0), max_tokens=80)
    together = policy.sample(prompts, 1, SAMPLING.model_copy(update={"max_new_tokens": 3, **greedy}), seed=3)
    assert together.texts == ("a slow report", "a quick report") and together.episodes is not None
    assert [one.turns for one in together.episodes] == [2, 3]
    assert together.ids_BT[0][together.mask_BT[0]].tolist() == alone.ids_BT[0].tolist()


NOTED = call_text("note", text="evil")


def alone(policy: Policy, rollouts: Rollouts, row: int, context: int) -> torch.Tensor:
    """Log-probabilities of the tokens of one context after the prompt, without what the other contexts read."""
    assert rollouts.context_BT is not None
    here_BT = rollouts.mask_BT & (rollouts.context_BT == context)
    full = plain_logprobs(policy, replace(rollouts, mask_BT=here_BT), row, 1.0)
    return full.gather(-1, rollouts.ids_BT[row][here_BT[row]].unsqueeze(-1)).squeeze(-1)


@pytest.mark.usefixtures("ending")
def test_a_note_begins_a_context_without_what_was_read() -> None:
    policy = scripted([CALL, CALL], [NOTED, CALL], [NOTED, "a report"], ["from notes"])
    policy.acting = Acting(Reversing(), EpisodeLimits(max_turns=6, notes=True), max_tokens=220)
    rollouts = policy.sample(PROMPTS[:2], 1, SAMPLING.model_copy(update={"max_new_tokens": 3}), seed=3)
    assert rollouts.texts == ("from notes", "a report")
    contexts, mask = rollouts.context_BT, rollouts.mask_BT
    assert contexts is not None
    first = contexts[0][mask[0]].unique().tolist()
    assert len(first) == 3 and contexts[1].unique().tolist() == [0]
    logp, _ = policy.logprobs(rollouts, 1.0)
    written = rollouts.written_BT[0]
    for context in first:
        here = (contexts[0] == context) & mask[0]
        expected = alone(policy, rollouts, 0, context)
        torch.testing.assert_close(logp[0][here & written], expected[written[here]])
        assert (here & written).any(), "the policy wrote in each context, and is rewarded for it"
    assert rollouts.episodes is not None
    assert rollouts.episodes[0].counts["calls/note"] == 2 and len(rollouts.episodes[0].messages) == 7


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
    assert server.loads == 1 and len({request["seed"] for request in server.requests}) == 6
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
def test_run_resumes_after_its_server_failed(policy: Policy, server: PolicyServer, tmp_path: Path, field: str) -> None:
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
