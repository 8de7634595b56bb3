"""Prompts, their order and demonstrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.formats.documents import CompletionLine
from tests.model.trainer.tiny import RUBRIC, SAMPLING, TASKS, tiny_config, tiny_policy
from tests.tiny_model import tiny_model
from trainer.config import TrainConfig
from trainer.data.demonstrations import demonstrated
from trainer.data.tasks import Task, allocated, tasks_of_step
from trainer.environments.episodes import Acting, EpisodeLimits, begin
from trainer.environments.tool_calls import call_text
from trainer.environments.tools import Calculator
from trainer.loop import train
from trainer.policies.policy import Policy
from trainer.policies.rollouts import transcript
from trainer.rewards import CallableRewards


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
        "trainer.policies.policy.sample_tokens", lambda logits, *_: (torch.tensor([queue.pop(0)] * len(logits)), None)
    )
    rollouts = policy.sample([Prompt.of("What is 6 * 7?")], 1, SAMPLING.model_copy(update={"max_new_tokens": 99}), 0)
    whole = transcript(policy.tokenizer, trajectory(*turns, notes=notes), notes=notes)
    assert rollouts.ids_BT[0].tolist() == whole.ids
    assert rollouts.from_environment_BT is not None
    assert rollouts.from_environment_BT[0].tolist() == whole.given
    assert any(whole.given) and not all(whole.given)
    assert (rollouts.context_BT is not None) == notes and len(set(whole.contexts)) == 1 + notes
    if rollouts.context_BT is not None:
        assert rollouts.context_BT[0].tolist() == whole.contexts


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


def config(prompts_per_step: int = 4, **prompts: object) -> TrainConfig:
    sampling = {"prompts_per_step": prompts_per_step, "group_size": 2, "max_new_tokens": 4}
    return tiny_config(steps=1, sampling=sampling, prompts=prompts)


def tasks(**counts: int) -> list[Task]:
    """Return tasks of domains."""
    return [
        Task(Prompt.of(f"{domain} {n}"), RUBRIC, f"{domain}{n}", domain)
        for domain, count in counts.items()
        for n in range(count)
    ]


WEIGHTS = st.dictionaries(st.sampled_from("abcd"), st.floats(0.01, 100), min_size=1)


@given(WEIGHTS, st.integers(0, 300))
def test_allocated_is_monotone_and_close_to_the_weights(weights: dict[str, float], slots: int) -> None:
    counts, more = allocated(weights, slots), allocated(weights, slots + 1)
    assert (counts.total(), more.total()) == (slots, slots + 1)
    assert all(more[domain] >= counts[domain] for domain in weights)
    total = sum(weights.values())
    assert all(abs(counts[domain] - slots * weights[domain] / total) < len(weights) for domain in weights)


def test_tasks_of_step_follow_the_weights_of_domains() -> None:
    given_tasks = tasks(a=3, b=50, c=2)
    settings = config(weights={"a": 3, "b": 1})
    stream = [task for step in range(30) for task in tasks_of_step(given_tasks, step, settings)]
    assert Counter(task.domain for task in stream) == {"a": 90, "b": 30}
    assert {len(tasks_of_step(given_tasks, step, settings)) for step in range(30)} == {4}
    of_a = [task.name for task in stream if task.domain == "a"]
    assert all(sorted(of_a[at : at + 3]) == ["a0", "a1", "a2"] for at in range(0, 90, 3))
    of_b = [task.name for task in stream if task.domain == "b"]
    assert len(set(of_b)) == 30
