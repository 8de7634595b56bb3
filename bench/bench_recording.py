"""What recording costs of a training step: 32 completions of 256 tokens of the embedded policy, on both databases.

    python -m tests.services python -m bench.bench_recording [--tokens N] [--repeat N] [--before N]

One step of the real policy is trained and timed. Its metrics and rollouts, with ten verdicts each, are then recorded
again and again, as the later steps of a run with ``--before`` steps on record: each with new texts, into SQLite and
PostgreSQL. The last line is JSON; the shares are the median time of recording over that of the step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from bench.bench_train import QUESTIONS
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.reward import Reward
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.states import RunState
from rubricsvc.core.verdict import Verdict
from rubricsvc.schemas.runs import NewRun, RolloutGroup, RunStep
from rubricsvc.services.runs import Runs
from rubricsvc.store.session import Database
from tests.databases import fresh_url
from trainer.config import TrainConfig
from trainer.data.tasks import Task
from trainer.loop import train
from trainer.policies.policy import Policy
from trainer.recording import Metrics, RunRecorder
from trainer.rewards import JudgeInfo, RewardSource, ScoredRollout

CRITERIA = [Criterion(key=f"c{n}", text=f"States fact number {n}.") for n in range(10)]
RATIONALE = "The completion states the fact and names its source, but it leaves the date out, which the criterion asks."
GROUP = 8


class LengthRewards(RewardSource):
    """Rewards by length, with a verdict and its rationale for each criterion, as a judge gives them."""

    def score(self, tasks: Sequence[Task], completions: Sequence[Any]) -> list[ScoredRollout]:
        verdicts = tuple(Verdict.scored(one.key, 0.5, rationale=RATIONALE) for one in CRITERIA)
        return [ScoredRollout(Reward(len(one.text) / 1000, 1.0, "mean"), verdicts) for one in completions]


class Capture:
    """A recorder that keeps the step."""

    def __init__(self) -> None:
        self.steps: list[tuple[Metrics, Sequence[RolloutGroup]]] = []

    def begin(self, config: Mapping[str, Any], judge: JudgeInfo | None, earlier: Sequence[Metrics]) -> None:
        pass

    def send(self, step: RunStep) -> None:
        self.steps.append((dict(step.metrics), step.groups))

    def set_state(self, state: RunState, reason: str | None = None) -> None:
        pass


def later_step(metrics: Metrics, groups: Sequence[RolloutGroup], number: int) -> RunStep:
    """The step again under another number, with completions that are not stored yet."""
    changed = [
        group.model_copy(
            update={
                "rollouts": tuple(
                    one.model_copy(
                        update={"completion": one.completion.model_copy(update={"step": number, "id": str(place)})}
                    )
                    for place, one in enumerate(group.rollouts)
                )
            }
        )
        for group in groups
    ]
    return RunStep(step=number, metrics={**metrics, "step": number}, groups=tuple(changed))


def recorded_ms(kind: str, metrics: Metrics, groups: Sequence[RolloutGroup], before: int, repeat: int) -> list[float]:
    """Milliseconds of recording each of ``repeat`` steps after ``before`` others."""
    with tempfile.TemporaryDirectory() as folder:
        db = Database(fresh_url(kind, Path(folder)))
        store = Runs(db)
        run = store.create(NewRun(key="bench", name="bench", steps_total=before + repeat, config={}))
        seconds: list[float] = []
        for number in range(1, before + repeat + 1):
            step = later_step(metrics, groups, number)
            start = time.perf_counter()
            store.record(run.id, step)
            seconds.append(time.perf_counter() - start)
        db.close()
    return [1000 * one for one in seconds[before:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=256, help="maximum tokens of a completion")
    parser.add_argument("--repeat", type=int, default=50, help="recordings to measure")
    parser.add_argument("--before", type=int, default=200, help="steps on record before")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    sampling = {"prompts_per_step": len(QUESTIONS), "group_size": GROUP, "max_new_tokens": given.tokens}
    config = TrainConfig.model_validate({"steps": 1, "sampling": sampling})
    tasks = [Task(Prompt.of(question), Rubric(criteria=tuple(CRITERIA))) for question in QUESTIONS]
    capture = Capture()
    train(Policy.load("embedded"), tasks, LengthRewards(), config, recorder=cast(RunRecorder, capture))
    ((metrics, groups),) = capture.steps
    step_s = metrics["step_time"]
    print(f"a step: {step_s:.1f} s, {metrics['num_tokens']} tokens in {len(tasks) * GROUP} completions", flush=True)
    figures: dict[str, Any] = {"bench": "recording", "step_s": round(step_s, 2), "tokens": metrics["num_tokens"]}
    for kind in ("sqlite", "postgresql"):
        times = recorded_ms(kind, metrics, groups, given.before, given.repeat)
        middle, slowest = statistics.median(times), max(times)
        share = middle / 1000 / step_s
        print(f"{kind}: median {middle:.1f} ms, slowest {slowest:.1f} ms, {share:.3%} of the step", flush=True)
        figures |= {f"{kind}_ms": round(middle, 1), f"{kind}_slowest_ms": round(slowest, 1)}
        figures[f"{kind}_share"] = round(share, 6)
    print(json.dumps(figures | {"threads": given.threads, "steps_before": given.before}))


if __name__ == "__main__":
    main()
