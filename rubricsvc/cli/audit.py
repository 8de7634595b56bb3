"""`rubricsvc judges audit` and `judges repeatability`: attack a judge, and ask it the same again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.agreement import JudgeRef
from rubricsvc.cli.db import database
from rubricsvc.cli.models import ask
from rubricsvc.cli.output import (
    Json,
    Seed,
    cell,
    counted,
    echo,
    estimate_cells,
    print_data,
    print_json,
    print_table,
    shorten,
)
from rubricsvc.core.audit import DEFAULT_LIMIT, DEFAULT_PER_ATTACK, Audit, SuiteResult
from rubricsvc.core.judge import Judge, Mode
from rubricsvc.core.prompt import Completion
from rubricsvc.core.repeatability import DEFAULT_REPEATS
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.formats import load
from rubricsvc.settings import get_settings
from rubricsvc.store import jobs, judges

if TYPE_CHECKING:
    from workers.audit.cases import AuditCase
    from workers.audit.plan import AuditPlan

MAX_HITS = 10


def audit(
    judge: JudgeRef,
    *,
    suite: Annotated[list[str] | None, typer.Option(help="Only this suite; repeatable. Not stored.")] = None,
    max_fpr: Annotated[
        list[str] | None,
        typer.Option(metavar="[SUITE=]RATE", help="Limit of a suite, or of all false positives; repeatable."),
    ] = None,
    per_attack: Annotated[int, typer.Option(min=0, help="Completions for each attack; 0: all.")] = DEFAULT_PER_ATTACK,
    data: Annotated[Path | None, typer.Option(help="Attack the labelled completions of this file instead.")] = None,
    format: Annotated[str | None, typer.Option(help="Format of --data.", show_default="detected")] = None,
    job: Annotated[int | None, typer.Option(help="Attack this job's tasks, with empty completions.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Add the public data sets in this folder.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum of --data, --job or each data set.")] = DEFAULT_LIMIT,
    out: Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Attack a judge and report how often it is fooled, with 95 % Wilson intervals.

    Master keys, empty and constant completions, prompt injection of seven kinds, padding, self-praise, format tricks,
    the order of criteria, and verdicts that contradict their rationale. A trajectory judge is asked about last steps;
    they also loop, claim what was not done, give up or end early. The audit is stored with the judge; `judges show`
    and `runs start` report it. An interrupted audit resumes. Exits with 4 if a suite is not passed.
    """
    from workers.audit import data as public
    from workers.audit import runner, suites
    from workers.audit.plan import AuditPlan

    with database() as db, db.read() as session:
        row = judges.get(session, judge)
        stored, judge_id = row.value, row.id
    runner.check_auditable(stored)
    attacks, sets = public.suites(data_dir, limit=limit) if data_dir is not None else ((), ())
    cases = _cases(data, format, job, limit, stored.mode)
    plan = AuditPlan(cases, (*suites.built_in(stored.mode), *attacks), sets, per_attack).adapted(stored)
    limits = _limits(plan, max_fpr or [])
    limited = data or data_dir or job is not None
    options = {
        "--data": data and data.name,
        "--job": job,
        "--per-attack": per_attack if per_attack != DEFAULT_PER_ATTACK else None,
        "--data-dir": data_dir and data_dir.resolve().name,
        "--limit": limit if limited and limit != DEFAULT_LIMIT else None,
    }
    given = [(option, value) for option, value in options.items() if value is not None]
    given += [("--max-fpr", one) for one in max_fpr or []]
    result = _run(stored, plan.only(suite) if suite else plan, limits)
    result = result.model_copy(update={"non_default_options": " ".join(f"{option} {v}" for option, v in given)})
    if suite is None:
        with database() as db, db.write() as session:
            judges.add_audit(session, judge_id, result)
    if out is not None:
        _write_html(out, stored, result)
    with output.exit_with(output.OK if result.passed else output.NOT_PASSED):
        if as_json:
            print_json({"judge": stored.name, "passed": result.passed, **result.model_dump(mode="json")})
        else:
            _print_audit(stored, result)
        if suite is not None:
            echo("not stored: only some of the suites were run")


