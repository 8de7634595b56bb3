"""Exports of a job, page by page: its results with their texts, or examples in the columns that TRL's trainers load.

- ``completion``: a row for each completion and rubric, with its verdicts.
- ``sft``: prompt, completion. The best completions of each prompt.
- ``dpo``: prompt, chosen, rejected. Pairs of completions of a prompt, without contradictory and uncertain ones.

Other columns of examples say where they are from; TRL ignores them. A completion that repeats another one of its prompt
(`copy_groups`) is left out.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TextIO

from rubricsvc.core import strict_json
from rubricsvc.core.fingerprint import copy_groups
from rubricsvc.core.prompt import Completion
from rubricsvc.core.verdict import OVERALL
from rubricsvc.formats.input_file import neutralized
from rubricsvc.schemas.jobs import ExportCounts, ExportFormat, ExportQuery
from rubricsvc.services import job_results
from rubricsvc.store import jobs, labels

if TYPE_CHECKING:
    from rubricsvc.core.verdict import Verdict
    from rubricsvc.services.job_results import ItemDetail
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import ItemRow, JobRow

Row = dict[str, Any]

EXAMPLES_PER_PAGE = 100
_Z = NormalDist().inv_cdf(0.975)


def pages(db: Database, job_id: int, query: ExportQuery, counts: ExportCounts) -> Iterator[list[Row]]:
    """Yield the rows of an export in pages; ``counts`` counts them.

    Raises:
        NotFoundError: No such job.
    """
    with db.read() as session:
        job = jobs.scoring(session, job_id)
        measured = job.judge.measured
        counts.noise = query.noise if query.noise is not None else (measured and measured.reward.value) or 0.0
        counts.without_reward = sum(jobs.unrewarded(session, job_id)[0].values())
    if query.kind != "completion":
        for page in _example_pages(db, job, query, counts):
            counts.rows += len(page)
            yield page
        return
    for found in job_results.pages(db, job.id):
        counts.items += len(found)
        counts.rows += len(found)
        yield [_result(job, detail) for detail in found]


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


@dataclass(frozen=True)
class _PromptGroups:
    """The rewarded completions of a prompt under each rubric, by id of the item, and what people said of them.

    ``copies`` has the number of the first completion that one repeats, by the id of its item.
    """

    judge: str
    groups: Sequence[Sequence[ItemRow]]
    copies: dict[int, int]
    overall: Sequence[dict[int, float]]

    def example(self, row: ItemRow, **own: Any) -> Row:
        """Return an example with the columns that say where it is from, and its prompt."""
        prompt = row.completion.prompt
        return {
            "prompt": [message.openai for message in prompt.value.with_documents.messages],
            **own,
            "prompt_id": prompt.id,
            "prompt_external_id": prompt.external_id,
            "rubric": row.rubric.ref,
            "formula": row.formula,
            "judge": self.judge,
        }


def _example_pages(db: Database, job: JobRow, query: ExportQuery, counts: ExportCounts) -> Iterator[list[Row]]:
    """Yield examples, read prompt by prompt."""
    least = 2 if query.kind == "dpo" else 1

    left_out: Counter[str] = Counter()
    page: list[Row] = []
    for groups in jobs.rewarded_groups(db, job.id, least=least):
        rows = [row for group in groups for row in group]
        people: dict[str, dict[int, float]] = defaultdict(dict)
        with db.read() as session:
            labelled = labels.of_completions(session, {row.completion_id for row in rows})
        for label, completion, _ in labelled:
            if label.criterion == OVERALL and label.value is not None:
                people[label.annotator][completion.id] = label.value
        copies = copy_groups([row.completion.value.full_text for row in rows])
        by_item = dict(zip((row.id for row in rows), copies, strict=True))
        read = _PromptGroups(job.judge.name, groups, by_item, list(people.values()))
        page += _pairs(read, query, counts.noise, left_out) if least == 2 else _best(read, query.top or 1, left_out)
        counts.left_out = dict(left_out)
        if len(page) >= EXAMPLES_PER_PAGE:
            yield page
            page = []
    if page:
        yield page


def _pairs(found: _PromptGroups, query: ExportQuery, noise: float, left_out: Counter[str]) -> Iterator[Row]:
    """Yield one pair for each two different texts that no rubric, copy or person orders the other way."""
    ordered: dict[tuple[int, int], list[tuple[float, ItemRow, ItemRow]]] = defaultdict(list)
    disputed = set()
    for group in found.groups:
        for pair in combinations(group, 2):
            rejected, chosen = sorted(pair, key=lambda row: row.reward or 0.0)  # a group has rewards only
            margin = (chosen.reward or 0.0) - (rejected.reward or 0.0)
            key = found.copies[chosen.id], found.copies[rejected.id]
            if margin <= 0 or margin < (query.min_margin or 0.0):
                left_out["close"] += 1
            elif key[0] == key[1]:
                left_out["near_duplicates"] += 1
            elif margin <= _Z * sqrt(2) * noise:
                left_out["uncertain"] += 1
            else:
                ordered[key].append((margin, chosen, rejected))
                sides = chosen.completion_id, rejected.completion_id
                gaps = [scores[sides[0]] - scores[sides[1]] for scores in found.overall if scores.keys() >= set(sides)]
                if sum(gap < 0 for gap in gaps) > sum(gap > 0 for gap in gaps):  # most people prefer the rejected one
                    disputed.add(key)
    for key, several in ordered.items():
        if key in disputed or key[::-1] in ordered:
            left_out["contradictory"] += len(several)
            continue
        left_out["near_duplicates"] += len(several) - 1
        margin, chosen, rejected = max(several, key=lambda one: one[0])
        yield found.example(
            chosen,
            chosen=_messages(chosen.completion.value),
            rejected=_messages(rejected.completion.value),
            margin=margin,
            chosen_reward=chosen.reward,
            rejected_reward=rejected.reward,
            chosen_completion_id=chosen.completion_id,
            rejected_completion_id=rejected.completion_id,
        )


def _best(found: _PromptGroups, top: int, left_out: Counter[str]) -> Iterator[Row]:
    """Yield the best different completions of each rubric; those that another rubric has, too, are not repeated."""
    taken = set[int]()
    for group in found.groups:
        best = set[int]()
        for row in sorted(group, key=lambda row: -(row.reward or 0.0)):
            copy = found.copies[row.id]
            if len(best) == top:
                left_out["lower"] += 1
                continue
            if copy in best | taken:
                left_out["near_duplicates"] += 1
            else:
                own = {"completion": _messages(row.completion.value), "reward": row.reward}
                yield found.example(row, **own, completion_id=row.completion_id, policy=row.completion.policy)
            best.add(copy)
        taken |= best


def _messages(completion: Completion) -> list[Row]:
    """Return the completion as chat messages: the whole trajectory, if there is one."""
    if completion.messages:
        return [message.openai for message in completion.messages]
    return [{"role": "assistant", "content": completion.text}]


def write_lines(made: Iterable[list[Row]], stream: TextIO, form: ExportFormat) -> None:
    """Write rows as JSON lines; or completions as CSV with a header.

    In CSV, values and contributions by criterion are JSON, since rubrics differ, and text that a spreadsheet would take
    for a formula gets a single quote before it.
    """
    table: csv.DictWriter[str] | None = None
    for row in (row for page in made for row in page):
        if form == "jsonl":
            stream.write(strict_json.dump(row) + "\n")
            continue
        verdicts = row.pop("verdicts")
        row |= {
            "values": strict_json.dump({one["criterion"]: one.get("value") for one in verdicts}),
            "contributions": strict_json.dump({one["criterion"]: one["contribution"] for one in verdicts}),
            "failed": " ".join(f"{one['criterion']}:{one['reason']}" for one in verdicts if "reason" in one),
        }
        cells = {name: neutralized(value) for name, value in row.items() if not name.endswith("_messages")}
        if table is None:
            table = csv.DictWriter(stream, list(cells), lineterminator="\n")
            table.writeheader()
        table.writerow(cells)
