"""What the rollouts and the evaluations of a run have in common: completions, joined to what people authored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.services.editing import Edit, add_version
from rubricsvc.store import completions, items, prompts
from rubricsvc.store.evolutions import authored

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.prompt import Completion, Prompt
    from rubricsvc.core.rubric import Rubric
    from rubricsvc.core.states import ApprovalPolicy
    from rubricsvc.core.verdict import Verdict
    from rubricsvc.store.tables import RunRow

MAX_REASON_CHARS = 300


class Joined(NamedTuple):
    """The rows of what a policy sampled; ``judge_id`` is that of the job's item, if a job has scored it."""

    prompt_id: int
    completion_id: int
    rubric_id: int
    judge_id: int | None


def join(
    session: Session,
    row: RunRow,
    sampled: Sequence[tuple[Prompt, Rubric, Completion, int | None]],
    policy: ApprovalPolicy,
) -> list[Joined]:
    """Return the rows of prompts, rubrics and completions of a run, with items of jobs; what is new is stored.

    Raises:
        NotFoundError: There is no such item.
        InvalidError: An item has scored another completion.
    """
    prompt_ids = prompts.add_many(session, ((prompt, None) for prompt, *_ in sampled))
    rubric_ids: dict[tuple[int, str], int] = {}
    for prompt, rubric, *_ in sampled:
        key = prompt_ids[prompt.digest, None], rubric.digest
        if key not in rubric_ids:
            rubric_ids[key] = _rubric_id(session, rubric, key[0], Edit(row.name, policy=policy))
    scored = scored_items(session, ((one, item_id) for _, _, one, item_id in sampled))
    new = [(prompt_ids[prompt.digest, None], one) for prompt, _, one, item_id in sampled if item_id is None]
    new_ids = iter(completions.add_many(session, new))
    joined = []
    for prompt, rubric, _, item_id in sampled:
        prompt_id = prompt_ids[prompt.digest, None]
        if item_id is None:
            joined.append(Joined(prompt_id, next(new_ids), rubric_ids[prompt_id, rubric.digest], None))
        else:
            item = scored[item_id]
            joined.append(Joined(prompt_id, item.completion_id, item.rubric_id, item.judge_id))
    return joined


def _rubric_id(session: Session, rubric: Rubric, prompt_id: int, edit: Edit) -> int:
    """Return the id of the stored version with this content: the prompt's before others; it is stored if new."""
    row = authored(session, rubric.digest, prompt_id)
    if row is None:
        row = add_version(session, rubric, edit, name=f"rubric-{rubric.digest[:12]}").row
    return row.id


def scored_items(session: Session, scored: Iterable[tuple[Completion, int | None]]) -> dict[int, items.ScoredItem]:
    """Return the items by id that have scored completions; None is a completion that no job has scored.

    Raises:
        NotFoundError: There is no such item.
        InvalidError: An item has scored another completion.
    """
    given = [(one, item_id) for one, item_id in scored if item_id is not None]
    found = items.scored(session, {item_id for _, item_id in given})
    for completion, item_id in given:
        if item_id not in found:
            raise NotFoundError(f"no item {item_id} has scored a completion")
        if found[item_id].digest != completion.digest:
            message = f"item {item_id} has scored another completion than the one recorded"
            raise InvalidError(message, hint="give each completion the item of its own", path="item_id")
    return found


def shortened(reason: str | None) -> str | None:
    """Return why there is no reward, as much as there is room for."""
    return reason[:MAX_REASON_CHARS] if reason else None


def plain_verdicts(verdicts: Iterable[Verdict]) -> list[Any]:
    """Return verdicts as they are stored where no job has them."""
    return [one.model_dump(mode="json", exclude_defaults=True) for one in verdicts]
