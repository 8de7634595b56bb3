"""Attacks that once worked, each at a door that a stranger reaches: HTTP, the command line, the replies of a judge."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.service_process import serving

MIB = 2**20
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a service with a worker, and its process."""
    folder = tmp_path_factory.mktemp("attacked")
    with serving(folder, f"sqlite:///{folder / 'rubricsvc.db'}") as (address, process):
        yield address, process


def filled(before: str, unit: str, after: str, size: int = 31 * MIB) -> Callable[[], bytes]:
    return lambda: before.encode() + unit.encode() * (size // len(unit)) + after.encode()


BODIES = {
    "labels of nothing": ("labels", filled('{"labels":[', "{},", "{}]}")),
    "few labels of nothing": ("labels", filled('{"labels":[', "{},", "{}]}", 240_000)),
    "items of nothing": ("jobs", filled('{"judge":"j","items":[', "[],", "[]]}")),
    "completions of nothing": ("completions", filled('{"completions":[', '"",', '""]}')),
    "criteria of nothing": ("rubrics", filled('{"name":"r","rubric":{"criteria":[', "1,", "1]}}")),
    "few criteria of nothing": ("rubrics", filled('{"name":"r","rubric":{"criteria":[', "{},", "{}]}}", 370_000)),
    "messages of nothing": ("prompts", filled('{"prompt":{"messages":[', '{"a":{}},', "{}]}}")),
    "graders of nothing": ("graders/validate", filled('{"grader":{"graders":[', "{},", "{}]}}")),
    "members of nothing": ("judges", filled('{"judge":{"members":[', "{},", "{}]}}")),
    "depth": ("prompts", filled("", "[", "")),
    "unknown fields": ("prompts", lambda: b"{" + b",".join(b'"k%d":1' % n for n in range(2_000_000)) + b"}"),
    "a long string": ("prompts", filled('{"prompt":"', "x", '"}')),
    "a long escaped string": ("prompts", filled('{"prompt":"', r"\n", '"}')),
    "a string that does not end": ("prompts", filled('{"prompt":"', r"\"", "")),
    "digits in a string": ("prompts", filled('{"prompt":"', "1" * 299 + "a", '"}')),
    "large numbers": ("prompts", filled('{"prompt":[', "1" * 4000 + ",", "1]}")),
    "a number": ("prompts", filled('{"prompt":', "1", "}")),
    "a JSON file of nothing": ("imports?name=a.json", filled("[", "{},", "{}]")),
    "a JSONL file of no JSON": ("imports?name=a.jsonl&skip_invalid=true", filled("", "x\n", "")),
    "a YAML file of nothing": ("imports?name=a.yaml", filled("", "- {}\n", "")),
    "more than the limit": ("labels", filled("", " ", "", 40 * MIB)),
}


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads the memory of a process in /proc")
def test_service_refuses_huge_bodies_in_bounded_memory_and_stays_alive(
    attacked: tuple[str, subprocess.Popen[bytes]],
) -> None:
    address, process = attacked
    before = peak_memory(process.pid)
    statuses: dict[str, int] = {}
    for name, (path, content) in BODIES.items():
        body = content()
        alive = threading.Thread(target=stay_alive, args=(address, done := threading.Event(), failed := []))
        alive.start()
        try:
            statuses[name] = httpx2.post(f"{address}/v1/{path}", content=body, headers=JSON, timeout=30).status_code
        finally:
            done.set()
            alive.join()
        assert not failed, (name, failed)
    assert {name: status for name, status in statuses.items() if status not in {400, 413, 422}} == {}
    assert peak_memory(process.pid) - before < 800 * MIB


def stay_alive(address: str, done: threading.Event, failed: list[Exception]) -> None:
    """Ask for /healthz until ``done``; the time-out is the deadline of each answer."""
    with httpx2.Client(timeout=5) as client:
        while not done.wait(0.02):
            try:
                assert client.get(f"{address}/healthz").status_code == 200
            except (httpx2.TransportError, AssertionError) as error:
                failed.append(error)


def peak_memory(pid: int) -> int:
    """The largest resident size of a process so far, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
