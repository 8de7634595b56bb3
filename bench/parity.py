"""Loss and gradient of the trainer's algorithms beside TRL's own code: ``python -m bench.parity``, or ``make parity``.

Twenty-four completions of made-up tokens, in float64, have random logits, padding, truncation, null rewards, a group of
equal rewards and ratios of new to old probabilities from 0.02 to 10. TRL's trainers get what they would have
sampled and scored; its methods compute advantages, importance weights and loss. The columns are the largest absolute
differences of the loss, and of its gradient by the logits.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer  # type: ignore[attr-defined]

from trainer.algorithms.advantages import GroupRewards, advantages, counted_rewards
from trainer.algorithms.losses import TokenBatch, Totals, kl_estimate, loss
from trainer.config import OptimConfig, TrainConfig

GROUPS, MEMBERS, TOKENS, WORDS, END = 4, 6, 9, 13, 0
SIZE = GROUPS * MEMBERS
NAN = float("nan")


class Row(NamedTuple):
    """An algorithm: its row in the table, a preset with settings here, and TRL's settings."""

    name: str
    preset: str
    ours: dict[str, Any]
    trl: dict[str, Any]


DAPO = {"loss_type": "dapo", "epsilon_high": 0.28}
GSPO = {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4}
RLOO = {"trainer": "RLOOTrainer", "beta": 0.05}
SERVER = {"use_vllm": True, "vllm_importance_sampling_clip_max": 2.0, "epsilon_high": 0.28}
MODE = "vllm_importance_sampling_mode"
KL, WEIGHTED = {"beta": 0.04, "use_bias_correction_kl": False}, {"beta": 0.04, "use_bias_correction_kl": True}
ROWS = (
    Row("grpo", "grpo", {}, {"loss_type": "grpo"} | KL),
    Row("dr_grpo", "dr_grpo", {}, {"loss_type": "dr_grpo", "scale_rewards": "none"}),
    Row("dapo: dapo, bnpo", "dapo", {}, DAPO),
    Row(
        "dapo: dapo, bnpo", "dapo", {}, DAPO | {"loss_type": "bnpo"}
    ),  # the mean over a micro-batch, of which there is one here
    Row("gspo: importance_sampling_level", "gspo", {}, GSPO),
    Row("cispo", "cispo", {}, {"loss_type": "cispo", "epsilon_high": 5.0}),
    Row("rloo: RLOOTrainer", "rloo", {}, RLOO | {"normalize_advantages": False}),
    Row("rloo: RLOOTrainer", "rloo", {"divide_by": "batch"}, RLOO | {"normalize_advantages": True}),
    Row("gdpo: normalize_then_sum", "gdpo", {}, DAPO | {"multi_objective_aggregation": "normalize_then_sum"}),
    Row("divide_by: scale_rewards", "dapo", {"divide_by": "rewards"}, DAPO | {"scale_rewards": "batch"}),
    Row("clip_dual: delta", "dapo", {"clip_dual": 3.0}, DAPO | {"delta": 3.0}),
    Row("kl_beta: beta", "dapo", {"kl_beta": 0.04}, DAPO | KL),
    Row("kl_weighted: use_bias_correction_kl", "dapo", {"kl_weighted": True, "kl_beta": 0.04}, DAPO | WEIGHTED),
    Row("kl_weighted: use_bias_correction_kl", "gspo", {"kl_weighted": True, "kl_beta": 0.04}, GSPO | WEIGHTED),
    Row(
        "overlong: mask_truncated_completions",
        "dapo",
        {"overlong": "mask_loss"},
        DAPO | {"mask_truncated_completions": True},
    ),
    Row(
        "correction: vllm_importance_sampling_mode",
        "dapo",
        {"correction": "token_truncate"},
        SERVER | {MODE: "token_truncate"},
    ),
    Row(
        "correction: vllm_importance_sampling_mode",
        "dapo",
        {"correction": "token_mask"},
        SERVER | {MODE: "token_mask"},
    ),
    Row(
        "correction: vllm_importance_sampling_mode",
        "dapo",
        {"correction": "completion_truncate"},
        SERVER | {MODE: "sequence_truncate"},
    ),
    Row(
        "correction: vllm_importance_sampling_mode",
        "dapo",
        {"correction": "completion_mask"},
        SERVER | {MODE: "sequence_mask"},
    ),
)


