"""Exports of a job, page by page: its results with their texts, or examples in the columns that TRL's trainers load.

- ``completion``: a row for each completion and rubric, with its verdicts.
- ``sft``: prompt, completion. The best completions of each prompt.
- ``dpo``: prompt, chosen, rejected. Pairs of completions of a prompt, without close and contradictory ones.

Other columns of examples say where they are from; TRL ignores them. A completion that repeats another one of its prompt
(`copy_groups`) is left out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, dropwhile
from math import sqrt
from statistics import NormalDist
from typing import Any

from sqlalchemy.orm import Session

from rubricsvc.core.fingerprint import copy_groups
from rubricsvc.core.prompt import Completion
from rubricsvc.core.verdict import Verdict
from rubricsvc.schemas.jobs import Export, ExportQuery
from rubricsvc.services import job_results
from rubricsvc.services.job_results import ItemDetail
from rubricsvc.store import jobs
from rubricsvc.store.tables import ItemRow, JobRow

Row = dict[str, Any]

_Z = NormalDist().inv_cdf(0.975)


def export(session: Session, job_id: int, query: ExportQuery) -> Export:
    """Return a page of an export: of ``limit`` completions, or of the examples of as many prompts.

    Raises:
        NotFoundError: No such job.
    """
    job = jobs.scoring(session, job_id)
    if query.kind == "completion":
        details = job_results.page(session, job_id, after=query.after, limit=query.limit)
        more = details[-1].row.id if len(details) == query.limit else None
        return Export(rows=tuple(_result(job, detail) for detail in details), next=more)
    min_margin, measured = query.min_margin, job.judge.measured
    if query.kind == "dpo" and min_margin is None:
        min_margin = _Z * sqrt(2) * ((measured and measured.reward.value) or 0.0)
    left_out = Counter(without_reward=0 if query.after else sum(jobs.unrewarded(session, job_id).values()))
    made: list[Row] = []
    least = 2 if query.kind == "dpo" else 1
    of_prompts = jobs.rewarded_groups(session, job_id, least=least, after=query.after, limit=query.limit)
    for prompt_id, groups in of_prompts.items():
        found = [row for group in groups for row in group]
        copies = copy_groups([row.completion.value.full_text for row in found])
        copy_of = dict(zip((row.id for row in found), copies, strict=True))
        if query.kind == "dpo":
            chosen = _pairs(groups, copy_of, min_margin or 0.0, left_out)
        else:
            chosen = _best(groups, copy_of, query.top or 1, left_out)
        made += [
            {"prompt": [message.openai for message in row.completion.prompt.value.with_documents.messages]}
            | own
            | {"prompt_id": prompt_id, "prompt_external_id": row.completion.prompt.external_id}
            | {"rubric": row.rubric.ref, "formula": row.formula, "judge": job.judge.name}
            for row, own in chosen
        ]
    more = prompt_id if len(of_prompts) == query.limit else None
    return Export(rows=tuple(made), next=more, left_out=dict(left_out), min_margin=min_margin)


def _result(job: JobRow, detail: ItemDetail) -> Row:
    row, messages = detail.row, detail.prompt.messages
    several = len(messages) > 1 or messages[0].role != "user"
    return {
        "job_id": job.id,
        "prompt_id": row.completion.prompt_id,
        "prompt_external_id": row.completion.prompt.external_id,
        "completion_id": row.completion_id,
        "completion_external_id": detail.completion.id,
        "policy": row.completion.policy,
        "step": detail.completion.step,
        "rubric": row.rubric.ref,
        "rubric_digest": row.rubric.digest,
        "judge": job.judge.name,
        "judge_digest": job.judge.digest,
        "state": row.state,
        "reward": row.reward,
        "coverage": row.coverage,
        "min_coverage": row.rubric.content["min_coverage"] if job.min_coverage is None else job.min_coverage,
        "formula": row.formula,
        "vetoed_by": row.vetoed_by,
        "null_reason": row.null_reason,
        "prompt_tags": detail.prompt.tags,
        "prompt": detail.prompt.text,
        "completion": detail.completion.text,
        "prompt_messages": [message.openai for message in messages] if several else None,
        "completion_messages": [message.openai for message in detail.completion.messages] or None,
        "verdicts": [
            {
                "criterion": part.criterion.key,
                "text": part.criterion.text,
                "weight": part.criterion.weight,
                "kind": part.criterion.kind,
                "group": part.criterion.group,
                "tags": part.criterion.tags,
                **plain_verdict(part.verdict),
                "contribution": part.contribution,
                "gain": part.gain,
            }
            for part in detail.parts
            if part.verdict is not None
        ],
    }


def plain_verdict(verdict: Verdict) -> Row:
    """Return a verdict as JSON data, without the fields that are not set."""
    return verdict.model_dump(mode="json", exclude_none=True, exclude=None if verdict.evidence else {"evidence"})


Groups = Sequence[Sequence[ItemRow]]  # the items of a prompt that have a reward, under each rubric
Chosen = Iterator[tuple[ItemRow, Row]]  # an item, and the columns of its example beside those that say where it is from


def _pairs(groups: Groups, copy_of: Mapping[int, int], min_margin: float, left_out: Counter[str]) -> Chosen:
    """Yield one pair for each two different texts that no rubric or copy orders the other way."""
    ordered: dict[tuple[int, int], list[tuple[float, ItemRow, ItemRow]]] = defaultdict(list)
    for group in groups:
        for pair in combinations(group, 2):
            rejected, chosen = sorted(pair, key=lambda row: row.reward or 0.0)  # a group has rewards only
            margin = (chosen.reward or 0.0) - (rejected.reward or 0.0)
            key = copy_of[chosen.id], copy_of[rejected.id]
            if margin <= 0 or margin < min_margin:
                left_out["close"] += 1
            elif key[0] == key[1]:
                left_out["near_duplicates"] += 1
            else:
                ordered[key].append((margin, chosen, rejected))
    for key, several in ordered.items():
        if key[::-1] in ordered:
            left_out["contradictory"] += len(several)
            continue
        left_out["near_duplicates"] += len(several) - 1
        margin, *both = max(several, key=lambda one: one[0])
        of_side = dict(zip(("chosen", "rejected"), both, strict=True))
        own: Row = {side: _messages(row.completion.value) for side, row in of_side.items()} | {"margin": margin}
        own |= {f"{side}_reward": row.reward for side, row in of_side.items()}
        yield both[0], own | {f"{side}_completion_id": row.completion_id for side, row in of_side.items()}


def _best(groups: Groups, copy_of: Mapping[int, int], top: int, left_out: Counter[str]) -> Chosen:
    """Yield the best different completions of each rubric; those that another rubric has, too, are not repeated."""
    taken = set[int]()
    for group in groups:
        best = set[int]()
        for row in sorted(group, key=lambda row: -(row.reward or 0.0)):
            copy = copy_of[row.id]
            if len(best) == top:
                left_out["lower"] += 1
                continue
            if copy in best | taken:
                left_out["near_duplicates"] += 1
            else:
                own = {"completion": _messages(row.completion.value), "reward": row.reward}
                yield row, own | {"completion_id": row.completion_id, "policy": row.completion.policy}
            best.add(copy)
        taken |= best


def _messages(completion: Completion) -> list[Row]:
    """Return the completion as chat messages: the whole trajectory, if there is one, from the first reply on."""
    messages = [one.openai for one in dropwhile(lambda one: one.role != "assistant", completion.messages)]
    return messages or [{"role": "assistant", "content": completion.text}]
