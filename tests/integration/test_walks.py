"""The main paths are short: `python -m bench.walks --list` shows them."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LIMITS = {"job": (57, 22), "run": (65, 23), "rubric": (32, 12), "episode": (25, 8)}
"""Functions and files."""


def test_main_paths_are_short(tmp_path: Path) -> None:
    out = tmp_path / "walks.json"
    subprocess.run([sys.executable, "-m", "bench.walks", "--out", str(out)], cwd=ROOT, check=True, timeout=300)
    walks = json.loads(out.read_text())
    long = {
        name: walk
        for name, walk in walks.items()
        if walk["functions"] > LIMITS[name][0] or walk["files"] > LIMITS[name][1]
    }
    assert walks.keys() == LIMITS.keys() and not long
