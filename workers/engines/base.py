"""What a judge asks of a model, and what it gets back. An engine turns one into the other, and does nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from rubricsvc.core.judge import Sampling
from rubricsvc.core.verdict import RAW_CHARS, Reason, Usage

THINKING_CHARS = 16_000
"""How much of a judge's thinking is kept."""


def error_message(error: Exception) -> str:
    """An unforeseen error in words, cut to what is kept."""
    return f"{type(error).__name__}: {error}"[:RAW_CHARS]


def normalize_token(text: str) -> str:
    """What a token, or a label, spells: without the blanks around it, and whatever its case.

    A lone letter keeps its case: `` a`` begins many a reply that is no answer, and is no label A.
    """
    bare = text.strip()
    return bare if len(bare) == 1 else bare.casefold()


@dataclass(frozen=True, slots=True)
class Question:
    """The last part of an ask: the criterion.

    With ``labels`` the engine reports how much probability each label has as the very next token, summed over the
    spellings that the tokenizer has for it (``Yes``, `` yes``, …). Without, it lets the model write; ``schema`` is the
    JSON schema to hold the reply to, where the engine can. ``sample`` is added to the seed. ``turns`` follow the first
    user turn: the assistant's, the user's and so on, ending with the user's.
    """

    text: str
    labels: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    sample: int = 0
    turns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """All questions about one completion. The model reads ``system``, then ``shared + question.tail`` as the user.

    ``system`` and ``shared`` are the same bytes for every question, so that an engine can encode them once.
    ``thinking``: the model may reason before it replies.
    """

    system: str
    shared: str
    questions: tuple[Question, ...]
    sampling: Sampling = field(default_factory=Sampling)
    max_context: int | None = None
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """``label_mass`` (labels only): probability by label; what is missing to 1 lies outside the labels.

    ``truncated`` says that the reply was cut off at ``max_tokens``. ``usage`` counts tokens. ``thinking`` is what the
    server sent apart from the reply; ``note`` is for the verdict's detail, ``first_text`` the reply that this one
    repairs. A readout's ``text`` is a likely token, whatever the labels are. ``thinking_tokens`` counts the tokens of
    its thinking, where the server does; ``error`` is why the reply cannot be used.
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


@dataclass(frozen=True, slots=True)
class Failure:
    """No reply, and why. ``raw`` is what came instead, if anything came."""

    reason: Reason
    detail: str = ""
    raw: str | None = None


class Engine(Protocol):
    """A model that can be asked. One instance serves many asks at once, and is used from one event loop."""

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        """One answer for each question, in their order. Never raises for what a model or a server does wrong."""
        ...

    async def aclose(self) -> None:
        """Give back connections or memory. It may be asked again afterwards, in the same event loop."""
        ...