class Logits(nn.Module):
    """A policy that is a table of logits [B, T, W], of one token of prompt and the completion."""

    is_gradient_checkpointing = False

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(logits)

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        """Return the log-probability of each token, and the entropy there; those of the prompt are 0."""
        every = self.table.log_softmax(-1)
        chosen = every.gather(-1, input_ids[:, 1:, None]).squeeze(-1)
        first = torch.zeros_like(chosen[:, :1])
        entropy = -(every.exp() * every).sum(-1)
        return SimpleNamespace(log_probs=torch.cat([first, chosen], 1), entropy=torch.cat([first, entropy], 1))


@dataclass(frozen=True)
class Made:
    """Made-up completions: token ids, lengths, rewards by function, policies, and log-probabilities of a server."""

    ids_BT: Tensor
    lengths_B: Tensor
    rewards_BK: Tensor
    new: Logits
    old: Logits
    ref: Logits
    sampled_BT: Tensor

    @classmethod
    def of(cls, seed: int) -> Made:
        """Return the completions of a seed."""
        random = torch.Generator().manual_seed(seed)
        old, step, away = (torch.randn(SIZE, TOKENS, WORDS, generator=random, dtype=torch.float64) for _ in range(3))
        lengths_B = torch.randint(1, TOKENS + 1, (SIZE,), generator=random)
        lengths_B[::5] = TOKENS
        ids_BT = torch.randint(1, WORDS, (SIZE, TOKENS), generator=random)
        whole = torch.arange(SIZE) % 5 > 0  # the others are truncated: without an end
        ids_BT[whole, lengths_B[whole] - 1] = END
        ids_BT[torch.arange(TOKENS) >= lengths_B[:, None]] = END
        rewards_BK = torch.rand(SIZE, 2, generator=random, dtype=torch.float64)
        rewards_BK[3], rewards_BK[MEMBERS : 2 * MEMBERS - 1], rewards_BK[-MEMBERS:] = NAN, NAN, 0.5
        noise_BT = 0.5 * torch.randn(SIZE, TOKENS, generator=random, dtype=torch.float64)
        made = cls(ids_BT, lengths_B, rewards_BK, Logits(old + step), Logits(old), Logits(old + 0.3 * away), noise_BT)
        sampled_BT = (made.logps(made.old).detach() + noise_BT).float().double()  # TRL holds them in float32
        return cls(ids_BT, lengths_B, rewards_BK, made.new, made.old, made.ref, sampled_BT)

    @property
    def mask_BT(self) -> Tensor:  # noqa: N802 - shape in the name
        """True at a token of a completion."""
        return torch.arange(TOKENS) < self.lengths_B[:, None]

    @property
    def truncated_B(self) -> Tensor:  # noqa: N802 - shape in the name
        """True where there is no end."""
        return self.ids_BT[torch.arange(SIZE), self.lengths_B - 1] != END

    def logps(self, policy: Logits) -> Tensor:
        """Return the log-probabilities of the tokens [B, T]."""
        found: Tensor = policy(torch.cat([torch.zeros(SIZE, 1, dtype=torch.int64), self.ids_BT], 1)).log_probs
        return found[:, 1:]


def trl(made: Made, settings: dict[str, Any]) -> Tensor:
    """Return the loss of TRL's trainer, whose methods do everything but sampling and scoring."""
    is_rloo = settings.pop("trainer", "") == "RLOOTrainer"
    kind, config = (RLOOTrainer, RLOOConfig) if is_rloo else (GRPOTrainer, GRPOConfig)
    with tempfile.TemporaryDirectory() as out:
        args = config(
            output_dir=out, use_cpu=True, bf16=False, report_to="none", gradient_checkpointing=False,
            per_device_train_batch_size=SIZE, num_generations=MEMBERS, max_completion_length=TOKENS,
            num_iterations=2,  # so that old log-probabilities are kept
            **settings,
        )  # fmt: skip
    trainer: Any = kind.__new__(kind)
    trainer.__dict__ |= vars(args)
    trainer.__dict__ |= SimpleNamespace(
        args=args, model=made.old, ref_model=made.ref, accelerator=accelerator(), epsilon_low=args.epsilon,
        epsilon_high=args.epsilon if args.epsilon_high is None else args.epsilon_high, environment_factories=None,
        tools=None, environments=None, reward_funcs=[None] * 2, reward_func_names=["a", "b"],
        reward_weights=torch.tensor([0.5, 0.5], dtype=torch.float64), aux_loss_enabled=False,
        _entropy_bonus_enabled=False, eos_token_ids=[END], _tokenizer=SimpleNamespace(pad_token_id=END),
        current_gradient_accumulation_steps=1, _metrics=defaultdict(lambda: defaultdict(list)),
        _logs={"rewards": defaultdict(list), "prompt": [], "completion": [], "advantages": []},
        _pending_extra_logs={}, _pending_metrics={},
        _calculate_rewards=lambda *_: made.rewards_BK, _generate=lambda _: generated(made, is_rloo, args),
        _is_vlm=False, log_multimodal=False,
    ).__dict__  # fmt: skip
    batch = trainer._generate_and_score_completions([{"prompt": "?"}] * SIZE)
    value: Tensor = trainer._compute_loss(made.new, batch)
    return value


