"""An engine that asks nothing twice: replies are stored when they arrive, and read by the worker that takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from rubricsvc.core.base import storable
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import LOCAL, Judge
from rubricsvc.store import generation
from workers.engines.base import Engine, EngineRequest, Failure, Question, Replies, Reply
from workers.queue.costs import Write

REPLIES = TypeAdapter(dict[str, Reply])
"""The replies of one item, by the digest of the question."""


class RecordingEngine:
    """Answers from the stored ``replies`` of an item; what is not in them is asked of the judge's engine, and stored.

    Failures are not stored: a retry asks again. The questions to a server are separate calls, so that each reply is
    stored when it arrives; a local model answers those of a request together.
    """

    def __init__(self, engine: Engine, judge: Judge, item_id: int, replies: dict[str, Reply], write: Write) -> None:
        self._engine, self._judge, self._replies = engine, judge, replies
        self._item_id, self._write = item_id, write

    async def ask(self, request: EngineRequest) -> Replies:
        """Return one reply or failure for each question, in order."""
        how = [request.sampling, request.max_context, request.thinking]
        keys = [  # of all that decides the reply: the judge and the conversation
            digest(self._judge.digest, request.messages(one), list(one.labels), one.schema, *how, one.sample)
            for one in request.questions
        ]
        missing = {key: one for key, one in zip(keys, request.questions, strict=True) if key not in self._replies}
        failures: dict[str, Failure] = {}

        async def call(questions: Mapping[str, Question]) -> None:
            outcome = await self._engine.ask(replace(request, questions=tuple(questions.values())))
            answered: dict[str, Reply] = {}
            for key, reply in zip(questions, outcome, strict=True):
                if isinstance(reply, Failure):
                    failures[key] = reply
                else:
                    texts: dict[str, Any] = {
                        name: storable(getattr(reply, name)) for name in ("text", "thinking", "note")
                    }
                    answered[key] = replace(reply, **texts)
            if answered:
                data = REPLIES.dump_python(answered, mode="json", exclude_none=True)
                await self._write(partial(generation.add_replies, item_id=self._item_id, replies=data))
                self._replies.update(answered)

        together = bool(missing) and self._judge.engine in LOCAL
        await asyncio.gather(*map(call, [missing] if together else [{key: missing[key]} for key in missing]))
        return [self._replies.get(key) or failures[key] for key in keys]

    async def aclose(self) -> None:
        """Do nothing: the engine belongs to the drain."""
