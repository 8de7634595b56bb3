"""The size of the demo, and the folder that holds everything it makes."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rubricsvc.core.fingerprint import digest
from rubricsvc.errors import ConflictError


@dataclass(frozen=True)
class DemoSize:
    """Numbers of questions, of ``samples`` a question before and after training, and of training steps."""

    training: int = 12
    held_out: int = 4
    generated: int = 3
    samples: int = 4
    steps: int = 20
    prompts_per_step: int = 4
    group_size: int = 4
    max_new_tokens: int = 48
    temperature: float = 0.7
    lr: float = 3e-5


FULL = DemoSize()
FAST = DemoSize(training=8, held_out=4, samples=2, steps=4, generated=1, prompts_per_step=2)


class DemoFolder:
    """A folder that holds one demo; an interrupted demo continues from what is in it."""

    def __init__(self, path: Path, size: DemoSize, seed: int) -> None:
        self.path, self.size, self.seed = path, size, seed
        self.database_url = f"sqlite:///{path / 'demo.db'}"
        self.documents = path / "documents.db"
        self.training = path / "training"
        self.summary = path / "summary.json"
        self.report = path / "report.html"
        self._state = path / "state.json"

    def open(self, content: str, *, fresh: bool) -> float:
        """Create the folder, or continue in it; return the seconds that were spent in it before.

        Args:
            content: the questions; a demo with other ones does not continue here.
            fresh: whether to delete an earlier demo.

        Raises:
            ConflictError: the folder holds a demo of another size, seed or content.
        """
        if fresh:
            self._clear()
        self.path.mkdir(parents=True, exist_ok=True)
        settings = {"size": asdict(self.size), "seed": self.seed, "content": digest(content)}
        if not self._state.is_file():
            _write(self._state, {"settings": settings, "seconds": 0.0})
            return 0.0
        state = json.loads(self._state.read_text(encoding="utf-8"))
        if state["settings"] != settings:
            raise ConflictError(
                f"{self.path} holds a demo with other settings or questions",
                hint="choose another folder with --out, or start over with --fresh",
            )
        return float(state["seconds"])

    def save_seconds(self, seconds: float) -> None:
        """Store the seconds spent so far."""
        state = json.loads(self._state.read_text(encoding="utf-8"))
        _write(self._state, state | {"seconds": seconds})

    def save_summary(self, figures: dict[str, Any]) -> None:
        """Store the summary, which marks the demo as finished."""
        _write(self.summary, figures)

    def _clear(self) -> None:
        for name in ("demo.db", "documents.db"):
            for suffix in ("", "-wal", "-shm", "-journal"):
                (self.path / f"{name}{suffix}").unlink(missing_ok=True)
        for file in (self._state, self.summary, self.report):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.training, ignore_errors=True)


def _write(path: Path, data: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(path)
