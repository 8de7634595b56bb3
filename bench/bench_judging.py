"""Our judges beside AutoRubric on one vLLM server: the same criteria on the same completions, one after the other.

    python -m bench.bench_judging [--cases 10x1200 …] [--autorubric PYTHON] [--rounds N] …

Runs in an environment with vLLM (`make bench-judging` makes it). A case is the number of criteria and the tokens of the
completion. Before each measurement the server's prefix cache is emptied; tokens are those that vLLM counts. Ours are
medians of the rounds, AutoRubric is measured once. The server's replies are greedy and bounded, for both sides alike: a
small model that may go on writes to the end of its context. Beside the seconds stand:

- computed: prompt tokens that were not served from the prefix cache.
- served: the share of prompt tokens that was.
- of ideal: the tokens that were served, by those that would be if each distinct prefix were computed once.
- roofline: the arithmetic of that ideal (2·P a token and 4·L·d a token looked at; P parameters without embeddings), by
  the seconds, by what a bfloat16 matrix product reaches on all cores.

The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pydoc_data.topics
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from transformers import AutoConfig

from bench.vllm_server import NAME, Server, vllm_server
from rubricsvc.core.judge import Endpoint, Judge, Mode, Sampling
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from workers import judges
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.engines.local.conversation import Conversation
from workers.engines.local.models import model_path, open_tokenizer
from workers.engines.local.prefix_tree import shared_length
from workers.scoring.completions import score

TASK = "Explain how Python's special method names, compound statements and standard types work, with examples."
POINTS = (
    "says when an object's __del__ is called and what may go wrong in it",
    "names the rule by which __eq__ and __hash__ belong together",
    "explains what a metaclass is for",
    "shows an example with code that can be run",
    "tells the difference between __getattr__ and __getattribute__",
    "warns of a mistake that beginners often make",
    "says what a descriptor's methods are called with",
    "mentions how truth is decided for an object without __bool__",
    "states which methods a context manager must have",
    "says in which version a feature was added or changed",
    "defines its terms before it uses them",
    "explains how slots save memory",
    "claims something that is not true of Python",
    "compares the approach with that of another language",
    "explains how an iterator ends",
    "says what happens when a comparison is not implemented",
    "tells how instances are made before __init__ is called",
    "refers the reader to another section for more",
    "explains what awaiting an object does",
    "uses a list or headings to order what it says",
)


@dataclass(frozen=True)
class Case:
    rubric: Rubric
    completion: Completion
    prompt: Prompt


@dataclass(frozen=True)
class Estimate:
    """One side's figures on a case. ``verdicts`` were found; ``errors`` say why others were not.

    ``share`` (of ideal) is None where the prompts are not ours to know, ``roofline`` also where most is writing.
    """

    case: str
    side: str
    seconds: float
    verdicts: int
    prompt: int
    computed: int
    written: int
    share: float | None = None
    roofline: float | None = None
    errors: tuple[str, ...] = ()


def case_of(criteria: int, tokens: int, tokenizer: Any) -> Case:
    text = "\n\n".join(pydoc_data.topics.topics[name] for name in ("specialnames", "compound", "types"))
    shown = tokenizer.decode(tokenizer(text[: tokens * 8])["input_ids"][:tokens])
    points = (Criterion(key=f"c{n}", text=f"The answer {point}.") for n, point in enumerate(POINTS[:criteria]))
    return Case(Rubric(criteria=tuple(points)), Completion(text=shown), Prompt.of(TASK))


class Work:
    """What a judge's prompts for a case would cost at the least: each distinct prefix computed once."""

    def __init__(self, judge: Judge, case: Case, conversation: Conversation) -> None:
        plan = judges.plan(judge, case.rubric)
        ask = plan.request(plan.template.shared(case.prompt, case.completion.text))
        rows = sorted(conversation.encode(ask))
        before = [0, *(shared_length(list(pair)) for pair in pairwise(rows))]
        self.new = [(len(row) - known, known) for row, known in zip(rows, before, strict=True)]
        self.shared = sum(before)

    def flops(self, config: Any) -> float:
        """Of reading, without the output layer (anchors: F(n|m) = 2Pn + 4Ldn(m + n/2))."""
        wide, layers = config.hidden_size, config.num_hidden_layers
        keys = wide * config.num_key_value_heads // config.num_attention_heads
        parameters = layers * (2 * wide * wide + 2 * wide * keys + 3 * wide * config.intermediate_size)
        return float(sum(2 * parameters * n + 4 * layers * wide * n * (m + n / 2) for n, m in self.new))


def roofline() -> float:
    """FLOP/s of a bfloat16 matrix product on all cores: the best of many, of three sizes."""
    torch.set_num_threads(os.cpu_count() or 1)
    reached = 0.0
    for size, times in ((512, 400), (1024, 200), (2048, 30)):
        left, right = (torch.randn(size, size).to(torch.bfloat16) for _ in range(2))
        for _ in range(times):
            start = time.perf_counter()
            left @ right
            reached = max(reached, 2.0 * size**3 / (time.perf_counter() - start))
    return reached


def judges_of(server: Server, reply_tokens: int) -> dict[str, Judge]:
    def judge(mode: Mode, *, lists: bool = True) -> Judge:
        endpoint = Endpoint(base_url=server.base_url, prompt_lists=lists, timeout_s=1800)
        sampling = Sampling(max_tokens=reply_tokens)
        return Judge(name=mode, model=NAME, mode=mode, endpoint=endpoint, sampling=sampling)

    return {
        "readout, one request": judge("readout"),
        "readout, a chat each": judge("readout", lists=False),
        "written": judge("written"),
    }


