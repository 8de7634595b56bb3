"""Completions: stored once for each prompt, by content."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from rubricsvc.core.prompt import Completion
from rubricsvc.store.session import add_new, batched, existing, rows_with
from rubricsvc.store.tables import CompletionRow, PromptRow


def add_many(session: Session, completions: Iterable[tuple[int, Completion]]) -> list[int]:
    """Store pairs of (prompt id, completion); return their ids, in order. Equal content of a prompt is one row."""
    ids: list[int] = []
    for chunk in batched(completions):
        rows = [
            {
                "prompt_id": prompt_id,
                "digest": completion.digest,
                "policy": completion.policy,
                "content": completion.model_dump(mode="json"),
            }
            for prompt_id, completion in chunk
        ]
        add_new(session, CompletionRow, rows)
        keys = [(prompt_id, completion.digest) for prompt_id, completion in chunk]
        columns = (CompletionRow.prompt_id, CompletionRow.digest)
        found = session.execute(select(CompletionRow.id, *columns).where(tuple_(*columns).in_(keys)))
        by_key = {(prompt_id, digest): id_ for id_, prompt_id, digest in found}
        ids.extend(by_key[key] for key in keys)
    return ids


def samples(session: Session, prompt_ids: Iterable[int], settings: Completion) -> set[tuple[int, int]]:
    """Return (prompt id, number) of the stored samples with the policy and sampling of ``settings``."""
    query = select(CompletionRow.prompt_id, CompletionRow.content["sampling"]).where(
        CompletionRow.policy == settings.policy
    )
    wanted = settings.sampling.items()
    return {
        (prompt_id, sampling["sample"])
        for prompt_id, sampling in rows_with(session, query, CompletionRow.prompt_id, prompt_ids)
        if "sample" in sampling and all(sampling.get(name, ...) == value for name, value in wanted)
    }


def add_samples(session: Session, settings: Completion, rows: Sequence[tuple[int, Completion]]) -> int:
    """Store pairs of (prompt id, sample) unless a sample of this number exists; return how many were stored.

    The number is in ``sampling["sample"]``. The prompts are locked, so that two processes store each sample once.
    """
    prompt_ids = sorted({prompt_id for prompt_id, _ in rows})
    session.execute(select(PromptRow.id).where(PromptRow.id.in_(prompt_ids)).order_by(PromptRow.id).with_for_update())
    stored = samples(session, prompt_ids, settings)
    return len(add_many(session, (row for row in rows if (row[0], row[1].sampling["sample"]) not in stored)))


def ids_in_files(session: Session, prompt_ids: Collection[int], external_id: str) -> list[tuple[int, int]]:
    """Return (id, prompt id) of all completions of these prompts that came with this id."""
    query = select(CompletionRow.id, CompletionRow.prompt_id).where(
        CompletionRow.prompt_id.in_(prompt_ids), CompletionRow.content["id"].as_string() == external_id
    )
    return [(id_, prompt_id) for id_, prompt_id in session.execute(query.order_by(CompletionRow.id))]


def digests(session: Session, id_: int) -> tuple[str, str]:
    """Return the digests of a completion's prompt and of the completion, which name it in every database."""
    query = select(PromptRow.digest, CompletionRow.digest).join(PromptRow).where(CompletionRow.id == id_)
    prompt, completion = session.execute(query).one()
    return prompt, completion


def id_of_digests(session: Session, prompt: str, completion: str) -> int | None:
    """Return the id of the completion with these `digests`, if there is one."""
    query = select(CompletionRow.id).join(PromptRow)
    return session.scalar(query.where(PromptRow.digest == prompt, CompletionRow.digest == completion))


def get(session: Session, id_: int) -> CompletionRow:
    """Return the row."""
    return existing(session, CompletionRow, "completion", id_)


def prompt_ids(session: Session, ids: Iterable[int]) -> dict[int, int]:
    """Return the prompt ids by completion id; unknown completions are left out."""
    query = select(CompletionRow.id, CompletionRow.prompt_id)
    return dict(map(tuple, rows_with(session, query, CompletionRow.id, ids)))
