"""The checks of a run before it starts that need no samples, and the stored ones that did."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic import ValidationError

from rubricsvc.cli.db import database
from rubricsvc.cli.output import NOT_PASSED, echo
from rubricsvc.cli.run_preparation import PreparedRun
from rubricsvc.cli.run_rewards import uses_database
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import TRAINED, UNTRAINED, Passport
from rubricsvc.core.preflight import PreflightCheck, StoredPreflight, refusing
from rubricsvc.errors import InvalidError
from rubricsvc.services.preflight import Measured, agreement_on, judge_checks
from rubricsvc.store import judges
from workers.engines.local.embedded_model import EMBEDDED
from workers.engines.local.weights import shipped_passport

if TYPE_CHECKING:
    from trainer.config import RunConfig, ServiceJudge
    from trainer.data.tasks import Task

FORCED = "preflight_forced"
"""The entry of ``config.json`` with the checks that would have refused the run."""


def require_passed(checks: Sequence[PreflightCheck], *, force: bool) -> dict[str, Any]:
    """Return what the record of a run that starts says of its preflight.

    Raises:
        typer.Exit: A check refuses the run, and it is not forced.
    """
    refused = refusing(checks)
    for check in refused:
        echo(f"preflight: {check.name}: {check.value}; passes: {check.limit}. Advice: {check.advice}")
    if refused and not force:
        echo("the run is not started; start it nevertheless with --force, which its record will show")
        raise typer.Exit(NOT_PASSED)
    return {FORCED: [check.name for check in refused]} if refused else {}


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


def preflight_file(out: Path) -> Path:
    """Return the file of a run's sampled checks, beside its folder."""
    return out.with_name(f"{out.name}.preflight.json")


def store_checks(prepared: PreparedRun, checks: Sequence[PreflightCheck]) -> None:
    """Store the sampled checks of a run."""
    from trainer.files import replace_text

    path = preflight_file(prepared.config.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    found = StoredPreflight(identity=_identity(prepared), created_at=datetime.now(UTC), checks=tuple(checks))
    replace_text(path, found.model_dump_json(indent=1))


def stored_checks(prepared: PreparedRun) -> list[PreflightCheck]:
    """Return the sampled checks that `runs preflight` stored for this run as it is configured now."""
    path = preflight_file(prepared.config.out)
    if not path.is_file():
        return []
    try:
        found = StoredPreflight.model_validate_json(path.read_bytes())
    except ValidationError as error:
        hint = "run `rubricsvc runs preflight` again, or delete the file"
        raise InvalidError(f"{path} is damaged: {error.error_count()} invalid fields", hint=hint) from error
    if found.identity != _identity(prepared):
        echo(f"{path} is of another configuration: run `rubricsvc runs preflight` again")
        return []
    return list(found.checks)


def _identity(prepared: PreparedRun) -> str:
    """Return the digest of what sampled checks hold for.

    That is judge, its noise, gold, policy, environment, sampling, demonstrations, prompts.
    """
    run = prepared.config
    asked = [_judge_identity(prepared.judge), noise_of(prepared)]
    gold = [] if run.eval is None else [run.eval.gold_name, _judge_identity(gold_judge(run))]
    included: Any = {"policy": {"model"}, "sampling": True, "environment": True, "demonstrations": True}
    fields = run.model_dump(mode="json", include=included)
    tasks = [[one.prompt.digest, one.rubric.digest] for one in prepared.tasks.train]
    return digest("preflight", asked, gold, fields, tasks)


def _judge_identity(judge: Judge | ServiceJudge | None) -> Any:
    return judge.digest if isinstance(judge, Judge) else judge and [judge.service, judge.name]


def noise_of(prepared: PreparedRun) -> float:
    """Return the standard deviation of a reward if the judge is asked again; 0 if it was not measured."""
    measured = prepared.repeatability
    return (measured.reward.value if measured is not None else None) or 0.0


def gold_judge(run: RunConfig) -> Judge | ServiceJudge | None:
    """Return the judge that the gold score of a run's evaluations is by; None where that is the reward or checks."""
    from trainer.config import judge_name

    judges = [one for one in run.eval.judges if judge_name(one) == run.eval.gold_name] if run.eval is not None else []
    judge = judges[0] if judges else None
    assert not isinstance(judge, str)  # noqa: S101 - stored judges are in place of their names
    return judge
