"""The size of the demo, and the folder that holds everything it makes."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

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
        self.database = path / "demo.db"
        self.training = path / "training"
        self.summary = path / "summary.json"
        self.report = path / "report.html"
        self._settings = path / "state.json"

    @property
    def is_finished(self) -> bool:
        """Whether the report and the summary are written; a report that was removed is written again."""
        return self.summary.is_file() and self.report.is_file()

    def open(self, *, fresh: bool) -> bool:
        """Create the folder, or continue in it; return whether it holds a demo already. ``fresh`` deletes that.

        Raises:
            ConflictError: the folder holds a demo of another size or seed.
        """
        if fresh:
            for file in (*self.path.glob("demo.db*"), self._settings, self.summary, self.report):
                file.unlink(missing_ok=True)
            shutil.rmtree(self.training, ignore_errors=True)
        settings = {"size": asdict(self.size), "seed": self.seed}
        if not self._settings.is_file():
            self.path.mkdir(parents=True, exist_ok=True)
            self._settings.write_text(json.dumps(settings, indent=2), encoding="utf-8")
            return False
        if json.loads(self._settings.read_text(encoding="utf-8")) != settings:
            raise ConflictError(
                f"{self.path} holds a demo with other settings",
                hint="choose another folder with --out, or start over with --fresh",
            )
        return True
