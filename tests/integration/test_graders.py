"""OpenAI's own client runs one grader of each type on a served instance, over a socket."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from rubricsvc.client import Client
from rubricsvc.core.judge import Endpoint, Judge
from tests.integration.test_serve import service
from tests.scripted_server import ScriptedReply, ScriptedServer, scripted_server

ITEM = {"question": "The capital of France?", "answer": "Paris"}
ASKED = [
    {"role": "developer", "content": "You grade answers."},
    {"role": "user", "content": "Question: {{item.question}}\nAnswer: {{sample.output_text}}"},
]
STRING = {
    "type": "string_check", "name": "exact", "input": "{{sample.output_text}}", "reference": "{{item.answer}}",
    "operation": "ilike",
}  # fmt: skip
SIMILAR = {
    "type": "text_similarity", "name": "near", "input": "{{sample.output_text}}", "reference": "{{item.answer}}",
    "evaluation_metric": "rouge_l",
}  # fmt: skip
SCORE = {"type": "score_model", "name": "score", "model": "scripted", "input": ASKED, "range": [1, 10]}
LABEL = {
    "type": "label_model", "name": "label", "model": "scripted", "input": ASKED, "labels": ["right", "wrong"],
    "passing_labels": ["right"],
}  # fmt: skip
SOURCE = "def grade(sample, item):\n    return 1 / len(sample['output_text'].split())"
PYTHON = {"type": "python", "name": "short", "source": SOURCE, "image_tag": "2025-05-08"}
MULTI = {
    "type": "multi",
    "name": "all",
    "graders": {"exact": STRING, "score": SCORE},
    "calculate_output": "0.5 * exact + 0.5 * (score - 1) / 9",
}


def judge_says(_number: int, request: dict[str, Any]) -> ScriptedReply:
    """A judge that gives 7 out of 10 and the first label."""
    schema = request["response_format"]["json_schema"]["schema"]["properties"]["result"]
    result = schema["enum"][0] if "enum" in schema else 7
    usage = {"prompt_tokens": 50, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 20}}
    return ScriptedReply(json.dumps({"steps": [], "result": result}), usage=usage)


@pytest.fixture(scope="module")
def judge_server() -> Iterator[ScriptedServer]:
    with scripted_server(judge_says) as server:
        yield server


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, judge_server: ScriptedServer) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("graders")
    with service(folder, f"sqlite:///{folder / 'books.db'}") as address, Client(address) as client:
        endpoint = Endpoint(base_url=judge_server.url, max_retries=0)
        client.judges.add(Judge(name="local", model="scripted", mode="written", endpoint=endpoint))
        yield address


@pytest.fixture
def client(address: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=90) as client:
        yield client


@pytest.mark.parametrize(
    ("grader", "reward"),
    [(STRING, 1.0), (SIMILAR, 0.4), (SCORE, 7.0), (LABEL, 1.0), (PYTHON, 0.25), (MULTI, 0.5 + 0.5 * 6 / 9)],
    ids=lambda value: value["type"] if isinstance(value, dict) else None,
)
def test_run_answers_each_type_of_grader(
    client: OpenAI, grader: dict[str, Any], reward: float, request: pytest.FixtureRequest
) -> None:
    if grader is PYTHON:
        request.getfixturevalue("sandboxed")
    graders: Any = client.fine_tuning.alpha.graders
    assert graders.validate(grader=grader).grader.name == grader["name"]
    answer = graders.run(grader=grader, model_sample="It is Paris, surely", item=ITEM)
    print(json.dumps(answer.model_dump(), indent=1))
    assert answer.reward == pytest.approx(reward)
    assert (answer.metadata.name, answer.metadata.type) == (grader["name"], grader["type"])
    assert not any(flag for flag in answer.metadata.errors.model_dump().values())
    assert answer.metadata.execution_time > 0
    judged = grader["type"] in ("score_model", "label_model", "multi")
    usage = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60, "cached_tokens": 20}
    assert answer.api_model_grader_token_usage_per_model == ({"scripted": usage} if judged else {})
    assert (answer.metadata.sampled_model_name, answer.metadata.token_usage) == (
        ("scripted", 60) if judged else (None, None)
    )
    assert answer.sub_rewards == ({"exact": 1.0, "score": 7.0} if grader is MULTI else {})


def run(client: OpenAI, grader: Any, sample: str = "It is Paris", item: Any = ITEM) -> Any:
    return client.fine_tuning.alpha.graders.run(grader=grader, model_sample=sample, item=item)


def test_run_asks_each_model_through_its_judge(address: str, client: OpenAI, judge_server: ScriptedServer) -> None:
    with Client(address) as ours:
        endpoint = Endpoint(base_url=judge_server.url, max_retries=0)
        ours.judges.add(Judge(name="gpt-two", model="second", mode="written", endpoint=endpoint))
    parts = {"a": SCORE, "b": {**LABEL, "model": "gpt-two"}, "c": STRING}
    answer = run(client, {**MULTI, "graders": parts, "calculate_output": "a + b + c"})
    assert answer.reward == 9.0
    assert answer.api_model_grader_token_usage_per_model.keys() == {"scripted", "second"}


def test_run_without_a_worker_is_unavailable_and_continues_later(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'books.db'}"
    body = {"grader": STRING, "model_sample": "Paris", "item": ITEM}
    with service(tmp_path, url, "--no-worker", grader_seconds="0.5") as address:
        answer = httpx2.post(f"{address}/v1/graders/run", json=body, timeout=60)
    assert answer.status_code == 503
    with service(tmp_path, url) as address:
        answer = httpx2.post(f"{address}/v1/graders/run", json=body, timeout=60)
    assert answer.json()["reward"] == 1.0, "it goes on where it was"
