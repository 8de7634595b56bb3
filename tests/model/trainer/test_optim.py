"""Optimiser, metrics and sizes."""

import math
from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.reward import Reward
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from tests.model.trainer.tiny import RUBRIC, tiny_config
from tests.tiny_model import tiny_model
from trainer import metrics, recording
from trainer.config import OptimConfig
from trainer.data.tasks import Task
from trainer.optim import MasterAdamW
from trainer.policies.policy import Policy
from trainer.policies.rollouts import PASS_TOKENS, micro_batches
from trainer.preflight import check_sizes
from trainer.recording import History
from trainer.rewards import ScoredRollout


def test_micro_batches_hold_every_row_once_and_take_the_least_time() -> None:
    sizes = [10, 12, 300, 310, 320, 5000, 900, 2]

    def padded(some: Sequence[int]) -> int:
        return len(some) * max(some)

    for limit, expected in ((1000, [[10, 12], [300, 310, 320], [5000], [900], [2]]), (1, [[size] for size in sizes])):
        batches = micro_batches(sizes, limit, padded)
        assert [list(some) for some in batches] == expected
        assert all(len(some) == 1 or padded(some) <= limit for some in batches)
    least = sum(padded(some) + PASS_TOKENS for some in micro_batches(sizes, 10**6, padded))
    ways = product((False, True), repeat=len(sizes) - 1)
    cut = [[0, *(at + 1 for at, ends in enumerate(way) if ends), len(sizes)] for way in ways]
    assert least == min(sum(padded(sizes[a:b]) + PASS_TOKENS for a, b in pairwise(places)) for places in cut)
    assert micro_batches([], 100, padded) == []


