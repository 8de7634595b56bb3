"""What all environments need: parsing and checking of calls, limits, and the messages of the trajectory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Thread, current_thread, main_thread

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
class Answers:
    """What the tools answer in one turn; ``report`` is the final text, if they ended the episode."""

    messages: list[Message] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    report: str | None = None
    seconds: float = 0.0


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
        turn = self.read(text)
        return [] if self.done else self.apply(self.answer(turn))

    def read(self, text: str) -> Turn:
        """Add a message of the policy, and return its calls; one without a call ends the episode."""
        self.turns += 1
        turn = parse(text)
        if not turn.calls and turn.error is None:
            self._finish(turn.content)
        else:
            self.messages.append(Message(role="assistant", content=turn.content, tool_calls=turn.calls or None))
        return turn

    def answer(self, turn: Turn) -> Answers:
        """Return what the tools answer; the trajectory does not change before it is applied."""
        start, answers = time.perf_counter(), Answers()
        if turn.error is not None:
            answers.counts["malformed"] += 1
            answers.messages.append(Message(role="tool", content=self._error(turn.error)))
        for call in turn.calls:
            content = self._answer(call, answers.counts)
            answers.messages.append(Message(role="tool", content=content, name=call.name, tool_call_id=call.id))
        try:
            report = self.episode.report
            answers.report = None if report is None else storable(_text(report))
        except BaseException as error:  # noqa: BLE001 - see _answer
            failed = self._failed("report", error, answers.counts)
            answers.messages[-1] = answers.messages[-1].model_copy(update={"content": failed})
        answers.seconds = time.perf_counter() - start
        return answers

    def apply(self, answers: Answers) -> list[Message]:
        """Add what the tools answered, and return their messages; none once the episode ends."""
        self.counts.update(answers.counts)
        self.tool_time += answers.seconds
        if answers.report is not None:
            self._finish(answers.report)
            return []
        self.messages += answers.messages
        self.done = self.turns >= self.limits.max_turns
        return [] if self.done else answers.messages

    def stop(self) -> None:
        """End an episode whose tools did not answer in time. Their thread goes on; what it answers is not applied."""
        self.counts["timeouts"] += 1
        self.tool_time += self.limits.tool_timeout_s
        self.done = True

    def _finish(self, report: str) -> None:
        self.done, self.report = True, report
        self.messages.append(Message(role="assistant", content=report))

    def _answer(self, call: ToolCall, counts: Counter[str]) -> str:
        """Return the result of a call, or what is wrong with it."""
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if tool is None:
            counts["refused"] += 1
            return self._error(f"no tool {call.name[:40]!r}; the tools are {', '.join(one.name for one in self.tools)}")
        arguments = strict_json.parse(call.arguments)
        if set(arguments) != set(tool.parameters) or not all(isinstance(value, str) for value in arguments.values()):
            counts["refused"] += 1
            return self._error(f"{tool.name} takes the texts {', '.join(tool.parameters) or 'nothing'}")
        counts[f"calls/{tool.name}"] += 1
        try:
            return self._readable(_text(self.episode.step(tool.name, arguments)))
        except ToolError as error:
            return self._error(str(error))
        except BaseException as error:  # noqa: BLE001 - a tool of somebody else: the policy reads of it, the run goes on
            return self._failed(tool.name, error, counts)

    def _failed(self, name: str, error: BaseException, counts: Counter[str]) -> str:
        if not isinstance(error, Exception) and current_thread() is main_thread():
            raise error  # a person interrupts
        counts["errors"] += 1
        return self._error(f"{name} failed: {type(error).__name__}")

    def _error(self, message: str) -> str:
        return strict_json.dump({"error": self._readable(message)})

    def _readable(self, text: str) -> str:
        """Return what a tool wrote without role tokens and invisible characters, cut to the limit."""
        text, most = storable(clean(text).text), self.limits.max_result_chars
        return text if len(text) <= most else f"{text[:most]}\n[{len(text) - most} characters left out]"


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
    answers: dict[int, Answers] = {}

    def work(at: int, turn: Turn) -> None:
        answers[at] = episodes[at].answer(turn)

    turns = [one.read(text) for one, text in zip(episodes, texts, strict=True)]
    threads = {
        at: Thread(target=work, args=(at, turn), daemon=True) for at, turn in enumerate(turns) if not episodes[at].done
    }
    deadline = time.monotonic() + max((one.limits.tool_timeout_s for one in episodes), default=0.0)
    for thread in threads.values():
        thread.start()
    messages: list[list[Message]] = [[] for _ in episodes]
    for at, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if (answered := answers.get(at)) is None:
            episodes[at].stop()
        else:
            messages[at] = episodes[at].apply(answered)
    return messages


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"expected a text, got {type(given).__name__}")
    return given
