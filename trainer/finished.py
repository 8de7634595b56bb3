"""Whether a finished run is the one that its configuration and its data describe now."""

from __future__ import annotations

from collections.abc import Sequence

from trainer import checkpoint
from trainer.config import RunConfig
from trainer.data.tasks import Task
from trainer.evaluation.evaluation import LINES, check_setup
from trainer.evaluation.evaluator import setup_of
from trainer.history import read


def check_unchanged(config: RunConfig, tasks: Sequence[Task], held_out: Sequence[Task]) -> None:
    """Check that a finished run would be the same if it was trained again.

    What a service or a measurement may have changed is not compared: the judge of a service, and the judge's deviation.

    Args:
        config: The configuration of now, with its judges in place of their names.
        tasks: The prompts to train on.
        held_out: The prompts of ``config.eval``.

    Raises:
        ConflictError: Settings, prompts or rubrics differ. The message names them.
    """
    step = checkpoint.steps(config.out)[-1]
    before = checkpoint.saved_identity(config.out, step)
    setting = config.optim.std_floor
    floor = before["optim.std_floor"] if setting == "judge" else setting
    now = checkpoint.identity(config, tasks, floor, before.get("judge_digest"))
    checkpoint.check_identity(checkpoint.folder(config.out, step), before, now)
    if config.eval is not None:
        check_setup(config.out, read(config.out, LINES), setup_of(config.eval, config, held_out))
