"""Trackers: what they hold after a run that was killed and resumed, read back from what they wrote."""

import json
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.model.trainer.held_out import eval_config, evaluation
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_policy
from trainer import recording
from trainer.evaluation import LINES
from trainer.loop import train
from trainer.recording import Metrics, Tracking, numbers
from trainer.rewards import CallableRewards

Written = list[tuple[str, int, float]]
"""The name, step and value of everything that a tracker holds."""


class KilledAt:
    """Ends the run like a kill, after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, line: Metrics) -> None:
        if line["step"] == self.step:
            raise KeyboardInterrupt


def run(folder: Path, tracking: Tracking, *, kill: int | None = None, resume: bool = False) -> None:
    config = eval_config(folder, steps=5, checkpoint_every=2)
    options: dict[str, Any] = {"evaluation": evaluation(config), "tracking": tracking, "resume": resume}
    if kill:
        options["on_step"] = KilledAt(kill)
    train(tiny_policy(), TASKS, CallableRewards(share_of_a), config, **options)


def killed_and_resumed(folder: Path, tracking: Callable[[], Tracking]) -> None:
    """Train with an interrupt after step 3, whose checkpoint is then lost: step 3 is repeated."""
    with pytest.raises(KeyboardInterrupt):
        run(folder, tracking(), kill=3)
    (saved,) = (folder / "checkpoints").glob("step-000003")
    saved.rename(folder / "lost")
    run(folder, tracking(), resume=True)


def tensorboard(folder: Path) -> Written:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events: Any = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [(name, one.step, one.value) for name in events.Tags()["scalars"] for one in events.Scalars(name)]


def trackio(_folder: Path) -> Written:
    from trackio.utils import TRACKIO_DIR

    with sqlite3.connect(TRACKIO_DIR / "trackers-test.db") as db:
        rows = db.execute("SELECT step, metrics FROM metrics").fetchall()
    return [(name, step, value) for step, row in rows for name, value in json.loads(row).items()]


def wandb(folder: Path) -> Written:
    """Read the offline files, each of which has the steps of one process."""
    return [row for path in sorted(folder.parent.glob("wandb/offline-run-*/*.wandb")) for row in _wandb_file(path)]


def _wandb_file(path: Path) -> Iterator[tuple[str, int, float]]:
    from wandb.proto.wandb_internal_pb2 import Record

    for data in _log_records(path.read_bytes()):
        record: Any = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") != "history":
            continue
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for name, value in row.items():
            if not name.startswith("_"):
                yield name, row["eval/step" if name.startswith("eval/") else "_step"], value


def _log_records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a log in LevelDB's format, after W&B's 7 bytes: blocks of 32 KiB."""
    assert content.startswith(b":W&B")
    at, parts = 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


READERS: Mapping[str, Callable[[Path], Written]] = {"tensorboard": tensorboard, "trackio": trackio, "wandb": wandb}


@pytest.mark.filterwarnings("default")  # the trackers' own
@pytest.mark.parametrize("name", READERS)
def test_tracker_holds_each_step_and_evaluation(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install 'rubricsvc[{name}]'")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("TRACKIO_PROJECT", "trackers-test")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    folder = tmp_path / "run"
    killed_and_resumed(folder, lambda: Tracking([name], folder, "run-1"))
    assert "does not get" not in caplog.text

    written = READERS[name](folder)
    keys = [(key, step) for key, step, _ in written if key != "eval/step"]
    if name == "tensorboard":  # the others have the step that is repeated twice
        assert sorted(keys) == sorted(set(keys))
    values = {(key, step): value for key, step, value in written}
    steps, lines = recording.read(folder), recording.read(folder, LINES)
    expected = {(key, line["step"]): value for line in (*steps, *lines) for key, value in numbers(line).items()}
    assert set(values) - {("eval/step", line["step"]) for line in lines} == set(expected)
    timeless = {key: value for key, value in expected.items() if not key[0].endswith("_time")}
    assert {key: values[key] for key in timeless} == pytest.approx(timeless, rel=1e-6)
    assert {("reward", 3), ("eval/gold/mean", 0), ("eval/gold/mean_low", 5)} <= set(values)


class BrokenTracker:
    """Refuses everything from its ``last`` step on."""

    def __init__(self, last: int) -> None:
        self.steps: list[int] = []
        self._last = last

    def begin(self, _config: Mapping[str, Any], _name: str, _done: int) -> None:
        pass

    def log(self, _values: Mapping[str, float], step: int, *, is_evaluation: bool) -> None:
        if step >= self._last:
            raise ConnectionError("no network")
        self.steps += [step] * (not is_evaluation)

    def close(self) -> None:
        raise ConnectionError("no network")


def test_tracker_that_fails_does_not_end_the_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracking, broken = Tracking(folder=tmp_path, run="r"), BrokenTracker(3)
    tracking.trackers["broken"] = broken
    run(tmp_path, tracking)
    assert (broken.steps, len(recording.read(tmp_path)), "no network" in caplog.text) == ([1, 2], 5, True)
