"""`rubricsvc judges audit`: attack a judge before a policy does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.agreement import JudgeRef
from rubricsvc.cli.audit_report import print_audit, write_html
from rubricsvc.cli.database import database
from rubricsvc.cli.judge_probe import ask
from rubricsvc.cli.output import NOT_PASSED, OK, Json, echo, exit_with, print_json, progress_bar, shorten
from rubricsvc.core.audit import Audit
from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError
from rubricsvc.formats import load
from rubricsvc.settings import get_settings
from rubricsvc.store import audits, jobs, judges

if TYPE_CHECKING:
    from workers.audit.cases import AuditCase
    from workers.audit.plan import AuditPlan

DEFAULT_PER_ATTACK, DEFAULT_LIMIT = 4, 100


def audit(
    judge: JudgeRef,
    *,
    suite: Annotated[
        list[str] | None, typer.Option(help="Run only this suite; repeatable. Such an audit is not stored.")
    ] = None,
    max_fpr: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SUITE=]RATE",
            help="Limit of a suite's rate (injection=0.1), or of all rates of false positives (0.05); repeatable.",
        ),
    ] = None,
    per_attack: Annotated[
        int, typer.Option(min=0, help="Completions that each attack is tried on; 0: all.")
    ] = DEFAULT_PER_ATTACK,
    data: Annotated[Path | None, typer.Option(help="Attack the labelled completions of this file instead.")] = None,
    format: Annotated[str | None, typer.Option(help="Format of --data.", show_default="detected")] = None,
    job: Annotated[int | None, typer.Option(help="Attack this job's tasks, with empty completions.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of public data sets to add: llmbar, evalbiasbench, gsm8k, ….")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum completions of --data or --job, and pairs of each set in --data-dir.")
    ] = DEFAULT_LIMIT,
    out: Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Attack a judge and report how often it is fooled, with 95 % Wilson intervals.

    Master keys, empty and constant completions, prompt injection of seven kinds, padding, self-praise, format tricks,
    the order of criteria, and verdicts that contradict their rationale. The audit is stored with the judge; `judges
    show` and `runs start` report it. An interrupted audit resumes. Exits with 4 if a suite is not passed.
    """
    from workers.audit import data as public
    from workers.audit import runner, suites
    from workers.audit.plan import AuditPlan

    with database() as db, db.read() as session:
        row = judges.get(session, judge)
        stored, judge_id = row.value, row.id
    runner.check_auditable(stored)
    attacks, sets = public.suites(data_dir, limit=limit) if data_dir is not None else ((), ())
    cases = _cases(data, format, job, limit)
    plan = AuditPlan(cases, (*suites.built_in(), *attacks), sets, per_attack).adapted(stored)
    limits = _limits(plan, max_fpr or [])
    options = _non_default_options(data, job, data_dir, per_attack=per_attack, limit=limit, max_fpr=max_fpr or [])
    result = _run(stored, plan.only(suite) if suite else plan, limits)
    result = result.model_copy(update={"non_default_options": options})
    if suite is None:
        with database() as db, db.write() as session:
            audits.add(session, judge_id, result)
    if out is not None:
        write_html(out, stored, result)
    with exit_with(OK if result.passed else NOT_PASSED):
        if as_json:
            print_json({"judge": stored.name, "passed": result.passed, **result.model_dump(mode="json")})
        else:
            print_audit(stored, result)
        if suite is not None:
            echo("not stored: only some of the suites were run")


def _cases(data: Path | None, format: str | None, job: int | None, limit: int) -> tuple[AuditCase, ...]:
    from workers.audit import cases

    if data is not None and job is not None:
        raise InvalidError("--data and --job exclude each other", hint="give one of them")
    if data is not None:
        return _sample(cases.from_records(load(data, format), source=str(data)), limit)
    if job is None:
        return cases.built_in()

    with database() as db, db.read() as session:
        attackable = cases.empty_completions(audits.tasks_of_job(session, jobs.get(session, job).id))
    if not attackable:
        raise InvalidError(f"job {job}: no rubric has a judged criterion", hint="checks need no audit")
    return _sample(attackable, limit)


def _sample(every: tuple[AuditCase, ...], limit: int) -> tuple[AuditCase, ...]:
    from workers.audit import cases

    taken = cases.sample(every, limit)
    if len(taken) < len(every):
        echo(f"using {len(taken)} of {len(every)} completions; use more with --limit")
    return taken


def _limits(plan: AuditPlan, given: Sequence[str]) -> dict[str, float]:
    """Return limits by suite; a bare rate is the limit of all rates of false positives."""
    general: dict[str, float] = {}
    by_suite: dict[str, float] = {}
    for text in given:
        name, sign, number = text.rpartition("=")
        try:
            rate = float(number)
        except ValueError:
            rate = -1.0
        if not 0.0 <= rate <= 1.0:
            hint = "write --max-fpr 0.05, or --max-fpr injection=0.1"
            raise InvalidError(f"--max-fpr: expected a rate from 0 to 1, found {shorten(number)!r}", hint=hint)
        if sign:
            by_suite[name] = rate
        else:
            general = dict.fromkeys(plan.false_positive_suites, rate)
    plan.check_names(by_suite)
    return general | by_suite


def _non_default_options(
    data: Path | None, job: int | None, data_dir: Path | None, *, per_attack: int, limit: int, max_fpr: Sequence[str]
) -> str:
    """Return the options that make this audit another than the default one."""
    limited = limit != DEFAULT_LIMIT and (data, job, data_dir) != (None, None, None)
    options = {
        f"--data {data.name if data else ''}": data is not None,
        f"--job {job}": job is not None,
        f"--per-attack {per_attack}": per_attack != DEFAULT_PER_ATTACK,
        f"--data-dir {data_dir.resolve().name if data_dir else ''}": data_dir is not None,
        f"--limit {limit}": limited,
        **{f"--max-fpr {one}": True for one in max_fpr},
    }
    return " ".join(option for option, given in options.items() if given)


def _run(judge: Judge, plan: AuditPlan, limits: dict[str, float]) -> Audit:
    from workers.audit import runner
    from workers.audit.journal import AuditJournal

    path = get_settings().cache_dir / "audits" / f"{judge.digest[:32]}-{plan.digest[:32]}.jsonl"
    with AuditJournal(path) as journal, progress_bar("audit") as bar:
        if len(journal):
            echo(f"resuming an interrupted audit: {len(journal)} completions are judged")
        options: dict[str, Any] = {"max_rates": limits, "journal": journal, "on_progress": bar.update}
        result = ask(judge, lambda engine: runner.run(engine, judge, plan, **options))
        journal.delete()
    return result
