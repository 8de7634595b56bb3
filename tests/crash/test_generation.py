"""Workers are killed with SIGKILL while rubrics are generated: each prompt has one rubric, and nothing is asked twice.

Real worker processes, a real Redis, a model behind a real socket; on SQLite and on PostgreSQL.
"""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from rubricsvc.collections import index as collections
from rubricsvc.collections.index import FaultyDocuments, Page
from rubricsvc.core.generation import Generation, Research
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.settings import Settings
from rubricsvc.store import completions, jobs, judges
from rubricsvc.store import generation as generations
from rubricsvc.store.session import Database, attach
from rubricsvc.store.tables import ItemRow, RubricRow
from tests.rows import add_completion, status_of
from tests.rubric_writer import is_question, rubric_about, verdict
from tests.scripted_server import Script, ScriptedReply, scripted_server, text_reply, wait_for_calls
from tests.services import wait_for
from tests.worker_process import WorkerProcess, redis_url

PROMPTS = 12
KILLS = 4
CONCURRENCY = 6


def slow_writer(number: int, request: dict[str, Any]) -> ScriptedReply:
    """Every third rubric is broken and must be sent back; all replies take a while."""
    if is_question(request):
        reply = verdict(request, on="because")
    else:
        repaired = len(request["messages"]) > 2
        about = sum(map(ord, request["messages"][1]["content"])) % 97
        reply = text_reply("Here it is." if about % 3 == 0 and not repaired else rubric_about(about))
    return ScriptedReply(reply.text, reply.logprobs, delay_s=random.uniform(0.05, 0.2))


CONTRASTIVE = Generation(method="contrastive", better="new", worse="old")
FACT = "Everything has a first cause of its own."


def slow_reader(number: int, request: dict[str, Any]) -> ScriptedReply:
    """Research first: two queries, then a document, then a rubric that cites it; all replies take a while."""
    system, question = (message["content"] for message in request["messages"][:2])
    if is_question(request):
        reply = verdict(request, on="because")
    elif "look things up" in system:
        plan = {"open": ["causes"]} if "[causes]" in question else {"queries": ["first cause", "why"]}
        reply = text_reply(json.dumps(plan))
    else:
        rubric = json.loads(rubric_about(sum(map(ord, question)) % 97))
        rubric["criteria"][0] |= {
            "text": "Names its first cause.",
            "sources": [{"document": "causes", "passage": FACT}],
        }
        reply = text_reply(json.dumps(rubric))
    return ScriptedReply(reply.text, reply.logprobs, delay_s=random.uniform(0.05, 0.2))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("generation", [Generation(), CONTRASTIVE], ids=lambda one: one.method)
def test_workers_generate_each_rubric_once_when_killed(
    each_db: Database, generation: Generation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kill_while_generating(each_db, slow_writer, generation, tmp_path, capsys)


@pytest.mark.timeout(300)
def test_workers_research_once_when_killed(db: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = [Page("causes", "Causes", f"Why? {FACT}")]
    collections.add(tmp_path, "docs", pages, FaultyDocuments(), source="a test")
    generation = Generation(method="grounded", research=Research(collection="docs"))
    kill_while_generating(db, slow_reader, generation, tmp_path, capsys)


def kill_while_generating(
    each_db: Database, script: Script, generation: Generation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "collections_dir": str(tmp_path), "database_url": each_db.url,
        "broker_url": redis_url(), "claim_size": 4, "lease_seconds": 3,
        "reconcile_seconds": 0.5, "max_leases": 10_000,
    }  # fmt: skip
    attach(each_db, Settings.model_validate(settings))
    with scripted_server(script) as server:
        endpoint = Endpoint(base_url=server.url, max_retries=0, concurrency=CONCURRENCY)
        job = submit(each_db, Judge(name="writer", model="scripted", endpoint=endpoint), generation)
        worker = WorkerProcess(tmp_path / "log", "--concurrency=1", **settings)
        try:
            for _ in range(KILLS):
                wait_for_calls(server, 12)
                worker.kill()
                worker = WorkerProcess(tmp_path / "log", "--concurrency=1", **settings)
            wait_for(lambda: status_of(each_db, job) == "completed", tmp_path / "log", seconds=120)
        finally:
            worker.kill()
        asked = Counter(json.dumps(request, sort_keys=True) for request in server.requests)
    check(each_db, job, asked, capsys)


def submit(db: Database, judge: Judge, generation: Generation) -> int:
    with db.write() as session:
        texts = {f"Why is {n}, by its cause?": f"It is {n}, because of {n}. So it is." for n in range(PROMPTS)}
        values = (Prompt.of(text, reference=reference) for text, reference in texts.items())
        ids = [completions.add_prompt(session, value).id for value in values]
        for id_ in ids:
            add_completion(session, Completion(text=f"Because of {id_}.", policy="new"), id_)
            add_completion(session, Completion(text=f"So it is, {id_}.", policy="old"), id_)
        row = judges.add(session, judge)
        return generations.submit(session, judge_id=row.id, prompt_ids=ids, generation=generation).id


def check(db: Database, job: int, asked: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    with db.read() as session:
        made = jobs.summary(session, job).generation
        items = session.execute(select(ItemRow.prompt_id, ItemRow.rubric_id, ItemRow.state, ItemRow.lost)).all()
        rubrics = session.execute(select(RubricRow.prompt_id, RubricRow.version)).all()
    assert made is not None
    assert {state for *_, state, _ in items} == {"done"}
    assert sorted(prompt for prompt, *_ in items) == sorted(prompt for prompt, _ in rubrics)
    assert {version for _, version in rubrics} == {1}
    assert len({rubric for _, rubric, *_ in items}) == PROMPTS == made.rubrics
    assert sum(lost for *_, lost in items) > 0, "no kill interrupted anything: the test did not test"
    repeated = sum(count - 1 for count in asked.values())
    assert made.asked_again == 0
    assert repeated <= 2 * KILLS * CONCURRENCY, "more than the calls under way at the kills, and replies being stored"
    with capsys.disabled():
        print(
            f"\n{db.engine.dialect.name}: {KILLS} workers killed, {len(asked)} different requests, {repeated} repeated"
            f" (under way at a kill), asked again {made.asked_again}, {made.rubrics} rubrics"
        )
