"""Which prompts a step has: mixtures by weight, and replacements."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.prompt import Prompt
from tests.model.trainer.tiny import RUBRIC, tiny_config
from trainer.config import TrainConfig
from trainer.data.tasks import Task, allocated, tasks_of_step


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
