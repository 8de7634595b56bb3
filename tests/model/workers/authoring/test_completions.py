"""Completions sampled from the embedded model."""

import asyncio
from contextlib import aclosing

from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.prompt import Message, Prompt
from rubricsvc.core.verdict import Reason
from rubricsvc.store import completions
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import CompletionRow
from tests.rows import sampled
from workers.authoring.completions import SamplingResult
from workers.engines import make_engine

CHAT = [("system", "Be short."), ("user", "Name a colour."), ("assistant", "Red."), ("user", "Another one?")]


def test_sampler_samples_a_conversation_from_the_embedded_model(db: Database) -> None:
    chat = Prompt(messages=tuple(Message(role=role, content=text) for role, text in CHAT))  # type: ignore[arg-type]
    with_tools = Prompt.model_validate(
        {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [{"name": "look"}]}]}
    )
    with db.write() as session:
        ids = [completions.add_prompt(session, prompt).id for prompt in (chat, with_tools)]
    sampling = Sampling(temperature=1.0, max_tokens=6, seed=3)
    judge = Judge(name="j", engine="transformers_local", model="embedded", sampling=sampling)

    async def run(n: int) -> SamplingResult:
        async with aclosing(make_engine(judge)) as engine:
            return await sampled(db, engine, judge, ids, policy="tiny", n=n)

    first = asyncio.run(run(2))
    assert (first.stored, dict(first.reasons)) == (2, {Reason.UNREACHABLE: 2})
    assert 0 < first.tokens <= 12
    assert asyncio.run(run(3)).stored == 1
    with db.read() as session:
        rows = page_of(session, CompletionRow, prompt_id=ids[0])
    assert [row.value.sampling["sample"] for row in rows] == [0, 1, 2]
    assert len({row.value.text for row in rows}) > 1, "each sample has its own seed"
