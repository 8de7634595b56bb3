"""Prompts, their order and demonstrations; held-out prompts are apart by content, whatever their ids."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.errors import InvalidError
from tests.model.trainer.tiny import RUBRIC, SAMPLING, TASKS, tiny_config, tiny_policy
from tests.tiny_model import tiny_model
from trainer.config import TrainConfig
from trainer.data.demonstrations import demonstrated
from trainer.data.tasks import Task, allocated, check_apart, content_key, hold_out, page_key, tasks_of_step
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
def test_transcript_is_what_an_episode_sampled(notes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert rollouts.ids_BT[0].tolist() == whole.ids and rollouts.from_environment_BT is not None
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


def config(prompts_per_step: int = 4, **prompts: object) -> TrainConfig:
    sampling = {"prompts_per_step": prompts_per_step, "group_size": 2, "max_new_tokens": 4}
    return tiny_config(steps=1, sampling=sampling, prompts=prompts)


def of_domains(**counts: int) -> list[Task]:
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
    given_tasks = of_domains(a=3, b=50, c=2)
    settings = config(weights={"a": 3, "b": 1})
    stream = [task for step in range(30) for task in tasks_of_step(given_tasks, step, settings)]
    assert Counter(task.domain for task in stream) == {"a": 90, "b": 30}
    assert {len(tasks_of_step(given_tasks, step, settings)) for step in range(30)} == {4}
    of_a = [task.name for task in stream if task.domain == "a"]
    assert all(sorted(of_a[at : at + 3]) == ["a0", "a1", "a2"] for at in range(0, 90, 3))
    of_b = [task.name for task in stream if task.domain == "b"]
    assert len(set(of_b)) == 30


def tasks(*texts: str) -> list[Task]:
    return [Task(Prompt.of(text), RUBRIC, f"id-{place}") for place, text in enumerate(texts)]


def test_check_apart_names_overlapping_prompts() -> None:
    check_apart(tasks("one", "two"), tasks("three"))
    with pytest.raises(InvalidError) as caught:
        check_apart(tasks("one", "two", "three"), tasks("four", "ONE ", "two"))
    assert caught.value.path == "eval" and "2 of 3" in caught.value.message
    assert "id-1, id-2" in caught.value.message


def test_hold_out_depends_on_content_and_seed_only() -> None:
    given = tasks(*(f"prompt {number}" for number in range(20)), "Prompt 3")
    train, held_out = hold_out(given, 0.25, seed=0)
    assert (len({content_key(task.prompt) for task in held_out}), len(train) + len(held_out)) == (5, 21)
    check_apart(train, held_out)
    assert [given.index(task) for task in train] == sorted(given.index(task) for task in train)
    again = hold_out(given[::-1], 0.25, seed=0)[1]
    assert {task.prompt.text for task in again} == {task.prompt.text for task in held_out}
    assert hold_out(given, 0.25, seed=1)[1] != held_out


def of_page(text: str, *pages: str, source: str | None = None, digest: str = "d") -> Task:
    item = {"digest": digest, "pages": [[id_] for id_ in pages], **({"source": source} if source else {})}
    return Task(Prompt.of(text, item=item), RUBRIC, text)


def test_hold_out_keeps_the_prompts_of_a_page_on_one_side() -> None:
    given = [of_page(f"{page} {number}", f"page {page}", "any") for page in range(12) for number in range(3)]
    given += [of_page(f"section {page}", "target", source=f"page {page}") for page in range(12)]
    train, held_out = hold_out(given, 0.25, seed=0)
    assert (len(train), len(held_out)) == (36, 12)
    assert not {page_key(one.prompt) for one in train} & {page_key(one.prompt) for one in held_out}


def test_hold_out_names_shares_that_fit() -> None:
    cases = [(4, 0.1, "0.25 to 0.75"), (4, 0.9, "0.25 to 0.75"), (1, 0.5, "add")]
    for count, share, fits in cases:
        with pytest.raises(InvalidError) as caught:
            hold_out(tasks(*map(str, range(count))), share, seed=0)
        assert caught.value.path == "eval.share" and fits in caught.value.message
