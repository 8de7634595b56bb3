"""Completions of many prompts: store what is new of them, and submit them as one job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import IMPORTED, RubricOrigin
from rubricsvc.errors import InvalidError, at_path
from rubricsvc.services.editing import Edit, add_version
from rubricsvc.services.submitting import only_rubric
from rubricsvc.store import completions, jobs, judges, prompts, rubrics

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.tables import JobRow, RubricRow

MAX_COMPLETIONS = 10_000

ItemKey = tuple[int, int]
"""Completion id and rubric id: a job holds each pair once."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Completions to score.

    Attributes:
        prompts: Prompts, or their ids or external ids.
        completions: The completions of each prompt: texts, values, or ids of stored ones.
        rubrics: One for each prompt or one for all: a rubric, or the id, name, name@version or digest of a stored one.
            None, or none at all, means the prompt's own.
    """

    prompts: Sequence[Prompt | int | str]
    completions: Sequence[Sequence[Completion | str | int]]
    rubrics: Sequence[Rubric | int | str | None] = ()

    def rubric_at(self, place: int) -> tuple[Rubric | int | str | None, str]:
        """Return the rubric of a prompt, and its path: that of the prompt if there is none."""
        at = 0 if len(self.rubrics) == 1 else place
        given = self.rubrics[at] if self.rubrics else None
        return given, f"prompts.{place}" if given is None else f"rubrics.{at}"


def submit(
    session: Session,
    judge_ref: int | str,
    batch: Batch,
    edit: Edit,
    *,
    validate: Callable[[Rubric], None],
    allow_drafts: bool = False,
    **options: Any,
) -> tuple[JobRow, list[ItemKey]]:
    """Submit a batch as one job, in a session to write in; return the job and its item of each completion, in order.

    ``edit`` says who adds rubrics, ``validate`` raises an InvalidError for one that cannot be scored; ``options`` are
    those of `jobs.submit`. The same completion of a prompt twice is one item.

    Raises:
        NotFoundError: There is no such judge, prompt or rubric; ``path`` says where.
        NotApprovedError: A rubric is not approved, and ``allow_drafts`` is not set.
        InvalidError: The number of completions or rubrics is not that of the prompts, a rubric belongs to another
            prompt, or a prompt has no rubric or several.
        ConflictError: The idempotency key belongs to another job, or the job exists with another budget.
    """
    _check_numbers(batch)
    with at_path("judge"):
        judge = judges.get(session, judge_ref)
    keys = store(session, batch, edit, validate=validate, allow_drafts=allow_drafts, origin="api")
    return jobs.submit(session, judge_id=judge.id, items=keys, allow_drafts=allow_drafts, **options), keys


def store(
    session: Session,
    batch: Batch,
    edit: Edit,
    *,
    validate: Callable[[Rubric], None] = lambda _: None,
    allow_drafts: bool = False,
    origin: RubricOrigin = IMPORTED,
) -> list[ItemKey]:
    """Store what is new of a batch; return the item of each completion, in order.

    A rubric that is stored for a prompt, or for any, is used under its name. The numbers are those of the prompts.

    Raises:
        NotFoundError, NotApprovedError, InvalidError: as of `submit`.
    """
    prompt_ids = _prompt_ids(session, batch.prompts)
    rubric_of = _Rubrics(session, edit, validate, allow_drafts, origin)
    rubric_ids = [rubric_of(prompt_id, *batch.rubric_at(n)) for n, prompt_id in enumerate(prompt_ids)]
    rubric_of_each = [id_ for id_, group in zip(rubric_ids, batch.completions, strict=True) for _ in group]
    return list(zip(_completion_ids(session, prompt_ids, batch), rubric_of_each, strict=True))


def _check_numbers(batch: Batch) -> None:
    count = len(batch.prompts)
    if len(batch.completions) != count:
        message = f"completions of {len(batch.completions)} prompts for {count} prompts"
        raise InvalidError(message, hint="send a list of completions for each prompt", path="completions")
    if len(batch.rubrics) not in (0, 1, count):
        message = f"{len(batch.rubrics)} rubrics for {count} prompts"
        raise InvalidError(message, hint="send a rubric for each prompt, one for all, or none", path="rubrics")
    if (total := sum(map(len, batch.completions))) > MAX_COMPLETIONS:
        message = f"{total} completions; a request is limited to {MAX_COMPLETIONS}"
        raise InvalidError(message, hint="send several requests", path="completions")


def _prompt_ids(session: Session, given: Sequence[Prompt | int | str]) -> list[int]:
    ids = prompts.add_many(session, ((one, None) for one in given if isinstance(one, Prompt)))
    found: list[int] = []
    for place, one in enumerate(given):
        with at_path(f"prompts.{place}"):
            found.append(ids[one.digest, None] if isinstance(one, Prompt) else prompts.get(session, one).id)
    return found


def _completion_ids(session: Session, prompt_ids: Sequence[int], batch: Batch) -> list[int]:
    """Store the completions that are no ids; return the ids of all, prompt by prompt."""
    given = [
        (prompt_id, one, f"completions.{n}.{place}")
        for n, (prompt_id, group) in enumerate(zip(prompt_ids, batch.completions, strict=True))
        for place, one in enumerate(group)
    ]
    owners = completions.prompt_ids(session, {one for _, one, _ in given if isinstance(one, int)})
    new: list[tuple[int, Completion]] = []
    for prompt_id, one, path in given:
        if not isinstance(one, int):
            new.append((prompt_id, Completion(text=one) if isinstance(one, str) else one))
        elif owners.get(one) != prompt_id:
            with at_path(path):
                completions.get(session, one)  # raises NotFoundError
                hint = "send it with its own prompt"
                raise InvalidError(f"completion {one} belongs to another prompt: {owners[one]}", hint=hint)
    stored = iter(completions.add_many(session, new))
    return [one if isinstance(one, int) else next(stored) for _, one, _ in given]


@dataclass(slots=True)
class _Rubrics:
    """Returns the id of each prompt's rubric; looks each one up once."""

    session: Session
    edit: Edit
    validate: Callable[[Rubric], None]
    allow_drafts: bool
    origin: RubricOrigin
    known: dict[object, RubricRow] = field(default_factory=dict)

    def __call__(self, prompt_id: int, given: Rubric | int | str | None, path: str) -> int:
        with at_path(path):
            if given is None:
                return only_rubric(self.session, prompt_id, allow_drafts=self.allow_drafts).id
            key = (given.digest, prompt_id) if isinstance(given, Rubric) else given
            row = self.known.get(key) or self.known.setdefault(key, self._row(given, prompt_id))
            if row.prompt_id not in (None, prompt_id):
                hint = "score it by a rubric of its own prompt, or by one that belongs to none"
                raise InvalidError(f"{row.ref} belongs to another prompt: {row.prompt_id}", hint=hint)
            return row.id

    def _row(self, given: Rubric | int | str, prompt_id: int) -> RubricRow:
        if not isinstance(given, Rubric):
            return rubrics.get(self.session, given, allow_drafts=self.allow_drafts)
        if (stored := rubrics.of_content(self.session, given.digest, prompt_id)) is not None:
            return stored
        self.validate(given)
        name = f"rubric-{given.digest[:12]}"
        return add_version(self.session, given, self.edit, name=name, origin=self.origin).row
