"""Losses and their gradients."""

import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench import parity
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from tests.model.trainer.tiny import PROMPTS, SAMPLING, TASKS, share_of_a, tiny_config, tiny_policy
from trainer.algorithms import PRESETS, grpo
from trainer.algorithms.advantages import EPS, GroupRewards
from trainer.algorithms.advantages import advantages as advantages_of
from trainer.algorithms.credit import criterion_shares, sentences_of, token_advantages
from trainer.algorithms.custom import algorithm_of
from trainer.algorithms.losses import Loss, TokenBatch, Totals, kl_estimate, likelihood, loss
from trainer.config import OptimConfig, TrainConfig
from trainer.data.tasks import Task
from trainer.loop import ScoredBatch, train
from trainer.policies.rollouts import Transcript, rollouts_of
from trainer.rewards import CallableRewards, ScoredRollout
from workers.engines.local.models import open_tokenizer

NAN = math.nan
rewards = st.one_of(st.floats(-10, 10), st.just(NAN))
groups = st.integers(2, 6).flatmap(
    lambda size: st.lists(st.lists(rewards, min_size=size, max_size=size), min_size=1, max_size=4)
)


def reference(group: list[float], std_floor: float = 0.0) -> list[float]:
    scored = [value for value in group if not math.isnan(value)]
    if len(scored) < 2 or max(scored) == min(scored):
        return [0.0] * len(group)
    mean, std = statistics.fmean(scored), statistics.stdev(scored)
    return [0.0 if math.isnan(value) else (value - mean) / (max(std, std_floor) + 1e-4) for value in group]


def advantages(matrix: list[list[float]], std_floor: float = 0.0, **how: object) -> list[list[float]]:
    batch = GroupRewards(torch.tensor(matrix, dtype=torch.float64), std_floor)
    rows: list[list[float]] = advantages_of(batch, OptimConfig.model_validate(how)).tolist()
    return rows


