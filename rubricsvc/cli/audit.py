"""`rubricsvc judges audit`: attack a judge before a policy does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.database import database
from rubricsvc.cli.output import (
    NOT_PASSED,
    OK,
    Json,
    cell,
    echo,
    exit_with,
    print_data,
    print_json,
    print_table,
    progress_bar,
    shorten,
    show_list,
)
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rubricsvc.core.audit import Audit, Hit, Rate, SuiteResult
    from rubricsvc.core.judge import Judge
    from workers.audit.cases import Case
    from workers.audit.plan import Plan

SHOWN = 10
ANSWERS, MOST = 4, 100
"""As shipped, of ``--answers`` and ``--data-most``."""


def audit(
    judge: Annotated[str, typer.Argument(help="The judge's name or id.", show_default=False)],
    *,
    suite: Annotated[
        list[str] | None, typer.Option(help="Only this suite; again for more. Such an audit is not kept.")
    ] = None,
    max_fpr: Annotated[
        list[str] | None,
        typer.Option(
            help="A suite whose rate is above this is not passed: injection=0.1 for one suite, whichever; 0.05 for all "
            "whose rate is one of false positives (what is bad is found good); repeatable."
        ),
    ] = None,
    answers: Annotated[int, typer.Option(min=0, help="Answers that each attack is tried on; 0: all.")] = ANSWERS,
    data: Annotated[
        Path | None, typer.Option(help="Attack these instead: a file of answers with labels, in any format.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="The format of --data.", show_default="told by the file")] = None,
    job: Annotated[int | None, typer.Option(help="Attack this job's prompts and rubrics, with empty answers.")] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="A folder of public data sets to ask about too: llmbar, evalbiasbench, gsm8k, …."),
    ] = None,
    data_most: Annotated[
        int, typer.Option(min=1, help="Answers of --data; pairs or answers of each set in --data-dir.")
    ] = MOST,
    out: Annotated[Path | None, typer.Option(help="Write a report to this HTML file.")] = None,
    as_json: Json = False,
) -> None:
    """Attack a judge, and say how often it is fooled, with 95 % Wilson intervals.

    Master keys, empty and constant answers, prompt injection in seven kinds, padding, self-praise, format tricks, the
    order of criteria, and verdicts that contradict their own rationale. The audit is kept with the judge: `judges show`
    and `runs start` tell it. One that is interrupted goes on where it was. Ends with 4 where a suite is not passed.
    """
    from workers.audit import runner

    who, judge_id = _judge(judge)
    runner.refuse(who)
    plan = _plan(_cases(data, format, job, data_most), answers, data_dir, data_most).suited(who)
    limits = _limits(plan, max_fpr or [])
    chosen = plan.only(suite) if suite else plan
    otherwise = _otherwise(data, job, data_dir, answers=answers, most=data_most, limits=max_fpr or [])
    found = _run(who, chosen, limits).model_copy(update={"otherwise": otherwise})
    if suite is None:
        _keep(judge_id, found)
    if out is not None:
        from rubricsvc.cli.audit_report import write

        write(out, who, found)
    with exit_with(OK if found.passed else NOT_PASSED):
        if as_json:
            print_json({"judge": who.name, "passed": found.passed, **found.model_dump(mode="json")})
        else:
            _put(who, found)
        if suite is not None:
            echo("not kept: only part of the suites was asked")


def _judge(ref: str) -> tuple[Judge, int]:
    from rubricsvc.store import judges

    with database() as db, db.read() as session:
        row = judges.get(session, ref)
        return row.value, row.id


def _cases(data: Path | None, format: str | None, job: int | None, most: int) -> tuple[Case, ...]:
    from workers.audit import cases

    if data is not None and job is not None:
        raise InvalidError("--data and --job exclude each other", hint="give one of them")
    if data is not None:
        from rubricsvc.formats import load

        return _sampled(cases.of_records(load(data, format), source=str(data)), most)
    if job is None:
        return cases.built_in()
    from rubricsvc.store import audits, jobs

    with database() as db, db.read() as session:
        found = cases.unanswered(audits.of_job(session, jobs.get(session, job).id))
    if not found:
        raise InvalidError(f"no rubric of job {job} has a judged criterion", hint="checks need no audit")
    return _sampled(found, most)


def _sampled(found: tuple[Case, ...], most: int) -> tuple[Case, ...]:
    from workers.audit import cases

    taken = cases.sampled(found, most)
    if len(taken) < len(found):
        echo(f"{len(taken)} of {len(found)} answers are taken; --data-most takes more")
    return taken


def _plan(cases: tuple[Case, ...], answers: int, data_dir: Path | None, data_most: int) -> Plan:
    from workers.audit import data, suites
    from workers.audit.plan import Plan

    more, sets = data.suites(data_dir, most=data_most) if data_dir is not None else ((), ())
    return Plan(cases, (*suites.built_in(), *more), sets, answers)


def _limits(plan: Plan, given: Sequence[str]) -> dict[str, float]:
    """Limits by suite; a bare rate is one of false positives.

    Raises:
        InvalidError: no number from 0 to 1, or no such suite.
    """
    of_all: dict[str, float] = {}
    of_one: dict[str, float] = {}
    for text in given:
        name, sign, number = text.rpartition("=")
        try:
            rate = float(number)
        except ValueError:
            rate = -1.0
        if not 0.0 <= rate <= 1.0:
            hint = "write --max-fpr 0.05, or --max-fpr injection=0.1"
            raise InvalidError(f"--max-fpr: expected a rate from 0 to 1, found {shorten(number)!r}", hint=hint)
        (of_one if sign else of_all).update({name: rate} if sign else dict.fromkeys(plan.false_positives, rate))
    plan.refuse_unknown(of_one)
    return of_all | of_one


def _otherwise(
    data: Path | None, job: int | None, data_dir: Path | None, *, answers: int, most: int, limits: Sequence[str]
) -> str:
    """What a later reader of the audit must know: it was not the shipped one."""
    taken = most != MOST and (data, job, data_dir) != (None, None, None)
    told = {
        f"on {data.name if data else ''}": data is not None,
        f"on the tasks of job {job}": job is not None,
        f"answers for each attack: {answers or 'all'}": answers != ANSWERS,
        f"with the data sets in {data_dir.resolve().name if data_dir else ''}": data_dir is not None,
        f"at most {most} of a set": taken,
        f"with limits {' '.join(limits)}": bool(limits),
    }
    return ", ".join(words for words, holds in told.items() if holds)


def _run(judge: Judge, plan: Plan, limits: dict[str, float]) -> Audit:
    from rubricsvc.cli.probing import EMBEDDED, fetch_embedded
    from rubricsvc.settings import get_settings
    from workers.audit import runner
    from workers.audit.journal import Journal
    from workers.engines import make_engine

    if any(leaf.model == EMBEDDED for leaf in judge.leaf_judges):
        fetch_embedded()

    async def attack() -> Audit:
        engine = make_engine(judge)
        try:
            return await runner.run(engine, judge, plan, max_rates=limits, journal=journal, on_progress=bar.update)
        finally:
            await engine.aclose()

    path = get_settings().cache_dir / "audits" / f"{judge.digest[:32]}-{plan.digest[:32]}.jsonl"
    with Journal(path) as journal, progress_bar("audit") as bar:
        if journal.known:
            echo(f"going on with an audit that was interrupted: {journal.known} answers are judged")
        found = asyncio.run(attack())
        journal.delete()
    return found


def _keep(judge_id: int, found: Audit) -> None:
    from rubricsvc.store import audits

    with database() as db, db.write() as session:
        audits.add(session, judge_id, found)


def _put(judge: Judge, found: Audit) -> None:
    print_table(
        ("suite", "attacks", "findings", "rate", "95%", "without", "shift", "limit", "passed", "unjudged"),
        [_row(one) for one in found.suites],
    )
    families = [
        [one.name, cell(family), str(rate.n), _number(rate.rate), _interval(rate)]
        for one in found.suites
        for family, rate in one.families.items()
    ]
    if families:
        print_data("")
        print_table(("suite", "kind", "findings", "rate", "95%"), families)
    for heading, hits in found.headed.items():
        print_data(f"\n{heading}, of suites that were not passed")
        show_list([_hit(one) for one in hits[:SHOWN]], False)
    failed = [f"{one.name} ({one.why}{_beside(one)})" for one in found.suites if one.passed is False]
    said = f"did not pass: {', '.join(failed)}" if failed else "passed its audit"
    echo(f"{judge.name} {said}" + (f" ({found.otherwise})" if found.otherwise else ""))


def _beside(one: SuiteResult) -> str:
    """Where an attack changed nothing: the judge finds the same without it."""
    now, before = one.found.rate, one.before.rate if one.before else None
    if now is None or before is None or now > before:
        return ""
    return f", no more than without the attack ({before:.3f})"


def _row(one: SuiteResult) -> list[str]:
    return [
        one.name,
        str(one.attacks),
        str(one.found.n),
        _number(one.found.rate),
        _interval(one.found),
        _number(one.before.rate) if one.before else "",
        f"{one.shift:+.3f}" if one.shift is not None else "",
        f"{one.max_rate:g}",
        cell(one.passed),
        cell(one.unjudged) if one.passed is not None else str(one.why),
    ]


def _hit(one: Hit) -> dict[str, Any]:
    return {
        "suite": one.suite,
        "attack": shorten(one.attack, 30),
        "before": one.before,
        "now": one.value,
        "criterion": shorten(one.criterion, 40),
        "answer": shorten(one.answer, 80),
    }


def _number(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.3f}"


def _interval(rate: Rate) -> str:
    return "" if rate.low is None or rate.high is None else f"[{rate.low:.2f}, {rate.high:.2f}]"
