"""What a run does beside its steps."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

from rubricsvc.core.evolution import BufferedCriterion
from rubricsvc.core.judge import CHECKS, Endpoint, Judge, Price, Sampling
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Group, Rubric
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from rubricsvc.formats import load
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.store.session import Database
from tests.letter_judge import JUDGE, WordEngine, proposal, uses
from tests.model.trainer.tiny import PROMPTS, TASKS, share_of_a, tiny_config, tiny_policy
from tests.scripted_server import scripted_server, text_reply
from trainer import checkpoint
from trainer.config import ControlName, EvolveConfig, TrainConfig
from trainer.data.demonstrations import demonstrated
from trainer.data.tasks import Task
from trainer.evolution import OnlineEvolution
from trainer.loop import WARM_UP_FOLDER, is_warmed_up, train, warm_up, warmed_up_model
from trainer.policies.policy import Policy
from trainer.recording import Metrics
from trainer.rewards import CallableRewards, ControlRewards, JudgeRewards, ScoredRollout
from workers.engines.base import EngineRequest, Failure, Reply
from workers.evolution import Round

BASE = Rubric(criteria=[Criterion(key="sun", text=uses("sun"), weight=4), Criterion(key="rain", text=uses("rain"))])
PITFALL = Criterion(key="rude", text="Is rude.", weight=-4)
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

    def __init__(self, evolution: OnlineEvolution, evolutions: Evolutions, rewards: JudgeRewards) -> None:
        self.evolution, self.evolutions, self.rewards = evolution, evolutions, rewards
        self.done = 0
        self.scored: list[ScoredRollout] = []

    def step(self, *texts: str) -> dict[str, Any]:
        """Score a group, and evolve; return the metrics without their prefix."""
        authored = [TASK] * len(texts)
        used = self.evolution.tasks(self.done, authored)
        values = [Completion(text=text, policy="p", step=self.done) for text in texts]
        self.scored = self.rewards.score(used, values)
        found = self.evolution.evolve(self.done, authored, values, self.scored)
        self.done += 1
        return {name.removeprefix("evolve/"): value for name, value in found.items()}

    def in_use(self) -> list[str]:
        """The keys of the version that the next step uses."""
        (task,) = self.evolution.tasks(self.done, [TASK])
        return [criterion.key for criterion in task.rubric.criteria]

    def states(self) -> dict[str, tuple[str, str | None]]:
        """The states of the words in the buffer, with the reasons."""
        entries = self.entries().values()
        return {entry.criterion.text.split("“")[1].split("”")[0]: (entry.state, entry.reason) for entry in entries}

    def entries(self) -> dict[str, BufferedCriterion]:
        """The buffer, by key."""
        (one,) = self.evolutions.page()
        return {entry.key: entry for entry in self.evolutions.get(one.id).entries}


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
    with JudgeRewards(JUDGE, judge or WordEngine()) as rewards, pytest.MonkeyPatch.context() as patch:
        if proposer is None:
            patch.setattr("trainer.evolution.make_engine", lambda _: ScriptedProposer(*replies))
        if trusted is not None:
            patch.setattr("trainer.evolution.JudgeRewards", lambda _: trusted)
            config = config.model_copy(update={"trusted": JUDGE})
        with OnlineEvolution(config, Evolutions(db), "run-1", rewards) as evolution:
            yield Training(evolution, Evolutions(db), rewards)


def test_round_activates_what_separates_and_keeps_the_limit(db: Database) -> None:
    with training(db, proposal("fog", "mist", "snow", pitfalls=["hail"]), max_active=2) as run:
        assert run.in_use() == ["sun", "rain"]
        metrics = run.step(*GROUP)
        assert (metrics["proposed"], metrics["activated"], metrics["active"]) == (4, 2, 2)
        assert run.states() == {
            "sun": ("frozen", None), "rain": ("frozen", None), "fog": ("active", None), "mist": ("retired", "limit"),
            "snow": ("retired", "separation"), "hail": ("active", None),
        }  # fmt: skip
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
        assert run.step(*GROUP)["activated"] == 0, "not due yet"
        assert run.step(*learned)["activated"] == 0, "not due yet"
        regressed = run.step(*GROUP)
        assert (regressed["activated"], regressed["retired"]) == (1, 0)
        assert run.in_use() == ["sun", "rain", "evolved-1", "evolved-2"]
        hail = run.entries()["evolved-2"]
        assert (hail.trials, hail.tested_step) == (3, 4)


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

    with training(db, proposal("fog", "hail"), trusted=Trusted(JUDGE, WordEngine())) as run:
        run.step(*GROUP)
        assert run.states()["fog"] == ("retired", "agreement") and run.states()["hail"] == ("active", None)
        by_key = run.entries()
        first, second = by_key["evolved-1"], by_key["evolved-2"]
        assert (first.agreeing, second.agreeing - second.pairs) == (0, 0) and first.pairs and second.pairs


@pytest.mark.parametrize("formula", ["weighted_mean", "healthbench", "rar_explicit", "ldc_raw"])
def test_check_takes_formulas_that_sum_weights(formula: str) -> None:
    rubric = BASE.model_copy(update={"formula": formula, "criteria": (*BASE.criteria, PITFALL)})
    OnlineEvolution.check([replace(TASK, rubric=rubric)])


@pytest.mark.parametrize(
    "fields",
    [
        {"formula": "verifiers"},
        {"formula": "min"},
        {"formula": "calculate_output", "expression": "sun"},
        {"formula": "tree_pitfalls", "groups": (Group(path=("a",), weight=1),), "criteria": (*BASE.criteria, PITFALL)},
    ],
)
def test_check_refuses_other_formulas(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidError) as caught:
        OnlineEvolution.check([replace(TASK, rubric=BASE.model_copy(update=fields))])
    assert caught.value.path == "evolve"


REWARDS = CallableRewards(share_of_a)


def shown(*texts: str) -> list[Task]:
    return [replace(task, demonstrations=tuple(Completion(text=text) for text in texts)) for task in TASKS]


def config(out: Path, **changes: Any) -> TrainConfig:
    demonstrations = {"path": "shown.jsonl", "steps": 6, "lr": 1e-2, **changes}
    return tiny_config(out=out, demonstrations=demonstrations, checkpoint_every=2)


def likelihood(policy: Policy, tasks: Sequence[Task]) -> float:
    return policy.logprobs(demonstrated(policy, tasks, 1, 0), 1.0)[0].sum().item()


def test_warm_up_learns_the_best_demonstrations(tmp_path: Path) -> None:
    settings, tasks = config(tmp_path), shown("aaaa", "bbbb")
    assert not is_warmed_up(settings) and warm_up(settings, tiny_policy, tasks, REWARDS)
    assert is_warmed_up(settings)
    policy = tiny_policy()
    before = [likelihood(policy, shown(text)) for text in ("aaaa", "bbbb")]
    policy.model = policy.model.from_pretrained(warmed_up_model(settings))
    best, other = (likelihood(policy, shown(text)) - was for text, was in zip(("aaaa", "bbbb"), before, strict=True))
    assert best > 1 and best > other


def test_warm_up_continues_where_it_was_stopped(tmp_path: Path) -> None:
    steps: list[int] = []
    stop = Event()

    def on_step(step: Metrics) -> None:
        steps.append(step["step"])
        if step["step"] == 2:
            stop.set()

    settings, tasks = config(tmp_path), shown("aaaa")
    assert not warm_up(settings, tiny_policy, tasks, REWARDS, on_step=on_step, stop=stop)
    assert not is_warmed_up(settings) and warm_up(settings, tiny_policy, tasks, REWARDS, on_step=on_step)
    assert steps == [1, 2, 3, 4, 5, 6]
    assert checkpoint.steps(tmp_path / WARM_UP_FOLDER) == [6]


TEXTS = ["a", "ab", "abc", "abcd", "b", "ba", "bad", "baad"]
TASK_OF = [TASKS[0]] * 4 + [TASKS[1]] * 4
COMPLETIONS = [Completion(text=text, policy="p") for text in TEXTS]


def rewards_of(name: ControlName, seed: int = 0, missing: str = "") -> list[float | None]:
    source = CallableRewards(lambda prompt, text: None if text == missing else share_of_a(prompt, text))
    scored = ControlRewards(source, name, seed).score(TASK_OF, COMPLETIONS)
    return [one.reward.value for one in scored]


def test_shuffled_rewards_are_those_of_the_prompt_in_another_order() -> None:
    real = [share_of_a(PROMPTS[0], text) for text in TEXTS]
    found = rewards_of("shuffled")
    assert found != real
    assert Counter(found[:4]) == Counter(real[:4]) and Counter(found[4:]) == Counter(real[4:])
    assert rewards_of("shuffled", missing="abc")[2] is None


def test_frozen_rewards_leave_the_policy_as_it_is() -> None:
    policy, start = tiny_policy(), tiny_policy()
    train(policy, TASKS, CallableRewards(share_of_a), tiny_config(steps=2, control={"reward": "frozen"}))
    pairs = zip(policy.model.parameters(), start.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("name", ["random", "shuffled"])
def test_control_learns_less_than_the_reward(name: ControlName) -> None:
    """The share of the letter a: learned from the reward, and not from one that says nothing."""

    def learned(**control: object) -> float:
        config = tiny_config(steps=30, **({"control": control} if control else {}))
        policy = tiny_policy()
        train(policy, TASKS, CallableRewards(share_of_a), config)
        rollouts = policy.sample(PROMPTS, 16, config.sampling, seed=7)
        return sum(share_of_a(PROMPTS[0], text) for text in rollouts.texts) / len(rollouts.texts)

    assert learned() > learned(reward=name) + 0.1


GRADER = {
    "type": "multi",
    "name": "both",
    "graders": {
        "same": {
            "type": "string_check", "name": "same", "input": "{{sample.output_text}}", "reference": "{{item.answer}}",
            "operation": "like",
        },
        "near": {
            "type": "text_similarity", "name": "near", "input": "{{sample.output_text}}",
            "reference": "{{item.answer}}", "evaluation_metric": "fuzzy_match",
        },
    },
    "calculate_output": "2 * same + near",
}  # fmt: skip


def test_judge_rewards_grade_each_prompt_by_its_item(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": f"{n}?"}], "answer": str(n) * 4} for n in (1, 2)]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(json.dumps({"item": row, "grader": GRADER}) for row in rows))
    tasks = [Task(r.prompt, r.rubric) for r in load(path, format="openai_grader") if r.prompt and r.rubric]
    with JudgeRewards(CHECKS) as rewards:
        scored = rewards.score(tasks, [Completion(text="1111")] * 2)
    assert [result.reward.value for result in scored] == pytest.approx([3.0, 0.0])


def entry(key: str, state: str = "proposed", **fields: object) -> BufferedCriterion:
    criterion = Criterion(key=key, text=f"Says {key}.")
    return BufferedCriterion.model_validate({"criterion": criterion, "state": state, **fields})


def decided(db: Database, entries: list[BufferedCriterion], *, referenced: bool = False) -> dict[str, Any]:
    trusted = JudgeRewards(JUDGE, WordEngine()) if referenced else None
    with training(db, trusted=trusted, max_active=2) as run:
        return dict(run.evolution.decide(Round(1, 3, TASK.rubric, TASK.rubric, entries))[0])


def test_decide_keeps_the_limit_and_never_moves_frozen_criteria(db: Database) -> None:
    entries = [
        entry("frozen", "frozen", separation=0.0, tested_step=3), entry("old", "active", separation=0.1),
        entry("kept", "active", separation=0.3), entry("best", separation=0.5, tested_step=3),
        entry("flat", separation=0.01, tested_step=3), entry("asleep", "retired", separation=0.5, tested_step=2),
        entry("untried"),
    ]  # fmt: skip
    after = decided(db, entries)
    assert after == {"old": "limit", "kept": None, "best": None, "flat": "separation"}


def test_decide_retires_what_does_not_agree(db: Database) -> None:
    entries = [
        entry("agrees", "active", separation=0.2, agreeing=3, pairs=4),
        entry("opposes", "active", separation=0.5, agreeing=1, pairs=4),
        entry("unknown", separation=0.5, tested_step=3),
    ]
    after = decided(db, entries, referenced=True)
    assert after == {"agrees": None, "opposes": "agreement", "unknown": "agreement"}


def test_decide_keeps_a_retired_criterion_again_and_an_active_one_whose_trial_failed(db: Database) -> None:
    assert decided(db, [entry("a", "retired", reason="separation", separation=0.5, tested_step=3)]) == {"a": None}
    assert decided(db, [entry("a", "active", separation=0.5)]) == {"a": None}
