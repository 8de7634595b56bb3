"""`Rewards`: completions of many prompts, scored in one job that stores what is new of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rubricsvc import schemas
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import ConflictError, InvalidError, at_path, cut
from rubricsvc.queries import RewardsQuery
from rubricsvc.schemas import Item, NewRewards
from rubricsvc.schemas.methods import takes
from rubricsvc.services.jobs import Jobs, own_rubrics
from rubricsvc.services.rubrics import Edit, add_version
from rubricsvc.store import completions, items, jobs, judges, leases, prompts, rubrics

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.states import ApprovalPolicy
    from rubricsvc.services.local import Validators
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import RubricRow

MAX_COMPLETIONS = 10_000

ItemKey = tuple[int, int]
"""Completion id and rubric id: a job holds each pair once."""


class Rewards:
    """Rewards of the completions of a job."""

    def __init__(self, db: Database, *, caller: str | None, approval: ApprovalPolicy, validators: Validators) -> None:
        self.db, self.validators = db, validators
        self._edit = Edit(caller, policy=approval)

    @takes(NewRewards)
    def submit(self, new: NewRewards) -> schemas.Rewards:
        """Store what is new of a batch, submit it as one job, and wait ``timeout`` seconds for it.

        The same completion of a prompt twice is one item. A rubric that is stored for a prompt, or for any, is used
        under its name.

        Raises:
            NotFoundError: There is no such judge, prompt, rubric or completion; ``path`` says where.
            NotApprovedError: A rubric is not approved, and ``allow_drafts`` is not set.
            InvalidError: The number of completions or rubrics is not that of the prompts, a rubric belongs to another
                prompt, or a prompt has no rubric or several.
            ConflictError: The judge has another digest, the key belongs to another job, or the job exists with another
                budget.
        """
        _check_numbers(new)
        with self.db.write() as session:
            with at_path("judge"):
                judge = judges.get(session, new.judge)
            if new.judge_digest not in (None, judge.digest):
                raise ConflictError(
                    f"judge {judge.name!r} was replaced: expected {new.judge_digest:.8}, now it is {judge.digest:.8}",
                    hint="give the new judge another name and start another run; or restore the judge",
                )
            keys = self._store(session, new)
            options = new.model_dump(include={"key", "name", "budget", "min_coverage", "allow_drafts"})
            job_id = jobs.submit(session, judge_id=judge.id, items=keys, **options).id
        found = self.get(job_id, timeout=new.timeout)
        by_key = {(one.completion_id, one.rubric_id): one for one in found.rewards}
        return found.model_copy(update={"rewards": tuple(by_key[key] for key in keys)})

    @takes(RewardsQuery)
    def get(self, job_id: int, query: RewardsQuery) -> schemas.Rewards:
        """Get the rewards of a job by item id, after at most ``timeout`` seconds of waiting for its end."""
        if query.timeout:
            with contextlib.suppress(TimeoutError):
                Jobs(self.db).wait(job_id, query.timeout)
        with self.db.read() as session:
            job = jobs.scoring(session, job_id)
            rewards = tuple(map(Item.model_validate, (row._asdict() for row in items.rewards(session, job_id))))
            running = None if job.finished_at else leases.running_workers(session)
            return schemas.Rewards.of(job, job_id=job_id, judge=job.judge.name, workers=running, rewards=rewards)

    def _store(self, session: Session, new: NewRewards) -> list[ItemKey]:
        """Store what is new of a batch; return the item of each completion, in order."""
        added = prompts.add_many(session, ((one, None) for one in new.prompts if isinstance(one, Prompt)))
        prompt_ids: list[int] = []
        for place, one in enumerate(new.prompts):
            with at_path(f"prompts.{place}"):
                prompt_ids.append(added[one.digest, None] if isinstance(one, Prompt) else prompts.get(session, one).id)
        known: dict[object, RubricRow] = {}
        rubric_ids = [self._rubric_id(session, new, place, id_, known) for place, id_ in enumerate(prompt_ids)]
        of_each = [id_ for id_, group in zip(rubric_ids, new.completions, strict=True) for _ in group]
        return list(zip(_completion_ids(session, prompt_ids, new), of_each, strict=True))

    def _rubric_id(
        self, session: Session, new: NewRewards, place: int, prompt_id: int, known: dict[object, RubricRow]
    ) -> int:
        """Return the id of the rubric of a prompt; rows in ``known`` were looked up before."""
        at = 0 if len(new.rubrics) == 1 else place
        given = new.rubrics[at] if new.rubrics else None
        with at_path(f"prompts.{place}" if given is None else f"rubrics.{at}"):
            if given is None:
                rows = own_rubrics(session, prompt_id, allow_drafts=new.allow_drafts)
                if len(rows) > 1:
                    listed = cut(", ".join(row.ref for row in rows), 400)
                    raise InvalidError(f"the prompt has {len(rows)} rubrics: {listed}", hint="name one of them")
                return rows[0].id
            key = (given.digest, prompt_id) if isinstance(given, Rubric) else given
            row = known.get(key)
            if row is None:
                if not isinstance(given, Rubric):
                    row = rubrics.get(session, given, allow_drafts=new.allow_drafts)
                elif (row := rubrics.of_content(session, given.digest, prompt_id)) is None:
                    self.validators.rubric(given)
                    name = f"rubric-{given.digest[:12]}"
                    row = add_version(session, given, self._edit, name=name, origin="api").row
                known[key] = row
            if row.prompt_id not in (None, prompt_id):
                hint = "score it by a rubric of its own prompt, or by one that belongs to none"
                raise InvalidError(f"{row.ref} belongs to another prompt: {row.prompt_id}", hint=hint)
            return row.id


def _check_numbers(new: NewRewards) -> None:
    count = len(new.prompts)
    if len(new.completions) != count:
        message = f"completions of {len(new.completions)} prompts for {count} prompts"
        raise InvalidError(message, hint="send a list of completions for each prompt", path="completions")
    if len(new.rubrics) not in (0, 1, count):
        message = f"{len(new.rubrics)} rubrics for {count} prompts"
        raise InvalidError(message, hint="send a rubric for each prompt, one for all, or none", path="rubrics")
    if (total := sum(map(len, new.completions))) > MAX_COMPLETIONS:
        message = f"{total} completions; a request is limited to {MAX_COMPLETIONS}"
        raise InvalidError(message, hint="send several requests", path="completions")


def _completion_ids(session: Session, prompt_ids: Sequence[int], new: NewRewards) -> list[int]:
    """Store the completions that are no ids; return the ids of all, prompt by prompt."""
    given = [
        (prompt_id, one, f"completions.{n}.{place}")
        for n, (prompt_id, group) in enumerate(zip(prompt_ids, new.completions, strict=True))
        for place, one in enumerate(group)
    ]
    owners = completions.prompt_ids(session, {one for _, one, _ in given if isinstance(one, int)})
    values: list[tuple[int, Completion]] = []
    for prompt_id, one, path in given:
        if not isinstance(one, int):
            values.append((prompt_id, Completion(text=one) if isinstance(one, str) else one))
        elif owners.get(one) != prompt_id:
            with at_path(path):
                completions.get(session, one)  # raises NotFoundError
                hint = "send it with its own prompt"
                raise InvalidError(f"completion {one} belongs to another prompt: {owners[one]}", hint=hint)
    stored = iter(completions.add_many(session, values))
    return [one if isinstance(one, int) else next(stored) for _, one, _ in given]
