"""The interface between judges and models: a request with questions in, a reply or a failure for each question out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any, Protocol

from rubricsvc.core.judge import Sampling
from rubricsvc.core.verdict import RAW_CHARS, Reason, Usage, total_usage

THINKING_CHARS = 16_000  # characters of a judge's thinking that are stored


def error_message(error: BaseException | None) -> str:
    """Return the type and text of an unexpected exception, cut to the stored length."""
    return f"{type(error).__name__}: {error}"[:RAW_CHARS]


_AROUND_ANSWER = " \t\n\r\u00a0\u2581\u0120\u010a\"'`*_#\u201c\u201d\u2018\u2019"  # with tokenizers' marks of blanks


def normalize_token(text: str) -> str:
    """Return a token or a label without blanks, quotes and marks of markup and, unless it is one letter, case-folded.

    A single letter keeps its case: `` a`` begins many replies that do not answer with the label ``A``.
    """
    bare = text.strip(_AROUND_ANSWER)
    return bare if len(bare) == 1 else bare.casefold()


@dataclass(frozen=True, slots=True)
class Question:
    """The last part of a request: the criterion.

    Attributes:
        text: The end of the first user turn.
        labels: Where given, the engine reports the probability of each label as the next token, summed over its
            spellings in the vocabulary (``Yes``, `` yes``, …). Where empty, the model writes a reply.
        schema: JSON schema of the reply, enforced where the engine supports it.
        sample: Added to the sampling seed.
        turns: Turns after the first user turn: assistant, user, …, ending with the user's.
    """

    text: str
    labels: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    sample: int = 0
    turns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """All questions about one completion.

    The model reads ``system``, then ``shared + question.text`` as the user's turn. ``system`` and ``shared`` are the
    same bytes for every question, so that an engine can encode them once. ``max_context`` is the longest prompt in
    tokens; longer ones fail as ``too_long``. A ``chat``, of messages in OpenAI's shape with any roles, replaces
    ``system``, ``shared`` and the questions' texts.
    """

    system: str
    shared: str
    questions: tuple[Question, ...]
    sampling: Sampling = field(default_factory=Sampling)
    max_context: int | None = None
    thinking: bool = False
    chat: tuple[dict[str, Any], ...] = ()

    def messages(self, question: Question) -> list[dict[str, Any]]:
        """Return the whole conversation up to the reply: the system's turn, unless empty, the user's, and the turns."""
        if self.chat:
            return list(self.chat)
        roles = cycle(("user", "assistant"))
        turns = [("system", self.system)] if self.system else []
        turns += zip(roles, (self.shared + question.text, *question.turns), strict=False)
        return [{"role": role, "content": turn} for role, turn in turns]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one question.

    Attributes:
        text: The reply; for a question with labels a likely next token, whatever the labels are.
        label_mass: Probability by label; the remainder to 1 lies outside the labels. None without labels.
        thinking: Reasoning that the server sent apart from the reply.
        note: A remark for the verdict's detail.
        first_text: The reply that this one repairs.
        error: Why the reply cannot be used.
    """

    text: str = ""
    label_mass: dict[str, float] | None = None
    truncated: bool = False
    usage: Usage | None = None
    latency_s: float = 0.0
    thinking: str = ""
    note: str = ""
    first_text: str = ""
    thinking_tokens: float | None = None
    error: str = ""

    def after(self, first: Reply, note: str) -> Reply:
        """Return this reply with a note, and with the usage and latency of a ``first`` one that it replaces."""
        usage, note = total_usage((first.usage, self.usage)), "; ".join(filter(None, (self.note, note)))
        return replace(self, usage=usage, latency_s=first.latency_s + self.latency_s, note=note)


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why there is no reply. ``raw`` is the beginning of what came instead."""

    reason: Reason
    detail: str = ""
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A call to a server that brought no reply.

    With ``retry`` the same call may succeed later. ``status`` is that of HTTP; 0 where there is none or it says nothing
    of the server. If it is ``billable``, the server may have done the work all the same, and charge for it.
    """

    failure: Failure
    retry: bool = False
    retry_after_s: float | None = None
    status: int = 0
    billable: bool = False


Replies = list[Reply | Failure]
Outcome = Replies | RequestFailed
Send = Callable[[], Awaitable[Outcome]]  # one call to a server


class Engine(Protocol):
    """A model that answers questions. One instance serves many requests at once, in one event loop."""

    async def ask(self, request: EngineRequest) -> Replies:
        """Return one reply or failure for each question, in order. Never raises for errors of a model or a server."""

    async def aclose(self) -> None:
        """Release connections or memory. The engine may be used again afterwards, in the same event loop."""


@dataclass(eq=False)
class PanelEngine:
    """One engine for each member, in order; none for checks. Every question to the panel itself has the ``failure``."""

    members: tuple[Engine, ...] = ()
    failure: Failure = Failure(Reason.REFUSED, "this judge has no model of its own")

    async def ask(self, request: EngineRequest) -> Replies:
        """Fail every question."""
        return [self.failure] * len(request.questions)

    async def aclose(self) -> None:
        """Close the members' engines."""
        await asyncio.gather(*(member.aclose() for member in self.members))