def accelerator() -> SimpleNamespace:
    """Return what TRL uses of an accelerator, of one process."""

    def same(value: Tensor, **_: Any) -> Tensor:
        return value

    return SimpleNamespace(
        device=torch.device("cpu"), num_processes=1, process_index=0, sync_gradients=True, autocast=nullcontext,
        is_main_process=False,
        gather=same, gather_for_metrics=same, reduce=same, unwrap_model=same,
    )  # fmt: skip


def generated(made: Made, is_rloo: bool, args: Any) -> tuple[Any, ...]:
    """Return what TRL's trainers would have sampled."""
    ids = [row[:length].tolist() for row, length in zip(made.ids_BT, made.lengths_B.tolist(), strict=True)]
    prompts, texts = [[END]] * SIZE, [""] * SIZE
    if is_rloo:
        return prompts, ids, texts
    sampled = None
    if args.use_vllm:
        sampled = [row[: len(one)].tolist() for row, one in zip(made.sampled_BT, ids, strict=True)]
    return prompts, ids, None, texts, sampled, {}, None, []


def ours(made: Made, row: Row) -> Tensor:
    """Return the loss by the trainer's functions; unscored completions count in the totals, as in TRL."""
    settings = dict(row.ours)
    overlong = settings.pop("overlong", "keep")
    how: OptimConfig = TrainConfig.model_validate({"steps": 1, "algorithm": row.preset, "optim": settings}).optim
    parts_GMK = made.rewards_BK.view(GROUPS, MEMBERS, 2)
    rewards_GM = counted_rewards(parts_GMK.mean(-1), made.truncated_B, made.lengths_B, TOKENS, overlong)
    logp_BT, (old_BT, ref_BT) = made.logps(made.new), (made.logps(one).detach() for one in (made.old, made.ref))
    mask_BT = made.mask_BT
    if overlong == "mask_loss":
        mask_BT = mask_BT & ~made.truncated_B[:, None]
    if how.kl_in == "reward":
        kl_B = torch.where(mask_BT, kl_estimate(old_BT, ref_BT, how.kl), 0.0).sum(-1)
        rewards_GM = rewards_GM - how.kl_beta * kl_B.view(GROUPS, MEMBERS)
    weights_GK = torch.full((GROUPS, 2), 0.5, dtype=torch.float64)
    gains_GM = advantages(GroupRewards(rewards_GM, 0.0, None, parts_GMK.transpose(1, 2), weights_GK), how)
    totals = Totals(int(mask_BT.sum()), SIZE, TOKENS)
    return loss(
        TokenBatch(
            logp_BT, old_BT, gains_GM.flatten(), mask_BT, totals, ref_BT if how.kl_in == "loss" else None,
            made.sampled_BT if row.trl.get("use_vllm") else None,
        ),
        how,
    ).value  # fmt: skip


def differences(row: Row, seeds: int = 3) -> tuple[float, float]:
    """Return the largest absolute differences of loss and gradient over seeds."""
    largest = (0.0, 0.0)
    for seed in range(seeds):
        made = Made.of(seed)
        losses = ours(made, row), trl(made, dict(row.trl))
        gradient, expected = (torch.autograd.grad(value, [made.new.table])[0] for value in losses)
        assert gradient.abs().max() > 1e-4, "nothing is learned"
        found = (losses[0] - losses[1]).abs().item(), (gradient - expected).abs().max().item()
        largest = max(largest[0], found[0]), max(largest[1], found[1])
    return largest


def main() -> None:
    """Print the table of the docs, with the largest differences of each row's variants."""
    found: dict[str, tuple[float, float]] = {}
    for row in ROWS:
        before, now = found.get(row.name, (0.0, 0.0)), differences(row)
        found[row.name] = max(before[0], now[0]), max(before[1], now[1])
    print(f"{'here: TRL':44}  loss   gradient")
    for name, (of_loss, of_gradient) in found.items():
        print(f"{name:44}  {of_loss:.0e}  {of_gradient:.0e}")


if __name__ == "__main__":
    main()
