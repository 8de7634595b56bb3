"""Rounds of proposals on groups of completions: what is tried, what is active, and what a failure leaves as it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from rubricsvc.core.judge import Endpoint, Judge, Price, Sampling
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Reason
from rubricsvc.services.evolutions import RunEvolutions
from rubricsvc.store.session import Database
from tests.letter_judge import JUDGE, WordEngine, proposal, uses
from tests.scripted_server import scripted_server, text_reply
from trainer.config import EvolveConfig
from trainer.data.tasks import Task
from trainer.evolution import OnlineEvolution
from trainer.rewards.source import JudgeRewards, ScoredRollout
from workers.engines.base import EngineRequest, Failure, Reply

BASE = Rubric(criteria=[Criterion(key="sun", text=uses("sun"), weight=4), Criterion(key="rain", text=uses("rain"))])
TASK = Task(Prompt.of("What is the weather?"), BASE)
GROUP = ("sun fog", "sun hail", "fog", "mist hail")
DOWN = Failure(Reason.UNAVAILABLE, "connection refused")


class ScriptedProposer(WordEngine):
    """Gives the replies one after another; without any, it is down."""

    def __init__(self, *replies: str) -> None:
        super().__init__()
        self.replies = list(replies)

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        self.requests.append(request)
        return [Reply(self.replies.pop(0)) if self.replies else DOWN]


class Training:
    """A run whose completions a test writes."""

    def __init__(self, evolution: OnlineEvolution, buffers: RunEvolutions, rewards: JudgeRewards) -> None:
        self.evolution, self.buffers, self.rewards = evolution, buffers, rewards
        self.done = 0
        self.scored: list[ScoredRollout] = []

    def step(self, *texts: str) -> dict[str, Any]:
        """Score a group, and evolve; return the metrics without their prefix."""
        authored = [TASK] * len(texts)
        used = self.evolution.tasks(self.done, authored)
        values = [Completion(text=text, policy="p", step=self.done) for text in texts]
        self.scored = self.rewards.score(used, values)
        found = self.evolution.evolve(self.done, authored, used, values, self.scored)
        self.done += 1
        return {name.removeprefix("evolve/"): value for name, value in found.items()}

    def in_use(self) -> list[str]:
        """The keys of the version that the next step uses."""
        (task,) = self.evolution.tasks(self.done, [TASK])
        return [criterion.key for criterion in task.rubric.criteria]

    def states(self) -> dict[str, tuple[str, str | None]]:
        """The states of the words in the buffer, with the reasons."""
        entries = self.buffers.open(self.done, (TASK.prompt, TASK.rubric)).entries
        return {entry.criterion.text.split("“")[1].split("”")[0]: (entry.state, entry.reason) for entry in entries}


@contextmanager
def training(
    db: Database,
    *replies: str,
    judge: WordEngine | None = None,
    trusted: JudgeRewards | None = None,
    proposer: Judge | None = None,
    **settings: Any,
) -> Iterator[Training]:
    config = EvolveConfig.model_validate({"proposer": proposer or Judge(name="p", model="m"), "every": 1, **settings})
    buffers = RunEvolutions(db, "run-1", config.approve)
    engine = None if proposer else ScriptedProposer(*replies)
    with (
        JudgeRewards(JUDGE, judge or WordEngine()) as rewards,
        OnlineEvolution(config, buffers, rewards, engine=engine, trusted=trusted) as evolution,
    ):
        yield Training(evolution, buffers, rewards)


def test_round_activates_what_separates_and_keeps_the_limit(db: Database) -> None:
    with training(db, proposal("fog", "mist", "snow", pitfalls=["hail"]), max_active=2) as run:
        assert run.in_use() == ["sun", "rain"]
        metrics = run.step(*GROUP)
        assert (metrics["proposed"], metrics["activated"], metrics["active"]) == (4, 2, 2)
        assert run.states() == {
            "sun": ("frozen", None),
            "rain": ("frozen", None),
            "fog": ("active", None),
            "mist": ("retired", "limit"),
            "snow": ("retired", "separation"),
            "hail": ("active", None),
        }
        assert run.in_use() == ["sun", "rain", "evolved-1", "evolved-4"]
        metrics = run.step(*GROUP)
        verdicts = [{verdict.criterion for verdict in one.verdicts} for one in run.scored]
        assert verdicts == [{"sun", "rain", "evolved-1", "evolved-4"}] * 4, "one version for all members"
        parts = [one.reward.contributions["evolved-4"] for one in run.scored]
        assert parts[::2] == [0.0, 0.0] and parts[1] == parts[3] < 0
        assert metrics["authored_reward"] == pytest.approx(0.4)
        assert [one.reward.value for one in run.scored] == pytest.approx([4.5 / 5.5, 3.5 / 5.5, 0.5 / 5.5, 0.0])


def test_retired_criteria_are_tried_again_when_the_policy_regresses(db: Database) -> None:
    with training(db, proposal("fog", pitfalls=["hail"]), retest_every=3) as run:
        run.step(*GROUP)
        assert run.states()["hail"] == ("active", None)
        learned = ("sun fog", "sun", "fog", "rain fog")
        run.step(*learned)
        assert run.states()["hail"] == ("retired", "separation")
        assert run.step(*GROUP)["reactivated"] == 0, "not due yet"
        assert run.step(*learned)["reactivated"] == 0, "not due yet"
        regressed = run.step(*GROUP)
        assert (regressed["reactivated"], regressed["retired"]) == (1, 0)
        assert run.in_use() == ["sun", "rain", "evolved-1", "evolved-2"]
        (hail,) = (one for one in run.buffers.open(9, (TASK.prompt, BASE)).entries if one.key == "evolved-2")
        assert (hail.reactivations, hail.trials, hail.tested_step) == (1, 3, 4)


def test_rounds_propose_nothing_where_the_budget_does_not_cover_a_call(db: Database) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 10}  # $10 of at most $64
    price, sampling = Price(completion=1e6), Sampling(max_tokens=64)
    with scripted_server([text_reply(proposal(word), usage=usage) for word in ("fog", "hail")]) as server:
        endpoint = Endpoint(base_url=server.url, price=price, max_retries=0)
        judge = Judge(name="p", model="scripted", sampling=sampling, endpoint=endpoint)
        with training(db, proposer=judge, budget=70) as run:
            found = [run.step(*GROUP) for _ in range(2)]
            assert [(one["proposed"], one["failed"], one["cost"]) for one in found] == [(1, 0, 10.0), (0, 1, 0.0)]
            assert run.in_use() == ["sun", "rain", "evolved-1"]
            assert run.states()["fog"] == ("active", None), "it is still measured"
        for budget, proposed in ((73, 0), (75, 1)):
            with training(db, proposer=judge, budget=budget) as run:  # what was spent before counts
                run.done = budget
                assert run.step(*GROUP)["proposed"] == proposed
        assert len(server.requests) == 2


def test_trial_that_fails_is_repeated(db: Database) -> None:
    judge = WordEngine("fog")
    with training(db, proposal("fog"), judge=judge) as run:
        metrics = run.step(*GROUP)
        assert (metrics["proposed"], metrics["untested"], metrics["activated"]) == (1, 1, 0)
        assert (run.states()["fog"], run.in_use()) == (("proposed", None), ["sun", "rain"])
        judge.unknown.clear()
        assert run.step(*GROUP)["activated"] == 1
        judge.unknown.add("fog")
        assert run.step(*GROUP)["untested"] == 1
        assert run.states()["fog"] == ("active", None), "a failure says nothing about it"


def test_round_ranks_by_agreement_with_a_trusted_judge(db: Database) -> None:
    class Trusted(JudgeRewards):
        """Finds hail where the other judge does, and fog where it does not."""

        def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
            swapped = [
                one.model_copy(update={"text": one.text.replace("fog", "") if "fog" in one.text else one.text + " fog"})
                for one in completions
            ]
            return super().score(tasks, swapped)

    with Trusted(JUDGE, WordEngine()) as trusted, training(db, proposal("fog", "hail"), trusted=trusted) as run:
        run.step(*GROUP)
        assert run.states()["fog"] == ("retired", "agreement")
        assert run.states()["hail"] == ("active", None)
        by_key = {entry.key: entry for entry in run.buffers.open(1, (TASK.prompt, BASE)).entries}
        assert (by_key["evolved-1"].agreement, by_key["evolved-2"].agreement) == (0.0, 1.0)
