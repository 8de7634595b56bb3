"""The author: asks a model for a rubric until a reply is one. A reply is sent back with its error, then drawn again.

Its `RecordingEngine` asks nothing twice: replies are stored when they arrive, and read by the worker that takes over.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any

from pydantic import TypeAdapter

from rubricsvc.core.base import storable
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.generation import NO_RUBRIC, Generation, ResearchNotes, SourceText
from rubricsvc.core.judge import LOCAL, Judge
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.untrusted import clean
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError, cut
from rubricsvc.store.generation import add_replies
from workers.authoring.rubric_replies import Documents, cleaning_note, criteria_texts, read_rubric
from workers.authoring.templates import AuthoringTemplate, read
from workers.engines.base import Engine, EngineRequest, Failure, Question, Replies, Reply
from workers.judges.calls import split_thinking
from workers.queue.costs import Write

_ERROR_CHARS = 500

Reader = Callable[[str, bool], Rubric]
"""Returns the rubric in a reply, which may be cut off, or raises a ValueError: the reply is none."""


class GenerationError(InvalidError):
    """There is no rubric for a prompt. ``reason`` is that of the engine's failure, or a word such as ``no_rubric``."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Draft:
    """A rubric as it was written, after ``redraws`` samples that were none, and ``repairs`` of this one.

    ``sources`` are the texts that the author was shown beside the prompt, ``research`` is what it looked for before it
    wrote, and ``cleaned`` what was removed from the reply or disarmed in it.
    """

    rubric: Rubric
    template: AuthoringTemplate
    raw_reply: str
    redraws: int
    repairs: int
    sources: tuple[SourceText, ...] = ()
    research: ResearchNotes | None = None
    cleaned: str | None = None


@dataclass(eq=False)
class Author:
    """Writes rubrics by one model: the model, endpoint and thinking of a judge, with the settings of a generation.

    ``retries`` is how often all samples were no rubric before: the next ones are drawn.
    """

    engine: Engine
    judge: Judge
    generation: Generation
    retries: int = 0

    async def ask(self, template: AuthoringTemplate, question: Question) -> Reply:
        """Return the model's reply to one question of a template, whatever it is, without its thinking."""
        sampling, thinking = self.generation.sampling, self.judge.thinking
        if thinking:
            sampling = sampling.model_copy(update={"max_tokens": sampling.max_tokens + thinking.budget_tokens})
        texts, limit = (template.system, template.shared), self.judge.max_context
        request = EngineRequest(*texts, (question,), sampling, limit, thinking=thinking is not None)
        (reply,) = await self.engine.ask(request)
        if isinstance(reply, Failure):
            raise GenerationError(reply.reason, f"the model did not answer: {reply.detail}")
        thought = split_thinking(replace(reply, truncated=False), thinking)
        if thought.error:
            raise GenerationError(Reason.TRUNCATED, thought.error)
        return replace(thought, truncated=reply.truncated)

    async def write(
        self,
        template: str,
        values: Mapping[str, str],
        documents: Documents | None = None,
        evidence: Documents | None = None,
        *,
        reader: Reader | None = None,
    ) -> Draft:
        """Return the rubric that the model writes, asked by the template of this name.

        ``values`` are untrusted texts by placeholder, cleaned and fenced. ``documents`` and ``evidence`` are texts that
        criteria may cite, by name; of the first the judge is shown the passages. ``reader`` is `rubric_reader` if None.
        """
        read_from, given = read(template), {**(documents or {}), **(evidence or {})}
        reader = reader or rubric_reader(template, documents, evidence)
        repairs = self.generation.repairs if read_from.repair else 0
        error, last, sent_back = "", Reply(), 0
        first_sample = self.retries * (self.generation.redraws + 1)
        for draw in range(self.generation.redraws + 1):
            question = Question(read_from.question(values), sample=first_sample + draw)
            for repair in range(repairs + 1):
                last = await self.ask(read_from, question)
                try:
                    rubric = reader(last.text, last.truncated)
                except ValueError as problem:
                    error = str(problem)[:_ERROR_CHARS]
                else:
                    sources = tuple(SourceText(name=name, digest=sha256_of(text)) for name, text in given.items())
                    raw, note = storable(last.text), cleaning_note(last.text)
                    return Draft(rubric, read_from, raw, first_sample + draw, repair, sources, cleaned=note)
                same = clean(last.text).text in question.turns  # it would be sent back in the same words
                if read_from.repair is None or not last.text.strip() or same:
                    break
                answer = read_from.repair.fill({"error": clean(error).text})
                question = replace(question, turns=(clean(last.text).text, answer))
                sent_back += repair < repairs
        tried = f"none of {self.generation.redraws + 1} samples, sent back {sent_back} times in all"
        raise GenerationError(NO_RUBRIC, f"{tried}: {error}; the last reply: {cut(repr(last.text), 400)}")


def rubric_reader(
    template: str, documents: Documents | None = None, evidence: Documents | None = None, **limits: Any
) -> Reader:
    """Return the reader of replies that are rubrics, which may cite these texts and not copy the template's example.

    ``limits`` are those of `read_rubric`.
    """
    examples = criteria_texts(read(template).shared)
    limits |= {"documents": documents, "evidence": evidence}
    return lambda text, truncated: read_rubric(text, truncated=truncated, examples=examples, **limits)


def sha256_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()


REPLIES = TypeAdapter(dict[str, Reply])  # the replies of one item, by the digest of the question


@dataclass(eq=False)
class RecordingEngine:
    """Answers from the stored ``replies`` of an item; what is not in them is asked of the judge's engine, and stored.

    Failures are not stored: a retry asks again. The questions to a server are separate calls, so that each reply is
    stored when it arrives; a local model answers those of a request together.
    """

    engine: Engine
    judge: Judge
    item_id: int
    replies: dict[str, Reply]
    write: Write

    async def ask(self, request: EngineRequest) -> Replies:
        """Return one reply or failure for each question, in order."""
        how = [request.sampling, request.max_context, request.thinking]
        keys = [  # of all that decides the reply: the judge and the conversation
            digest(self.judge.digest, request.messages(one), list(one.labels), one.schema, *how, one.sample)
            for one in request.questions
        ]
        missing = {key: one for key, one in zip(keys, request.questions, strict=True) if key not in self.replies}
        failures: dict[str, Failure] = {}

        async def call(questions: Mapping[str, Question]) -> None:
            outcome = await self.engine.ask(replace(request, questions=tuple(questions.values())))
            answered: dict[str, Reply] = {}
            for key, reply in zip(questions, outcome, strict=True):
                if isinstance(reply, Failure):
                    failures[key] = reply
                else:
                    names = ("text", "thinking", "note")
                    texts: dict[str, Any] = {name: storable(getattr(reply, name)) for name in names}
                    answered[key] = replace(reply, **texts)
            if answered:
                data = REPLIES.dump_python(answered, mode="json", exclude_none=True)
                await self.write(partial(add_replies, item_id=self.item_id, replies=data))
                self.replies.update(answered)

        together = bool(missing) and self.judge.engine in LOCAL
        await asyncio.gather(*map(call, [missing] if together else [{key: missing[key]} for key in missing]))
        return [self.replies.get(key) or failures[key] for key in keys]

    async def aclose(self) -> None:
        """Do nothing: the engine belongs to the drain."""