@contextmanager
def autorubric(python: str, base_url: str) -> Iterator[Callable[[Case], dict[str, Any]]]:
    """AutoRubric in its own process: give it a case, get what it says."""
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [python, "-m", "bench.autorubric_judge"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:

        def grade(case: Case) -> dict[str, Any]:
            assert other.stdin is not None
            assert other.stdout is not None
            criteria = [criterion.text for criterion in case.rubric.criteria]
            context = {"base_url": base_url, "model": NAME, "criteria": criteria, "task": TASK}
            print(json.dumps(context | {"completion": case.completion.text}), file=other.stdin, flush=True)
            found: dict[str, Any] = json.loads(other.stdout.readline())
            return found

        yield grade


async def ours(engine: Engine, judge: Judge, case: Case) -> tuple[float, int]:
    """Seconds, and how many criteria got a verdict."""
    start = time.perf_counter()
    found = await score(engine, judge, case.rubric, case.prompt, case.completion)
    seconds = time.perf_counter() - start
    return seconds, sum(verdict.outcome != "failed" for verdict in found)


class Bench:
    def __init__(self, server: Server, options: argparse.Namespace, peak: float) -> None:
        self.server, self.options, self.peak = server, options, peak
        self.tokenizer = open_tokenizer("embedded")
        self.conversation = Conversation(self.tokenizer)
        self.config = AutoConfig.from_pretrained(model_path("embedded"))
        self.judges = judges_of(server, options.reply_tokens)

    async def run(self) -> list[Estimate]:
        engines = {name: make_engine(judge) for name, judge in self.judges.items()}
        figures = []
        with autorubric(self.options.autorubric, self.server.base_url) as other:
            warm = case_of(2, 50, self.tokenizer)
            other(warm)
            for name, judge in self.judges.items():
                await ours(engines[name], judge, warm)
            for label in self.options.cases:
                criteria, tokens = map(int, label.split("x"))
                case = case_of(criteria, tokens, self.tokenizer)
                for name, judge in self.judges.items():
                    figures.append(await self.measure(label, name, judge, engines[name], case))
                    show(figures[-1])
                if label not in self.options.without:
                    figures.append(self.beside(label, case, other))
                    show(figures[-1])
        for engine in engines.values():
            await engine.aclose()
        return figures

    async def measure(self, label: str, name: str, judge: Judge, engine: Engine, case: Case) -> Estimate:
        times: list[float] = []
        for _ in range(self.options.rounds):
            self.server.forget()
            before = self.server.tokens()
            seconds, verdicts = await ours(engine, judge, case)
            times.append(seconds)
            used = self.server.tokens() - before
        work, seconds = Work(judge, case, self.conversation), statistics.median(times)
        line = work.flops(self.config) / seconds / self.peak if judge.mode == "readout" else None
        spent = used.prompt, used.computed, used.written
        return Estimate(label, name, seconds, verdicts, *spent, share=used.served / work.shared, roofline=line)

    def beside(self, label: str, case: Case, other: Callable[[Case], dict[str, Any]]) -> Estimate:
        self.server.forget()
        before = self.server.tokens()
        said = other(case)
        used = self.server.tokens() - before
        spent = used.prompt, used.computed, used.written
        return Estimate(label, "AutoRubric", said["seconds"], said["verdicts"], *spent, errors=tuple(said["errors"]))


def show(one: Estimate) -> None:
    share = "" if one.share is None else f"{one.share:9.0%}"
    line = "" if one.roofline is None else f"{one.roofline:9.0%}"
    print(
        f"{one.case:>8} {one.side:22}{one.seconds:9.2f}{one.verdicts:9}{one.prompt:9}{one.computed:10}"
        f"{1 - one.computed / one.prompt:8.0%}{one.written:9}{share:>9}{line:>9}",
        flush=True,
    )


def ratios(figures: list[Estimate]) -> dict[str, dict[str, float]]:
    """AutoRubric's seconds by ours, by case and side."""
    theirs = {one.case: one.seconds for one in figures if one.side == "AutoRubric"}
    found: dict[str, dict[str, float]] = {case: {} for case in theirs}
    for one in figures:
        if one.case in theirs and one.side != "AutoRubric":
            found[one.case][one.side] = round(theirs[one.case] / one.seconds, 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["10x300", "10x1200", "10x3500", "20x300", "20x1200", "20x3500"])
    parser.add_argument("--without", nargs="*", default=[], metavar="CASE", help="cases that AutoRubric is spared")
    parser.add_argument("--autorubric", default=".venv-autorubric/bin/python", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--reply-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    peak = roofline()
    print(f"bf16 matrix product on {os.cpu_count()} cores: {peak / 1e9:.0f} GFLOP/s")
    setting = {"block_size": options.block_size, "reply_tokens": options.reply_tokens, "threads": options.threads}
    with vllm_server(**setting) as server:
        columns = "  seconds verdicts   prompt  computed  served  written of ideal roofline"
        print(f"{'case':>8} {'side':22}{columns}", flush=True)
        figures = asyncio.run(Bench(server, options, peak).run())
    faster = ratios(figures)
    for case, by_side in faster.items():
        print(f"{case}: times faster than AutoRubric:", ", ".join(f"{side} {by}" for side, by in by_side.items()))
    context = {"bench": "judging", "gemm_gflops": round(peak / 1e9, 1), **setting, "faster": faster}
    print(json.dumps(context | {"metrics": [asdict(one) for one in figures]}))


if __name__ == "__main__":
    main()
