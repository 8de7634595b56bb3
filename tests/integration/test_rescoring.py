"""Which edits of a rubric ask a judge again, counted at a real server."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.core.judge import Comparison, Endpoint, Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.rubric_analysis import ComparedRubric
from rubricsvc.settings import Settings
from rubricsvc.store import completions, jobs, judges, leases, rubrics
from rubricsvc.store.session import Database
from tests.rows import progress_of, status_of
from tests.scripted_server import ScriptedReply, ScriptedServer, instant, labels, scripted_server, text_reply
from tests.worker_process import WorkerProcess
from workers.queue import drain
from workers.queue.drain import Drainer, complete_answered
from workers.scoring.reward_changes import reward_changes

COMPLETIONS = 200
CRITERIA = tuple(Criterion(key=f"c{n}", text=f"Says thing number {n}.", weight=n) for n in range(1, 10))


def answer(number: int, body: dict[str, Any]) -> ScriptedReply:
    if body.get("logprobs"):
        met = (number % 10) / 10 + 0.05
        return labels(Yes=met, No=1 - met)
    schema = body["response_format"]["json_schema"]["schema"]
    if "scores" not in schema["properties"]:
        return instant(number, body)
    ids = schema["properties"]["scores"]["items"]["properties"]["answer"]["enum"]
    return text_reply(json.dumps({"scores": [{"answer": id_, "rationale": "", "score": 0.5} for id_ in ids]}))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(answer) as running:
        yield running


def edited(at: int, **fields: Any) -> tuple[Criterion, ...]:
    changed = CRITERIA[at].model_copy(update=fields)
    return (*CRITERIA[:at], changed, *CRITERIA[at + 1 :])


class Shop:
    """A database with one prompt, a judge at the server and a job of scored completions."""

    def __init__(
        self, db: Database, server: ScriptedServer, *, size: int = COMPLETIONS, criteria: Any = CRITERIA, **fields: Any
    ) -> None:
        self.db, self.server = db, server
        judge = Judge(name="j", model="scripted", endpoint=Endpoint(base_url=server.url), **fields)
        with db.write() as session:
            self.prompt_id = completions.add_prompt(session, Prompt.of("Why?")).id
            self.judge_id = judges.add(session, judge).id
            texts = [(self.prompt_id, Completion(text=f"answer {n}")) for n in range(size)]
            self.completion_ids = completions.add_many(session, texts)
        self.rubric_id = self.add(criteria)
        with db.write() as session:
            items = [(id_, self.rubric_id) for id_ in self.completion_ids]
            self.job_id = jobs.submit(session, judge_id=self.judge_id, items=items).id
        self.first = self.work()

    def add(self, criteria: Any, name: str = "r") -> int:
        """Store the next version of a rubric; its id."""
        with self.db.write() as session:
            return rubrics.add(session, Rubric(criteria=criteria), name=name, prompt_id=self.prompt_id).id

    def work(self) -> int:
        """Do all that is pending; how many requests the server had."""
        before = self.server.count
        Drainer(self.db, Settings.model_validate({"database_url": self.db.url})).run(self.judge_id)
        return self.server.count - before

    def rescore(self, **options: Any) -> tuple[int, int]:
        """Rescore as the command does; the new job, and how many completions took stored verdicts alone."""
        with self.db.write() as session:
            job_id = jobs.rescore(session, self.job_id, **options).id
        return job_id, complete_answered(self.db, job_id)

    def rewards(self, job_id: int) -> list[float | None]:
        with self.db.read() as session:
            return [row.reward for row in jobs.items(session, job_id, limit=1000)]


def test_rescore_after_edits_asks_only_what_is_new(each_db: Database, server: ScriptedServer) -> None:
    shop = Shop(each_db, server)
    assert shop.first == COMPLETIONS * len(CRITERIA)
    before = shop.rewards(shop.job_id)

    shop.add(edited(0, weight=50.0))
    reweighted, completed = shop.rescore()
    assert status_of(each_db, reweighted) == "completed"
    assert (completed, shop.work()) == (COMPLETIONS, 0)
    assert None not in shop.rewards(reweighted) and shop.rewards(reweighted) != before

    shop.add(edited(0, text="Says another thing."))
    reworded, completed = shop.rescore()
    assert (completed, shop.work()) == (0, COMPLETIONS), "eight of nine verdicts are stored"
    assert None not in shop.rewards(reworded)

    shop.add((*CRITERIA, Criterion(key="c10", text="Says thing number 10.")))
    assert shop.rescore()[1] == 0 and shop.work() == COMPLETIONS

    shared = (*CRITERIA[4:], *(Criterion(key=f"new{n}", text=f"Says new thing {n}.") for n in range(3)))
    other = shop.add(shared, name="other")
    with each_db.write() as session:
        jobs.submit(session, judge_id=shop.judge_id, items=[(id_, other) for id_ in shop.completion_ids])
    assert shop.work() == COMPLETIONS * 3, "five of its eight criteria are answered"


def test_comparative_verdicts_are_reused_within_their_group_only(db: Database, server: ScriptedServer) -> None:
    fields = {"mode": "comparative", "comparison": Comparison(kind="groupwise")}
    shop = Shop(db, server, size=4, criteria=CRITERIA[:2], **fields)
    assert shop.first == 2
    shop.add((CRITERIA[0].model_copy(update={"weight": 9.0}), CRITERIA[1]))
    assert shop.rescore()[1] == 4
    with db.write() as session:
        items = [(id_, shop.rubric_id) for id_ in shop.completion_ids[:3]]
        jobs.submit(session, judge_id=shop.judge_id, items=items)
    assert shop.work() == 2, "another group is another question"


@pytest.mark.parametrize("mode", ["readout", "comparative"])
def test_complete_answered_goes_page_by_page_and_holds_no_lease(
    each_db: Database, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    shop = Shop(each_db, server, size=7, criteria=CRITERIA[:2], mode=mode)
    monkeypatch.setattr(drain, "_PAGE", 2)
    shop.add((CRITERIA[0].model_copy(update={"weight": 9.0}), CRITERIA[1]))
    assert shop.rescore()[1] == 7
    shop.add(CRITERIA[1:3])
    job_id, completed = shop.rescore()
    assert (completed, progress_of(each_db, job_id).pending) == (0, 7)


def test_rescore_counts_what_all_processes_completed(db: Database, server: ScriptedServer, tmp_path: Path) -> None:
    """Two commands rescore one job: the first finds three of seven items claimed, the second completes those."""
    shop = Shop(db, server, size=7, criteria=CRITERIA[:2])
    shop.add((CRITERIA[0].model_copy(update={"weight": 9.0}), CRITERIA[1]))
    with db.write() as session:
        jobs.rescore(session, shop.job_id)
        held = leases.claim(session, shop.judge_id, limit=3, worker="paused", seconds=600)
    counted = []
    for number in range(2):
        log = tmp_path / f"{number}.log"
        command = WorkerProcess(log, str(shop.job_id), command="jobs rescore", database_url=db.url)
        assert command.process.wait(90) == 0, log.read_text()
        counted += re.findall(r"(\d+) completions rescored", log.read_text())
        with db.write() as session:
            leases.release(session, held)
    assert counted == ["4", "7"]


def unreadable_while(down: list[bool], criterion: str) -> Callable[[int, dict[str, Any]], ScriptedReply]:
    """Reply 0.75, and while it is down nothing to be read about one criterion."""

    def reply(_number: int, body: dict[str, Any]) -> ScriptedReply:
        failing = down[0] and criterion in json.dumps(body)
        return ScriptedReply("?", logprobs={"?": -0.01}) if failing else labels(Yes=0.75, No=0.25)

    return reply


def test_record_recomputes_items_whose_failed_verdict_another_job_replaces(each_db: Database) -> None:
    """The reward of a finished item is always that of the verdicts that are shown with it."""
    down = [True]
    with scripted_server(unreadable_while(down, "number 2")) as running:
        shop = Shop(each_db, running, size=1, criteria=CRITERIA[:2])
        with each_db.read() as session:
            (item,) = jobs.items(session, shop.job_id)
            expected = ("failed", None, "completed_with_failures")
            assert (item.state, item.reward, jobs.get(session, shop.job_id).status) == expected
        down[0] = False
        other = shop.add((CRITERIA[1].model_copy(update={"key": "other", "weight": -3}),), name="other")
        with each_db.write() as session:
            jobs.submit(session, judge_id=shop.judge_id, items=[(shop.completion_ids[0], other)])
        assert shop.work() == 1
    with each_db.read() as session:
        (item,) = jobs.items(session, shop.job_id)
        assert (item.state, item.reward, item.coverage, item.failed_verdicts) == ("done", pytest.approx(0.75), 1.0, 0)
        assert jobs.get(session, shop.job_id).status == "completed"


def test_rescore_with_min_coverage_takes_failed_verdicts_over_and_asks_nobody(each_db: Database) -> None:
    """Nine criteria, one of which fails: the reward is null, and a number under another min_coverage."""
    down = [True]
    with scripted_server(unreadable_while(down, "number 1.")) as running:
        shop = Shop(each_db, running, size=3)
        assert shop.rewards(shop.job_id) == [None] * 3
        asked = running.count
        lenient, _ = shop.rescore(min_coverage=0.9)
        assert (shop.rewards(lenient), shop.work()) == ([pytest.approx(0.75)] * 3, 0)
        with each_db.read() as session:
            assert jobs.get(session, lenient).status == "completed_with_failures"
            assert [row.coverage for row in jobs.items(session, lenient)] == [pytest.approx(44 / 45)] * 3
            rubric = rubrics.get(session, shop.rubric_id)
            version = ComparedRubric(ref=rubric.ref, name=rubric.name, rubric=rubric.value)
            changes = reward_changes(session, lenient, version, version)
        assert [one.new_reward for one in changes.by_completion] == shop.rewards(lenient)
        shop.add(edited(1, weight=20.0))
        _, completed = shop.rescore(min_coverage=0.9)
        assert (completed, shop.work()) == (0, 3), "another rubric version asks about what has failed"
        assert running.count == asked + 3
        down[0] = False
        with each_db.write() as session:
            assert jobs.retry(session, lenient) == 3
        assert shop.work() == 3
        assert shop.rewards(shop.job_id) == [pytest.approx(0.75)] * 3, "the first job is repaired with it"