def linear(dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(8, 4).to(dtype)


def descend(model: nn.Linear, optimizer: MasterAdamW, steps: int = 3) -> list[float]:
    norms = []
    for step in range(steps):
        inputs = torch.linspace(-1, 1, 16, dtype=model.weight.dtype).view(2, 8) + step
        model(inputs).square().sum().backward()
        norms.append(optimizer.step(optimizer.learning_rate(step)))
    return norms


def test_step_accumulates_small_updates_in_bfloat16() -> None:
    model = linear(torch.bfloat16)
    before = model.weight.detach().clone()
    master = MasterAdamW(model, OptimConfig(lr=1e-5))
    descend(model, master, 1)
    unmoved = (model.weight == before).float().mean()
    assert unmoved > 0.9, "one step of 1e-5 is under the spacing of bfloat16"
    for _ in range(200):
        descend(model, master, 1)
    assert (model.weight == before).float().mean() < 0.5, "yet 200 such steps are not"


def test_step_is_adamw_with_clipped_gradients() -> None:
    model, plain = linear(), linear()
    config = OptimConfig(lr=1e-2, weight_decay=0.1, grad_clip=0.5, warmup_steps=2)
    optimizer = MasterAdamW(model, config)
    norms = descend(model, optimizer)
    adam = torch.optim.AdamW(plain.parameters(), lr=1e-2, weight_decay=0.1)
    for step, lr in enumerate([5e-3, 1e-2, 1e-2]):
        adam.param_groups[0]["lr"] = lr
        adam.zero_grad()
        plain(torch.linspace(-1, 1, 16).view(2, 8) + step).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        assert norms[step] == pytest.approx(float(norm), rel=1e-5)
        adam.step()
    torch.testing.assert_close(model.weight, plain.weight)


def test_step_refuses_non_finite_gradient() -> None:
    model = linear()
    optimizer = MasterAdamW(model, OptimConfig())
    before = model.weight.detach().clone()
    (model(torch.ones(1, 8)).sum() * torch.nan).backward()
    with pytest.raises(InvalidError, match="nan"):
        optimizer.step(1e-3)
    assert torch.equal(model.weight, before) and descend(model, optimizer, 1)[0] > 0


def test_restore_continues_exactly() -> None:
    model = linear(torch.bfloat16)
    optimizer = MasterAdamW(model, OptimConfig(lr=1e-2))
    descend(model, optimizer)
    saved = {name: tensor.clone() for name, tensor in optimizer.state().items()}
    other = linear(torch.bfloat16, seed=1)
    resumed = MasterAdamW(other, OptimConfig(lr=1e-2))
    resumed.restore(saved)
    for each in (optimizer, resumed):
        descend(model if each is optimizer else other, each)
    assert torch.equal(model.weight, other.weight)
    assert all(torch.equal(tensor, resumed.state()[name]) for name, tensor in optimizer.state().items())


NAN = math.nan


def test_reward_metrics_average_over_scored() -> None:
    rewards = torch.tensor([[0.0, 1.0, NAN], [0.5, 0.5, 0.5], [NAN, NAN, 1.0]], dtype=torch.float64)
    assert metrics.reward_metrics(rewards, std_floor=0.8) == pytest.approx(
        {
            "reward": 3.5 / 6, "reward_std": (math.sqrt(0.5) + 0.0) / 2, "frac_reward_zero_std": 2 / 3,
            "frac_reward_std_floored": 1 / 3, "unscored_fraction": 1 / 3,
        }
    )  # fmt: skip


def test_verdict_metrics_count_failures_and_leave_them_out_of_means() -> None:
    nothing, vetoed = Reward(None, 0.0, "weighted_mean"), Reward(0.0, 1.0, "weighted_mean", vetoed_by="a")
    scored = [
        ScoredRollout(nothing, (Verdict.scored("a", 1.0), Verdict.failed("b", "timeout"))),
        ScoredRollout(vetoed, (Verdict.scored("a", 0.5), Verdict.scored("b", 0.25), Verdict.abstained("c"))),
    ]
    counts = {"verdicts": 4, "failed_verdicts": 1, "judge/failed/timeout": 1, "vetoed_fraction": 0.5}
    assert metrics.verdict_metrics(scored, by_criterion=False) == counts
    expected = {**counts, **{"rewards/a/mean": 0.75, "rewards/b/mean": 0.25}}
    assert metrics.verdict_metrics(scored, by_criterion=True) == expected


def test_history_continues_after_checkpoint(tmp_path: Path) -> None:
    log = History(tmp_path)
    assert log.add({"step": 1, "reward": NAN, "lr": 0.5}) == {"step": 1, "reward": None, "lr": 0.5}
    for step in (2, 3):
        log.add({"step": step})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')  # killed while writing
    assert [step["step"] for step in recording.read(tmp_path)] == [1, 2, 3]
    again = History(tmp_path, last_step=2)
    again.add({"step": 3, "second": True})
    lines = [{"step": 1, "reward": None, "lr": 0.5}, {"step": 2}, {"step": 3, "second": True}]
    assert recording.read(tmp_path) == lines


def test_read_names_damaged_line(tmp_path: Path) -> None:
    for line in (b"garbage", b"{}", b"[]", b'{"step": "1"}', b"\xff"):
        (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + line + b"\n")
        with pytest.raises(InvalidError, match=r"metrics.jsonl, line 2"):
            recording.read(tmp_path)


CONTEXT = 64


def check(folder: Path, texts: list[str], **fields: Any) -> list[str]:
    """Return the problems of a run, one a line."""
    model = folder / "model"
    if not model.is_dir():
        tiny_model(model, context=CONTEXT)
        (model / "model.safetensors").unlink()  # no weights are read
    config = tiny_config(policy={"model": str(model), "dtype": "float32"}, **fields)
    tasks = [Task(Prompt.of(text), RUBRIC, f"id-{place}") for place, text in enumerate(texts)]
    try:
        check_sizes(config, tasks)
    except InvalidError as error:
        return error.message.splitlines()
    return []


def test_check_sizes_returns_the_memory_of_weights_and_optimiser(tmp_path: Path) -> None:
    """16 bytes a weight for float32 masters, and 4 for each copy of a float32 policy: itself, and its start for KL."""
    model = tiny_model(tmp_path / "whole", context=CONTEXT)
    weights = sum(one.numel() for one in Policy.load(str(model)).model.parameters())
    for every, copies in ((5, 2), (0, 1)):
        config = tiny_config(policy={"model": str(model), "dtype": "float32"}, optim={"kl_every": every})
        memory = check_sizes(config, [])
        assert memory.needed == weights * (16 + 4 * copies) < memory.available


def test_check_sizes_names_all_long_prompts_and_the_tokens_that_fit(tmp_path: Path) -> None:
    texts = ["yes", "is " * 10, "is " * 14]
    (problem,) = check(tmp_path, texts, sampling={"max_new_tokens": 40})
    assert "sampling.max_new_tokens: 40 beside 2 of 3 prompts" in problem and "id-1, id-2" in problem
    fit = int(problem.partition("at most ")[2].split()[0])
    assert check(tmp_path, texts, sampling={"max_new_tokens": fit}) == []
    assert check(tmp_path, texts, sampling={"max_new_tokens": fit + 1}) != []
    (problem,) = check(tmp_path, texts, sampling={"max_new_tokens": CONTEXT})
    assert f"at most {CONTEXT - 1} fit" in problem


def test_check_sizes_agrees_with_the_policy(tmp_path: Path) -> None:
    """What passes is sampled, and what does not is refused by the policy as well."""
    policy = Policy.load(str(tiny_model(tmp_path / "whole", context=CONTEXT)), dtype="float32")
    prompt = Prompt.of("is the answer right")
    length = len(policy.token_ids(prompt))
    for new, fits in ((CONTEXT - length, True), (CONTEXT - length + 1, False)):
        assert (check(tmp_path, [prompt.text], sampling={"max_new_tokens": new}) == []) == fits
        if fits:
            policy.token_ids(prompt, new)
        else:
            with pytest.raises(InvalidError):
                policy.token_ids(prompt, new)
