"""Attacks that once worked, each at a door that a stranger reaches: HTTP and the command line."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rubricsvc.client import Client
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from tests.cli import Cli, cli
from tests.service_process import TIMEOUT, serving

__all__ = ["cli"]

MIB = 2**20
JSON = {"Content-Type": "application/json"}
SAYS_A = Rubric(criteria=(Criterion(key="a", text="Says a."),))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a service with a worker, and its process."""
    folder = tmp_path_factory.mktemp("attacked")
    with serving(folder, f"sqlite:///{folder / 'rubricsvc.db'}") as (address, process):
        yield address, process


@pytest.fixture
def client(attacked: tuple[str, subprocess.Popen[bytes]]) -> Iterator[Client]:
    with Client(attacked[0]) as client:
        yield client


def test_rubrics_that_differ_by_null_are_scored_apart(client: Client) -> None:
    schemas: list[dict[str, Any]] = [{"const": None}, {}, {"const": 0.0}, {"const": -0.0}]
    rubrics = [
        Rubric(criteria=(Criterion(key="a", text="Is valid.", check=Check(name="json_schema", args={"schema": one})),))
        for one in schemas
    ]
    assert len({client.rubrics.add(rubric, "schemas").version for rubric in rubrics}) == 4
    judge = Judge(name="unasked", model="m", endpoint=Endpoint(base_url="http://127.0.0.1:9/v1"))
    scored = [client.score("Write 5.", rubric, ["5"], judge, timeout=TIMEOUT)[0].reward for rubric in rubrics]
    assert scored == [0.0, 1.0, 0.0, 0.0]
    items: list[dict[str, Any]] = [{"x": None}, {}, {"x": 0.0}, {"x": -0.0}]
    assert len({client.prompts.add(Prompt.of("Q", item=item)).id for item in items}) == 4


def deep_schema(depth: int) -> str:
    """A rubric in JSON whose schema has this many levels."""
    schema = '{"items":' * depth + "{}" + "}" * depth
    check = f'{{"name": "json_schema", "args": {{"schema": {schema}}}}}'
    return f'{{"criteria": [{{"key": "a", "text": "t", "check": {check}}}]}}'


def test_deep_schema_is_refused(client: Client, cli: Cli, tmp_path: Path) -> None:
    for depth in [65, 124, 190, 100_000]:
        rubric = deep_schema(depth)
        for path, content in (("rubrics", f'{{"name": "r", "rubric": {rubric}}}'), ("imports?name=r.json", rubric)):
            assert client.http.request("POST", path, content=content, headers=JSON).status_code in {400, 422}
        for name in ("r.jsonl", "r.yaml"):
            (tmp_path / name).write_text(rubric)
            ran = cli("rubrics", "import", name)
            assert ran.code == 2 and "deep" in ran.err and "bug" not in ran.err


LEAKS = [
    "http://api.openai.com/v1", "http://API.OpenAI.com.:80/v1", "http://evil\\@api.openai.com", "http://user:pw@host",
]  # fmt: skip


def test_judge_address_that_would_leak_a_key_is_refused(client: Client, cli: Cli) -> None:
    for url in LEAKS:
        judge = {"name": "j", "model": "m", "endpoint": {"base_url": url}}
        answer = client.http.request("POST", "judges", json={"judge": judge})
        assert (answer.status_code, answer.json()["error"]["path"]) == (422, "body.judge.endpoint.base_url")
        for command in (["j", "--url", url, "--model", "m"], ["-f", "-"]):
            ran = cli("judges", "add", *command, "--no-probe", stdin=json.dumps(judge))
            assert ran.code == 2 and "url" in ran.err


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
    "a JSONL file of tiny records": ("imports?name=a.jsonl", filled("", '{"criteria":["a"]}\n', "")),
    "a file of one rubric of nothing": ("imports?name=a.json", filled('{"criteria":[', "1,", "1]}", 490_000)),
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
