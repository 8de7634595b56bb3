"""Measures of evaluations and baselines with tools."""

from dataclasses import replace
from pathlib import Path

import pytest

from rubricsvc.collections.index import Page
from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall
from rubricsvc.core.rubric import Criterion, Rubric
from tests.model.trainer.tiny import SAMPLING
from tests.tiny_model import tiny_model
from trainer.data.tasks import Task
from trainer.environments.episodes import Acting, EpisodeLimits, begin
from trainer.environments.tool_calls import call_text
from trainer.environments.tools import Research
from trainer.evaluation import Script, behaviour, means_by_key
from trainer.policies.policy import Policy

RUBRIC = Rubric(criteria=(Criterion(key="a", text="Is good."),))
TASKS = [
    Task(Prompt.of("What is a vacuum?", item={"pages": [["vacuum"], ["index", "index.2"]]}), RUBRIC),
    Task(Prompt.of("And then?"), RUBRIC),
]


def episode(report: str, *opened: str) -> Completion:
    messages = []
    for at, id_ in enumerate(opened):
        call = ToolCall(id=str(at), name="open", arguments=f'{{"id": "{id_}"}}')
        messages += [
            Message(role="assistant", content="", tool_calls=(call,)),
            Message(role="tool", content=f"The page {id_}.", name="open", tool_call_id=str(at)),
        ]
    return Completion(text=report, messages=(*messages, Message(role="assistant", content=report)))


def test_behaviour_measures_calls_and_citations_by_prompt() -> None:
    found = behaviour(
        TASKS,
        [
            (0, episode("So it is [vacuum].", "vacuum")),
            (0, episode("So it is [index.2] [else].", "index.2", "else")),
            (1, episode("I know.")),
        ],
    )
    assert {name: one.value for name, one in found.items()} == {
        "tool_use": 0.5,
        "valid_calls": 0.5,
        "citation_recall": pytest.approx(0.5),
        "citation_precision": pytest.approx(0.75),
    }


def test_means_by_key_are_of_the_prompts_that_have_it() -> None:
    found = means_by_key(2, [(0, "a", 0.25), (0, "b", None), (0, "a", 0.75), (1, "c", 1.0)])
    assert {key: one.value for key, one in found.items()} == {"a": 0.5, "b": None, "c": 1.0}


PAGES = [
    Page("vacuum", "Vacuum", "A vacuum removes dead tuples from a table. It runs by itself in most installations."),
    Page("index", "Indexes", "An index speeds up a query at the price of slower changes of the table."),
]
ASKED = Prompt.of("What does “Vacuum” mean? Quote the sentence, and cite the page as [id].")
LIMITS = EpisodeLimits()


def test_tools_with_empty_results_still_end_the_episode(research: Research) -> None:
    episode = begin(research, ASKED, replace(LIMITS, empty_results=True))
    calls = (("search", {"query": "vacuum"}), ("open", {"id": "vacuum"}), ("open", {"id": "nowhere"}))
    for name, argument in (*calls, ("quote", {"id": "vacuum", "text": "It removes nothing."})):
        (answer,) = episode.turn(call_text(name, **argument))
        assert answer.content == ""
    episode.turn(call_text("finish", report="Nothing [vacuum]."))
    assert (episode.done, episode.report) == (True, "Nothing [vacuum].")


def test_script_searches_for_what_the_prompt_names(research: Research, tmp_path: Path) -> None:
    policy = Policy.load(str(tiny_model(tmp_path / "model", context=4096)), dtype="float32")
    acting = Acting(research, LIMITS, 2000)
    lost = Prompt.of("What is a “zeppelin”?")
    rollouts = Script(policy, acting).sample([ASKED, lost], 2, SAMPLING, 0)
    completions = rollouts.completions("ignored", 0, SAMPLING)
    assert [one.text for one in completions] == ["“A vacuum removes dead tuples from a table” [vacuum]."] * 2 + [""] * 2
    assert {one.policy for one in completions} == {"script"}
    assert rollouts.prompt_of_B.tolist() == [0, 0, 1, 1]
    assert all(one.sampling["truncated"] is False for one in completions)
