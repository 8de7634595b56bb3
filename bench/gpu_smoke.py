"""The whole way on a GPU: a vLLM judge, a job through the queue, and training steps on its rewards.

    python -m bench.gpu_smoke [--policy MODEL] [--judge-model MODEL] [--completions N] [--steps N] …

Runs in an environment with vLLM (`make gpu-smoke` makes it); without a GPU it prints "no GPU here" and exits with 0.
The judge and the policy share the GPU. ``--cpu`` runs the same on the CPU, and ``--judge-url`` asks a server that runs
already. The last line is JSON: verdicts and tokens a second of the job, and medians of the steps after the first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bench.bench_train import QUESTIONS
from bench.vllm_server import NAME, vllm_server
from rubricsvc import Client
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import total_usage
from tests.databases import fresh_url
from tests.service_process import service
from trainer.config import TrainConfig
from trainer.data.tasks import Task
from trainer.loop import train
from trainer.policies.policy import Policy
from trainer.rewards import JobRewards, JudgeInfo

POINTS = (
    "Answers the question that was asked.",
    "Names at least one concrete rule of Python.",
    "Gives an example.",
    "Says when the rule does not hold.",
    "Is free of repetition.",
    "Uses terms that a beginner knows.",
    "Stays below five sentences.",
    "Ends with a full sentence.",
)
RUBRIC = Rubric(criteria=tuple(Criterion(key=f"point-{n}", text=text) for n, text in enumerate(POINTS)))


@contextmanager
def judge_server(given: argparse.Namespace) -> Iterator[Judge]:
    """The judge of the job and of the training, while its server runs."""
    if given.judge_url:
        yield _judge(given.judge_url, given.judge_model)
        return
    share = None if given.cpu else given.gpu_share
    with vllm_server(block_size=32, reply_tokens=64, threads=2, model=given.judge_model, gpu_share=share) as server:
        yield _judge(server.base_url, NAME)


def _judge(url: str, model: str) -> Judge:
    return Judge(name="smoke", model=model, endpoint=Endpoint(base_url=url, concurrency=256))


def score_job(client: Client, judge: str, count: int) -> dict[str, Any]:
    """Score ``count`` different completions in one job; return its figures."""
    each = -(-count // len(QUESTIONS))
    completions = [[f"{question} Answer {n}: " + "It depends. " * 50 for n in range(each)] for question in QUESTIONS]
    start = time.perf_counter()
    items = [item for group in client.score_many(QUESTIONS, RUBRIC, completions, judge) for item in group]
    seconds = time.perf_counter() - start
    verdicts = [verdict for item in items for verdict in item.verdicts]
    usage = total_usage([verdict.usage for verdict in verdicts])
    tokens = usage.prompt + usage.completion if usage else 0
    return {
        "completions": len(items),
        "verdicts": len(verdicts),
        "failed": sum(verdict.outcome == "failed" for verdict in verdicts),
        "job_s": seconds,
        "verdicts_per_s": len(verdicts) / seconds,
        "judge_tokens_per_s": tokens / seconds,
    }


def training_steps(url: str, judge: str, given: argparse.Namespace) -> dict[str, Any]:
    """Train on the service's rewards; return the medians of the steps after the first."""
    sampling = {
        "prompts_per_step": given.prompts,
        "group_size": given.group_size,
        "max_new_tokens": given.max_new_tokens,
    }
    config = TrainConfig.model_validate({"steps": given.steps + 1, "sampling": sampling})
    policy = Policy.load(given.policy, device="cpu" if given.cpu else "cuda")
    tasks = [Task(Prompt.of(question), RUBRIC) for question in QUESTIONS]
    with Client(url) as client:
        rewards = JobRewards(client, JudgeInfo(judge), run="gpu-smoke")
        steps = train(policy, tasks, rewards, config).steps[1:]
    times = {f"{name}_s": statistics.median(step[f"{name}_time"] for step in steps) for name in ("step", *STAGES)}
    tokens = statistics.median(step["num_tokens"] for step in steps)
    return {"steps": len(steps), **times, "policy_tokens_per_s": tokens / times["step_s"]}


STAGES = ("sample", "score", "train")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="embedded", help="folder or name on the Hugging Face hub")
    parser.add_argument("--judge-model", default="embedded", help="the same for the judge")
    parser.add_argument("--judge-url", help="address of a judge's server that runs already")
    parser.add_argument("--gpu-share", type=float, default=0.4, help="share of the GPU's memory for the judge")
    parser.add_argument("--completions", type=int, default=400, help="completions of the job")
    parser.add_argument("--steps", type=int, default=3, help="training steps after the first")
    parser.add_argument("--prompts", type=int, default=4, help="prompts of a step")
    parser.add_argument("--group-size", type=int, default=8, help="completions of a prompt")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--cpu", action="store_true", help="run without a GPU")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    given = parse(arguments)
    if not given.cpu and not torch.cuda.is_available():
        print("no GPU here")
        return
    device = "cpu" if given.cpu else torch.cuda.get_device_name()
    figures: dict[str, Any] = {"bench": "gpu_smoke", "device": device, "policy": given.policy}
    with tempfile.TemporaryDirectory() as folder, judge_server(given) as judge:
        path = Path(folder)
        with service(path, fresh_url("sqlite", path)) as url:
            with Client(url) as client:
                client.judges.add(judge=judge)
                figures |= {"judge": judge.model, **score_job(client, judge.name, given.completions)}
            figures |= training_steps(url, judge.name, given)
    figures = {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}
    print("\n".join(f"{name}: {value}" for name, value in figures.items()))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
