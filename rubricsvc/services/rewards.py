"""`Rewards`: completions of many prompts, scored in one job that stores what is new of them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rubricsvc import schemas
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import ConflictError, InvalidError, at_path, cut
from rubricsvc.queries import RewardsQuery
from rubricsvc.schemas import Item, NewRewards
from rubricsvc.schemas.base import takes
from rubricsvc.services.jobs import Jobs, no_rubric
from rubricsvc.services.rubrics import Edit, add_version
from rubricsvc.store import completions, jobs, judges, leases, rubrics
from rubricsvc.store.completions import get_prompt

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.formats import RubricCheck
    from rubricsvc.schemas.jobs import GivenRubric
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import RubricRow

MAX_COMPLETIONS = 10_000

ItemKey = tuple[int, int]
"""Completion id and rubric id: a job holds each pair once."""


@dataclass(eq=False)
class Rewards:
    """Rewards of the completions of a job; new rubrics are checked, and added as an ``edit`` says."""

    db: Database
    edit: Edit
    check: RubricCheck

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
        count, total = len(new.prompts), sum(map(len, new.completions))
        if len(new.completions) != count:
            message = f"completions of {len(new.completions)} prompts for {count} prompts"
            raise InvalidError(message, hint="send a list of completions for each prompt", path="completions")
        if len(new.rubrics) not in (0, 1, count):
            message = f"{len(new.rubrics)} rubrics for {count} prompts"
            raise InvalidError(message, hint="send a rubric for each prompt, one for all, or none", path="rubrics")
        if total > MAX_COMPLETIONS:
            message = f"{total} completions; a request is limited to {MAX_COMPLETIONS}"
            raise InvalidError(message, hint="send several requests", path="completions")
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
            rewards = tuple(map(Item.model_validate, (row._asdict() for row in jobs.rewards(session, job_id))))
            running = None if job.finished_at else leases.running_workers(session)
            return schemas.Rewards.of(job, job_id=job_id, judge=job.judge.name, workers=running, rewards=rewards)

    def _store(self, session: Session, new: NewRewards) -> list[ItemKey]:
        """Store what is new of a batch; return the item of each completion, in order."""
        added = completions.add_prompts(session, ((one, None) for one in new.prompts if isinstance(one, Prompt)))
        prompt_ids: list[int] = []
        for place, one in enumerate(new.prompts):
            with at_path(f"prompts.{place}"):
                prompt_ids.append(added[one.digest, None] if isinstance(one, Prompt) else get_prompt(session, one).id)
        known: dict[object, RubricRow] = {}
        rubric_ids: list[int] = []
        for place, prompt_id in enumerate(prompt_ids):
            at = 0 if len(new.rubrics) == 1 else place
            wanted = new.rubrics[at] if new.rubrics else None
            key = (wanted.digest, prompt_id) if isinstance(wanted, Rubric) else wanted or ("own", prompt_id)
            with at_path(f"prompts.{place}" if wanted is None else f"rubrics.{at}"):
                if (row := known.get(key)) is None:
                    row = known[key] = self._rubric(session, new, wanted, prompt_id)
                if row.prompt_id not in (None, prompt_id):
                    hint = "score it by a rubric of its own prompt, or by one that belongs to none"
                    raise InvalidError(f"{row.ref} belongs to another prompt: {row.prompt_id}", hint=hint)
            rubric_ids.append(row.id)
        by_id = {one for group in new.completions for one in group if isinstance(one, int)}
        owners, values = completions.prompt_ids(session, by_id), list[tuple[int, Completion]]()
        keys: list[tuple[int | None, int]] = []  # None is the next of those that are new
        for number, (prompt_id, group) in enumerate(zip(prompt_ids, new.completions, strict=True)):
            for place, given in enumerate(group):
                keys.append((given if isinstance(given, int) else None, rubric_ids[number]))
                if not isinstance(given, int):
                    values.append((prompt_id, Completion(text=given) if isinstance(given, str) else given))
                elif owners.get(given) != prompt_id:
                    with at_path(f"completions.{number}.{place}"):
                        completions.get(session, given)  # raises NotFoundError
                        hint, owner = "send it with its own prompt", owners[given]
                        raise InvalidError(f"completion {given} belongs to another prompt: {owner}", hint=hint)
        stored = iter(completions.add_many(session, values))
        return [(next(stored) if id_ is None else id_, rubric_id) for id_, rubric_id in keys]

    def _rubric(self, session: Session, new: NewRewards, given: GivenRubric | None, prompt_id: int) -> RubricRow:
        """Return the rubric that is given for a prompt, which is stored if it is new; or else the prompt's own."""
        if given is None:
            if not (rows := rubrics.for_prompt(session, prompt_id, allow_drafts=new.allow_drafts)):
                raise no_rubric(session, "the prompt has no rubric", [prompt_id])
            if len(rows) > 1:
                listed = cut(", ".join(row.ref for row in rows), 400)
                raise InvalidError(f"the prompt has {len(rows)} rubrics: {listed}", hint="name one of them")
            return rows[0]
        if not isinstance(given, Rubric):
            return rubrics.get(session, given, allow_drafts=new.allow_drafts)
        if (row := rubrics.of_content(session, given.digest, prompt_id)) is not None:
            return row
        self.check(given)
        return add_version(session, given, self.edit, name=f"rubric-{given.digest[:12]}", origin="api").row
