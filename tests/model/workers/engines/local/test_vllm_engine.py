"""vLLM in this process, for real: SmolLM2-135M on whatever device there is. `make test-vllm` runs these."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from billiard.context import SpawnContext

from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import UnavailableError
from rubricsvc.settings import Settings
from rubricsvc.store import jobs
from rubricsvc.store.session import Database
from tests.rows import submit_job
from workers.engines import make_engine
from workers.engines.base import EngineRequest, Failure, Question, Reply
from workers.engines.local import vllm_engine
from workers.engines.local.transformers_engine import TransformersEngine
from workers.engines.local.vllm_engine import VllmEngine
from workers.engines.local.weights import ModelWeights
from workers.queue.drain import Drainer

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed here: make test-vllm"),
    pytest.mark.filterwarnings("default"),  # vLLM warns of its own and of torch's past
]

YES_NO = ("Yes", "No")
ANSWER = "The committee found that the bridge was safe, though two of its cables needed care. " * 20
SCHEMA = {
    "type": "object",
    "properties": {"why": {"type": "string", "maxLength": 40}, "verdict": {"enum": ["met", "not_met"]}},
    "required": ["why", "verdict"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def engine(embedded: Path) -> Iterator[VllmEngine]:
    """In float32, so that what it says can be compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm_engine, "machine_options", lambda: {"dtype": "float32"})
        yield VllmEngine(ModelWeights(str(embedded)))


def ask(*questions: Question, shared: str = ANSWER, **more: Any) -> EngineRequest:
    return EngineRequest("You grade answers.", shared, questions, **more)


def readouts(count: int, labels: tuple[str, ...] = YES_NO) -> tuple[Question, ...]:
    return tuple(Question(f"\n\nDoes the answer name finding {n}? Yes or No.", labels) for n in range(count))


def replies(engine: Any, given: EngineRequest) -> list[Reply]:
    found = asyncio.run(engine.ask(given))
    assert all(isinstance(reply, Reply) for reply in found), found
    return [reply for reply in found if isinstance(reply, Reply)]


def test_readout_equals_transformers_and_caches_the_prefix(engine: VllmEngine, embedded: Path) -> None:
    given = ask(*readouts(4), Question("\n\nWhich fits? A, B or C.", ("A", "B", "C")))
    theirs = replies(TransformersEngine(ModelWeights(str(embedded)), dtype=torch.float32, device="cpu"), given)
    ours = replies(engine, given)
    for one, other in zip(ours, theirs, strict=True):
        assert one.label_mass == pytest.approx(other.label_mass, abs=1e-3) and one.text == other.text != ""
        assert one.usage is not None
        assert other.usage is not None and one.usage.prompt == other.usage.prompt
    for reply in ours[1:]:
        assert reply.usage is not None and reply.usage.cached > 0.8 * reply.usage.prompt


def test_reply_follows_its_schema_and_reports_truncation(engine: VllmEngine) -> None:
    question = Question("\n\nReply with a JSON object: why, and the verdict.", schema=SCHEMA)
    (reply,) = replies(engine, ask(question, sampling=Sampling(max_tokens=200)))
    assert set(json.loads(reply.text)) == {"why", "verdict"} and not reply.truncated
    assert reply.usage is not None
    (cut,) = replies(engine, ask(question, sampling=Sampling(max_tokens=3)))
    assert cut.truncated and cut.usage is not None
    assert cut.usage.completion == 3


def test_question_that_is_invalid_fails_alone(engine: VllmEngine) -> None:
    given = ask(*readouts(1), Question("x" * 4000, YES_NO), Question("?", ("Zygotes are", "No")), max_context=800)
    fine, long, odd = asyncio.run(engine.ask(given))
    assert isinstance(fine, Reply) and isinstance(long, Failure)
    assert long.reason is Reason.TOO_LONG
    assert isinstance(odd, Failure) and "Zygotes" in odd.detail
    (over,) = asyncio.run(engine.ask(ask(*readouts(1), shared="word " * 9000)))
    assert isinstance(over, Failure) and over.reason is Reason.TOO_LONG


def test_request_that_is_cancelled_stops_in_vllm(engine: VllmEngine) -> None:
    async def stop() -> int:
        long = asyncio.create_task(engine.ask(ask(Question("\n\nCount."), sampling=Sampling(max_tokens=7000))))
        (served,) = vllm_engine._runtimes[0].models.values()
        core = served.engine.output_processor
        while not core.get_num_unfinished_requests():
            await asyncio.sleep(0.05)
        long.cancel()
        for _ in range(100):
            await asyncio.sleep(0.05)
            if not core.get_num_unfinished_requests():
                break
        return int(core.get_num_unfinished_requests())

    replies(engine, ask(*readouts(1)))
    assert asyncio.run(stop()) == 0


def test_job_is_scored(db: Database, embedded: Path) -> None:
    job = submit_job(db, 6, judge=Judge(name="local", engine="vllm_local", model=str(embedded), min_answer_mass=0))
    settings = Settings.model_validate({"database_url": db.url})
    assert Drainer(db, settings).run(1) is True
    with db.read() as session:
        progress = jobs.progress(session, job)
        assert (progress.done, progress.verdicts, progress.failed_verdicts) == (6, 18, 0)
        rewards = [row.reward for row in jobs.items(session, job)]
    assert all(reward is not None and 0 < reward < 1 for reward in rewards)


def make_in_child(told: Any) -> None:
    try:
        make_engine(Judge(name="j", engine="vllm_local", model="embedded"))
    except UnavailableError as error:
        told.put(f"{error}; {error.hint}")


def test_vllm_in_a_forked_worker_is_unavailable() -> None:
    context = SpawnContext()
    told = context.SimpleQueue()
    child = context.Process(target=make_in_child, args=(told,), daemon=True)
    child.start()
    child.join(60)
    assert "--pool solo" in told.get()


_WORKER = """
import asyncio, multiprocessing, signal, sys
from workers.engines.base import EngineRequest, Question
from workers.engines.local.vllm_engine import VllmEngine
from workers.engines.local.weights import ModelWeights

async def main():
    engine = VllmEngine(ModelWeights(sys.argv[1]))
    for line in sys.stdin:
        (reply,) = await engine.ask(EngineRequest("", line, (Question("Yes or No?", ("Yes", "No")),)))
        print(type(reply).__name__, *(child.pid for child in multiprocessing.active_children()), flush=True)

signal.signal(signal.SIGINT, lambda *_: None)
if __name__ == "__main__":
    asyncio.run(main())
"""


def test_vllm_survives_ctrl_c_and_ends_with_a_killed_worker(tmp_path: Path, embedded: Path) -> None:
    program = tmp_path / "worker.py"
    program.write_text(_WORKER)
    command = [sys.executable, str(program), str(embedded)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[5])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as worker:
        assert worker.stdin is not None and worker.stdout is not None

        def answer() -> list[str]:
            print("one", file=worker.stdin, flush=True)
            return worker.stdout.readline().split()

        try:
            kind, *children = answer()
            assert kind == "Reply"
            assert children
            os.killpg(worker.pid, signal.SIGINT)  # as a terminal does
            time.sleep(1)
            assert answer() == ["Reply", *children]
        finally:
            worker.kill()
    assert wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def wait_until(holds: Any) -> bool:
    until = time.monotonic() + 60
    while not holds() and time.monotonic() < until:
        time.sleep(0.1)
    return bool(holds())
