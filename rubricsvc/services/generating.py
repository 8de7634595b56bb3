"""Submit prompts, to have rubrics generated for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.store import generation as generations
from rubricsvc.store import judges, prompts

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.generation import Generation
    from rubricsvc.store.tables import JobRow


def submit(
    session: Session,
    judge_ref: int | str,
    prompt_refs: Iterable[int | str],
    generation: Generation,
    *,
    key: str | None = None,
    name: str = "",
    budget: float | None = None,
) -> JobRow:
    """Submit a job that generates a rubric for each prompt, in a session to write in.

    Prompts are named by id or external id. The same judge, prompts and settings give the same job; so does the same
    idempotency ``key``. ``budget`` is in US dollars.

    Raises:
        NotFoundError: no such judge or prompt.
        InvalidError: the judge has no model of its own, or a budget is given and a price is unknown.
        ConflictError: the key was used for something else, or the job exists with another budget.
    """
    judge = judges.get(session, judge_ref)
    if generation.gate_judge is not None:
        try:
            judges.get(session, generation.gate_judge)
        except NotFoundError as error:
            raise InvalidError(error.message, hint=error.hint, path="gate_judge") from error
    ids = [prompts.get(session, ref).id for ref in dict.fromkeys(prompt_refs)]
    given = {"judge_id": judge.id, "prompt_ids": ids, "generation": generation}
    return generations.submit(session, **given, key=key, name=name, budget=budget)  # type: ignore[arg-type]
