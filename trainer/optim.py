"""AdamW on float32 master weights, under a model of any type.

A bfloat16 weight keeps 8 significant bits. Near 0.02, a usual size, its neighbours are 1.2e-4 away, and an update of
lr = 1e-5 is rounded to nothing: trained in bfloat16 alone, most weights would never move. So the optimiser keeps a
float32 copy that accumulates small steps, and copies it, rounded, to the model after each. Gradients of micro-batches
are summed in float32 for the same reason.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from trainer.config import OptimConfig
    from trainer.judge_training.config import JudgeOptimConfig


LOWER_LR = "lower optim.lr in a new run that starts from the last checkpoint (policy.model)"


class NonFiniteError(InvalidError):
    """A policy, loss or gradient that is NaN or infinite."""


class MasterAdamW:
    """AdamW on float32 copies of a model's weights. Gradients are accumulated as they arise; ``step`` applies them."""

    def __init__(self, model: nn.Module, config: OptimConfig | JudgeOptimConfig) -> None:
        self._config = config
        self.updates = 0  # started, not finished: one that was interrupted counts
        named = {name: param for name, param in model.named_parameters() if param.requires_grad}
        self._params: list[Tensor] = list(named.values())
        self.masters = {name: param.detach().float().clone() for name, param in named.items()}
        self._adam = torch.optim.AdamW(
            self.masters.values(), lr=config.lr, weight_decay=config.weight_decay, fused=True
        )
        self._hooks = [
            param.register_post_accumulate_grad_hook(partial(_accumulate, master))  # type: ignore[no-untyped-call]
            for param, master in zip(self._params, self.masters.values(), strict=True)
        ]

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of ``step`` (from 0): linear over ``warmup_steps``, then constant."""
        return self._config.lr * min(1.0, (step + 1) / max(1, self._config.warmup_steps))

    def step(self, lr: float) -> float:
        """Apply the accumulated gradients, clipped to ``grad_clip``, and return their norm before the clip.

        Without gradients nothing changes.
        """
        grads = [master.grad for master in self.masters.values() if master.grad is not None]
        norm = float(nn.utils.get_total_norm(grads)) if grads else 0.0
        if not math.isfinite(norm):
            self._adam.zero_grad()
            raise NonFiniteError(f"the gradient's norm is {norm}", hint=LOWER_LR)
        self.updates += 1
        if not grads:
            return norm
        if norm > self._config.grad_clip:
            torch._foreach_mul_(grads, self._config.grad_clip / norm)
        for group in self._adam.param_groups:
            group["lr"] = lr
        self._adam.step()
        self._adam.zero_grad()
        with torch.no_grad():
            torch._foreach_copy_(self._params, list(self.masters.values()))
        return norm

    def close(self) -> None:
        """Remove the hooks from the model."""
        for hook in self._hooks:
            hook.remove()

    def state(self) -> dict[str, Tensor]:
        """Return the named tensors that ``restore`` needs."""
        return {
            f"{key}.{name}": tensor
            for name, master in self.masters.items()
            for key, tensor in {"master": master, **self._adam.state.get(master, {})}.items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore ``state()``, and the model's weights with it."""
        saved = {name: tensor.shape for name, tensor in tensors.items()}
        expected = {f"master.{name}": master.shape for name, master in self.masters.items()}
        for name in saved:  # which of Adam's tensors there are depends on the weights that had a gradient
            key, _, weight = name.partition(".")
            if key != "master" and weight in self.masters:
                expected[name] = torch.Size() if key == "step" else self.masters[weight].shape
        for name in sorted(expected.keys() | saved.keys()):
            if expected.get(name) != saved.get(name):
                there, here = (str(list(shapes[name])) if name in shapes else "missing" for shapes in (saved, expected))
                message = f"the checkpoint belongs to another model: weight {name} is {there} there and {here} here"
                raise InvalidError(message, hint="set policy.model to the model that the run started from")
        for name, tensor in tensors.items():
            key, _, weight = name.partition(".")
            master = self.masters[weight]
            if key == "master":
                master.copy_(tensor)
            else:  # exp_avg, exp_avg_sq or step
                self._adam.state[master][key] = tensor.to(master.device, copy=True)
        with torch.no_grad():
            torch._foreach_copy_(self._params, list(self.masters.values()))


def _accumulate(master: Tensor, param: Tensor) -> None:
    assert param.grad is not None  # noqa: S101 - torch calls the hook when there is one
    if master.grad is None:
        master.grad = param.grad.float()
    else:
        master.grad.add_(param.grad)
    param.grad = None