def _cases(data: Path | None, format: str | None, job: int | None, limit: int, mode: Mode) -> tuple[AuditCase, ...]:
    from workers.audit import cases, trajectories

    if data is not None and job is not None:
        raise InvalidError("--data and --job exclude each other", hint="give one of them")
    if data is not None:
        every = cases.from_records(load(data, format), source=str(data))
    elif job is not None:
        with database() as db, db.read() as session:
            every = cases.empty_completions(judges.audit_tasks_of_job(session, jobs.scoring(session, job).id))
        if not every:
            raise InvalidError(f"job {job}: no rubric has a judged criterion", hint="checks need no audit")
    else:
        return trajectories.built_in() if mode == "trajectory" else cases.built_in()
    taken = cases.sample(every, limit)
    if len(taken) < len(every):
        echo(f"using {len(taken)} of {len(every)} completions; use more with --limit")
    return taken


def _limits(plan: AuditPlan, given: Sequence[str]) -> dict[str, float]:
    """Return limits by suite; a bare rate is the limit of all rates of false positives that are not named."""
    limits: dict[str, float] = {}
    for text in sorted(given, key=lambda text: "=" in text):
        name, sign, number = text.rpartition("=")
        try:
            rate = float(number)
        except ValueError:
            rate = -1.0
        if not 0.0 <= rate <= 1.0:
            hint = "write --max-fpr 0.05, or --max-fpr injection=0.1"
            raise InvalidError(f"--max-fpr: expected a rate from 0 to 1, found {shorten(number)!r}", hint=hint)
        limits |= {name: rate} if sign else dict.fromkeys(plan.false_positive_suites, rate)
    plan.check_names(limits)
    return limits


def _run(judge: Judge, plan: AuditPlan, limits: dict[str, float]) -> Audit:
    from workers.audit import runner
    from workers.audit.journal import AuditJournal

    path = get_settings().cache_dir / "audits" / f"{judge.digest[:32]}-{plan.digest[:32]}.jsonl"
    kept = output.continue_hint("the completions judged so far are kept")
    with kept, AuditJournal(path) as journal, output.progress_bar("audit") as bar:
        if len(journal):
            echo(f"resuming an interrupted audit: {len(journal)} completions are judged")
        options: dict[str, Any] = {"max_rates": limits, "journal": journal, "on_progress": bar.update}
        result = ask(judge, lambda engine: runner.run(engine, judge, plan, **options))
        journal.delete()
    return result


def _print_audit(judge: Judge, audit: Audit) -> None:
    """Print the rates, the successful attacks, and on stderr whether the audit was passed."""
    columns = ("suite", "attacks", "findings", "rate", "95%", "baseline", "shift", "limit", "passed", "unscored")
    print_table(columns, map(_suite_cells, audit.suites))
    families = [
        [suite.name, family, rate.n, *estimate_cells(rate)]
        for suite in audit.suites
        for family, rate in suite.families.items()
    ]
    if families:
        print_data("")
        print_table(("suite", "kind", "findings", "rate", "95%"), families)
    for heading, hits in audit.worst_by_heading.items():
        print_data(f"\n{heading}, in suites that were not passed")
        rows = []
        for hit in hits[:MAX_HITS]:
            texts = shorten(hit.criterion, 40), shorten(hit.completion, 80)
            rows.append([hit.suite, shorten(hit.attack, 30), hit.baseline, hit.value, *texts])
        print_table(("suite", "attack", "baseline", "value", "criterion", "completion"), rows)
    failures = failures_text(audit)
    result = f"did not pass: {failures}" if failures else "passed its audit"
    echo(f"{judge.name} {result}" + (f" ({audit.non_default_options})" if audit.non_default_options else ""))


