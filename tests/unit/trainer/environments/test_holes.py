"""Reports that seek a reward without research: the checks of synthesized rubrics do not pay for them."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import pytest

from rubricsvc.collections import index as collections
from rubricsvc.collections.index import FaultyDocuments
from rubricsvc.collections.sources import python_pages
from rubricsvc.collections.tasks import Capability, Task, synthesize
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import reward
from tests.report_holes import HOLES, Report, answer, completion, script
from trainer.environments.tools import Research
from workers import checks

CAPABILITIES: tuple[Capability, ...] = ("define", "changes")
PER_CAPABILITY = 3
PAGE_WORDS = range(200, 3000)
"""A shorter page may be quoted whole, a longer one has more parts than an episode opens."""
MOST = {"other_sentence": 0.45}
"""What the right page is worth, and a term of the answer; the others earn 0."""


@pytest.fixture(scope="module")
def research(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Research]:
    folder = tmp_path_factory.mktemp("collections")
    collections.add(folder, "python", python_pages(), FaultyDocuments(), source="a test")
    environment = Research(folder, "python")
    with environment.collection:
        yield environment


@pytest.fixture(scope="module")
def tasks(research: Research) -> list[Task]:
    def readable(task: Task) -> bool:
        return len(research.collection.open(task.pages[0][0]).text.split()) in PAGE_WORDS

    made = [list(filter(readable, synthesize(research.collection, [one]))) for one in CAPABILITIES]
    return [task for tasks in made for task in tasks[:PER_CAPABILITY]]


def earned(task: Task, one: Completion) -> float:
    """Return the reward by the checks alone."""
    rubric = task.rubric.with_criteria([criterion for criterion in task.rubric.criteria if criterion.check])
    value = reward(rubric, checks.run(rubric, task.prompt, one)).value
    assert value is not None
    return value


def test_answer_earns_what_the_checks_give(research: Research, tasks: list[Task]) -> None:
    assert len(tasks) == len(CAPABILITIES) * PER_CAPABILITY
    assert [earned(task, completion(research, task, answer)) for task in tasks] == [1.0] * len(tasks)


@pytest.mark.parametrize("name", HOLES)
def test_hole_earns_little(research: Research, tasks: list[Task], name: str) -> None:
    rewards = {task.id: earned(task, completion(research, task, HOLES[name])) for task in tasks}
    assert max(rewards.values()) <= MOST.get(name, 0.0), rewards


def test_script_earns_more_than_finding_the_page(research: Research, tasks: list[Task]) -> None:
    completions = [script(Report(research, task)) for task in tasks]
    assert fmean(earned(task, one) for task, one in zip(tasks, completions, strict=True) if one) > 0.5
