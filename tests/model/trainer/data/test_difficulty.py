"""Pass rates and deviations by prompt, what is selected by them, and the file of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
from tests.model.trainer.tiny import RUBRIC, TASKS, share_of_a, tiny_config, tiny_policy
from trainer.config import DataConfig
from trainer.data.difficulty import (
    PromptDifficulty,
    difficulty_of,
    key_of,
    measure,
    read_difficulties,
    select,
    selection,
    write_difficulties,
)
from trainer.data.tasks import Task
from trainer.rewards.source import CallableRewards

TASK = Task(Prompt.of("x"), RUBRIC, "id")
DATA = DataConfig(path=Path("rubrics.yaml"))


def of(*rewards: float | None) -> PromptDifficulty:
    return difficulty_of(TASK, rewards, pass_reward=0.5, policy="p", source="sampled")


@pytest.mark.parametrize(
    ("rewards", "settings", "expected"),
    [
        ((0.0, 1.0), {}, "kept"),
        ((1.0, 1.0), {}, "too_easy"),
        ((0.0, 0.4), {}, "too_hard"),
        ((0.0, 0.4), {"keep_std": 0.2}, "kept"),
        ((0.3, 0.4), {"keep_std": 0.2}, "too_hard"),
        ((0.0, 0.0, 0.0, 1.0), {"min_pass_rate": 0.3}, "too_hard"),
        ((None,), {}, "unmeasured"),
    ],
)
def test_selection_is_by_pass_rate_and_deviation(
    rewards: tuple[float | None, ...], settings: dict[str, float], expected: str
) -> None:
    assert selection(of(*rewards), DATA.model_copy(update=settings)) == expected


def test_select_keeps_unmeasured_prompts_and_refuses_to_keep_none() -> None:
    found = {key_of(TASK): of(1.0, 0.0)}
    kept, counts = select([TASK, *TASKS], found, DATA)
    assert [task.pass_rate for task in kept] == [0.5, *[None] * len(TASKS)]
    assert counts == {"kept": 1, "unmeasured": len(TASKS)}
    with pytest.raises(InvalidError) as caught:
        select([TASK], {key_of(TASK): of(1.0, 1.0)}, DATA)
    assert caught.value.path == "data.difficulty"


def test_measure_samples_each_prompt_the_same_way_again() -> None:
    def run() -> list[PromptDifficulty]:
        rewards = CallableRewards(share_of_a)
        batches = list(measure(tiny_policy(), TASKS, rewards, tiny_config(), samples=4, pass_reward=0.1))
        assert [len(batch) for batch in batches] == [2, 2]
        return [one for batch in batches for one in batch]

    first = run()
    assert [one.prompt_digest for one in first] == [task.prompt.digest for task in TASKS]
    assert first == run()
    assert {one.samples for one in first} == {4}


def test_write_difficulties_reads_back_and_names_damaged_lines(tmp_path: Path) -> None:
    path = tmp_path / "difficulty.jsonl"
    assert read_difficulties(path) == {}
    write_difficulties(path, [of(1.0, 0.0)])
    assert read_difficulties(path) == {key_of(TASK): of(1.0, 0.0)}
    path.write_text(path.read_text() + '{"prompt": "x"}\n')
    with pytest.raises(InvalidError, match="line 2"):
        read_difficulties(path)
