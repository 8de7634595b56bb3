"""Does the demo's policy get better, whatever the seed? `rubricsvc demo` with each seed, and a table.

    python -m bench.bench_demo [--seeds 0 1 2] [--out FOLDER] [--json] [-- OPTIONS OF THE DEMO]

A seed has a folder of its own. Its result is FOLDER/seed-N.json: a seed that has one is not run again, and one that was
interrupted continues, whose seconds are then those of its last part. The last step's policy is compared with the one
after the demonstrations on held-out prompts, by the checks; the script searches, opens and quotes without a model.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch


def main() -> None:
    """Run the seeds that have no result yet, and print all results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=range(10))
    parser.add_argument("--out", type=Path, default=Path("demo-seeds-out"))
    parser.add_argument("--json", action="store_true", help="print a JSON line for each seed, not a table")
    parser.add_argument("options", nargs="*", help="options of `rubricsvc demo`, after `--`")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = [result_of(args.out, seed, args.options) for seed in args.seeds]
    if args.json:
        print("\n".join(map(json.dumps, rows)))
        return
    print("| seed | start | end | difference | script | seconds | load |\n|--:|--:|--:|---|--:|--:|--:|")
    for row in rows:
        change = "{value:+.3f} [{low:+.3f}, {high:+.3f}]".format(**row["difference"])
        values = " | ".join(f"{row[name]:.3f}" for name in ("start", "end"))
        print(
            f"| {row['seed']} | {values} | {change} | {row['script']:.3f} | {row['seconds']:.0f} | {row['load']:.1f} |"
        )
    better = sum(row["difference"]["low"] > 0 for row in rows)
    print(f"better in {better} of {len(rows)} seeds; {', '.join(sorted({row['processor'] for row in rows}))}")


def result_of(out: Path, seed: int, options: Sequence[str]) -> dict[str, Any]:
    """Return the result of a seed, which is run where there is none; models are deleted then, the report is kept."""
    path, folder = out / f"seed-{seed}.json", out / f"seed-{seed}"
    if path.is_file():
        return dict(json.loads(path.read_bytes()))
    command = [sys.executable, "-m", "rubricsvc", "demo", "--json", "--seed", str(seed), "--out", str(folder), *options]
    start = time.perf_counter()
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = [json.loads(line) for line in printed.splitlines()]
    before, *_, last = (line["scores"]["checks"] for line in lines if "baseline" not in line)
    script = next(line["scores"]["checks"]["mean"]["value"] for line in lines if line.get("baseline") == "script")
    means = {"start": before["mean"]["value"], "end": last["mean"]["value"], "script": script}
    seconds, load = time.perf_counter() - start, os.getloadavg()[2]  # 2 on an idle machine with 2 cores
    result = {"seed": seed, **means, "difference": last["mean_difference"], "seconds": seconds, "load": load}
    path.write_text(json.dumps(result | {"processor": processor()}), encoding="utf-8")
    for model in folder.rglob("*.safetensors"):
        model.unlink()
    shutil.copy(folder / "report.html", out / f"seed-{seed}.html")
    return result_of(out, seed, options)


def processor() -> str:
    """Return the processor with the instructions that decide how fast it multiplies matrices, and its cores."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
