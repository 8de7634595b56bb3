"""What all environments need: checks of calls, limits, the messages of the trajectory, and the leak guard.

A prompt that was made of a page, its ``source``, is answered by that page: the page and its near copies are withheld.
The pages that are to be found (``pages``) never are. A tool result that has most of a sentence of the source with the
answer, from whatever page or tool, is a leak: the completion is no evidence of anything, and gets no reward.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import TYPE_CHECKING

from pydantic import JsonValue

from rubricsvc.collections import Collection
from rubricsvc.collections.index import THRESHOLD, NearCopies
from rubricsvc.core import strict_json
from rubricsvc.core.base import storable
from rubricsvc.core.fingerprint import Shingles, containment, shingles
from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall
from rubricsvc.core.untrusted import clean
from rubricsvc.errors import InvalidError
from trainer.environments.tool_calls import KEPT, NOTE, Environment, Episode, Tool, ToolError, Turn, parse

if TYPE_CHECKING:
    from trainer.data.tasks import Task

LEAKS = "leaks.jsonl"
LEAK = "leak"
"""Why a completion has no reward."""
MIN_WORDS = 8
"""Words of a sentence that answers: shorter ones are on many pages."""
MAX_PAGES = 5
"""Pages that have a sentence: what is on more of them is boilerplate, and answers nothing."""
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n\s*\n")


@dataclass(frozen=True)
class LeakGuard:
    """The documents that a prompt withholds, and the sentences that answer it, with their shingles."""

    source: str
    withheld: frozenset[str]
    answers: tuple[tuple[str, Shingles], ...]

    def leak(self, call: ToolCall, result: str) -> dict[str, JsonValue] | None:
        """Return what a tool's result leaks: the call, the source, and the sentence; None if it is nothing."""
        shown = shingles(result)
        for sentence, part in self.answers:
            if containment(part, shown) >= THRESHOLD:
                return {"tool": call.name, "arguments": call.arguments, "source": self.source, "sentence": sentence}
        return None


def guard_of(collection: Collection, prompt: Prompt, near_copies: Callable[[], NearCopies]) -> LeakGuard:
    """Return the guard of a prompt; it withholds nothing where the prompt was made of no page.

    The sentences that answer are those of the source with links to the pages to be found, or all without such pages
    (`rubricsvc prompts synthesize`), alternatives included. ``near_copies`` returns those of the collection.
    """
    item, ids = prompt.item or {}, set(collection.ids())
    source, pages = item.get("source"), item.get("pages")
    if not isinstance(source, str) or source not in ids:
        return LeakGuard("", frozenset(), ())
    near = near_copies()
    groups = [one for one in pages if isinstance(one, list)] if isinstance(pages, list) else []
    gold = {str(id_) for one in groups for id_ in one}
    found = [shingles(collection.open(id_).text) for id_ in sorted(gold & ids)]
    page, start, answers = collection.open(source), 0, []
    places = [link.start for link in page.links if link.target in gold]
    for end in [*(match.end() for match in _SENTENCE.finditer(page.text)), len(page.text)]:
        sentence = " ".join(page.text[start:end].split())
        answering = not gold or any(start <= place < end for place in places)
        start = end
        if not answering or len(sentence.split()) < MIN_WORDS:
            continue
        part = shingles(sentence)
        if all(containment(part, one) < THRESHOLD for one in found) and near.count(part) <= MAX_PAGES:
            answers.append((sentence, part))
    return LeakGuard(source, frozenset({source}) | (near.of(source) - gold), tuple(answers))


def log_leaks(out: Path | None, tasks: Sequence[Task], completions: Sequence[Completion]) -> None:
    """Add a line for each leak in the completions of tasks, with the step; nothing without a folder or leaks."""
    lines: list[dict[str, JsonValue]] = []
    for task, one in zip(tasks, completions, strict=True):
        leaks = one.sampling.get("leaks")
        for leak in leaks if isinstance(leaks, list) else ():
            what = leak if isinstance(leak, dict) else {}
            lines.append({"step": one.step, "prompt": task.name, "prompt_digest": task.prompt.digest, **what})
    if lines and out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with (out / LEAKS).open("a", encoding="utf-8") as file:
            file.write("".join(f"{strict_json.dump(line)}\n" for line in lines))


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Turns of the policy, characters of a tool's result, and seconds that the calls of one turn may take.

    With ``notes`` the policy may take notes, after which it sees nothing else (`trainer.environments.tool_calls`). With
    ``empty_results`` its calls are made, and it reads nothing of what tools found.
    """

    max_turns: int = 8
    max_result_chars: int = 2000
    tool_timeout_s: float = 10.0
    notes: bool = False
    empty_results: bool = False


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
            result = self._readable(self.episode.step(tool.name, arguments))
            return "" if self.limits.empty_results else result
        except BaseException as error:  # noqa: BLE001 - a tool of somebody else: the policy reads of it, the run goes on
            if self.limits.empty_results and isinstance(error, ToolError):
                return ""  # "no such document" would be a result, too
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
    """Begin an episode."""
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
