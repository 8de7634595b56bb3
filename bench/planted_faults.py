"""Plant faults into a copy of the product, one at a time, and report which of them the tests catch.

    python -m tests.services python -m bench.planted_faults [--only ID …] [--out FILE] [--tree FOLDER]

``planted_faults.yaml`` has the faults. First the named tests run on the copy without a fault: they must pass.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
FAULTS = Path(__file__).with_suffix(".yaml")
COPIED = ("rubricsvc", "workers", "trainer", "migrations", "recipes", "bench", "tests", "docs", "pyproject.toml")
TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class Fault:
    """A change of one file that the tests must catch."""

    id: str
    subject: str
    file: str
    old: str
    new: str
    breaks: str
    tests: list[str]

    def planted(self, tree: Path) -> str:
        """Return the text of the file with the fault.

        Raises:
            ValueError: The old text does not occur exactly once.
        """
        text = (tree / self.file).read_text() if (tree / self.file).is_file() else ""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.id}: its old text occurs {count} times in {self.file}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Result:
    """What the tests said of a fault: the test that failed first, or None."""

    id: str
    subject: str
    caught: bool
    test: str | None
    seconds: float


def load_faults(path: Path = FAULTS) -> list[Fault]:
    return [Fault(**entry) for entry in yaml.safe_load(path.read_text())]


def copied(tree: Path, folder: Path) -> Path:
    """Copy what the tests need of ``tree``."""
    for name in COPIED:
        source = tree / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
        elif source.is_file():
            shutil.copy2(source, folder / name)
    return folder


def run_tests(tree: Path, tests: list[str], profile: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--hypothesis-profile={profile}"]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    run = partial(subprocess.run, check=False, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    return run([*command, *tests], cwd=tree, env=environment)


def tried(tree: Path, fault: Fault, profile: str) -> Result:
    """Plant a fault, run its tests and take it out again."""
    path = tree / fault.file
    before = path.read_text()
    path.write_text(fault.planted(tree))
    start = time.monotonic()
    try:
        done = run_tests(tree, fault.tests, profile)
    finally:
        path.write_text(before)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    caught = done.returncode == 1 and failed is not None
    if not caught and done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
    return Result(fault.id, fault.subject, caught, failed[1] if failed else None, round(time.monotonic() - start, 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="product and tests to copy")
    parser.add_argument("--faults", type=Path, default=FAULTS)
    parser.add_argument("--only", nargs="+", metavar="ID", help="only these faults")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--profile", default="quick", help="Hypothesis profile of the tests")
    parser.add_argument("--no-control", action="store_true", help="do not run the tests without a fault first")
    options = parser.parse_args()
    faults = [fault for fault in load_faults(options.faults) if not options.only or fault.id in options.only]
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = copied(options.tree.resolve(), Path(folder))
        for fault in faults:
            fault.planted(tree)  # all have their place
        if not options.no_control:
            control = run_tests(tree, sorted({test for fault in faults for test in fault.tests}), options.profile)
            if control.returncode:
                print(control.stdout[-4000:])
                return 2
            print("without a fault:", control.stdout.strip().splitlines()[-1], flush=True)
        for fault in faults:
            results.append(result := tried(tree, fault, options.profile))
            mark = "caught    " if result.caught else "NOT CAUGHT"
            print(f"{mark} {result.subject:14} {result.id:42} {result.seconds:6.1f} s  {result.test or ''}", flush=True)
    caught = sum(result.caught for result in results)
    print(f"{caught} of {len(results)} faults are caught")
    if options.out:
        options.out.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return 0 if caught == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
