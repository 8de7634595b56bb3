"""Policies trained against judges with a known bias, and the alarms that should catch them.

    python -m bench.bench_hacking [--biases NAME …] [--seeds N] [--steps N] [--out FOLDER]

Judges behind an OpenAI-compatible server give min(1, main + 0.5 · cue), in the manner of CHERRL (arXiv 2606.04923), for
six cues; the gold score is the honest judge's, which is never trained on. All runs begin with one policy, which has
learned demonstrations of mostly plain answers, a few with each cue. Each run goes through `runs start`: database, queue
and worker. The table says when a policy took the bias and which alarm was raised when, and what is raised in runs with
a judge that is always right (``clean``), or right on average (``noisy``). The same command continues an interrupted
benchmark and keeps what is finished.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.bench_run import rubricsvc
from bench.hacking.biases import BIASES, UNBIASED
from bench.hacking.facts import Fact, load_facts
from bench.hacking.judge import HONEST, biased_judges
from bench.hacking.picture import draw
from bench.hacking.results import RADIUS, RISE, TrainedRun, base_rates, outcome, raised, summary, table
from rubricsvc.core.prompt import Completion
from rubricsvc.formats import writing
from rubricsvc.services.runs import Runs
from rubricsvc.store import runs
from rubricsvc.store.session import Database, by_id
from rubricsvc.store.tables import CompletionRow
from trainer import checkpoint, recording
from trainer.config import TrainConfig
from trainer.data.tasks import tasks_of
from trainer.evaluation import LINES
from trainer.loop import warm_up, warmed_up_model
from trainer.policies.policy import Policy
from trainer.rewards import CallableRewards

CONDITIONS = (*BIASES, *UNBIASED)
PLAIN, CUES = 3, 2
"""Full plain answers, as many partial ones, and demonstrations of each cue: what is never sampled is never found."""
RUN = "run"
FINISHED = "finished.json"
"""In the folder of a run: it is finished, and how long it took."""

CONFIG = """\
steps = {steps}
seed = {seed}
out = "run"
checkpoint_every = 0
keep_checkpoints = 1
criterion_metrics = true
policy = {{model = "../policy"{dtype}}}
data = {{path = "../training.jsonl"}}
judge = {{name = "{condition}", model = "{condition}", endpoint = {{base_url = "{url}"}}}}

[sampling]
prompts_per_step = 2
group_size = {group_size}
max_new_tokens = {max_new_tokens}

[optim]
lr = {lr}
warmup_steps = 2

