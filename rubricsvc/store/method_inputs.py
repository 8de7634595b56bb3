"""What single methods of generation need: completions of different quality, trajectories, and rubrics of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from rubricsvc.core.authoring import Contrast, ParentRubric, Trajectory
from rubricsvc.core.generation import Generation, Specification
from rubricsvc.core.label import OVERALL
from rubricsvc.core.prompt import Completion
from rubricsvc.store import rubrics, texts
from rubricsvc.store.tables import DONE, CompletionRow, ItemRow, LabelRow

MAX_CONTRASTED = 3
"""Completions on each side."""
MIN_MEASURED = 5
"""Completions from which on the agreement with labels has an interval; see `workers.authoring.gate`."""
MAX_TRAJECTORIES = 4
_MAX_READ = 2000
"""Completions among which trajectories are looked for: the oldest ones."""

Scored = list[tuple[int, float]]
"""Ids of completions with a score, the best first."""


def contrast(session: Session, prompt_id: int, generation: Generation) -> Contrast | None:
    """Return completions of different quality: of two policies, or by labels, or else by rewards.

    Where the gate compares the rubric with enough labels, every other labelled completion is left to it.
    """
    if generation.better is not None and generation.worse is not None:
        better, worse = (_of_policy(session, prompt_id, one) for one in (generation.better, generation.worse))
    else:
        scored = _labels(session, prompt_id)
        if generation.gate and len(scored) >= 2 * MIN_MEASURED:
            scored = scored[::2]
        ids = extremes(scored) or extremes(_rewards(session, prompt_id))
        better, worse = (_completions(session, side) for side in ids or ((), ()))
    same = {one.text for one in better} & {one.text for one in worse} | {""}
    better, worse = (tuple(one for one in side if one.text.strip() not in same) for side in (better, worse))
    return Contrast(better, worse) if better and worse else None


def extremes(scored: Scored, most: int = MAX_CONTRASTED) -> tuple[list[int], list[int]] | None:
    """Return the best ids, and the worst from the worst on; each of the ones scores more than each of the others."""
    count = min(most, len(scored) // 2)
    while count and scored[count - 1][1] <= scored[-count][1]:
        count -= 1
    ids = [id_ for id_, _ in scored]
    return (ids[:count], ids[: -count - 1 : -1]) if count else None


def trajectories(session: Session, prompt_id: int) -> tuple[Trajectory, ...]:
    """Return trajectories of agents, which call tools: the best and the worst where they have scores, or the first."""
    query = (
        select(CompletionRow).where(CompletionRow.prompt_id == prompt_id).order_by(CompletionRow.id).limit(_MAX_READ)
    )
    agents = [row.id for row in session.scalars(query.execution_options(yield_per=100)) if _calls_tools(row)]
    scores = dict(_labels(session, prompt_id) or _rewards(session, prompt_id))
    scored = sorted(((id_, scores[id_]) for id_ in agents if id_ in scores), key=lambda one: -one[1])
    best, worst = extremes(scored, MAX_TRAJECTORIES // 2) or ([], [])
    chosen = [*best, *worst] or agents[:MAX_TRAJECTORIES]
    return tuple(
        Trajectory(one, scores.get(id_)) for id_, one in zip(chosen, _completions(session, chosen), strict=True)
    )


def _calls_tools(row: CompletionRow) -> bool:
    return any(message.get("tool_calls") or message["role"] == "tool" for message in row.content["messages"])


def parents(session: Session, prompt_id: int, generation: Generation) -> tuple[ParentRubric, ...]:
    """Return the rubrics to merge: those of this prompt that the settings name, or the newest of each of its names.

    Without names, those that were merged before are left out.
    """
    if generation.rubrics is not None:
        named = [rubrics.get(session, ref, allow_drafts=True) for ref in generation.rubrics]
        rows = [row for row in named if row.prompt_id in (None, prompt_id)]
    else:
        newest = rubrics.for_prompt(session, prompt_id, allow_drafts=True)
        rows = [row for row in newest if (row.provenance or {}).get("method") != "merge"]
    return tuple(ParentRubric(row.ref, row.value) for row in rows)


def specification(session: Session, generation: Generation) -> Specification | None:
    """Return the specification with its text.

    Raises:
        NotFoundError: The text is not stored.
    """
    given = generation.specification
    if given is None or given.digest is None:
        return given
    return Specification(name=given.name, text=texts.get(session, given.digest))


def _of_policy(session: Session, prompt_id: int, policy: str) -> tuple[Completion, ...]:
    query = select(CompletionRow).where(CompletionRow.prompt_id == prompt_id, CompletionRow.policy == policy)
    return tuple(row.value for row in session.scalars(query.order_by(CompletionRow.id).limit(MAX_CONTRASTED)))


def _completions(session: Session, ids: Sequence[int]) -> tuple[Completion, ...]:
    return tuple(session.get_one(CompletionRow, id_).value for id_ in ids)


def _labels(session: Session, prompt_id: int) -> Scored:
    """Return the completions by the mean of their overall labels."""
    mean = func.avg(LabelRow.value)
    query = (
        select(CompletionRow.id, mean)
        .join(LabelRow, LabelRow.completion_id == CompletionRow.id)
        .where(CompletionRow.prompt_id == prompt_id, LabelRow.criterion == OVERALL, LabelRow.value.is_not(None))
    )
    return _ordered(session, query.group_by(CompletionRow.id).order_by(mean.desc(), CompletionRow.id))


def _rewards(session: Session, prompt_id: int) -> Scored:
    """Return the completions by their mean reward in the newest job where rewards differ."""
    rewarded = (
        select(ItemRow.job_id)
        .join(CompletionRow, CompletionRow.id == ItemRow.completion_id)
        .where(CompletionRow.prompt_id == prompt_id, ItemRow.state == DONE, ItemRow.reward.is_not(None))
    )
    differ = rewarded.group_by(ItemRow.job_id).having(func.min(ItemRow.reward) < func.max(ItemRow.reward))
    newest = session.scalar(differ.order_by(ItemRow.job_id.desc()).limit(1))
    mean = func.avg(ItemRow.reward)
    query = rewarded.with_only_columns(CompletionRow.id, mean).where(ItemRow.job_id == newest)
    return _ordered(session, query.group_by(CompletionRow.id).order_by(mean.desc(), CompletionRow.id))


def _ordered(session: Session, query: Select[int, float]) -> Scored:
    return [(id_, float(score)) for id_, score in session.execute(query)]
