"""Demonstrations: the tokens of stored trajectories are those of sampled ones, and their likelihood is learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.formats.lines import CompletionLine
from tests.model.trainer.tiny import SAMPLING, TASKS, tiny_config, tiny_policy
from tests.tiny_model import tiny_model
from trainer.data.demonstrations import demonstrated
from trainer.data.tasks import Task
from trainer.environments.episodes import EpisodeLimits, begin
from trainer.environments.tool_calls import call_text
from trainer.environments.tools import Calculator
from trainer.loop import train
from trainer.policies.policy import Acting, Policy
from trainer.policies.tokens import transcript
from trainer.rewards.source import CallableRewards


def shown(*texts: str) -> list[Task]:
    return [replace(task, demonstrations=(Completion(text=text),)) for task, text in zip(TASKS, texts, strict=False)]


def trajectory(*texts: str, notes: bool = False) -> Completion:
    episode = begin(Calculator(), Prompt.of("?"), EpisodeLimits(notes=notes))
    for text in texts:
        episode.turn(text)
    return Completion(text=episode.report, messages=tuple(episode.messages))


@pytest.mark.parametrize("notes", [False, True])
def test_transcript_is_what_an_episode_has_sampled(
    notes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acting = Acting(Calculator(), EpisodeLimits(notes=notes), max_tokens=600)
    policy = Policy.load(str(tiny_model(tmp_path, context=2048)), dtype="float32", acting=acting)
    turns = [call_text("calculate", expression="6 * 7"), "It is 42."]
    turns[1:1] = [call_text("note", text="42"), call_text("calculate", expression="42")] if notes else []
    tokens = [[*policy.tokenizer(text)["input_ids"], policy.tokenizer.eos_token_id] for text in turns]
    queue = [token for row in tokens for token in row]
    monkeypatch.setattr(
        "trainer.policies.decoding.sample_tokens", lambda logits, *_: (torch.tensor([queue.pop(0)] * len(logits)), None)
    )
    rollouts = policy.sample([Prompt.of("What is 6 * 7?")], 1, SAMPLING.model_copy(update={"max_new_tokens": 99}), 0)
    ids, given, contexts = transcript(policy.tokenizer, trajectory(*turns, notes=notes), notes=notes)
    assert rollouts.ids_BT[0].tolist() == ids
    assert rollouts.from_environment_BT is not None
    assert rollouts.from_environment_BT[0].tolist() == given
    assert any(given) and not all(given)
    assert (rollouts.context_BT is not None) == notes and len(set(contexts)) == 1 + notes
    if rollouts.context_BT is not None:
        sampled = rollouts.context_BT[0].tolist()
        assert [one > 0 for one in sampled] == [one > 0 for one in contexts]


def test_demonstrations_are_learned_and_recorded_as_they_are() -> None:
    policy = tiny_policy()
    tasks = shown("aa", "bb", "cc", "dd")
    config = tiny_config(algorithm="best_of_n_supervised", steps=8)
    before = demonstrated(policy, tasks, 1, 0)
    start = policy.logprobs(before, 1.0)[0].sum().item()
    scored: list[str] = []

    def score(_: Prompt, text: str) -> float:
        scored.append(text)
        return 1.0

    train(policy, tasks, CallableRewards(score), config)
    assert policy.logprobs(before, 1.0)[0].sum().item() > start + 1
    assert set(scored) <= {"aa", "bb", "cc", "dd"}
    assert before.completions("tiny", 3, SAMPLING) == [task.demonstrations[0] for task in tasks]


def lines(prompts: Sequence[Prompt | None]) -> list[CompletionLine]:
    return [CompletionLine(completion=Completion(text="x"), prompt=prompt) for prompt in prompts]
