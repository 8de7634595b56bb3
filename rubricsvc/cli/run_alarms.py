"""The alarms of a training run, with rollouts as examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rubricsvc.cli.run_samples import MOST_ROWS
from rubricsvc.core.run_report import Alarm, RunReport, Sample, Sign
from rubricsvc.stats.run_alarms import alarms

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.session import Database

EXAMPLES = 2
"""Rollouts of an alarm."""
_SIGNS: dict[Sign, Callable[[Sample, Mapping[str, Any]], bool]] = {
    "no_call": lambda sample, counts: not any(name.startswith("calls/") for name in counts),
    "malformed": lambda sample, counts: bool(counts.get("malformed") or counts.get("refused")),
    "no_report": lambda sample, counts: not sample.text,
}


def with_alarms(report: RunReport, db: Database, found: int | Path) -> RunReport:
    """Add the alarms of a run; those of a run on record have examples."""
    raised = alarms(report.steps, report.evaluations)
    if isinstance(found, int):
        with db.read() as session:
            raised = [replace(one, examples=_examples(session, found, one)) for one in raised]
    return replace(report, alarms=raised)


def _examples(session: Session, run_id: int, alarm: Alarm) -> tuple[Sample, ...]:
    """Return rollouts of the alarm's step with its sign."""
    from rubricsvc.store import completions, prompts, runs

    if alarm.step is None or alarm.sign is None:
        return ()
    has_sign, found = _SIGNS[alarm.sign], []
    rows = runs.rollouts(session, run_id, step=alarm.step, limit=MOST_ROWS)
    texts = completions.many(session, {row.completion_id for row in rows})
    questions = prompts.many(session, {row.prompt_id for row in rows})
    for row in rows:
        completion = texts[row.completion_id][1]
        counts = completion.sampling.get("tools")
        sample = Sample(
            questions[row.prompt_id].text,
            completion.text,
            f"step {row.step}, rollout {row.id}",
            {"training reward": row.reward},
            truncated=row.truncated,
            messages=completion.messages,
        )
        if has_sign(sample, counts if isinstance(counts, dict) else {}):
            found.append(sample)
    return tuple(found[:EXAMPLES])
