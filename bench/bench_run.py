"""A run of one turn at length: held-out prompts, baselines at equal compute, and the report.

    python -m bench.bench_run [--out FOLDER] [--steps N] [--seed N] [--controls]

16 questions with passages in their prompts are split in half: 8 are trained on, 8 held out. The policy is trained
through the queue by the embedded judge and the checks of the rubrics; the gold score is that of the checks alone,
which no wording can fool as a model can be fooled. The same command continues an interrupted run. Printed are the
evaluations and the baselines; the page is FOLDER/report.html. With ``--controls`` its preflight is printed
first, and in place of the baselines stand runs with random, shuffled and frozen rewards.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from bench.run_questions import Question, load_questions
from rubricsvc.formats import writing
from rubricsvc.formats.record import Record

MOVED = ("radd", "finally", "default", "getattr")
"""Questions that are held out beside those that the file marks."""

CONFIG = """\
steps = {steps}
seed = {seed}
out = "training"
judge = "embedded"
checkpoint_every = 20
criterion_metrics = true

[data]
path = "training.jsonl"

[sampling]
prompts_per_step = 4
group_size = 4
max_new_tokens = 48
temperature = 0.7

[optim]
lr = 3e-5
warmup_steps = 2

[eval]
path = "held-out.jsonl"
every = {every}
samples = 4
checks = true
gold = "checks"
baselines = {baselines}
"""
CONTROLS = """
base = "run.toml"
mode = "one_at_a_time"
vary = {control.reward = ["random", "shuffled", "frozen"]}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench-run"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--controls", action="store_true")
    args = parser.parse_args()
    folder: Path = args.out
    folder.mkdir(parents=True, exist_ok=True)
    questions = load_questions()
    held_out = [one for one in questions if one.held_out or one.name in MOVED]
    write(folder / "training.jsonl", [one for one in questions if one not in held_out])
    write(folder / "held-out.jsonl", held_out)
    settings = {"steps": args.steps, "seed": args.seed, "every": max(1, args.steps // 3)}
    baselines = "false" if args.controls else "true"
    (folder / "run.toml").write_text(CONFIG.format(**settings, baselines=baselines), encoding="utf-8")
    rubricsvc(folder, "judges", "add", "embedded", "--embedded", "--no-probe")
    begun = (folder / "training" / "config.json").is_file()
    if args.controls:
        if not begun:
            rubricsvc(folder, "runs", "preflight", "run.toml")
        (folder / "controls.toml").write_text(CONTROLS, encoding="utf-8")
        rubricsvc(folder, "runs", "sweep", "controls.toml")
        return
    rubricsvc(folder, "runs", "start", "run.toml", *(["--resume"] if begun else []))
    rubricsvc(folder, "runs", "show", "training", "--evaluations")
    rubricsvc(folder, "runs", "report", "training", "--out", "report.html")


def write(path: Path, questions: list[Question]) -> None:
    """Write the questions with their passages and rubrics as a file of prompts."""
    with path.open("w", encoding="utf-8") as stream:
        writing.write_text(
            map(writing.plain, [Record(name=one.name, prompt=one.prompt, rubric=one.rubric) for one in questions]),
            stream,
            "jsonl",
        )


def rubricsvc(folder: Path, *arguments: str, threads: int | None = None) -> None:
    """Run a command with the database of the folder, on so many threads."""
    database = f"sqlite:///{(folder / 'run.db').resolve()}"
    environment = {**os.environ, "RUBRICSVC_DATABASE_URL": database}
    environment |= {"OMP_NUM_THREADS": str(threads)} if threads else {}
    subprocess.run([sys.executable, "-m", "rubricsvc", *arguments], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
