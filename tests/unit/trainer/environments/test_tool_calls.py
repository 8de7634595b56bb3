"""Tool calls in the text of a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from statistics import fmean

import pytest

from rubricsvc.collections import index as collections
from rubricsvc.collections.index import FaultyDocuments
from rubricsvc.collections.sources import python_pages
from rubricsvc.collections.tasks import Capability, Task, synthesize
from rubricsvc.core.prompt import Completion, Message, Prompt
from rubricsvc.core.reward import reward
from rubricsvc.core.untrusted import INVISIBLE
from tests.report_holes import HOLES, Report, answer, completion, script
from tests.tool_injections import INJECTIONS
from trainer.environments.episodes import EpisodeLimits, begin
from trainer.environments.tool_calls import Tool, call_text, parse, with_tools
from trainer.environments.tools import Calculator, Research
from workers import checks
from workers.checks.citations import sources
from workers.evolution import with_criteria


def test_parse_reads_what_call_text_writes() -> None:
    turn = parse(f"I will look.\n{call_text('search', query='a “quoted” </b> text')}")
    assert turn.error is None and turn.content == "I will look."
    assert [call.name for call in turn.calls] == ["search"]
    assert json.loads(turn.calls[0].arguments) == {"query": "a “quoted” </b> text"}


def test_parse_without_call_is_text() -> None:
    turn = parse("  The report.  ")
    assert (turn.content, turn.calls, turn.error) == ("The report.", (), None)


MALFORMED = [
    "<tool_call>{}</tool_call>", '<tool_call>{"name": "open", "arguments": []}</tool_call>',
    '<tool_call>{"name": 3}</tool_call>', '<tool_call>{"name": "open", "name": "find"}</tool_call>',
    "<tool_call>open 3</tool_call>", "<tool_call>" + "[" * 100_000 + "</tool_call>",
    '<tool_call>{"name": "open", "arguments": {"id": "a"}}', '{"name": "open"}</tool_call>',
    '<tool_call><tool_call>{"name": "open"}</tool_call>',
]  # fmt: skip


def test_parse_malformed_calls_makes_no_call() -> None:
    turns = [parse(text) for text in MALFORMED]
    assert all(turn.error and turn.calls == () for turn in turns)


def test_with_tools_keeps_the_system_message() -> None:
    prompt = Prompt(messages=(Message(role="system", content="Be brief."), Message(role="user", content="6 * 7?")))
    shown = with_tools(prompt, Calculator.tools)
    assert [message.role for message in shown.messages] == ["system", "user"]
    assert shown.messages[0].content.startswith("Be brief.")
    assert "calculate(expression)" in shown.messages[0].content
    assert parse(shown.messages[0].content).calls[0].name == "calculate"


PROMPT = Prompt.of("What is 6 * 7?")
ROLE_TOKENS = ("<|", "|>", "<tool_call>", "</tool_call>", "<tool_response>", "</s>", "<s>", "[INST]", "<think>")


class Reading:
    """A document that holds an injection, and an end."""

    tools = (Tool("open", "Read a document.", {"id": "Its id."}), Tool("finish", "End.", {"report": "The report."}))

    def __init__(self, text: str) -> None:
        self.text, self.report = text, None

    def reset(self, prompt: Prompt) -> Reading:
        return Reading(self.text)

    def step(self, name: str, arguments: Mapping[str, str]) -> str:
        if name == "finish":
            self.report = arguments["report"]  # type: ignore[assignment]
            return ""
        return self.text


def test_injection_in_a_result_changes_nothing_of_the_protocol_and_opens_no_document() -> None:
    assert len(set(INJECTIONS)) == 50
    for text in INJECTIONS:
        one = begin(Reading(text), PROMPT, EpisodeLimits())
        (answer,) = one.turn(call_text("open", id="page"))
        assert (answer.role, answer.tool_calls, answer.tool_call_id) == ("tool", None, "call-0"), text
        assert (one.done, one.report, one.counts) == (False, "", {"calls/open": 1}), text
        shown = answer.content.replace("‹|", "")
        assert not any(f"<{token.removeprefix('<')}" in shown for token in ROLE_TOKENS if token.startswith("<")), text
        assert "[INST]" not in shown, text
        assert INVISIBLE.search(shown) is None, text
        assert one.turn(call_text("finish", report="42 [gold]")) == [], text
        ended = (True, "42 [gold]", {"calls/open": 1, "calls/finish": 1})
        assert (one.done, one.report, one.counts) == ended, text
        opened = set(sources(PROMPT, Completion(text=one.report, messages=tuple(one.messages))))
        is_document = answer.content.strip() and not answer.content.lstrip().startswith(("{", "["))
        assert opened == {"page"} if is_document else opened <= {"page"}, text


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
    rubric = with_criteria(task.rubric, [criterion for criterion in task.rubric.criteria if criterion.check])
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
