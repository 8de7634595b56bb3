"""`rubricsvc runs preflight`, and the part of it that every run begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.output import NOT_PASSED, echo
from rubricsvc.cli.run_preparation import PreparedRun
from rubricsvc.cli.run_rewards import uses_database
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import TRAINED, UNTRAINED, Passport
from rubricsvc.core.preflight import PreflightCheck, refusing
from rubricsvc.services.preflight import Measured, agreement_on, judge_checks
from rubricsvc.store import judges
from workers.engines.local.adapter_judges import shipped_passport
from workers.engines.local.embedded_model import EMBEDDED

if TYPE_CHECKING:
    from trainer.data.tasks import Task

FORCED = "preflight_forced"
"""The entry of ``config.json`` with the checks that would have refused the run."""


def require_preflight(prepared: PreparedRun, *, resume: bool, force: bool) -> dict[str, Any]:
    """Return what the record of a run says of its preflight.

    A run that is resumed is not refused: it was checked when it began.

    Raises:
        typer.Exit: A check refuses the run, and it is not forced.
    """
    found = refusing([*checks_of_judge(prepared), *stored_checks(prepared)])
    for check in found:
        echo(f"preflight: {check.name}: {check.value}; passes: {check.limit}. Advice: {check.advice}")
    if found and not (force or resume):
        echo("the run is not started; start it nevertheless with --force, which its record will show")
        raise typer.Exit(NOT_PASSED)
    return {FORCED: [check.name for check in found]} if found else {}


def checks_of_judge(prepared: PreparedRun) -> list[PreflightCheck]:
    """Return the checks of a run's judge by what is stored of it; none where no criterion is judged."""
    tasks = [*prepared.tasks.train, *prepared.tasks.held_out]
    if all(criterion.check is not None for task in tasks for criterion in task.rubric.criteria):
        return []
    return judge_checks(_measured(prepared, tasks))


def _measured(prepared: PreparedRun, tasks: Sequence[Task]) -> Measured:
    judge, audit = prepared.judge, prepared.audit
    known: dict[str, Any] = {"repeatability": prepared.repeatability}
    if audit.audit is not None and audit.current is not False:
        known["audit"] = audit.audit.audit
    if not isinstance(judge, Judge):
        return Measured(judge.name, **known)
    passport = _of_base(judge)
    scorer = UNTRAINED if passport is not None else TRAINED
    if uses_database(prepared.config):
        with database() as db, db.read() as session:
            row = judges.get(session, judge.name)
            passport = passport or row.passport_value
            agreement, where = agreement_on(session, row.id, judge, [task.prompt.digest for task in tasks])
        known |= {"agreement": agreement, "where": where}
    return Measured(judge.name, passport=passport, scorer=scorer, **known)


def _of_base(judge: Judge) -> Passport | None:
    """Return the shipped passport for the embedded model without an adapter, whose figures it has; else None.

    They are of the adapter's template, and stand for all readouts until labels or an audit say otherwise.
    """
    return shipped_passport() if (judge.model, judge.adapter, judge.mode) == (EMBEDDED, None, "readout") else None


def stored_checks(prepared: PreparedRun) -> list[PreflightCheck]:
    """Return the sampled checks that `runs preflight` stored for this run as it is configured now."""
    return []
