"""Training runs in child processes, which are killed again and again."""

import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from trainer import recording

FORKS = multiprocessing.get_context("forkserver")  # its children need not load torch again


def begin(run: Callable[..., None], *args: object) -> ForkServerProcess:
    process = FORKS.Process(target=run, args=args)
    process.start()
    return process


def end(process: ForkServerProcess) -> int | None:
    process.join()
    code = process.exitcode
    process.close()
    return code


def run_killed(run: Callable[..., None], out: Path, *args: object, kills: int, steps: int, later: float) -> None:
    """Run to the end after some kills, each up to ``later`` seconds after a step."""
    chance = random.Random(0)
    for kill in range(kills):
        process = begin(run, out, *args)
        while len(recording.read(out)) < steps * (kill + 1) // (kills + 2) and process.is_alive():
            time.sleep(0.005)
        time.sleep(chance.uniform(0.0, later))
        process.kill()
        assert end(process) == -signal.SIGKILL
    assert end(begin(run, out, *args)) == 0
