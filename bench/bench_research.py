"""Where the time of research goes: a few steps of the demo's run, and its sampling alone.

    python -m bench.bench_research [--warm-up 6] [--steps 3] [--prompts 4] [--at-once 1 8 32] [--vllm]

The embedded model learns demonstrations, and then takes steps of 2 prompts x 8 trajectories in CPython's language
reference, which the embedded judge scores through the queue. Its sampling alone is then measured with so many
trajectories at once, and with one whose tools sleep. Tools have the share of the time that sampling waited for them.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import pad

from bench.vllm_server import SAMPLES_FOR_TRAINING, vllm_server
from rubricsvc.cli import demo
from rubricsvc.core.prompt import Prompt
from trainer import checkpoint, recording
from trainer.config import SamplingConfig, load_config
from trainer.loop import warmed_up_model
from trainer.policies import policy as episode_sampling
from trainer.policies.policy import Policy
from trainer.policies.rollouts import Rollouts
from trainer.run import Run

EPISODES = 8
"""One with a slow tool, and others."""
GAP = "sampling/sampling_logp_difference/mean"
STAGES = {"generation": "sample", "judging": "score", "update": "train"}


@dataclass
class Meter:
    """Seconds that sampling waited for tools, and the tokens that the policy has processed (padding left out)."""

    waited_s: float = 0.0
    encoded: int = 0


@contextmanager
def metered() -> Iterator[Meter]:
    """Measure the sampling in a block."""
    meter, wait, forward = Meter(), episode_sampling._wait, Policy.forward

    def timed_wait(messages: Sequence[Any], *, until_any: bool) -> list[Any]:
        start = time.perf_counter()
        over = wait(messages, until_any=until_any)
        meter.waited_s += time.perf_counter() - start
        return over

    def counted_forward(policy: Policy, ids: Tensor, mask: Tensor, *args: Any, **options: Any) -> Tensor:
        meter.encoded += int(mask[:, -ids.shape[1] :].sum())
        return forward(policy, ids, mask, *args, **options)

    with patch.object(episode_sampling, "_wait", timed_wait), patch.object(Policy, "forward", counted_forward):
        yield meter


class SlowFirst:
    """An environment whose first episode sleeps in each call; ``ends`` are the times of the episodes' last calls."""

    def __init__(self, inner: Any, sleep_s: float) -> None:
        self.inner, self.tools, self.sleep_s = inner, inner.tools, sleep_s
        self.ends: list[float] = []

    def reset(self, prompt: Prompt) -> SlowEpisode:
        self.ends.append(time.perf_counter())
        return SlowEpisode(self, self.inner.reset(prompt), len(self.ends) - 1)


@dataclass
class SlowEpisode:
    environment: SlowFirst
    inner: Any
    number: int

    @property
    def report(self) -> str | None:
        report: str | None = self.inner.report
        return report

    def step(self, name: str, arguments: Mapping[str, str]) -> str:
        if self.number == 0:
            time.sleep(self.environment.sleep_s)
        self.environment.ends[self.number] = time.perf_counter()
        return str(self.inner.step(name, arguments))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warm-up", type=int, default=6, help="steps of demonstrations")
    parser.add_argument("--steps", type=int, default=3, help="steps to measure")
    parser.add_argument("--group-size", type=int, default=8, help="trajectories of a prompt in these steps")
    parser.add_argument("--prompts", type=int, default=4, help="prompts whose trajectories are sampled alone")
    parser.add_argument("--at-once", type=int, nargs="*", default=[1, 8, 32], help="trajectories in a batch")
    parser.add_argument("--sleep", type=float, default=5.0, help="seconds of each call of the slow tool")
    parser.add_argument("--vllm", action="store_true", help="repeat the steps with a vLLM server")
    parser.add_argument("--out", type=Path, help="folder of the run, which is kept")
    given = parser.parse_args()
    size = demo.SIZE | {"steps": given.steps, "demonstration_steps": given.warm_up, "group_size": given.group_size}
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.out or Path(temporary)
        figures = trained(folder, size)
        if given.vllm:
            figures |= served(folder)
        with demo.project(folder):
            run = load_config(Path("research.toml"))
            made = Run(run)
            trained_model = checkpoint.folder(made.out, run.steps) / "model"
            policy, prompts = made.load_policy(trained_model), [task.prompt for task in made.tasks.train]
        for at_once in given.at_once:
            figures |= throughput(policy, prompts[: given.prompts], at_once, run.sampling)
        figures |= slow_tool(policy, prompts[:EPISODES], run.sampling, given.sleep)
    print(json.dumps({"bench": "research"} | {name: round(one, 4) for name, one in figures.items()}))


def trained(folder: Path, size: Mapping[str, float]) -> dict[str, float]:
    """Run the commands of the demo without evaluations; return the shares of a step."""
    demo.open_folder(folder, size, seed=0)
    config = folder / "research.toml"
    config.write_text(config.read_text(encoding="utf-8").partition("[eval]")[0], encoding="utf-8")
    with demo.project(folder), metered() as meter:
        demo.train()
    return shares(folder / demo.RUN, meter.waited_s)


def served(folder: Path) -> dict[str, float]:
    """Take the same steps from the same weights, sampled by a vLLM server; return the shares of a step."""
    threads = torch.get_num_threads()
    with vllm_server(
        block_size=32, reply_tokens=96, threads=threads, cache_gib=1, options=SAMPLES_FOR_TRAINING
    ) as server:
        (folder / "served.toml").write_text(served_config(folder, server.base_url), encoding="utf-8")
        with demo.project(folder):
            demo.run_command("runs", "start", "served.toml")
    return {f"served_{name}": value for name, value in shares(folder / "served", 0.0).items()}


