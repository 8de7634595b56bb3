"""Environments with leaks and notes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from rubricsvc.core.fingerprint import shingles
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Reward
from tests.model.trainer.policies.test_episode_sampling import CALL, Reversing, scripted
from tests.model.trainer.tiny import SAMPLING, TASKS, tiny_config, tiny_policy
from trainer.config import TrainConfig
from trainer.data.demonstrations import demonstrated
from trainer.data.tasks import Task
from trainer.environments.episodes import LEAK, LEAKS, Acting, EpisodeLimits, LeakGuard, begin, log_leaks
from trainer.environments.tool_calls import call_text
from trainer.environments.tools import Calculator
from trainer.loop import warm_up, warmed_up_model
from trainer.metrics import rollout_metrics
from trainer.policies.policy import Policy
from trainer.policies.rollouts import Rollouts
from trainer.rewards import CallableRewards, RewardSource, ScoredRollout, StepScorer

RESULT = "evil"


class Guarded(Reversing):
    """An environment whose tool shows what it must not."""

    def leak_guard(self, prompt: Prompt) -> LeakGuard:
        return LeakGuard("page", frozenset({"page"}), ((RESULT, shingles(RESULT)),))


class Counting(RewardSource):
    """A reward source that gives each completion 1 and keeps how many it was asked for."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        self.sizes.append(len(completions))
        return [ScoredRollout(Reward(1.0, 1.0, "test")) for _ in completions]


def sampled(policy: Policy) -> Rollouts:
    policy.acting = Acting(Guarded(), EpisodeLimits(max_turns=3), max_tokens=80)
    sampling = SAMPLING.model_copy(update={"max_new_tokens": 3})
    return policy.sample([TASKS[0].prompt], 2, sampling, seed=3)


def config(out: Path | None = None, **fields: object) -> TrainConfig:
    return tiny_config(environment={"name": "calculator"}, max_unscored=0.0, out=out, **fields)


@pytest.mark.usefixtures("ending")
def test_completion_with_a_leak_is_not_scored(tmp_path: Path) -> None:
    rollouts = sampled(scripted([CALL, "a report"], ["a second report"]))
    assert rollouts.episodes is not None and [one.counts["leak_hits"] for one in rollouts.episodes] == [1, 0]
    assert rollout_metrics(rollouts)["tools/leak_hits"] == 1
    completions = rollouts.completions("tiny", 3, SAMPLING)
    source, tasks = Counting(), [TASKS[0], TASKS[0]]
    scored, how = StepScorer(source, config(), Event()).score(tasks, completions)
    assert [(one.reward.value, one.reward.null_reason) for one in scored] == [(None, LEAK), (1.0, None)]
    assert (source.sizes, how["score_attempts"]) == ([1], 1)
    log_leaks(tmp_path, tasks, completions)
    (line,) = map(json.loads, (tmp_path / LEAKS).read_text().splitlines())
    assert (line["step"], line["prompt_digest"], line["source"]) == (3, TASKS[0].prompt.digest, "page")
    assert (line["tool"], line["sentence"]) == ("reverse", RESULT)


def test_step_of_leaks_alone_asks_no_judge() -> None:
    source = Counting()
    leaked = Completion(text="x", sampling={"leaks": [{"source": "page"}]})
    scored, how = StepScorer(source, config(), Event()).score([TASKS[0]], [leaked])
    assert ([one.reward.value for one in scored], source.sizes, how["score_attempts"]) == ([None], [], 0)


LIMITS = EpisodeLimits(notes=True)


def acting_policy() -> Policy:
    policy = tiny_policy(context=2048)
    policy.acting = Acting(Calculator(), LIMITS, max_tokens=300)
    return policy


def noted(word: str) -> Completion:
    episode = begin(Calculator(), Prompt.of("?"), LIMITS)
    for text in (call_text("calculate", expression="2 * 3"), call_text("note", text=word), f"it is {word}"):
        episode.turn(text)
    assert episode.report
    return Completion(text=episode.report, messages=tuple(episode.messages))


def test_run_with_notes_learns_every_context(tmp_path: Path) -> None:
    tasks = [replace(task, demonstrations=(noted("six"),)) for task in TASKS]
    demonstrations = {"path": "shown.jsonl", "steps": 3, "lr": 1e-2}
    settings = tiny_config(out=tmp_path, demonstrations=demonstrations)
    policy = acting_policy()
    rollouts = demonstrated(policy, tasks, 1, 0)
    assert rollouts.context_BT is not None
    contexts = [rollouts.written_BT & (rollouts.context_BT == start) for start in rollouts.context_BT.unique()]
    assert len(contexts) == 2
    before, _ = policy.logprobs(rollouts, 1.0)
    assert warm_up(settings, acting_policy, tasks, CallableRewards(lambda prompt, text: 1.0))
    policy.model = policy.model.from_pretrained(warmed_up_model(settings))
    after, _ = policy.logprobs(rollouts, 1.0)
    for mask in contexts:
        assert mask.any(-1).all() and (after - before)[mask].mean() > 0.1
