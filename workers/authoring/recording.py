"""An engine that asks nothing twice: replies are stored when they arrive, and read by the worker that takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from rubricsvc.core.base import storable
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import LOCAL, Judge
from rubricsvc.store import items
from workers.engines.base import Engine, EngineRequest, Failure, Question, Replies, Reply
from workers.queue.costs import Write

_REPLY: TypeAdapter[Reply] = TypeAdapter(Reply)


class ReplyLog:
    """The replies of one item, by the digest of the question, in the database and here."""

    def __init__(self, item_id: int, known: Mapping[str, Mapping[str, Any]], write: Write) -> None:
        self._add, self._write = partial(items.add_reply, item_id=item_id), write
        self._replies = {key: _REPLY.validate_python(reply) for key, reply in known.items()}

    def get(self, key: str) -> Reply | None:
        """Return the stored reply, if there is one."""
        return self._replies.get(key)

    async def add(self, found: Mapping[str, Reply]) -> None:
        """Store replies."""
        data = {key: _REPLY.dump_python(reply, mode="json", exclude_none=True) for key, reply in found.items()}
        await self._write(partial(self._add, replies=data))
        self._replies |= found


class RecordingEngine:
    """Answers from a log; what is not in it is asked of the judge's engine, and stored.

    Failures are not stored: a retry asks again. The questions to a server are separate calls, so that each reply is
    stored when it arrives; a local model answers those of a request together.
    """

    def __init__(self, engine: Engine, judge: Judge, log: ReplyLog) -> None:
        self._engine, self._judge, self._log = engine, judge, log

    async def ask(self, request: EngineRequest) -> Replies:
        """Return one reply or failure for each question, in order."""
        keys = [self._key(request, question) for question in request.questions]
        missing = {
            key: question for key, question in zip(keys, request.questions, strict=True) if self._log.get(key) is None
        }
        failures: dict[str, Failure] = {}
        if missing:
            calls = [list(missing)] if self._judge.engine in LOCAL else [[key] for key in missing]
            for failed in await asyncio.gather(*(self._ask(request, call, missing) for call in calls)):
                failures |= failed
        return [self._log.get(key) or failures[key] for key in keys]

    async def aclose(self) -> None:
        """Do nothing: the engine belongs to the drain."""

    async def _ask(
        self, request: EngineRequest, keys: Sequence[str], questions: Mapping[str, Question]
    ) -> dict[str, Failure]:
        """Ask these questions in one call and store the replies; return the failures."""
        asked = tuple(questions[key] for key in keys)
        outcome = await self._engine.ask(replace(request, questions=asked))
        found = dict(zip(keys, outcome, strict=True))
        if answered := {key: _storable(reply) for key, reply in found.items() if isinstance(reply, Reply)}:
            await self._log.add(answered)
        return {key: reply for key, reply in found.items() if isinstance(reply, Failure)}

    def _key(self, request: EngineRequest, question: Question) -> str:
        """Return the digest of all that decides the reply: the judge and the conversation."""
        how = [request.sampling, request.max_context, request.thinking, question.sample]
        return digest(self._judge.digest, request.messages(question), list(question.labels), question.schema, *how)


def _storable(reply: Reply) -> Reply:
    return replace(reply, text=storable(reply.text), thinking=storable(reply.thinking), note=storable(reply.note))
