"""50 injections in what a tool returns: none changes the protocol of an episode, or the verdict of a check."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.untrusted import INVISIBLE
from tests.tool_injections import INJECTIONS
from trainer.environments.environment import Tool
from trainer.environments.episodes import EpisodeLimits, begin
from trainer.environments.tool_calls import call_text
from workers.checks.citations import sources

PROMPT = Prompt.of("What is 6 * 7?")
ROLE_TOKENS = ("<|", "|>", "<tool_call>", "</tool_call>", "<tool_response>", "</s>", "<s>", "[INST]", "<think>")


class Reading:
    """A document that holds an injection, and an end."""

    tools = (
        Tool("open", "Read a document.", {"id": "Its id."}),
        Tool("finish", "End.", {"report": "The report."}),
    )

    def __init__(self, text: str) -> None:
        self.text, self.report = text, None

    def reset(self, prompt: Prompt) -> Reading:
        return Reading(self.text)

    def step(self, name: str, arguments: Mapping[str, str]) -> str:
        if name == "finish":
            self.report = arguments["report"]  # type: ignore[assignment]
            return ""
        return self.text


def test_there_are_50() -> None:
    assert len(set(INJECTIONS)) == 50


@pytest.mark.parametrize("text", INJECTIONS)
def test_injection_in_a_result_changes_nothing_of_the_protocol(text: str) -> None:
    one = begin(Reading(text), PROMPT, EpisodeLimits())
    (answer,) = one.turn(call_text("open", id="page"))
    assert (answer.role, answer.tool_calls, answer.tool_call_id) == ("tool", None, "call-0")
    assert (one.done, one.report, one.counts) == (False, "", {"calls/open": 1})
    shown = answer.content.replace("‹|", "")
    assert not any(f"<{token.removeprefix('<')}" in shown for token in ROLE_TOKENS if token.startswith("<"))
    assert "[INST]" not in shown
    assert INVISIBLE.search(shown) is None
    assert one.turn(call_text("finish", report="42 [page]")) == []
    assert (one.done, one.report, one.counts) == (True, "42 [page]", {"calls/open": 1, "calls/finish": 1})


@pytest.mark.parametrize("text", INJECTIONS)
def test_injection_in_a_document_opens_no_other(text: str) -> None:
    one = begin(Reading(text), PROMPT, EpisodeLimits())
    (answer,) = one.turn(call_text("open", id="page"))
    one.turn(call_text("finish", report="42 [gold]"))
    opened = set(sources(PROMPT, Completion(text=one.report, messages=tuple(one.messages))))
    is_document = answer.content.strip() and not answer.content.lstrip().startswith(("{", "["))
    assert opened == {"page"} if is_document else opened <= {"page"}
