"""The callables for TRL against a real service; `test_trl` trains with them."""

import asyncio
import logging
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rubricsvc.client import AsyncClient, Client
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError, NotFoundError, RubricsvcError, UnavailableError
from rubricsvc.store.session import Database
from tests.instant_engine import InstantEngine
from tests.integration.trainer.test_service_rewards import engine, stored_jobs
from tests.service_process import running
from trainer.integrations.trl import AsyncRubricReward, RubricReward
from workers.engines.base import EngineRequest, Failure, Reply

__all__ = ["engine"]

RUBRIC = Rubric(criteria=[Criterion(key="good", text="Is good.")])


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def assistant(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text, "tool_calls": None}]


@pytest.fixture
def late_for_two(engine: InstantEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge does not answer in time about completions with "two"."""
    answer = engine.ask

    async def ask(request: EngineRequest) -> list[Reply | Failure]:
        if "two" not in request.shared:
            return await answer(request)
        return [Failure("timeout", "too slow") for _ in request.questions]

    monkeypatch.setattr(engine, "ask", ask)


@pytest.fixture
def client(db: Database, engine: InstantEngine) -> Iterator[Client]:
    with running(db) as url, Client(url) as made:
        made.rubrics.add(RUBRIC, "good")
        yield made


def test_rubric_reward_scores_a_step_in_one_job(client: Client, db: Database) -> None:
    reward = RubricReward(client, "instant", rubric="good", policy="mine")
    metrics: dict[str, float] = {}
    prompts = [user("Why?"), user("How?"), user("Why?"), user("How?")]
    completions = [assistant(text) for text in ("one", "two", "three", "four")]
    state = SimpleNamespace(global_step=6)
    values = reward(prompts, completions, trainer_state=state, log_metric=metrics.__setitem__, topic=["x"] * 4)
    assert values == [1.0] * 4
    assert stored_jobs(db) == [("mine step 7", "completed", 4)]
    assert metrics == {"rubric/unscored_fraction": 0.0}
    stored = [row.completion for row in client.completions.page()]
    assert [(one.text, one.messages, one.policy, one.step) for one in stored] == [
        (text, (), "mine", 6) for text in ("one", "two", "three", "four")
    ]


def test_rubric_reward_takes_texts_and_trajectories(client: Client) -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "look"}}]}
    steps = [call, {"role": "tool", "name": "look", "content": "b\0lue"}, *assistant("It is blue.")]
    assert RubricReward(client, "instant", rubric=RUBRIC)(["Why?", "Why?"], ["on\0e", steps]) == [1.0, 1.0]
    first, second = (row.completion for row in client.completions.page())
    assert (first.text, first.messages) == ("on\ufffde", ())
    assert [message.role for message in second.messages] == ["assistant", "tool", "assistant"]
    assert (second.text, second.messages[1].content) == ("It is blue.", "b\ufffdlue")


@pytest.mark.usefixtures("late_for_two")
def test_rubric_reward_raises_for_missing_rewards(client: Client, db: Database) -> None:
    with pytest.raises(UnavailableError) as caught:
        RubricReward(client, "instant", rubric="good")([user("Why?")] * 2, [assistant("one"), assistant("two")])
    assert "1 of 2" in str(caught.value) and "job 1" in str(caught.value) and "timeout" in str(caught.value)
    assert [status for _, status, _ in stored_jobs(db)] == ["completed_with_failures"]


@pytest.mark.usefixtures("late_for_two")
def test_rubric_reward_skips_up_to_max_unscored(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    reward = RubricReward(client, "instant", rubric="good", on_failure="skip", max_unscored=0.5)
    metrics: dict[str, float] = {}
    with caplog.at_level(logging.WARNING):
        given = [assistant("one"), assistant("two")]
        assert reward([user("Why?")] * 2, given, log_metric=metrics.__setitem__) == [1.0, None]
    assert metrics == {"rubric/unscored_fraction": 0.5}
    assert any("1 of 2" in line for line in caplog.messages)
    with pytest.raises(UnavailableError, match="2 of 3"):
        reward([user("Why?")] * 3, [assistant(text) for text in ("one", "two", "two two")])


@pytest.mark.parametrize(
    ("changes", "error", "path"),
    [
        ({"judge": "unknown"}, NotFoundError, "judge"),
        ({"rubric": "unknown"}, NotFoundError, "rubrics.0"),
        ({"rubric": None}, InvalidError, "prompts.0"),
        ({"columns": {"rubric": ["good", "unknown"]}}, NotFoundError, "rubrics.1"),
        ({"columns": {"rubric": ["good"]}}, InvalidError, "rubric"),
        ({"columns": {"rubric": ["good", "own"]}}, InvalidError, "rubrics.1"),
        ({"columns": {"prompt_id": ["unknown", None]}}, NotFoundError, ""),
        ({"completions": [assistant("one")]}, InvalidError, "completions"),
        ({"columns": {"rubric": [None, {"criteria": []}]}}, InvalidError, "rubric.1"),
        ({"completions": [], "prompts": []}, InvalidError, "prompts"),
        ({"prompts": [user("Why?"), []]}, InvalidError, "prompts.1"),
        ({"prompts": [user("Why?"), None]}, InvalidError, "prompts.1"),
        ({"completions": [assistant("one"), []]}, InvalidError, "completions.1"),
        ({"completions": [assistant("one"), user("two")]}, InvalidError, "completions.1"),
        ({"completions": [assistant("one"), [{"role": "tool", "content": "two"}] * 2]}, InvalidError, "completions.1"),
        ({"completions": [assistant("one"), [{"role": "robot", "content": ""}]]}, InvalidError, "completions.1.role"),
    ],
)
def test_rubric_reward_wrong_use_raises_whatever_on_failure(
    client: Client, changes: dict[str, Any], error: type[RubricsvcError], path: str
) -> None:
    client.rubrics.add(RUBRIC, "own", prompt_id=client.prompts.add("Whose?").id)
    given = {"judge": "instant", "rubric": "good", "columns": {}, "completions": [assistant("one")] * 2, **changes}
    prompts = given.get("prompts", [user("Why?"), user("How?")])
    how: Any
    for how in ("raise", "skip"):
        reward = RubricReward(client, given["judge"], rubric=given["rubric"], on_failure=how, max_unscored=1.0)
        with pytest.raises(error) as caught:
            reward(prompts, given["completions"], **given["columns"])
        assert caught.value.path == path
    assert client.jobs.page().data == client.completions.page().data == ()


@pytest.mark.usefixtures("late_for_two")
def test_async_rubric_reward_scores_after_being_pickled(client: Client, db: Database) -> None:
    """As AsyncGRPO uses it: sent to another process, called for one prompt at a time, several at once."""
    made = AsyncRubricReward(AsyncClient(str(client.http.base_url)[:-4]), "instant", rubric="good")

    async def calls() -> list[Any]:
        reward = pickle.loads(pickle.dumps(made))
        try:
            asked = [reward([user(text)] * 2, [assistant("one"), assistant(text)]) for text in ("Why?", "two")]
            return await asyncio.gather(*asked, return_exceptions=True)
        finally:
            await reward.client.aclose()

    scored, failed = asyncio.run(calls())
    assert scored == [1.0, 1.0]
    assert isinstance(failed, UnavailableError)
    assert len(stored_jobs(db)) == 2
