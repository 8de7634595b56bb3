"""Items of a job in full: prompt, completion, and what each criterion contributed to the reward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rubricsvc.core.contributions import Contribution, by_gain, contributions
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.store import items, jobs, verdicts

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import ItemRow, JobRow, RubricRow

ITEMS_PER_PAGE = 200


def item_record(row: ItemRow) -> dict[str, Any]:
    """Return the fields of an item as JSON data; ``rubric`` is name@version."""
    names = ("state", "reward", "coverage", "formula", "vetoed_by", "null_reason")
    return {
        "id": row.id,
        "completion_id": row.completion_id,
        "completion_external_id": row.completion.content.get("id"),
        "policy": row.completion.policy,
        "prompt_id": row.completion.prompt_id,
        "prompt_external_id": row.completion.prompt.external_id,
        "rubric": f"{row.rubric.name}@{row.rubric.version}",
        **{name: getattr(row, name) for name in names},
    }


def generation_record(row: ItemRow) -> dict[str, Any]:
    """Return the fields of an item of a generation as JSON data; ``rubric`` is name@version, once it is done."""
    rubric: RubricRow | None = row.rubric
    return {
        "id": row.id,
        "prompt_id": row.prompt_id,
        "prompt_external_id": row.prompt.external_id,
        "state": row.state,
        "rubric": rubric.ref if rubric else None,
        "criteria": len(rubric.content["criteria"]) if rubric else None,
        "reason": row.null_reason,
        "prompt": row.prompt.value.text,
    }


@dataclass(frozen=True)
class ItemDetail:
    """An item with its texts; ``fields`` are those of `item_record`, ``parts`` are in the rubric's order."""

    fields: dict[str, Any]
    prompt: Prompt
    completion: Completion
    parts: Sequence[Contribution]

    @property
    def reward(self) -> float | None:
        """The reward, if there is one."""
        reward: float | None = self.fields["reward"]
        return reward

    @property
    def gains(self) -> list[Contribution]:
        """The criteria with a gain, the largest first."""
        return by_gain(self.parts)

    def record(self) -> dict[str, Any]:
        """Return the item as JSON data, with the text of its prompt and the criteria with a gain."""
        return self.fields | {"prompt": self.prompt.text, "gains": [_part_record(part) for part in self.gains]}


def _part_record(part: Contribution) -> dict[str, Any]:
    return {
        "criterion": part.criterion.key,
        "text": part.criterion.text,
        "weight": part.criterion.weight,
        "value": part.verdict.value if part.verdict else None,
        "contribution": part.contribution,
        "gain": part.gain,
        "vetoes": part.vetoes,
    }


def worst(session: Session, job: JobRow, count: int) -> list[ItemDetail]:
    """Return the items with the lowest rewards, ascending."""
    return details(session, job, items.page(session, job.id, sort="reward", rewarded=True, limit=count))


def best(session: Session, job: JobRow, count: int) -> list[ItemDetail]:
    """Return the items with the highest rewards, descending."""
    return details(session, job, items.page(session, job.id, sort="-reward", rewarded=True, limit=count))


def without_reward(session: Session, job: JobRow, count: int) -> list[ItemDetail]:
    """Return items without a reward, by id."""
    return details(session, job, items.page(session, job.id, rewarded=False, limit=count))


def pages(db: Database, job_id: int) -> Iterator[list[tuple[ItemRow, ItemDetail]]]:
    """Yield all items of a job by id, in pages with a transaction each.

    Raises:
        NotFoundError: no such job.
    """
    after = 0
    while True:
        with db.read() as session:
            job = jobs.scoring(session, job_id)
            rows = items.page(session, job_id, after=after, limit=ITEMS_PER_PAGE)
            found = details(session, job, rows)
        if not rows:
            return
        yield list(zip(rows, found, strict=True))
        after = rows[-1].id


def details(session: Session, job: JobRow, rows: Sequence[ItemRow]) -> list[ItemDetail]:
    """Return these items of the job with their texts and verdicts."""
    by_item = verdicts.for_items(session, [row.id for row in rows])
    rubrics = {row.rubric_id: row.rubric.value for row in rows}
    return [
        ItemDetail(
            item_record(row),
            row.completion.prompt.value,
            row.completion.value,
            contributions(rubrics[row.rubric_id], by_item.get(row.id, []), min_coverage=job.min_coverage),
        )
        for row in rows
    ]
