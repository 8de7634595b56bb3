"""A run in an environment with notes learns what was written before a note and after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rubricsvc.core.prompt import Completion, Prompt
from tests.model.trainer.tiny import TASKS, tiny_config, tiny_policy
from trainer.data.demonstrations import demonstrated
from trainer.environments.episodes import EpisodeLimits, begin
from trainer.environments.tool_calls import call_text
from trainer.environments.tools import Calculator
from trainer.policies.policy import Acting, Policy
from trainer.rewards.source import CallableRewards
from trainer.warm_up import warm_up, warmed_up_model

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
    contexts = [rollouts.written_BT & (rollouts.context_BT == number) for number in (0, 1)]
    before, _ = policy.logprobs(rollouts, 1.0)
    assert warm_up(settings, acting_policy, tasks, CallableRewards(lambda prompt, text: 1.0))
    policy.model = policy.model.from_pretrained(warmed_up_model(settings))
    after, _ = policy.logprobs(rollouts, 1.0)
    for mask in contexts:
        assert mask.any(-1).all()
        assert (after - before)[mask].mean() > 0.1
