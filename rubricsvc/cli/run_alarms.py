"""The alarms of a training run, with rollouts as examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rubricsvc.cli.run_samples import MOST_ROWS
from rubricsvc.core.run_report import Alarm, RunReport, Sample
from rubricsvc.stats.run_alarms import alarms

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.prompt import Completion
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import RolloutRow

EXAMPLES = 2
"""Rollouts of an alarm."""
SIGNS: Mapping[str, Callable[[Completion], bool]] = {
    "no_call": lambda one: not any(name.startswith("calls/") for name in _counts(one)),
    "malformed": lambda one: bool(_counts(one).get("malformed") or _counts(one).get("refused")),
    "no_report": lambda one: not one.text,
    "citations": lambda one: _cites(one.text),
}
"""What a completion shows: no tool was called, a call was malformed or refused, an episode ended without a report, or
the text cites something.
"""


def _counts(completion: Completion) -> Mapping[str, Any]:
    counts = completion.sampling.get("tools")
    return counts if isinstance(counts, dict) else {}


def _cites(text: str) -> bool:
    from workers.checks.markdown import report_citations

    return bool(report_citations(text, ()))


def with_alarms(report: RunReport, db: Database, found: int | Path) -> RunReport:
    """Add the alarms of a run; those of a run on record have examples."""
    return replace(report, alarms=alarms_of(report.steps, report.evaluations, db, found))


def alarms_of(
    steps: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]], db: Database, found: int | Path
) -> list[Alarm]:
    """Return the alarms of a run; those of a run on record have examples."""
    raised = alarms(steps, evaluations)
    if isinstance(found, int):
        with db.read() as session:
            raised = [replace(one, examples=_examples(session, found, one)) for one in raised]
    return raised


def _examples(session: Session, run_id: int, alarm: Alarm) -> tuple[Sample, ...]:
    """Return rollouts of the alarm's step with its sign."""
    from rubricsvc.store import completions, prompts, runs

    if alarm.step is None or alarm.sign is None:
        return ()
    rows = runs.rollouts(session, run_id, step=alarm.step, limit=MOST_ROWS)
    texts = {key: one for key, (_, one) in completions.many(session, {row.completion_id for row in rows}).items()}
    questions = prompts.many(session, {row.prompt_id for row in rows})
    asked = {row.completion_id: questions[row.prompt_id].text for row in rows}
    return tuple(
        Sample(
            asked[row.completion_id],
            texts[row.completion_id].text,
            f"step {row.step}, rollout {row.id}, completion {row.completion_id}",
            {"training reward": row.reward},
            truncated=row.truncated,
            messages=texts[row.completion_id].messages,
        )
        for row in _with_sign(rows, alarm.sign, asked, texts)[:EXAMPLES]
    )


def _with_sign(
    rows: Sequence[RolloutRow], sign: str, asked: Mapping[int, str], texts: Mapping[int, Completion]
) -> list[RolloutRow]:
    """Return the rollouts with the sign of an episode, or all of them, first those with most of what it names."""
    from trainer.monitors.measures import MEASURES

    if (has_sign := SIGNS.get(sign)) is not None:
        return [row for row in rows if has_sign(texts[row.completion_id])]
    if (measure := MEASURES.get(sign)) is None:
        return list(rows)
    return sorted(rows, key=lambda row: -measure(asked[row.completion_id], texts[row.completion_id].text))
