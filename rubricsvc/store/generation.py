"""Jobs that generate rubrics: submitted, and their results recorded. Their items are leased through `leases`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.generation import Generation, Provenance
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import GENERATED, RubricState
from rubricsvc.errors import InvalidError
from rubricsvc.store import budgets, jobs, judges, leases, rewards, rubrics
from rubricsvc.store.leases import GenerationLease, Recorded
from rubricsvc.store.tables import DONE, FAILED, GENERATE, ItemRow, JobRow, PromptRow, RubricRow


def submit(
    session: Session,
    *,
    judge_id: int,
    prompt_ids: Iterable[int],
    generation: Generation,
    key: str | None = None,
    name: str = "",
    budget: float | None = None,
) -> JobRow:
    """Store a job that generates a rubric for each prompt, and wake workers for it.

    The same ``key`` gives the same job; without a key, the same judge, prompts and settings do. ``budget`` is in US
    dollars.

    Raises:
        ConflictError: The key was used for something else, or the job exists with another budget.
        NotFoundError: There is no such judge of the gate.
        InvalidError: There is no prompt, the judge has no model of its own, a name is too long, or a price is unknown.
    """
    jobs.check_names(name, key)
    ids = sorted(set(prompt_ids))
    if not ids:
        raise InvalidError("no prompts", hint="import prompts first, or name a file with prompts")
    judge = judges.get(session, judge_id).value
    if not judge.model:
        raise InvalidError(
            f"judge {judge.name!r} ({judge.mode}) has no model of its own", hint="name one of its members"
        )
    budgets.check(judge, budget)
    if generation.gate_judge is not None:
        budgets.check(judges.get(session, generation.gate_judge).value, budget)
    settings = generation.model_dump(mode="json", exclude_none=True)
    content_key = digest(GENERATE, judge_id, ids, settings)
    columns = {"name": name, "kind": GENERATE, "settings": settings}
    rows = [{"prompt_id": id_} for id_ in ids]
    job, _ = jobs.add(session, rows, judge_id=judge_id, content_key=content_key, key=key, budget=budget, **columns)
    return job


@dataclass(frozen=True, slots=True)
class GeneratedItem:
    """The rubric of a leased prompt with its provenance and state, or the reason why there is none.

    ``redraws`` and ``repairs`` are what was tried before it failed.
    """

    lease: GenerationLease
    rubric: Rubric | None = None
    provenance: Provenance | None = None
    state: RubricState = "draft"
    reason: str = ""
    redraws: int | None = None
    repairs: int | None = None


def record(session: Session, results: Sequence[GeneratedItem]) -> Recorded:
    """Store the rubrics of the items whose leases are valid, each as a version of its name. The rest is dropped.

    A version that has the same content already stays as it is, with its provenance.
    """
    ours = leases.lock_valid(session, results)
    for result in ours:
        values: dict[str, object] = {"state": FAILED, "null_reason": result.reason[: rewards.REASON_CHARS]}
        values |= {"redraws": result.redraws, "repairs": result.repairs}
        if result.rubric is not None and result.provenance is not None:
            row = _add_rubric(session, result.lease.prompt_id, result.rubric, result.provenance, result.state)
            values = {"state": DONE, "rubric_id": row.id}
        item = update(ItemRow).where(ItemRow.id == result.lease.item_id)
        session.execute(item.values(lease_until=None, worker=None, **values))
    return Recorded([result.lease.item_id for result in ours], set())


def _add_rubric(
    session: Session, prompt_id: int, rubric: Rubric, provenance: Provenance, state: RubricState
) -> RubricRow:
    name = _name(session, prompt_id, provenance.method)
    row = rubrics.add(session, rubric, name=name, prompt_id=prompt_id, origin=GENERATED, state=state)
    if row.provenance is None:
        row.provenance = provenance.model_dump(mode="json", exclude_none=True)
        session.flush()
    return row


def _name(session: Session, prompt_id: int, method: str) -> str:
    """Return the name of a prompt's generated rubrics: its id in its file, or here if another prompt has that too."""
    prompt = session.get_one(PromptRow, prompt_id)
    base = " ".join((prompt.external_id or f"prompt-{prompt_id}").replace("@", "-").split())
    name = f"{base[: MAX_NAME_LENGTH - len(method) - 1]}-{method}"
    others = select(RubricRow.id).where(RubricRow.name == name, RubricRow.prompt_id.is_distinct_from(prompt_id))
    return f"prompt-{prompt_id}-{method}" if session.scalar(others.limit(1)) is not None else name