def served_config(folder: Path, url: str) -> str:
    """Return the configuration of the same steps with a server, from the warmed-up weights on."""
    text = (folder / "research.toml").read_text(encoding="utf-8")
    text = re.sub(r"\[demonstrations\].*?\n\n", "", text, flags=re.DOTALL)
    model = warmed_up_model(load_config(folder / "research.toml")).resolve()
    changes = {'"research"\njudge': '"served"\njudge', '"embedded"\n\n': f'"{model}"\n\n'}
    for old, new in (changes | {"[sampling]": f'[sampling]\nserver = "{url}"'}).items():
        assert old in text
        text = text.replace(old, new)
    return text


def shares(run: Path, waited_s: float) -> dict[str, float]:
    """Return the shares of a step of a run, whose sampling waited so long for tools."""
    steps = recording.read(run)
    total = sum(step["step_time"] for step in steps)
    seconds = {stage: sum(step[f"{name}_time"] for step in steps) for stage, name in STAGES.items()}
    seconds = {"tools": waited_s} | seconds | {"generation": seconds["generation"] - waited_s}
    share = {stage: one / total for stage, one in seconds.items()}
    share["rest"] = 1 - sum(share.values())
    tokens = sum(step["num_tokens"] for step in steps) / len(steps)
    print(f"{run.name}: {total / len(steps):.1f} s a step, {tokens:.0f} tokens written")
    print(", ".join(f"{stage} {one:.1%} ({one * total / len(steps):.2f} s)" for stage, one in share.items()))
    figures = {f"{stage}_share": one for stage, one in share.items()}
    figures |= {"step_s": total / len(steps), "tokens_per_step": tokens}
    if gaps := [step[GAP] for step in steps if GAP in step]:
        figures["logp_gap"] = statistics.mean(gaps)
        print(f"log-probabilities of the server are {figures['logp_gap']:.4f} nats from the policy's (mean)")
    return figures


def throughput(policy: Policy, prompts: Sequence[Prompt], at_once: int, sampling: SamplingConfig) -> dict[str, float]:
    """Sample for all prompts with so many trajectories in a batch; return the rate and what was encoded.

    The trajectories of a prompt are in one batch, eight at most, as in a step.
    """
    members = min(at_once, 8)
    width = max(1, at_once // members)
    start = time.perf_counter()
    with metered() as meter:
        batches = [
            policy.sample(prompts[first : first + width], members, sampling, seed=first)
            for first in range(0, len(prompts), width)
        ]
    seconds = time.perf_counter() - start
    count = sum(len(batch.texts) for batch in batches)
    tokens = sum(int(batch.prompt_mask_QP.sum() + batch.mask_BT.sum()) for batch in batches)
    written = sum(int(batch.lengths.sum()) for batch in batches)
    anew = sum(map(encoded_anew, batches))
    print(
        f"{at_once} at once: {60 * count / seconds:.1f} trajectories/minute, {written / seconds:.0f} tokens/s written, "
        f"{written / count:.0f} a trajectory, tools {meter.waited_s / seconds:.2%} of the time; {meter.encoded} of "
        f"{tokens} tokens encoded, {anew} if each turn began anew"
    )
    return {
        f"trajectories_per_minute_{at_once}": 60 * count / seconds,
        f"written_tokens_per_s_{at_once}": written / seconds,
        f"tools_share_{at_once}": meter.waited_s / seconds,
        f"encoded_per_token_{at_once}": meter.encoded / tokens,
        f"encoded_anew_per_token_{at_once}": anew / tokens,
    }


def encoded_anew(batch: Rollouts) -> int:
    """Return the tokens that would be encoded if each turn of each trajectory encoded all tokens before it."""
    written = batch.written_BT
    ends = written & ~pad(written[:, 1:], (0, 1))
    rows, places = ends.nonzero(as_tuple=True)
    return int((batch.prompt_mask_QP.sum(-1)[batch.prompt_of_B[rows]] + places + 1).sum())


def slow_tool(policy: Policy, prompts: Sequence[Prompt], sampling: SamplingConfig, sleep_s: float) -> dict[str, float]:
    """Sample with and without a slow tool; return when the episodes without it made their last calls.

    Sampling is nearly greedy, so that these write the same both times.
    """
    assert policy.acting is not None
    acting, greedy = policy.acting, sampling.model_copy(update={"temperature": 0.01})
    ends: dict[str, list[float]] = {}
    trajectories = []
    for name, seconds in (("without", 0.0), ("with", sleep_s)):
        environment = SlowFirst(acting.environment, seconds)
        policy.acting = replace(acting, environment=environment)
        start = time.perf_counter()
        batch = policy.sample(prompts, 1, greedy, seed=0)
        print(f"{name} a slow tool: {time.perf_counter() - start:.1f} s until all have ended")
        ends[name] = [end - start for end in environment.ends]
        trajectories.append([episode.messages for episode in batch.episodes or ()])
    policy.acting = acting
    same = sum(one == other for one, other in zip(*(rows[1:] for rows in trajectories), strict=True))
    last = {name: statistics.mean(times[1:]) for name, times in ends.items()}
    print(
        f"a tool of one of {len(prompts)} sleeps {sleep_s:g} s in each call: the last calls of the others come after "
        f"{last['with']:.1f} s, {last['without']:.1f} s without ({same} of {len(prompts) - 1} wrote the same); those "
        f"of the slow one after {ends['with'][0]:.1f} s, {ends['without'][0]:.1f} s without"
    )
    return {f"others_last_call_s_{name}": seconds for name, seconds in last.items()}


if __name__ == "__main__":
    main()
