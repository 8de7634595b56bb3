"""The model of a judge in training: its questions in one pass for each completion, and the losses.

Shapes in names: B rows, T tokens of the longest row, Q reads (one for each question of a readout), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rubricsvc.errors import InvalidError
from trainer.judge_training.config import LoraConfig
from trainer.judge_training.encoding import Read, Row
from trainer.policies.attention import use_grouped_attention
from workers.engines.local.prefix_tree import PADDING, SHARED, tree_mask

MAX_PADDING = 0.15
"""Share of a micro-batch that may be padding."""


class JudgeModel:
    """A causal language model that answers rows. ``model`` is trained in place, all of it or a LoRA adapter.

    ``base_sha256`` is the digest of its weights before the training.
    """

    def __init__(self, model: Any, lora: LoraConfig | None, *, seed: int, base_sha256: str = "") -> None:
        self._lora = lora
        self.base_sha256 = base_sha256
        use_grouped_attention(model)
        model.eval()  # no dropout
        self.model = model if lora is None else _with_adapter(model, lora, seed)
        self._causal = model

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return torch.device(self._causal.device)

    def save(self, folder: Path) -> None:
        """Write the adapter in peft's format, or the whole model."""
        self.model.save_pretrained(folder)

    def trained_weights(self) -> dict[str, Tensor]:
        """Return copies of the weights that are trained."""
        return {name: p.detach().clone() for name, p in self.model.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def restore(self, weights: dict[str, Tensor]) -> None:
        """Set the weights that are trained."""
        for name, param in self.model.named_parameters():
            if name in weights:
                param.copy_(weights[name])

    def log_masses(self, rows: Sequence[Row]) -> list[list[Tensor]]:
        """Return the log-probability of each label [labels] for each read, in the order of rows and branches."""
        ids_BT, position_BT, owner_BT, reads = _pack(rows)
        output = self._causal.model(
            input_ids=ids_BT.to(self.device),
            position_ids=position_BT.to(self.device),
            attention_mask=tree_mask(owner_BT, 0, self._causal.dtype).to(self.device),
            use_cache=False,
        )
        places = torch.tensor([[row, at] for row, at, _ in reads], device=self.device)
        hidden_QD = output.last_hidden_state[places[:, 0], places[:, 1]]
        # float32: in bfloat16 a logit near 20 is rounded to the next 1/8
        logits_QV = torch.nn.functional.linear(hidden_QD.float(), self._causal.lm_head.weight.float())
        log_z_Q = logits_QV.logsumexp(-1)
        result: list[list[Tensor]] = [[] for _ in rows]
        for i, (row, _, read) in enumerate(reads):
            masses = [logits_QV[i, list(label)].logsumexp(0) - log_z_Q[i] for label in read.labels]
            result[row].append(torch.stack(masses))
        return result


def cross_entropy(rows: Sequence[Row], log_masses: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return the sum over reads of the cross-entropy Σ -target · log p, in nats."""
    pairs = zip(
        (read for row in rows for read in reads_of(row)), (one for each in log_masses for one in each), strict=True
    )
    return torch.stack(
        [-(torch.tensor(read.target, device=masses.device) * masses).sum() for read, masses in pairs]
    ).sum()


def preference_loss(rows: Sequence[Row], log_masses: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return the Bradley–Terry loss of rows in pairs, the better first: Σ -log σ(z_better - z_worse).

    z is the log-odds of the readout's expected value; for a binary criterion log p(Yes) - log p(No).
    """
    odds = [log_odds(reads_of(row)[0], masses[0]) for row, masses in zip(rows, log_masses, strict=True)]
    better, worse = torch.stack(odds[0::2]), torch.stack(odds[1::2])
    return -torch.nn.functional.logsigmoid(better - worse).sum()


def log_odds(read: Read, log_masses: Tensor) -> Tensor:
    """Return log(v / (1 - v)) of the expected value v = Σ p·value / Σ p."""
    values = torch.tensor(read.values, device=log_masses.device)
    high = (log_masses + values.clamp(min=1e-30).log()).logsumexp(0)
    low = (log_masses + (1 - values).clamp(min=1e-30).log()).logsumexp(0)
    return high - low


def reads_of(row: Row) -> list[Read]:
    """Return the reads of all branches of a row."""
    return [read for branch in row.branches for read in branch.reads]


def micro_batches(rows: Sequence[Row], max_tokens: int) -> Iterator[list[Row]]:
    """Yield rows of similar length, at most ``max_tokens`` with padding at a time, the longest first."""
    batch: list[Row] = []
    total = 0
    for row in sorted(rows, key=lambda row: row.size, reverse=True):
        widest = batch[0].size if batch else row.size
        padded = widest * (len(batch) + 1)
        if batch and (padded > max_tokens or total + row.size < (1 - MAX_PADDING) * padded):
            yield batch
            batch, total = [], 0
        batch.append(row)
        total += row.size
    if batch:
        yield batch


def _pack(rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor, list[tuple[int, int, Read]]]:
    """Return token ids, positions and owners [B, T], and (row, column, read) of every read."""
    width = max(row.size for row in rows)
    ids_BT = torch.zeros(len(rows), width, dtype=torch.long)
    position_BT = torch.zeros_like(ids_BT)
    owner_BT = torch.full_like(ids_BT, PADDING)
    reads = []
    for number, row in enumerate(rows):
        start = end = len(row.prefix)
        ids_BT[number, :start] = torch.tensor(row.prefix, dtype=torch.long)
        position_BT[number, :start] = torch.arange(start)
        owner_BT[number, :start] = SHARED
        for owner, branch in enumerate(row.branches):
            begin, end = end, end + len(branch.ids)
            ids_BT[number, begin:end] = torch.tensor(branch.ids)
            position_BT[number, begin:end] = torch.arange(start, start + len(branch.ids))
            owner_BT[number, begin:end] = owner
            reads += [(number, begin + read.at, read) for read in branch.reads]
    return ids_BT, position_BT, owner_BT, reads


def _check_modules(model: Any, names: Collection[str]) -> None:
    """Refuse what workers cannot merge (no linear layer), and the head, whose weights `log_masses` reads directly."""
    head = model.get_output_embeddings()
    layers = (name for name, one in model.named_modules() if isinstance(one, torch.nn.Linear) and one is not head)
    known = {name.rpartition(".")[2] for name in layers}
    if unknown := set(names) - known:
        message = f"the model has no linear layer {min(unknown)!r} that can be trained"
        raise InvalidError(message, hint=f"choose of {', '.join(sorted(known))}", path="lora.modules")


def _with_adapter(model: Any, lora: LoraConfig, seed: int) -> Any:
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    torch.manual_seed(seed)
    layers = range(lora.first_layer, model.config.num_hidden_layers)
    config = PeftConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=list(lora.modules),
        layers_to_transform=list(layers) if lora.first_layer else None,
        bias="none",
        task_type="CAUSAL_LM",
    )
    _check_modules(model, lora.modules)
    if lora.first_layer >= model.config.num_hidden_layers:
        raise InvalidError(f"lora.first_layer is {lora.first_layer}; the model has {model.config.num_hidden_layers}")
    # The adapter's type is that of the model; the optimiser keeps float32 masters.
    return get_peft_model(model, config, autocast_adapter_dtype=False)
