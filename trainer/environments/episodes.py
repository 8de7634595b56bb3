"""What all environments need: parsing and checking of calls, limits, and the messages of the trajectory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Thread

from rubricsvc.core import strict_json
from rubricsvc.core.base import storable
from rubricsvc.core.prompt import Message, Prompt, ToolCall
from rubricsvc.core.untrusted import clean
from rubricsvc.errors import InvalidError
from trainer.environments.environment import Environment, Episode, Tool, ToolError
from trainer.environments.tool_calls import Turn, parse


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Turns of the policy, characters of a tool's result, and seconds that the calls of one turn may take."""

    max_turns: int = 8
    max_result_chars: int = 2000
    tool_timeout_s: float = 10.0


@dataclass
class RunningEpisode:
    """An episode with its trajectory: what the policy wrote and what the tools answered.

    ``counts`` has numbers of ``calls`` by the name of their tool (``calls/search``), of ``malformed`` messages,
    ``refused`` calls, ``errors`` of tools and ``timeouts``. ``report`` is the final text, empty without one.
    """

    episode: Episode
    tools: Sequence[Tool]
    limits: EpisodeLimits
    messages: list[Message] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    tool_time: float = 0.0
    done: bool = False
    report: str = ""

    def turn(self, text: str) -> list[Message]:
        """Take a message of the policy, and return the messages that the tools answer; none once the episode ends.

        A message without a call is the final report.
        """
        self.turns += 1
        turn = parse(text)
        if not turn.calls and turn.error is None:
            return self._finish(turn.content, Message(role="assistant", content=turn.content))
        self.messages.append(Message(role="assistant", content=turn.content, tool_calls=turn.calls or None))
        answers = self._answers(turn)
        if self.episode.report is not None:
            return self._finish(self.episode.report)
        self.messages += answers
        self.done = self.done or self.turns >= self.limits.max_turns
        return [] if self.done else answers

    def _finish(self, report: str, *last: Message) -> list[Message]:
        self.done, self.report = True, report
        self.messages += last or [Message(role="assistant", content=report)]
        return []

    def _answers(self, turn: Turn) -> list[Message]:
        if turn.error is not None:
            self.counts["malformed"] += 1
            return [Message(role="tool", content=_error(turn.error))]
        return [
            Message(role="tool", content=self._answer(call), name=call.name, tool_call_id=call.id)
            for call in turn.calls
        ]

    def _answer(self, call: ToolCall) -> str:
        """Return the result of a call, or what is wrong with it."""
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if tool is None:
            self.counts["refused"] += 1
            return _error(f"no tool {call.name[:40]!r}; the tools are {', '.join(one.name for one in self.tools)}")
        arguments = strict_json.parse(call.arguments)
        if set(arguments) != set(tool.parameters) or not all(isinstance(value, str) for value in arguments.values()):
            self.counts["refused"] += 1
            return _error(f"{tool.name} takes the texts {', '.join(tool.parameters) or 'nothing'}")
        self.counts[f"calls/{tool.name}"] += 1
        try:
            result = self.episode.step(tool.name, arguments)
        except ToolError as error:
            return _error(str(error))
        except Exception as error:  # noqa: BLE001 - a tool of somebody else: the policy reads of it, the run goes on
            self.counts["errors"] += 1
            return _error(f"{tool.name} failed: {type(error).__name__}")
        return self._cut(storable(clean(result).text))

    def _cut(self, result: str) -> str:
        most = self.limits.max_result_chars
        return result if len(result) <= most else f"{result[:most]}\n[{len(result) - most} characters left out]"

    def stop(self) -> None:
        """End an episode whose tool did not answer in time: its thread may still be running."""
        self.counts["timeouts"] += 1
        self.done = True


def begin(environment: Environment, prompt: Prompt, limits: EpisodeLimits) -> RunningEpisode:
    """Begin an episode.

    Raises:
        InvalidError: The environment has no tools, or two of one name.
    """
    names = Counter(tool.name for tool in environment.tools)
    if not names or (name := names.most_common(1)[0])[1] > 1:
        found = f"{name[1]} tools named {name[0]!r}" if names else "no tools"
        raise InvalidError(f"the environment has {found}", hint="give each tool a name of its own")
    return RunningEpisode(environment.reset(prompt), environment.tools, limits)


def turn_all(episodes: Sequence[RunningEpisode], texts: Sequence[str]) -> list[list[Message]]:
    """Take a message in each episode, all at once, and return what the tools answer.

    An episode whose tools take longer than the limit ends; the others do not wait for it.
    """
    answers: list[list[Message]] = [[] for _ in episodes]

    def work(at: int) -> Callable[[], None]:
        def run() -> None:
            start = time.perf_counter()
            answers[at] = episodes[at].turn(texts[at])
            episodes[at].tool_time += time.perf_counter() - start

        return run

    threads = [Thread(target=work(at), daemon=True) for at in range(len(episodes))]
    deadline = time.monotonic() + max((one.limits.tool_timeout_s for one in episodes), default=0.0)
    for thread in threads:
        thread.start()
    for at, thread in enumerate(threads):
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            episodes[at].stop()
            answers[at] = []
    return answers


def _error(message: str) -> str:
    return strict_json.dump({"error": message})
