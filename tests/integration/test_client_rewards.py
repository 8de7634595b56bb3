"""Rewards of many prompts over a real client and a real server: one job, parts, waiting, and wrong numbers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rubricsvc.client import AsyncClient, Client
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.schemas import NewRewards, StoredJob
from tests.instant_engine import agreeable
from tests.integration.test_client import JUDGE, RUBRIC, client, url, worker
from workers.engines.base import Failure

ONE: dict[str, Any] = {
    "judge": "instant",
    "prompts": (Prompt.of("Why?"),),
    "completions": (("one",),),
    "rubrics": (RUBRIC,),
}

__all__ = ["client", "url", "worker"]


def test_client_scores_many_prompts_in_one_job(client: Client, worker: Any) -> None:
    worker(lambda question: Failure("timeout", "late") if "late" in question.text else agreeable(question))
    late = Rubric(criteria=[Criterion(key="late", text="Is late.")])
    stored = client.prompts.add("Which?").id
    client.rubrics.add(RUBRIC, "which", prompt_id=stored)
    prompts = ["Why?", stored, Prompt.of("How?")]
    seen: list[StoredJob] = []
    first, second, third = client.score_many(
        prompts, [RUBRIC, None, late], [["b", "a", "b"], ["c"], ["d"]], JUDGE, name="n", on_progress=seen.append
    )
    assert [item.reward for item in (*first, *second)] == [pytest.approx(2 / 3)] * 4
    assert first[0] == first[2] != first[1]
    texts = [client.completions.get(item.completion_id or 0).completion.text for item in (*first, *second, *third)]
    assert texts == ["b", "a", "b", "c", "d"]
    assert (third[0].reward, bool(third[0].null_reason), len(third[0].verdicts)) == (None, True, 1)
    assert client.rubrics.get(second[0].rubric_id or 0).name == "which"
    (job,) = client.jobs.page()
    assert (seen[-1].id, job.name, job.progress and job.progress.total) == (job.id, "n", 4)


def test_client_sends_a_large_request_in_parts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.judges.add(JUDGE)
    stored = client.prompts.add("Which?", external_id="which").id
    (known,) = client.completions.add(stored, ["known"]).ids
    new = NewRewards(
        judge="instant",
        prompts=(Prompt.of("Why?"), "which"),
        completions=(("a", "b"), ("c", known)),
        rubrics=(RUBRIC,),
        timeout=0,
    )
    whole = client.rewards.submit(new)
    monkeypatch.setattr("rubricsvc.client.nouns.LARGE_BODY", 0)
    assert [one.completion_id for one in client.rewards.submit(new).rewards] == [
        one.completion_id for one in whole.rewards
    ]
    assert len(client.completions.page().data) == 4
    with pytest.raises(InvalidError) as caught:
        client.rewards.submit(judge="instant", prompts=("which",), completions=(("a",), ("b",)), rubrics=(RUBRIC,))
    assert caught.value.path == "completions"


def test_client_rewards_that_are_waited_for_hold_no_thread_of_the_service(client: Client, url: str) -> None:
    """With a thread each, 60 of them would keep the service from cancelling the job."""
    client.judges.add(JUDGE)
    job_id = client.rewards.submit(**ONE, timeout=0).job_id

    async def wait() -> list[str]:
        async with AsyncClient(url) as waiting:
            waits = [asyncio.create_task(waiting.rewards.get(job_id, timeout=50)) for _ in range(60)]
            await asyncio.sleep(0.5)
            await waiting.jobs.cancel(job_id)
            return [rewards.status for rewards in await asyncio.gather(*waits)]

    assert asyncio.run(wait()) == ["cancelled"] * 60