@given(groups, st.sampled_from([0.0, 0.03, 1.0]))
def test_advantages_equal_formula(matrix: list[list[float]], std_floor: float) -> None:
    found = grpo.advantages(torch.tensor(matrix, dtype=torch.float64), std_floor).tolist()
    for got, group in zip(found, matrix, strict=True):
        assert got == pytest.approx(reference(group, std_floor), rel=1e-9, abs=1e-9)


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ratios from 1/3 to 3, advantages of both signs, and padding that holds garbage."""
    generator = torch.Generator().manual_seed(1)
    old = -3 * torch.rand(6, 7, generator=generator, dtype=torch.float64)
    logp = (old + 2.2 * (torch.rand(6, 7, generator=generator, dtype=torch.float64) - 0.5)).requires_grad_()
    ref = old + torch.rand(6, 7, generator=generator, dtype=torch.float64) - 0.5
    gains = torch.tensor([1.5, -1.5, 0.0, 0.7, -0.2, -3.0], dtype=torch.float64)
    mask = torch.arange(7) < torch.tensor([7, 3, 5, 1, 2, 6]).unsqueeze(-1)
    return logp, torch.where(mask, old, torch.inf), gains, mask, ref


def loss_of(*tensors: torch.Tensor, tokens: int, extra: tuple[torch.Tensor | None, ...] = (), **how: object) -> Loss:
    """``extra`` are the log-probabilities of the reference, and of a server."""
    return loss(TokenBatch(*tensors, Totals(tokens, 6, 7), *extra), OptimConfig.model_validate(how))


def test_loss_and_gradient_equal_formula() -> None:
    for beta in [0.0, 0.04]:
        logp, old, gains, mask, ref = batch()
        tokens = int(mask.sum())
        plain, clipped = [], 0
        for i in range(6):
            for t in range(7):
                if mask[i, t]:
                    ratio = torch.exp(logp[i, t] - old[i, t])
                    bounded = ratio.clamp(0.8, 1.28)
                    clipped += bool(bounded * gains[i] < ratio * gains[i])
                    x = ref[i, t] - logp[i, t]
                    plain.append(-min(ratio * gains[i], bounded * gains[i]) + beta * (torch.exp(x) - x - 1))
        (expected,) = torch.autograd.grad(torch.stack(plain).sum() / tokens, logp)
        result = loss_of(logp, old, gains, mask, tokens=tokens, extra=(ref if beta else None,), kl_beta=beta)
        (got,) = torch.autograd.grad(result.value, logp)
        assert result.value.item() == pytest.approx(torch.stack(plain).sum().item() / tokens, rel=1e-12)
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)
        assert int(result.clipped) == clipped > 0
        assert not got[~mask].any()


def test_advantages_are_divided_by_the_deviation_of_the_pool() -> None:
    rewards = torch.tensor([[0.0, 1.0], [0.4, 0.6], [10.0, 30.0], [0.5, 0.5], [math.nan, 2.0]], dtype=torch.float64)
    pools = torch.tensor([0, 0, 1, 0, 1])
    found = advantages_of(GroupRewards(rewards, 0.0, pools), OptimConfig(divide_by="domain"))
    first = math.sqrt((0.5 + 0.02 + 0.0) / 3) + EPS
    assert found[0].tolist() == pytest.approx([-0.5 / first, 0.5 / first])
    assert found[1].tolist() == pytest.approx([-0.1 / first, 0.1 / first])
    assert found[2].tolist() == pytest.approx([-10 / (math.sqrt(200) + EPS), 10 / (math.sqrt(200) + EPS)])
    assert found[3:].abs().max() == 0
    alone = advantages_of(GroupRewards(rewards, 0.0, torch.arange(5)), OptimConfig(divide_by="domain"))
    torch.testing.assert_close(alone, advantages_of(GroupRewards(rewards), OptimConfig()))


def test_loss_weights_tokens_of_a_server_by_their_probability() -> None:
    logp, old, gains, mask, _ = batch()
    tokens = int(mask.sum())
    plain = loss_of(logp, old, gains, mask, tokens=tokens)
    same = loss_of(logp, old, gains, mask, tokens=tokens, extra=(None, old))
    assert same.value.item() == plain.value.item()
    half = loss_of(logp, old, gains, mask, tokens=tokens, extra=(None, old + math.log(2)))
    assert half.value.item() == pytest.approx(plain.value.item() / 2, rel=1e-12)
    capped = loss_of(logp, old, gains, mask, tokens=tokens, extra=(None, old - 5))
    assert capped.value.item() == pytest.approx(plain.value.item() * 2, rel=1e-12)
    assert loss_of(logp, old, gains, mask, tokens=tokens, extra=(None, old - 5), correction="token_mask").value == 0
    assert loss_of(logp, old, gains, mask, tokens=tokens, extra=(None, old - 5), correction="none").value == plain.value


def test_loss_is_the_mean_over_tokens_in_parts_as_a_whole() -> None:
    logp = torch.tensor([[-1.0, -2.0, -9.0], [-3.0, -9.0, -9.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    whole = likelihood(logp, mask, Totals(3, 2, 3))
    assert whole.value.item() == 2.0
    parts = [likelihood(logp[i : i + 1], mask[i : i + 1], Totals(3, 2, 3)).value for i in range(2)]
    torch.testing.assert_close(torch.stack(parts).sum(), whole.value)
    torch.autograd.backward(whole.value)
    assert logp.grad is not None
    torch.testing.assert_close(logp.grad, torch.where(mask, -1 / 3, 0.0))


@pytest.mark.parametrize("row", parity.ROWS, ids=lambda row: f"{row.preset} {row.ours}")
def test_loss_and_gradient_equal_those_of_trl(row: parity.Row) -> None:
    assert max(parity.differences(row, seeds=1)) < 1e-6


def test_advantages_and_kl_equal_the_formulas_of_papers() -> None:
    """TRL has none of these, or others (`test_loss_and_gradient_equal_those_of_trl`)."""
    matrix = [[0.0, 1.0, 0.5], [0.2, NAN, 0.6], [0.3, 0.3, 0.3], [NAN, NAN, 0.9]]
    all_scored = [value for row in matrix for value in row if not math.isnan(value)]
    mean, std = statistics.fmean(all_scored), statistics.stdev(all_scored)
    whole = [[0.0 if math.isnan(value) else (value - mean) / (std + EPS) for value in row] for row in matrix]
    expected: list[tuple[dict[str, object], list[list[float]]]] = [
        ({"divide_by": "none"}, [[-0.5, 0.5, 0.0], [-0.2, 0.0, 0.2], [0.0] * 3, [0.0] * 3]),
        ({"divide_by": "mean"}, [[-1.0, 1.0, 0.0], [-0.5, 0.0, 0.5], [0.0] * 3, [0.0] * 3]),
        (PRESETS["rloo"] | {"kl_beta": 0}, [[-0.75, 0.75, 0.0], [-0.4, 0.0, 0.4], [0.0] * 3, [0.0] * 3]),
        (dict(PRESETS["reinforce_pp"]), whole),
    ]
    for how, rows in expected:
        torch.testing.assert_close(torch.tensor(advantages(matrix, **how)), torch.tensor(rows))
    estimates = [kl_estimate(torch.tensor(-1.0), torch.tensor(-1.5), one).item() for one in ("k1", "k2", "k3")]
    assert estimates == pytest.approx([0.5, 0.125, math.exp(-0.5) - 0.5])
    centred = statistics.stdev([-0.5, 0.5, 0.0, -0.2, 0.2, 0.0, 0.0, 0.0, 0.0])  # REINFORCE++ with baseline
    assert advantages(matrix, divide_by="batch")[0][1] == pytest.approx(0.5 / (centred + EPS))


def test_advantages_weight_differences_by_pairwise_accuracy() -> None:
    """Differences at which the judge orders as a coin does teach nothing; where it is always right, everything."""
    noise, signal = [0.547, 0.555, 0.559, 0.551], [0.1, 0.9, 0.5, 0.6]
    table = [[0.02, 0.5], [0.1, 1.0]]
    plain, weighted = advantages([noise, signal]), advantages([noise, signal], pairwise_accuracy=table)
    assert max(plain[0]) > 1 and weighted[0] == [0.0] * 4 and weighted[1] == pytest.approx(plain[1])
    [half] = advantages([[0.0, 0.06, NAN]], pairwise_accuracy=table)  # right in three of four
    assert half == pytest.approx([one / 2 for one in reference([0.0, 0.06, NAN])])
    sigma = 0.06 / math.sqrt(2) / statistics.NormalDist().inv_cdf(0.75)
    assert advantages([[0.0, 0.06, NAN]], pairwise_accuracy=sigma)[0] == pytest.approx(half)
    left_out = advantages([[0.0, 0.06, NAN]], pairwise_accuracy=sigma, baseline="leave_one_out")
    assert left_out[0] == pytest.approx([2 * one for one in half])


def test_group_rewards_have_the_values_of_criteria_as_parts() -> None:
    """A pitfall counts negative; what criteria do not explain, here a veto, is a part of its own."""
    criteria = (("a", 3.0, False), ("b", -1.0, False), ("c", 1.0, True))
    rubric = Rubric(criteria=[Criterion(key=key, text=key, weight=w, required=need) for key, w, need in criteria])
    verdicts = [{"a": 1.0, "b": 0.5, "c": 1.0}, {"a": 0.5, "b": 0.0, "c": 0.0}, {"a": 0.25, "b": 0.0, "c": 1.0}]
    given = [tuple(Verdict.scored(*one, evidence=[{"quote": one[0]}]) for one in each.items()) for each in verdicts]
    scored = [ScoredRollout(reward(rubric, one), one) for one in given]
    rewards = torch.tensor([[one.reward.value for one in scored]], dtype=torch.float64)
    rollouts = tiny_policy().sample([PROMPTS[0]], 3, SAMPLING, 0)
    batch = ScoredBatch([Task(PROMPTS[0], rubric)], rollouts, [], scored, rewards, rewards).group_rewards(0.0)
    assert batch.parts_GKM is not None and batch.weights_GK is not None
    assert batch.parts_GKM[0].tolist() == [[1.0, 0.5, 0.25], [-0.5, 0.0, 0.0], [1.0, 0.0, 1.0], [0.0, -0.375, 0.0]]
    assert batch.weights_GK.tolist() == [[0.6, 0.2, 0.2, 1.0]]
    assert batch.quotes == ({0: ("a",), 1: ("b",), 2: ("c",)},) * 3
    found = advantages_of(batch, TrainConfig(steps=1, algorithm="gdpo").optim)[0].tolist()
    assert found[1] == min(found) and math.isclose(sum(found), 0, abs_tol=1e-9)


OWN = "def advantages(batch, how):\n    return {advantages}\ndef loss(batch, how):\n    return {loss}\n"


def test_algorithm_of_a_file_is_tried_before_it_is_used(tmp_path: Path) -> None:
    file, how = tmp_path / "mine.py", OptimConfig()
    mean = "(batch.rewards_GM - 0.5).nan_to_num(0.0)"
    simple = "-(batch.logp_BT * batch.advantages_B[:, None] * batch.mask_BT).sum() / batch.totals.tokens"
    cases = [
        ("def advantages(batch, how):\n    return 0\n", "no function loss"),
        ("import nothing_like_it\n", "ModuleNotFoundError"),
        (OWN.format(advantages="0.0", loss=simple), "advantages() returned shape []"),
        (OWN.format(advantages=f"{mean}[:, :2]", loss=simple), "shape [2, 2]; expected finite numbers of shape [2, 3]"),
        (OWN.format(advantages="batch.rewards_GM", loss=simple), "returned NaN"),
        (OWN.format(advantages=mean, loss="batch.logp_BT"), "loss() returned no single number"),
        (OWN.format(advantages=mean, loss="batch.old_logp_BT.sum()"), "loss() returned no single number"),
        (OWN.format(advantages=mean, loss="None"), "mine.py: "),
    ]
    for text, problem in cases:
        file.write_text(text)
        with pytest.raises(InvalidError) as caught:
            algorithm_of(str(file), how)
        assert problem in caught.value.message and str(file) in caught.value.message, text
    with pytest.raises(InvalidError, match="FileNotFoundError"):
        algorithm_of(str(tmp_path / "none.py"), how)
    file.write_text(OWN.format(advantages=mean, loss=simple))
    config = tiny_config(steps=1, algorithm=str(file), out=tmp_path / "run")
    assert train(tiny_policy(), TASKS, CallableRewards(share_of_a), config).steps[0]["grad_norm"] > 0


@pytest.mark.parametrize("name", PRESETS)
def test_train_takes_a_step_by_each_preset(name: str) -> None:
    config = tiny_config(steps=2, algorithm=name, optim={"lr": 1e-2, "micro_tokens": 80})
    history = train(tiny_policy(), TASKS, CallableRewards(share_of_a), config)
    assert all(step["grad_norm"] > 0 for step in history.steps)


def test_config_fills_in_a_preset() -> None:
    assert TrainConfig(steps=1).optim == OptimConfig() == tiny_config(algorithm="dapo", optim={}).optim
    gspo = tiny_config(algorithm="gspo", optim={"clip_low": 0.1})
    assert (gspo.optim.ratio, gspo.optim.clip_low, gspo.optim.clip_high) == ("completion_mean", 0.1, 4e-4)
    assert TrainConfig.model_validate_json(gspo.model_dump_json()) == gspo
    given = TrainConfig(steps=1, algorithm="dr_grpo", optim=OptimConfig(lr=1.0))
    assert (given.optim.lr, given.optim.divide_by) == (1.0, "none")


def test_credit_goes_to_the_sentences_that_verdicts_quote() -> None:
    """In several scripts, of the last occurrence only; where nothing is quoted, or found, to all tokens."""
    tokenizer = open_tokenizer("embedded")
    texts = (
        "Paris is big. Rome is old!\nThe end. Rome is old!",
        "「東京は大きい。京都は古い。」",
        "Nothing quoted here.",
        "It is so.",
    )
    quotes: tuple[dict[int, tuple[str, ...]], ...] = (
        {0: ("Rome is",), 1: ()},
        {0: ("京都は",), 1: ("大きい", "古い")},
        {0: ("not there", ""), 1: ()},
        {},
    )
    ids = [tokenizer(text)["input_ids"] for text in texts]
    spans = [
        [tokenizer.decode(row[a:b]) for a, b in sentences_of(tokenizer, row, one.get(0, ()))]
        for row, one in zip(ids, quotes, strict=True)
    ]
    assert spans == [[" Rome is old!"], ["京都は古い。"], [], []]
    rows = [Transcript(ids=row, given=[False] * len(row)) for row in ids]
    prompts = torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool), torch.zeros(4, dtype=torch.long)
    rollouts = rollouts_of(SimpleNamespace(device="cpu", acting=None), prompts, rows, texts)
    parts = torch.tensor([[[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]]])
    batch = GroupRewards(
        (parts * torch.tensor([0.75, 0.25])[:, None]).sum(1), 0.0, None, parts, torch.tensor([[0.75, 0.25]]), quotes
    )
    shares = criterion_shares(batch, found := advantages_of(batch, OptimConfig()))
    torch.testing.assert_close(shares.sum(1), found)  # of a weighted sum all is explained
    each = token_advantages(found.flatten(), batch, rollouts, tokenizer, 1.0)
    torch.testing.assert_close((each * rollouts.mask_BT).sum(-1) / (lengths := rollouts.lengths), found.flatten())
    first, end = sentences_of(tokenizer, ids[0], ("Rome is",))[0]
    (inside,) = each[0, first:end].unique()
    assert (inside - shares[0, 1, 0]) * (end - first) == pytest.approx(shares[0, 0, 0] * lengths[0])
    assert each[0, first - 1] == pytest.approx(shares[0, 1, 0])
    assert each[2].unique().tolist() == [found[0, 2]]


class Quoting(CallableRewards):
    """A judge that quotes the first letter, where ``evidence`` is True."""

    evidence = True

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        scored = []
        for task, one in zip(tasks, completions, strict=True):
            given = {"value": share_of_a(task.prompt, one.text), "evidence": [{"quote": one.text[:1]}] * self.evidence}
            verdict = Verdict.scored("good", **given)
            scored.append(ScoredRollout(reward(task.rubric, [verdict]), (verdict,)))
        return scored


def test_credit_trains_as_without_it_until_verdicts_quote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.algorithms.credit._END", re.compile("(?<=[a-m])"))  # the tiny model has no full stop
    weights = {}
    for credit, evidence in ((0.0, True), (1.0, False), (1.0, True)):
        policy, source = tiny_policy(), Quoting(share_of_a)
        source.evidence = evidence
        history = train(policy, TASKS, source, tiny_config(steps=2, optim={"lr": 1e-2, "credit": credit}))
        assert all(step["grad_norm"] > 0 for step in history.steps)
        weights[credit, evidence] = torch.cat([one.flatten() for one in policy.model.parameters()])
    assert torch.equal(weights[0.0, True], weights[1.0, False])
    assert not torch.allclose(weights[0.0, True], weights[1.0, True], atol=1e-4)
