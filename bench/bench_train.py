"""Time of a training step by stage: 16 completions of at most 40 tokens, SmolLM2-135M, 2 threads.

    python -m bench.bench_train [--steps N] [--tokens N] [--dtype bfloat16|float32] [--threads N] [--trl PYTHON]

The reward is the length of the text, which takes no time: sampling, forward and backward passes and the optimiser are
measured. The first step is warm-up and not counted. TRL trains in the same type. The last line is JSON; times are
medians in seconds, tokens those of the completions of a step.
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
    parser.add_argument("--tokens", type=int, default=40, help="most tokens of a completion")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trl", metavar="PYTHON", help="Python of an environment with TRL, to compare with")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    sampling = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": given.tokens}
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
        theirs = trl_step(given.trl, given.steps, given.tokens, given.dtype)
        rounded |= theirs | {"trl_ratio": round(theirs["trl_step_s"] / figures["step_s"], 2)}
    print(json.dumps(rounded))


def trl_step(python: str, steps: int, tokens: int, dtype: str) -> dict[str, float]:
    """Return the median seconds and tokens of TRL's step."""
    folder = embedded_model(get_settings().cache_dir)
    script = Path(__file__).with_name("trl_step.py")
    command = [python, str(script), str(folder), str(steps), str(tokens), dtype, json.dumps(QUESTIONS)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
