"""Import made-up rubrics into SQLite: the rate and the peak memory, beside a plain executemany of the same rows.

Each side runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def write(path: Path, count: int) -> None:
    """Write ``count`` rubrics of five criteria, each with a prompt of its own."""
    with path.open("w", encoding="utf-8") as stream:
        for number in range(count):
            texts = [f"States fact {place} of task {number}, with its source." for place in range(5)]
            criteria = [{"text": text, "weight": place + 1} for place, text in enumerate(texts)]
            record = {"id": f"p{number}", "prompt": f"What is known of task {number}?", "criteria": criteria}
            stream.write(json.dumps(record) + "\n")


def imported(path: Path, database: Path) -> int:
    """Import the file as `rubricsvc rubrics import` does; return the number of rubrics."""
    from rubricsvc.services.importing import Imports
    from rubricsvc.store.session import Database

    db = Database(f"sqlite:///{database}")
    result = Imports(db).create(path)
    db.close()
    return result.new["rubrics"]


def copied(source: Path, target: Path) -> int:
    """Insert the rows of the imported database into an empty one with executemany; return the number of rubrics."""
    import sqlite3

    reader, writer = sqlite3.connect(source), sqlite3.connect(target)
    count = 0
    for table in ("prompts", "rubrics"):
        rows = reader.execute(f"SELECT * FROM {table}")
        marks = ", ".join("?" * len(rows.description))
        count = writer.executemany(f"INSERT INTO {table} VALUES ({marks})", rows).rowcount
    writer.commit()
    return count


def run(side: str, *paths: Path) -> dict[str, Any]:
    """Run one side in a process of its own; return its figures."""
    command = [sys.executable, "-m", "bench.bench_import", "--side", side, *map(str, paths)]
    figures: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return figures


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rubrics", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--side", choices=["import", "executemany"])
    parser.add_argument("paths", type=Path, nargs="*")
    args = parser.parse_args()
    if args.side:
        started, used = time.perf_counter(), time.process_time()
        count = (imported if args.side == "import" else copied)(*args.paths)
        seconds = time.perf_counter() - started
        cpu_seconds = time.process_time() - used  # of a busy machine, what an idle one would need
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rates = {"rubrics_per_s": round(count / seconds), "rubrics_per_cpu_s": round(count / cpu_seconds)}
        print(json.dumps({"rubrics": count, **rates, "peak_mib": round(peak)}))
        return
    from tests.databases import fresh_url

    for count in args.rubrics:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rubrics.jsonl"
            write(path, count)
            empty = [Path(folder) / name for name in ("imported.db", "copied.db")]
            for target in empty:
                (Path(folder) / target.stem).mkdir()
                made = fresh_url("sqlite", Path(folder) / target.stem).removeprefix("sqlite:///")
                Path(made).rename(target)
            figures = {"import": run("import", path, empty[0]), "executemany": run("executemany", *empty)}
            print(json.dumps({"rubrics": count, "file_mib": round(path.stat().st_size / 2**20, 1)} | figures))


if __name__ == "__main__":
    main()