def failures_text(audit: Audit) -> str:
    """Return the suites that were not passed, each with the reason."""
    return ", ".join(f"{suite.name} ({suite.reason}{_baseline_note(suite)})" for suite in audit.failed_suites)


def _suite_cells(suite: SuiteResult) -> list[Any]:
    shift = "" if suite.mean_shift is None else f"{suite.mean_shift:+.3f}"
    rates = [*estimate_cells(suite.rate), estimate_cells(suite.baseline)[0], shift, suite.max_rate]
    unscored = suite.unscored if suite.passed is not None else suite.reason
    return [suite.name, suite.attacks, suite.rate.n, *rates, suite.passed, unscored]


def _baseline_note(suite: SuiteResult) -> str:
    """Return a note if the attack changed nothing: the rate is no higher than without it."""
    rate, baseline = suite.rate.value, suite.baseline.value if suite.baseline else None
    if rate is None or baseline is None or rate > baseline:
        return ""
    return f", no more than without the attack ({baseline:.3f})"


def _write_html(path: Path, judge: Judge, audit: Audit) -> None:
    """Write the report to ``path``. Text of models and attackers is escaped, and the page loads nothing."""
    from rubricsvc.web.pages import render

    page = render("audit.html.j2", judge=judge, audit=audit)
    with output.open_output(path) as stream:
        stream.write(page)


def repeatability(
    judge: JudgeRef,
    *,
    job: Annotated[int | None, typer.Option(help="Ask about this job.", show_default="built-in cases")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum completions; of a job a random sample.")] = 40,
    repeats: Annotated[
        int, typer.Option(min=2, max=100, help="Number of times each question is asked.")
    ] = DEFAULT_REPEATS,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure how far a judge's verdicts and rewards vary when it is asked the same again.

    The questions are asked in other batches and orders, and sampling judges use other seeds. Reports the
    standard deviation of verdict values by kind of scale, and of rewards, with 95 % bootstrap intervals. The result is
    stored with the judge: `judges show` has it, and GRPO takes it as the least deviation that
    it divides by. It replaces an earlier measurement. No verdict is stored.
    """
    from workers.audit import cases
    from workers.audit.repeatability import group_completions, measure

    with database() as db, db.read() as session:
        row = judges.get(session, judge)
        stored, judge_id = row.value, row.id
        if job is None:
            groups = group_completions((c.rubric, c.prompt, Completion(text=c.text)) for c in cases.built_in())[:limit]
        else:
            compares = stored.mode == "comparative"
            scored_by = jobs.scoring(session, job)
            sample = judges.audit_sample_of_job(session, scored_by.id, limit, whole_groups=compares, seed=seed)
            groups = group_completions(sample)
    source = f"job {job}" if job else "built-in cases"
    with output.progress_bar("repeatability") as bar:
        options: dict[str, Any] = {"source": source, "repeats": repeats, "seed": seed, "on_progress": bar.update}
        result = ask(stored, lambda engine: measure(engine, stored, groups, **options))
    if result.reward.value is None and not any(one.n for one in result.criteria.values()):
        hint = f"see what it answers: rubricsvc score --judge {stored.name} …"
        raise UnavailableError(f"{stored.name!r} scored no question twice ({cell(result.unscored)})", hint=hint)
    with database() as db, db.write() as session:
        judges.set_repeatability(session, judge_id, result)
    echo(f"stored with judge {stored.name!r}, in place of any earlier measurement")
    if as_json:
        print_json({"judge": stored.name, **result.model_dump(mode="json")})
        return
    rows = result.criteria | {"reward": result.reward}
    table = [[kind, one.n, *estimate_cells(one, digits=4)] for kind, one in rows.items()]
    print_table(("of", "questions", "std", "95%"), table)
    unscored = f"; without a value: {cell(result.unscored)}" if result.unscored else ""
    echo(f"{stored.name}: {result.completions} completions of {result.source}, asked {repeats} times{unscored}")
    if result.vetoed:
        echo(f"{counted(result.vetoed, 'completion')} vetoed in every repeat: not in the deviation of rewards")
