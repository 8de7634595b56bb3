"""Exports of a job, page by page: its results with their texts, or examples in the columns that TRL's trainers load.

- ``completion``: a row for each completion and rubric, with its verdicts.
- ``sft``: prompt, completion. The best completions of each prompt.
- ``dpo``: prompt, chosen, rejected. Pairs of completions of a prompt, without contradictory and uncertain ones.
- ``kto``: prompt, completion, label. Whether a completion is better than a threshold.

Other columns of examples say where they are from; TRL ignores them. A completion that repeats another one of its prompt
(`core.shingles`) is left out.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, groupby
from math import sqrt
from pathlib import Path
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Any, TextIO

from rubricsvc.core import strict_json
from rubricsvc.core.label import OVERALL
from rubricsvc.core.prompt import Completion, with_documents
from rubricsvc.core.shingles import copy_groups
from rubricsvc.formats.containers import neutralized, writer
from rubricsvc.schemas.jobs import ExportCounts, ExportFormat, ExportKind, ExportQuery
from rubricsvc.services import job_results
from rubricsvc.store import jobs, labels

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.verdict import Verdict
    from rubricsvc.services.job_results import ItemDetail
    from rubricsvc.store.jobs import Group
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import ItemRow, JobRow, PromptRow

Row = dict[str, Any]
Pages = Iterable[list[Row]]

GROUPS_PER_PAGE = 100
_Z = NormalDist().inv_cdf(0.975)
_ROUNDING = 1e-12

_FIELDS = {
    **dict.fromkeys(("job_id", "prompt_id"), "int64"),
    "prompt_external_id": "string",
    "completion_id": "int64",
    "completion_external_id": "string",
    "policy": "string",
    "step": "int64",
    **dict.fromkeys(("rubric", "rubric_digest", "judge", "judge_digest", "state"), "string"),
    **dict.fromkeys(("reward", "coverage", "min_coverage"), "float64"),
    **dict.fromkeys(("formula", "vetoed_by", "null_reason", "prompt", "completion"), "string"),
}
"""Columns of a completion, in order, with Arrow's types."""
_VERDICT_FIELDS = {
    **dict.fromkeys(("kind", "outcome"), "string"),
    **dict.fromkeys(("value", "contribution", "gain", "probability", "calibrated", "answer_mass", "spread"), "float64"),
    **dict.fromkeys(("reason", "detail", "rationale", "fingerprint"), "string"),
}
"""Further fields of a verdict. Votes, token counts and raw replies are in JSON lines only."""
_FROM = {"prompt_id": "int64", **dict.fromkeys(("prompt_external_id", "rubric", "formula", "judge"), "string")}
_ONE = {"reward": "float64", **_FROM, "completion_id": "int64", "policy": "string"}
_EXAMPLES = {
    "sft": {"prompt": "messages", "completion": "messages", **_ONE},
    "kto": {"prompt": "messages", "completion": "messages", "label": "bool_", **_ONE},
    "dpo": {
        **dict.fromkeys(("prompt", "chosen", "rejected"), "messages"),
        **dict.fromkeys(("margin", "chosen_reward", "rejected_reward"), "float64"),
        **_FROM,
        **dict.fromkeys(("chosen_completion_id", "rejected_completion_id"), "int64"),
    },
}
"""Columns of examples."""


def pages(db: Database, job_id: int, query: ExportQuery, counts: ExportCounts) -> Iterator[list[Row]]:
    """Yield the rows of an export in pages; ``counts`` counts them.

    Raises:
        NotFoundError: No such job.
    """
    with db.read() as session:
        job = jobs.scoring(session, job_id)
        measured = job.judge.measured
        counts.noise = query.noise if query.noise is not None else (measured and measured.reward.value) or 0.0
        counts.without_reward = jobs.groups_without_reward(session, job_id)
    made = _result_pages(db, job, counts) if query.kind == "completion" else _example_pages(db, job, query, counts)
    for page in made:
        counts.rows += len(page)
        yield page


def _result_pages(db: Database, job: JobRow, counts: ExportCounts) -> Iterator[list[Row]]:
    for page in job_results.pages(db, job.id):
        counts.items += len(page)
        yield [_result(job, row, detail) for row, detail in page]


def _result(job: JobRow, row: ItemRow, detail: ItemDetail) -> Row:
    messages = detail.prompt.messages
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
class _RubricGroup:
    """The rewarded completions of a prompt under one rubric, by id of the item."""

    prompt: PromptRow
    judge: str
    rows: Sequence[ItemRow]

    def example(self, *rows: ItemRow) -> Row:
        """Return the columns that say where an example of these completions is from, and its prompt."""
        return {
            "prompt": [message.openai for message in with_documents(self.prompt.value).messages],
            "prompt_id": self.prompt.id,
            "prompt_external_id": self.prompt.external_id,
            "rubric": rows[0].rubric.ref,
            "formula": rows[0].formula,
            "judge": self.judge,
        }

    def single(self, row: ItemRow) -> Row:
        """Return an example of one completion."""
        own = {"completion": _messages(row.completion.value), "reward": row.reward}
        return {**self.example(row), **own, "completion_id": row.completion_id, "policy": row.completion.policy}


