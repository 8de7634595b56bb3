"""Record evaluations of training runs, and read them: what the trainer, the API and the commands share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rubricsvc.core.run_evaluation import (
    REWARD,
    StoredEvaluation,
    StoredEvaluationCompletion,
    StoredEvaluationReward,
)
from rubricsvc.services.run_samples import join, plain_verdicts, scored_items, shortened
from rubricsvc.store import runs
from rubricsvc.store.verdicts import for_items

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.run_evaluation import EvaluationCompletion, EvaluationReward, RunEvaluation
    from rubricsvc.core.states import ApprovalPolicy
    from rubricsvc.core.verdict import Verdict
    from rubricsvc.store.tables import EvaluationRewardRow, RunRow


def record(session: Session, run_id: int, evaluation: RunEvaluation, policy: ApprovalPolicy = "generated") -> RunRow:
    """Store an evaluation in place of what is on record of it, with what is new of its prompts and completions.

    Raises:
        NotFoundError: There is no such run, or no item of a reward.
        InvalidError: An item of a reward has scored another completion.
    """
    row = runs.get(session, run_id, lock=True)
    given = [(one, group) for group in evaluation.groups for one in group.completions]
    sampled = [(group.prompt, group.rubric, one.completion, _training_item(one)) for one, group in given]
    joined = join(session, row, sampled, policy)
    items = scored_items(session, ((one.completion, each.item_id) for one, _ in given for each in one.rewards))

    def reward_row(place: int, each: EvaluationReward) -> dict[str, Any]:
        by_run = row.judge_id if each.score == REWARD else None
        return {
            **each.model_dump(include={"score", "reward", "item_id"}),
            "place": place,
            "null_reason": shortened(each.null_reason),
            "judge_id": by_run if each.item_id is None else items[each.item_id].judge_id,
            "verdicts": [] if each.item_id is not None else plain_verdicts(each.verdicts),
        }

    runs.write_evaluation(
        session,
        row.id,
        name=evaluation.name,
        step=evaluation.step,
        line=dict(evaluation.line),
        completions=[
            {
                **one.model_dump(include={"greedy", "tokens", "truncated"}),
                "prompt_id": of.prompt_id,
                "completion_id": of.completion_id,
                "rubric_id": of.rubric_id,
            }
            for (one, _), of in zip(given, joined, strict=True)
        ],
        rewards=(reward_row(place, each) for place, (one, _) in enumerate(given) for each in one.rewards),
    )
    runs.report(session, row)
    return row


def _training_item(one: EvaluationCompletion) -> int | None:
    """Return the item of the training reward: the rubric version that it used is the one of the run's rollouts."""
    return next((each.item_id for each in one.rewards if each.score == REWARD), None)


def page(session: Session, run_id: int, **paging: Any) -> list[StoredEvaluation]:
    """Return a page of evaluations as values; ``paging`` as of `runs.evaluations`.

    Raises:
        NotFoundError: There is no such run.
    """
    rows = runs.evaluations(session, runs.get(session, run_id).id, **paging)
    names = StoredEvaluation.model_fields
    return [StoredEvaluation.model_validate({name: getattr(row, name) for name in names}) for row in rows]


def completions(
    session: Session, run_id: int, *, verdicts: bool = True, **paging: Any
) -> list[StoredEvaluationCompletion]:
    """Return a page of the completions of a run's evaluations; ``paging`` as of `runs.evaluation_completions`.

    Raises:
        NotFoundError: There is no such run.
    """
    rows = runs.evaluation_completions(session, runs.get(session, run_id).id, **paging)
    rewards = runs.evaluation_rewards(session, rows)
    item_ids = [each.item_id for found in rewards.values() for each in found if each.item_id is not None]
    by_item = for_items(session, item_ids) if verdicts else {}
    names = StoredEvaluationCompletion.model_fields.keys() - {"rubric", "rewards"}
    return [
        StoredEvaluationCompletion.model_validate(
            {name: getattr(row, name) for name in names}
            | {"rubric": row.rubric.ref}
            | {"rewards": [_reward(each, by_item, verdicts) for each in rewards[row.evaluation_id, row.place]]}
        )
        for row in rows
    ]


def training_verdicts(session: Session, row_ids: Iterable[int]) -> dict[int, tuple[Verdict, ...]]:
    """Return the verdicts behind the training rewards of completions of evaluations, by the ids of their rows."""
    rows = runs.evaluation_completions_by_ids(session, row_ids)
    rewards = runs.evaluation_rewards(session, rows)
    of_training = {
        row.id: each for row in rows for each in rewards[row.evaluation_id, row.place] if each.score == REWARD
    }
    by_item = for_items(session, [each.item_id for each in of_training.values() if each.item_id is not None])
    return {id_: _reward(each, by_item, True).verdicts for id_, each in of_training.items()}


def _reward(row: EvaluationRewardRow, by_item: dict[int, list[Verdict]], with_verdicts: bool) -> StoredEvaluationReward:
    found: Sequence[Any] = by_item.get(row.item_id, ()) if row.item_id is not None else row.verdicts
    names = StoredEvaluationReward.model_fields.keys() - {"verdicts"}
    fields = {name: getattr(row, name) for name in names}
    return StoredEvaluationReward.model_validate(fields | {"verdicts": found if with_verdicts else ()})
