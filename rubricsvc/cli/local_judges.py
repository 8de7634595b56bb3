"""The embedded judge from options, and what judges with the embedded model can be relied on for."""

from __future__ import annotations

from collections.abc import Iterable

from rubricsvc.cli.models import judge_from_options
from rubricsvc.cli.output import echo
from rubricsvc.core.judge import Judge
from workers.engines.local.embedded_model import EMBEDDED
from workers.engines.local.weights import shipped_judge


def embedded_judge(name: str, mode: str | None = None, *, untrained: bool = False) -> Judge:
    """Return a judge with the embedded model, and print what it can be relied on for.

    A readout has the shipped adapter merged. Other modes, which it was not trained for, and ``untrained`` judges have
    the bare model.
    """
    mode = mode or "readout"
    if mode == "readout" and not untrained:
        judge = shipped_judge(name)
    else:
        if not untrained:
            echo(f"mode {mode} asks the bare model: the shipped adapter was trained for readouts")
        judge = judge_from_options(name=name, engine="transformers_local", model=EMBEDDED, mode=mode)
    describe_embedded([judge])
    return judge


def describe_embedded(added: Iterable[Judge]) -> None:
    """Print what judges with the embedded model can be relied on for."""
    leaves = [leaf for judge in added for leaf in judge.leaf_judges if leaf.model == EMBEDDED]
    if any(leaf.adapter is None for leaf in leaves):
        echo("the embedded 135M model without an adapter is for trying things out: it is hardly better than chance")