@dataclass(frozen=True)
class _PromptGroups:
    """The rewarded completions of a prompt under each rubric, and what people said of them."""

    groups: Sequence[_RubricGroup]
    noise: float
    overall: Sequence[dict[int, float]]

    @cached_property
    def copies(self) -> dict[int, int]:
        """The number of the first completion that one repeats, by the id of its item."""
        rows = [row for group in self.groups for row in group.rows]
        texts = [row.completion.value.full_text for row in rows]
        return dict(zip((row.id for row in rows), copy_groups(texts), strict=True))

    def people_disagree(self, chosen: ItemRow, rejected: ItemRow) -> bool:
        """Whether more people gave the rejected completion the higher overall score than the chosen one."""
        sides = chosen.completion_id, rejected.completion_id
        gaps = [scores[sides[0]] - scores[sides[1]] for scores in self.overall if scores.keys() >= set(sides)]
        return sum(gap < 0 for gap in gaps) > sum(gap > 0 for gap in gaps)


def _example_pages(db: Database, job: JobRow, query: ExportQuery, counts: ExportCounts) -> Iterator[list[Row]]:
    left_out: Counter[str] = Counter()
    select, least = _KINDS[query.kind]
    page: list[Row] = []
    for _, of_prompt in groupby(_groups(db, job.id, least), key=lambda group: group[0]):
        with db.read() as session:
            page += select(_read(session, job, list(of_prompt), counts.noise), query, left_out)
        counts.left_out = dict(left_out)
        if len(page) >= GROUPS_PER_PAGE:
            yield page
            page = []
    if page:
        yield page


def _groups(db: Database, job_id: int, least: int) -> Iterator[Group]:
    after = (0, 0)
    while True:
        with db.read() as session:
            page = jobs.pair_groups(session, job_id, after=after, limit=GROUPS_PER_PAGE, least=least)
        yield from page
        if not page:
            return
        after = page[-1]


def _read(session: Session, job: JobRow, groups: Sequence[Group], noise: float) -> _PromptGroups:
    members = [jobs.members(session, job.id, group) for group in groups]
    people: dict[str, dict[int, float]] = defaultdict(dict)
    for label, completion, _ in labels.of_completions(session, {row.completion_id for rows in members for row in rows}):
        if label.criterion == OVERALL and label.value is not None:
            people[label.annotator][completion.id] = label.value
    found = [_RubricGroup(rows[0].completion.prompt, job.judge.name, rows) for rows in members]
    return _PromptGroups(found, noise, list(people.values()))


def _pairs(found: _PromptGroups, query: ExportQuery, left_out: Counter[str]) -> Iterator[Row]:
    """Yield one pair for each two different texts that no rubric, copy or person orders the other way."""
    ordered: dict[tuple[int, int], list[tuple[float, _RubricGroup, ItemRow, ItemRow]]] = defaultdict(list)
    disputed = set()
    for group in found.groups:
        for pair in combinations(group.rows, 2):
            chosen, rejected = sorted(pair, key=_reward, reverse=True)
            margin, key = _reward(chosen) - _reward(rejected), (found.copies[chosen.id], found.copies[rejected.id])
            if margin <= 0 or margin < (query.min_margin or 0.0):
                left_out["close"] += 1
            elif key[0] == key[1]:
                left_out["near_duplicates"] += 1
            elif margin <= _Z * sqrt(2) * found.noise:
                left_out["uncertain"] += 1
            else:
                ordered[key].append((margin, group, chosen, rejected))
                if found.people_disagree(chosen, rejected):
                    disputed.add(key)
    for key, several in ordered.items():
        if key in disputed or key[::-1] in ordered:
            left_out["contradictory"] += len(several)
            continue
        left_out["near_duplicates"] += len(several) - 1
        margin, group, chosen, rejected = max(several, key=lambda one: one[0])
        yield {
            **group.example(chosen, rejected),
            "chosen": _messages(chosen.completion.value),
            "rejected": _messages(rejected.completion.value),
            "margin": margin,
            "chosen_reward": chosen.reward,
            "rejected_reward": rejected.reward,
            "chosen_completion_id": chosen.completion_id,
            "rejected_completion_id": rejected.completion_id,
        }