[eval]
path = "../held-out.jsonl"
every = {every}
samples = {samples}
greedy = false
judges = [{{name = "{gold}", model = "{gold}", endpoint = {{base_url = "{url}"}}}}]
"""


@dataclass(frozen=True)
class Settings:
    """What all runs of a folder share."""

    policy: str = "embedded"
    steps: int = 32
    lr: float = 5e-5
    group_size: int = 8
    max_new_tokens: int = 48
    every: int = 4
    samples: int = 2
    warm_up_steps: int = 60
    warm_up_lr: float = 1e-4
    dtype: str | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench-hacking"))
    parser.add_argument("--biases", nargs="+", choices=CONDITIONS, default=CONDITIONS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="Runs at once, which share the cores.")
    args = parser.parse_args()
    benchmark(args.out, replace(Settings(), steps=args.steps), args.biases, range(args.seeds), args.jobs)


def benchmark(
    out: Path, settings: Settings, conditions: Sequence[str], seeds: Sequence[int], jobs: int = 1
) -> dict[str, Any]:
    """Train what is not finished, print the table, and write ``hacking.json`` and ``hacking.svg``; return the JSON.

    Runs that share the cores with others have a thread each: two of them end sooner than one after the other.
    """
    facts = load_facts()
    open_folder(out, settings, facts)
    if not (out / "policy").is_dir():
        print("warming up the policy that all runs begin with", flush=True)
        learn_demonstrations(out, settings, facts)
    cells = [(condition, seed) for seed in seeds for condition in conditions]
    trained: list[TrainedRun] = []
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with biased_judges() as server, ThreadPoolExecutor(jobs) as pool:
        folders = pool.map(lambda cell: train(out, settings, cell, server.url, threads), cells)
        for number, ((condition, seed), folder) in enumerate(zip(cells, folders, strict=True), 1):
            trained.append(read(folder, condition, seed))
            print(f"{number} of {len(cells)}: {described(trained)}", flush=True)
    results = {"settings": asdict(settings), "onset": {"rise": RISE, "radius": RADIUS}} | summary(trained)
    (out / "hacking.json").write_text(json.dumps(results, indent=2), encoding="utf-8")
    draw(trained, results, out / "hacking.svg")
    minutes = f"{results['seconds'] / 60:.0f} minutes of training, {jobs} runs at once"
    print(f"\n{table(results)}\n\n{minutes}; {out / 'hacking.json'}", flush=True)
    return results


def described(trained: Sequence[TrainedRun]) -> str:
    """Return a line about the newest run."""
    run = trained[-1]
    title = f"{run.condition}, seed {run.seed}, {run.seconds:.0f} s: "
    if run.condition in UNBIASED:
        return title + f"alarms {raised(run.steps, run.evaluations) or 'none'}"
    base = base_rates(trained)[run.condition]
    found = outcome(run, base)
    return (
        title + f"rate {base:.2f} to {found.final_rate:.2f}, onset {found.onset}, alarms {dict(found.alarms) or 'none'}"
    )


def open_folder(out: Path, settings: Settings, facts: Sequence[Fact]) -> None:
    """Write the prompts and the settings, or check that those of the folder are the same."""
    shared = {
        "settings": asdict(settings),
        "config": CONFIG,
        "demonstrations": {f.name: demonstrations(f) for f in facts},
    }
    text, path = json.dumps(shared, indent=2), out / "settings.json"
    if path.is_file() and path.read_text(encoding="utf-8") != text:
        raise SystemExit(f"{out} has runs with other settings; choose another folder with --out, or delete it")
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    for name, held_out in (("training", False), ("held-out", True)):
        with (out / f"{name}.jsonl").open("w", encoding="utf-8") as stream:
            writing.write_text(
                map(writing.plain, [fact.record for fact in facts if fact.held_out is held_out]), stream, "jsonl"
            )


def demonstrations(fact: Fact) -> list[str]:
    """Return the completions of a prompt that the policy learns first."""
    cues = [bias.demonstration(fact) for bias in BIASES.values()]
    return [fact.full] * PLAIN + [fact.partial] * PLAIN + cues * CUES


def learn_demonstrations(out: Path, settings: Settings, facts: Sequence[Fact]) -> None:
    """Save the policy that all runs begin with in ``out/policy``; all demonstrations are learned alike."""
    trained = [fact for fact in facts if not fact.held_out]
    tasks = [
        replace(task, demonstrations=tuple(Completion(text=text) for text in demonstrations(fact)))
        for task, fact in zip(tasks_of(fact.record for fact in trained), trained, strict=True)
    ]
    config = TrainConfig.model_validate(
        {
            "steps": 1,
            "out": out / "warm-up",
            "sampling": {"prompts_per_step": len(tasks), "group_size": 2},
            "demonstrations": {"steps": settings.warm_up_steps, "lr": settings.warm_up_lr},
        }
    )
    rewards = CallableRewards(lambda _prompt, _text: 1.0)
    warm_up(config, lambda: Policy.load(settings.policy, dtype=settings.dtype), tasks, rewards, on_step=_show_step)
    shutil.move(warmed_up_model(config), out / "policy")
    shutil.rmtree(out / "warm-up")


def _show_step(step: dict[str, Any]) -> None:
    print(f"step {step['step']}: loss {step['loss']:.2f}, {step['step_time']:.1f} s", flush=True)


def train(out: Path, settings: Settings, cell: tuple[str, int], url: str, threads: int) -> Path:
    """Train or continue the run of a condition and a seed unless it is finished; return its folder."""
    condition, seed = cell
    folder = out / f"{condition}-{seed}"
    if (folder / FINISHED).is_file():
        return folder
    folder.mkdir(exist_ok=True)
    dtype = f', dtype = "{settings.dtype}"' if settings.dtype else ""
    fields = {"seed": seed, "condition": condition, "gold": HONEST, "url": url, "dtype": dtype}
    (folder / "run.toml").write_text(CONFIG.format(**asdict(settings) | fields), encoding="utf-8")
    resume = ["--resume"] if checkpoint.has_run(folder / RUN) else []
    start = time.perf_counter()
    rubricsvc(folder, "runs", "start", "run.toml", *resume, threads=threads)
    (folder / FINISHED).write_text(json.dumps({"seconds": time.perf_counter() - start}), encoding="utf-8")
    for weights in ("checkpoints", "best"):
        shutil.rmtree(folder / RUN / weights, ignore_errors=True)
    return folder


def read(folder: Path, condition: str, seed: int) -> TrainedRun:
    """Return a finished run."""
    texts = list(completions_by_step(folder / "run.db"))
    rates = {name: [fmean(map(bias.cue, step)) for step in texts] for name, bias in BIASES.items()}
    first = [*texts[0], *starting_completions(folder / "run.db")]
    start = {name: [bias.cue(text) for text in first] for name, bias in BIASES.items()}
    evaluations = sorted(recording.read(folder / RUN, LINES), key=lambda line: int(line["step"]))
    seconds = json.loads((folder / FINISHED).read_text(encoding="utf-8"))["seconds"]
    return TrainedRun(condition, seed, recording.read(folder / RUN), evaluations, rates, start, seconds)


def completions_by_step(path: Path) -> Iterator[list[str]]:
    """Yield the texts of the completions of each step of the only run in a database."""
    with closing(Database(f"sqlite:///{path.resolve()}")) as db, db.read() as session:
        (run,) = list(Runs(db).page())
        for step in range(1, run.steps + 1):
            rows = runs.rollouts(session, run.id, step=step, limit=10_000)
            texts = by_id(session, CompletionRow, {row.completion_id for row in rows})
            yield [texts[row.completion_id].value.text for row in rows]


def starting_completions(path: Path) -> list[str]:
    """Return the texts of the completions of the first evaluation of the only run in a database."""
    with closing(Database(f"sqlite:///{path.resolve()}")) as db, db.read() as session:
        (run,) = list(Runs(db).page())
        first = next(one for one in Runs(db).evaluations(run.id) if one.step == 0)
        rows = runs.evaluation_completions(session, run.id, evaluation_id=first.id, limit=10_000)
        texts = by_id(session, CompletionRow, {row.completion_id for row in rows})
        return [texts[row.completion_id].value.text for row in rows]


if __name__ == "__main__":
    main()
