"""The leaks of a run, in ``leaks.jsonl`` of its folder: which tool result held the answer of which prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Completion
from trainer.data.tasks import Task
from trainer.environments.leaks import leaks_of

LEAKS = "leaks.jsonl"


def log_leaks(out: Path | None, tasks: Sequence[Task], completions: Sequence[Completion]) -> None:
    """Add a line for each leak in the completions of tasks, with the step; nothing without a folder or leaks."""
    lines = [
        {"step": one.step, "prompt": task.name, "prompt_digest": task.prompt.digest, **leak}
        for task, one in zip(tasks, completions, strict=True)
        for leak in leaks_of(one)
    ]
    if lines and out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with (out / LEAKS).open("a", encoding="utf-8") as file:
            file.write("".join(f"{strict_json.dump(line)}\n" for line in lines))