def _best(found: _PromptGroups, query: ExportQuery, left_out: Counter[str]) -> Iterator[Row]:
    """Yield the best different completions of each rubric; those that another rubric has, too, are not repeated."""
    taken = set[int]()
    for group in found.groups:
        best = set[int]()
        for row in sorted(group.rows, key=lambda row: -_reward(row)):
            copy = found.copies[row.id]
            if len(best) == (query.top or 1):
                left_out["lower"] += 1
            elif copy in best | taken:
                left_out["near_duplicates"] += 1
                best.add(copy)
            else:
                best.add(copy)
                yield group.single(row)
        taken |= best


def _labelled(found: _PromptGroups, query: ExportQuery, left_out: Counter[str]) -> Iterator[Row]:
    """Yield each completion that is certainly above or below the threshold, unless a copy is on the other side."""
    by_copy: dict[int, list[tuple[float, _RubricGroup, ItemRow]]] = defaultdict(list)
    for group in found.groups:
        if query.threshold is None and len(group.rows) == 1:
            left_out["single"] += 1
            continue
        threshold = fmean(map(_reward, group.rows)) if query.threshold is None else query.threshold
        for row in group.rows:
            gap = _reward(row) - threshold
            if abs(gap) <= max(_Z * found.noise, _ROUNDING):
                left_out["uncertain"] += 1
            else:
                by_copy[found.copies[row.id]].append((gap, group, row))
    for several in by_copy.values():
        if len({gap > 0 for gap, *_ in several}) > 1:
            left_out["contradictory"] += len(several)
        else:
            left_out["near_duplicates"] += len(several) - 1
            gap, group, row = max(several, key=lambda one: abs(one[0]))
            yield {**group.single(row), "label": gap > 0}


_KINDS: dict[ExportKind, tuple[Callable[[_PromptGroups, ExportQuery, Counter[str]], Iterator[Row]], int]] = {
    "sft": (_best, 1),
    "dpo": (_pairs, 2),
    "kto": (_labelled, 1),
}
"""What selects the examples of a prompt, and how many rewards a group needs."""


def _reward(row: ItemRow) -> float:
    return row.reward if row.reward is not None else 0.0  # a group has rewards only


def _messages(completion: Completion) -> list[Row]:
    """Return the completion as chat messages: the whole trajectory, if there is one."""
    if completion.messages:
        return [message.openai for message in completion.messages]
    return [{"role": "assistant", "content": completion.text}]


def write_lines(made: Pages, stream: TextIO, form: ExportFormat) -> None:
    """Write rows as JSON lines; or completions as CSV with a header.

    In CSV, values and contributions by criterion are JSON, since rubrics differ, and text that a spreadsheet would take
    for a formula gets a single quote before it.
    """
    if form == "jsonl":
        stream.writelines(strict_json.dump(row) + "\n" for page in made for row in page)
        return
    columns = [*_FIELDS, "values", "contributions", "failed"]
    table = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for row in (row for page in made for row in page):
        verdicts = row["verdicts"]
        cells = {
            **row,
            "values": strict_json.dump({one["criterion"]: one.get("value") for one in verdicts}),
            "contributions": strict_json.dump({one["criterion"]: one["contribution"] for one in verdicts}),
            "failed": " ".join(f"{one['criterion']}:{one['reason']}" for one in verdicts if "reason" in one),
        }
        table.writerow({name: neutralized(value) for name, value in cells.items()})


def write_parquet(made: Pages, out: Path, kind: ExportKind) -> None:
    """Write one Parquet file with a row group for each page.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        InvalidError: A row does not fit the types of the columns.
    """
    with writer(out, _schema(kind)) as write:
        for page in made:
            write(page)


def _schema(kind: ExportKind) -> Any:
    """Return the Arrow schema of the rows."""
    import pyarrow as pa

    function = pa.struct({"name": pa.string(), "arguments": pa.string()})
    call = pa.struct({"id": pa.string(), "type": pa.string(), "function": function})
    texts = dict.fromkeys(("role", "content", "name", "tool_call_id"), pa.string())
    messages = pa.list_(pa.struct({**texts, "tool_calls": pa.list_(call)}))

    def typed(columns: dict[str, str]) -> dict[str, Any]:
        return {name: messages if of == "messages" else getattr(pa, of)() for name, of in columns.items()}

    if kind in _EXAMPLES:
        return pa.schema(typed(_EXAMPLES[kind]))
    quote = pa.struct({"quote": pa.string(), "start": pa.int64(), "end": pa.int64()})
    verdict = {"weight": pa.float64(), **typed(_VERDICT_FIELDS), "evidence": pa.list_(quote)}
    verdicts = pa.list_(pa.struct({"criterion": pa.string(), "text": pa.string(), **verdict}))
    more = {"prompt_messages": messages, "completion_messages": messages, "verdicts": verdicts}
    return pa.schema({**typed(_FIELDS), **more})
