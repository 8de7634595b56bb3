"""Time of a training step by stage: 16 completions of 40 tokens, SmolLM2-135M, 2 threads.

    python -m bench.bench_train [--steps N] [--model NAME] [--dtype bfloat16|float32] [--threads N] [--trl PYTHON]

The reward is the length of the text, which takes no time: sampling, forward and backward passes and the optimiser are
measured. The first step is warm-up and not counted. The last line is JSON; times are medians in seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import time
from pathlib import Path
from unittest.mock import patch

import torch

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.settings import get_settings
from trainer.config import TrainConfig
from trainer.data.tasks import Task
from trainer.loop import train
from trainer.optim import MasterAdamW
from trainer.policies.policy import Policy
from trainer.recording import Metrics
from trainer.rewards import CallableRewards
from workers.engines.local.embedded_model import embedded_model

QUESTIONS = (
    "How does Python decide which __add__ method runs when both operands define one?",
    "Compare lists and tuples: when should each be used, and why?",
    "What is a descriptor, and how does attribute lookup use it?",
    "Explain how exceptions propagate through nested try statements with finally clauses.",
)
RUBRIC = Rubric(criteria=(Criterion(key="length", text="It is long."),))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, help="steps to measure")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trl", metavar="PYTHON", help="Python of an environment with TRL, to compare with")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    sampling = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 40}
    config = TrainConfig.model_validate({"steps": given.steps + 1, "sampling": sampling})
    policy = Policy.load(given.model, dtype=given.dtype)
    optimizer_seconds: list[float] = []
    step = MasterAdamW.step

    def timed(optimizer: MasterAdamW, lr: float) -> float:
        start = time.perf_counter()
        norm = step(optimizer, lr)
        optimizer_seconds.append(time.perf_counter() - start)
        return norm

    def show(metrics: Metrics) -> None:
        stages = " ".join(f"{name} {metrics[f'{name}_time']:.2f}" for name in ("sample", "train", "step"))
        print(
            f"step {metrics['step']}: {stages} (optimiser {optimizer_seconds[-1]:.2f}), {metrics['num_tokens']} tokens",
            flush=True,
        )

    tasks = [Task(Prompt.of(question), RUBRIC) for question in QUESTIONS]
    rewards = CallableRewards(lambda _, text: float(len(text)))
    with patch.object(MasterAdamW, "step", timed):
        history = train(policy, tasks, rewards, config, on_step=show)
    counted = history.steps[1:]
    median = {name: statistics.median(step[f"{name}_time"] for step in counted) for name in ("step", "sample", "train")}
    optimiser = statistics.median(optimizer_seconds[1:])
    figures = {
        "bench": "train",
        "step_s": median["step"],
        "sample_s": median["sample"],
        "forward_backward_s": median["train"] - optimiser,
        "optim_s": optimiser,
        "tokens_per_step": statistics.median(step["num_tokens"] for step in counted),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}
    rounded |= {"dtype": given.dtype, "threads": given.threads, "steps": len(counted)}
    if given.trl:
        del policy  # its memory
        theirs = trl_step_s(given.trl, given.steps)
        rounded |= {"trl_step_s": theirs, "trl_ratio": round(theirs / figures["step_s"], 2)}
    print(json.dumps(rounded))


def trl_step_s(python: str, steps: int) -> float:
    """Return the median seconds of TRL's step."""
    folder = embedded_model(get_settings().cache_dir)
    script = Path(__file__).with_name("trl_step.py")
    command = [python, str(script), str(folder), str(steps), json.dumps(QUESTIONS)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["step_s"])


if __name__ == "__main__":
    main()
