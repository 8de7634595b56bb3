"""The batch of a step whose gradient is not finite: a file to look at."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torch import Tensor

from trainer.data.resampling import ScoredBatch
from trainer.files import replace_text


def save_failed_batch(out: Path, step: int, batch: ScoredBatch, advantages_GM: Tensor, error: str) -> str:
    """Write the completions of a step (from 0) with their token ids, rewards and advantages; return where they are."""
    rollouts = batch.rollouts
    rows = zip(batch.task_of_B, batch.completions, batch.scored, advantages_GM.flatten().tolist(), strict=True)
    completions: list[dict[str, Any]] = [
        {
            "prompt": task.prompt.text,
            "completion": completion.text,
            "token_ids": rollouts.ids_BT[row][rollouts.mask_BT[row]].tolist(),
            "truncated": bool(rollouts.truncated_B[row]),
            "reward": scored.reward.value,
            "advantage": advantage if math.isfinite(advantage) else None,
        }
        for row, (task, completion, scored, advantage) in enumerate(rows)
    ]
    path = out / f"failed-step-{step + 1:06d}.json"
    content = {"step": step + 1, "error": error, "completions": completions}
    try:
        replace_text(path, json.dumps(content, indent=1, ensure_ascii=False))
    except OSError as problem:
        return f"its batch cannot be written to {path}: {problem.strerror}"
    return f"its batch is in {path}"
