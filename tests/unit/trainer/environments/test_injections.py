"""50 injections in what a tool returns: none changes the protocol of an episode, or the verdict of a check."""

from __future__ import annotations

from collections.abc import Mapping

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
