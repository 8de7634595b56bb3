"""What all environments need: parsing and checking of calls, limits, and the messages of the trajectory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Thread, current_thread, main_thread

from pydantic import JsonValue

from rubricsvc.core import strict_json
from rubricsvc.core.base import storable
from rubricsvc.core.prompt import Message, Prompt, ToolCall
from rubricsvc.core.untrusted import clean
from rubricsvc.errors import InvalidError
from trainer.environments.environment import Environment, Episode, Tool, ToolError
from trainer.environments.leaks import LeakGuard
from trainer.environments.tool_calls import KEPT, NOTE, Turn, parse


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Turns of the policy, characters of a tool's result, and seconds that the calls of one turn may take.

    With ``notes`` the policy may take notes, after which it sees nothing else (`trainer.environments.tool_calls`).
    """

    max_turns: int = 8
    max_result_chars: int = 2000
    tool_timeout_s: float = 10.0
    notes: bool = False


@dataclass(frozen=True)
class Acting:
    """An environment to act in, and the limits of an episode.

    ``max_tokens`` are those of a completion, what the environment wrote included; what would exceed them ends it. Of a
    completion with notes they are those of a context.
    """

    environment: Environment
    limits: EpisodeLimits
    max_tokens: int

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that the policy may call: those of the environment, and that of notes where they may be taken."""
        return (*self.environment.tools, NOTE) if self.limits.notes else self.environment.tools

    @property
    def own_environment(self) -> Environment:
        """The environment without the tools of other servers."""
        own: Environment = getattr(self.environment, "inner", None) or self.environment
        return own


@dataclass
class Answers:
    """What the tools answer in one turn; ``report`` is the final text, if they ended the episode."""

    messages: list[Message] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    leaks: list[dict[str, JsonValue]] = field(default_factory=list)
    report: str | None = None
    seconds: float = 0.0


@dataclass
class RunningEpisode:
    """An episode with its trajectory: what the policy wrote and what the tools answered.

    ``counts`` has numbers of ``calls`` by the name of their tool (``calls/search``), of ``malformed`` messages,
    ``refused`` calls, ``errors`` of tools and ``timeouts``, and with a ``guard`` of ``leak_hits``: results that held
    the answer, which ``leaks`` describe. ``report`` is the final text, empty without one.
    """

    episode: Episode
    tools: Sequence[Tool]
    limits: EpisodeLimits
    guard: LeakGuard | None = None
    messages: list[Message] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    leaks: list[dict[str, JsonValue]] = field(default_factory=list)
    turns: int = 0
    tool_time: float = 0.0
    done: bool = False
    report: str = ""

    def turn(self, text: str) -> list[Message]:
        """Take a message of the policy, and return the messages that the tools answer; none once the episode ends.

        A message without a call is the final report.
        """
        return self.finish(self.start(text, in_thread=False))

    def start(self, text: str, *, in_thread: bool = True) -> Future[Answers]:
        """Take a message of the policy, and have its calls answered, in a thread; one without a call ends the episode.

        `finish` applies what they answer.
        """
        self.turns += 1
        turn, answers = parse(text), Future[Answers]()
        self.messages.append(Message(role="assistant", content=turn.content, tool_calls=turn.calls or None))
        if not turn.calls and turn.error is None:
            self.done, self.report = True, turn.content
            answers.set_result(Answers())
        elif in_thread:
            Thread(target=lambda: answers.set_result(self.answer(turn)), daemon=True).start()
        else:
            answers.set_result(self.answer(turn))
        return answers

    def answer(self, turn: Turn) -> Answers:
        """Return what the tools answer; the trajectory does not change before it is applied."""
        start, answers = time.perf_counter(), Answers()
        if turn.error is not None:
            answers.counts["malformed"] += 1
            answers.messages.append(Message(role="tool", content=self._error(turn.error, answers.counts)))
        for call in turn.calls:
            content = self._answer(call, answers.counts)
            if self.guard is not None and (leak := self.guard.leak(call, content)) is not None:
                answers.leaks.append(leak)
            answers.messages.append(Message(role="tool", content=content, name=call.name, tool_call_id=call.id))
        try:
            if (report := self.episode.report) is not None:
                answers.report = storable(report)
        except BaseException as error:  # noqa: BLE001 - see _answer
            failed = self._error(error, answers.counts, "report")
            answers.messages[-1] = answers.messages[-1].model_copy(update={"content": failed})
        answers.seconds = time.perf_counter() - start
        return answers

    def finish(self, answered: Future[Answers]) -> list[Message]:
        """Add what the tools answered, and return their messages; none once the episode ends.

        Tools that have not answered end it. Their thread goes on; what it answers is not applied.
        """
        if self.done:
            return []
        if not answered.done():
            self.counts["timeouts"] += 1
            self.tool_time += self.limits.tool_timeout_s
            self.done = True
            return []
        answers = answered.result()
        self.counts.update(answers.counts)
        if answers.leaks:
            self.counts["leak_hits"] += len(answers.leaks)
            self.leaks += answers.leaks
        self.tool_time += answers.seconds
        if answers.report is not None:
            self.done, self.report = True, answers.report
            self.messages.append(Message(role="assistant", content=answers.report))
            return []
        self.messages += answers.messages
        self.done = self.turns >= self.limits.max_turns
        return [] if self.done else answers.messages

    def _answer(self, call: ToolCall, counts: Counter[str]) -> str:
        """Return the result of a call, or what is wrong with it."""
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if tool is None:
            counts["refused"] += 1
            known = ", ".join(one.name for one in self.tools)
            return self._error(f"no tool {call.name[:40]!r}; the tools are {known}", counts)
        arguments = strict_json.parse(call.arguments)
        try:
            if (fault := tool.fault(arguments)) is not None:
                counts["refused"] += 1
                return self._error(fault, counts)
            counts[f"calls/{tool.name}"] += 1
            if tool is NOTE:
                return KEPT
            return self._readable(self.episode.step(tool.name, arguments))
        except BaseException as error:  # noqa: BLE001 - a tool of somebody else: the policy reads of it, the run goes on
            return self._error(error, counts, tool.name)

    def _error(self, problem: str | BaseException, counts: Counter[str], tool: str = "") -> str:
        """Return what the policy reads in place of a result; a failure of a tool is counted."""
        if isinstance(problem, ToolError):
            problem = str(problem)
        elif isinstance(problem, BaseException):
            if not isinstance(problem, Exception) and current_thread() is main_thread():
                raise problem  # a person interrupts
            counts["errors"] += 1
            problem = f"{tool} failed: {type(problem).__name__}"
        return strict_json.dump({"error": self._readable(problem)})

    def _readable(self, given: object) -> str:
        """Return what a tool wrote without role tokens and invisible characters, cut to the limit."""
        if not isinstance(given, str):
            raise TypeError(f"expected a text, got {type(given).__name__}")
        text, most = storable(clean(given).text), self.limits.max_result_chars
        return text if len(text) <= most else f"{text[:most]}\n[{len(text) - most} characters left out]"


def begin(environment: Environment, prompt: Prompt, limits: EpisodeLimits) -> RunningEpisode:
    """Begin an episode.

    Raises:
        InvalidError: The environment has no tools, or two of the same name; or the prompt is not one for it.
    """
    acting = Acting(environment, limits, max_tokens=0)
    tools = acting.tools
    names = Counter(tool.name for tool in tools)
    if not names or (name := names.most_common(1)[0])[1] > 1:
        found = f"{name[1]} tools named {name[0]!r}" if names else "no tools"
        raise InvalidError(f"the environment has {found}", hint="give each tool a name of its own")
    leak_guard: Callable[[Prompt], LeakGuard] | None = getattr(acting.own_environment, "leak_guard", None)
    guard = leak_guard(prompt) if leak_guard is not None else None
    counts = Counter({"leak_hits": 0} if guard is not None else {})
    return RunningEpisode(environment.reset(prompt), tools, limits, guard, counts=counts)
