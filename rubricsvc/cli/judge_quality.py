"""Measure a judge: `judges probe`, `agreement`, `calibrate`, `audit` and `repeatability`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.models import ask, served_models
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
from rubricsvc.cli.service import local_service
from rubricsvc.core.audit import DEFAULT_LIMIT, DEFAULT_PER_ATTACK, DEFAULT_REPEATS, Audit
from rubricsvc.core.judge import Judge, Mode
from rubricsvc.core.prompt import Completion
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError, UnavailableError, cut
from rubricsvc.formats import load
from rubricsvc.services.jobs import FIXES
from rubricsvc.settings import get_settings
from rubricsvc.stats import RESAMPLES
from workers.engines.local.embedded_model import EMBEDDED

if TYPE_CHECKING:
    from rubricsvc.core.estimate import Estimate
    from rubricsvc.services.local import LocalService
    from rubricsvc.stats.agreement import AgreementReport
    from workers.audit.cases import AuditCase
    from workers.audit.repeatability import Probe
    from workers.audit.suites import AuditPlan

JudgeRef = Annotated[str, typer.Argument(help="Name or id of the judge.", show_default=False)]
Job = Annotated[int | None, typer.Option(help="Only what this job scored.")]
Resamples = Annotated[int, typer.Option(min=0, help="Bootstrap draws of each interval; 0: no intervals.")]

MAX_ROWS = 30
"""Criteria, hits or disagreements that a table shows."""
ADD_TIMEOUT_S = 30.0
"""Seconds that `judges add` and `judges update` wait for a reply."""

_EMBEDDED_TOKENS = 96
"""Tokens of a written reply of the embedded model: it writes for minutes, and rarely a verdict."""
_NOT_REACHED = {reason for reason in Reason if reason.transient}
_NOT_REACHED |= {Reason.REFUSED, Reason.ENGINE_ERROR, Reason.NO_LOGPROBS}
"""Reasons of a judge that does not answer. Other failures are the model's reply, and the next one may be better."""
_OTHER_HINT = "use another mode or another model"


def probe(judge: JudgeRef, as_json: Json = False) -> None:
    """Ask a judge about a criterion that is plainly met and one that is plainly not.

    Prints its verdicts. Nothing is stored. Exits with 4 if the judge does not distinguish them: their values, from 0 to
    1, must differ by 0.5 or more.
    """
    with local_service() as s:
        stored = s.judges.value(judge)
    result = probed(stored)
    if result is None:
        raise InvalidError(f"judge {stored.name!r} has no model to ask", hint="it only runs checks")
    with output.exit_with(output.OK if result.passed else output.NOT_PASSED):
        fields = {"judge": stored.name, "distinguished": result.passed, "difference": result.difference}
        fields |= {"seconds": round(result.seconds, 3), "usage": result.usage and result.usage.model_dump()}
        if as_json:
            print_json(fields | {"verdicts": [one.model_dump(mode="json") for one in result.verdicts]})
        else:
            output.show(fields)


def probed(judge: Judge, *, timeout_s: float = math.inf, more: str = "") -> Probe | None:
    """Ask both test questions once, print what came, and warn where the judge does not distinguish them.

    Returns:
        The verdicts; None if there is no model to ask.
    """
    from workers.audit.repeatability import COMPLETION, RUBRIC
    from workers.audit.repeatability import probe as ask_both

    def asked(leaf: Judge) -> Judge:
        own = leaf.endpoint
        limits = {"max_retries": min(own.max_retries, 1), "timeout_s": min(own.timeout_s, timeout_s)}
        fields: dict[str, Any] = {"endpoint": own.model_copy(update={"outage_timeout_s": 0.0, **limits})}
        if leaf.model == EMBEDDED:
            most = min(leaf.sampling.max_tokens, _EMBEDDED_TOKENS)
            fields["sampling"] = leaf.sampling.model_copy(update={"max_tokens": most})
        return leaf.model_copy(update=fields)

    if all(leaf.engine == "none" for leaf in judge.leaf_judges):
        echo(f"{judge.name} has no model to ask: it only runs checks")
        return None
    once = judge.map_leaves(asked)
    questions = " / ".join(criterion.text for criterion in RUBRIC.criteria)
    seconds = [leaf.endpoint.timeout_s for leaf in once.leaf_judges if leaf.engine == "openai_http"]
    limit = f"; a reply may take {max(seconds):g} s" if seconds else ""
    echo(f"asking {judge.name} about {COMPLETION.text!r}: {questions}{limit}")
    result = ask(once, lambda engine: ask_both(engine, once))
    unscored = min((v for v in result.verdicts if v.value is None), key=lambda v: v.outcome != "failed", default=None)
    problem = unscored and f"{unscored.reason or unscored.outcome}: {unscored.detail or ''}".rstrip(": ")
    if unscored is not None and unscored.reason in _NOT_REACHED:
        hint = _reach_hint(judge, unscored.reason, unscored.detail or "")
        raise UnavailableError(f"judge {judge.name!r} does not answer: {problem}", hint=hint + more)
    values = f"{_value(result.met)} (met), {_value(result.not_met)} (not met)"
    usage = result.usage
    cost = "" if usage is None else f", {usage.prompt + usage.completion} tokens"
    cost += f", ${usage.cost:.2g}" if usage is not None and judge.priced else ""
    echo(f"{judge.name} answers: {values}; {result.seconds:.1f} s{cost}")
    failed = {vote.by: vote for verdict in result.verdicts for vote in verdict.votes if vote.outcome == "failed"}
    for by, vote in failed.items():
        echo(f"warning: {by} of {judge.name} failed: {vote.reason}: {vote.detail or ''}")
    if result.is_close:
        echo(f"warning: {judge.name} distinguishes the criteria by its threshold alone: {values}")
    elif unscored is not None:
        echo(f"warning: {judge.name} answers, but without a verdict: {problem}")
    elif not result.passed:
        echo(f"warning: {judge.name} does not distinguish a met criterion from one that is not: {values}")
    if not result.passed or result.is_close:
        bare = any(leaf.model == EMBEDDED and leaf.adapter is None for leaf in judge.leaf_judges)
        hint = FIXES[unscored.reason] if unscored is not None and unscored.reason else _OTHER_HINT
        bare_hint = "without an adapter the embedded model is hardly better than chance; score with a real model"
        echo(f"hint: {bare_hint if bare else hint}")
    return result


def _reach_hint(judge: Judge, reason: Reason, detail: str) -> str:
    """Return what to do about a failure to reach the model."""
    if judge.members:
        return f"{FIXES[reason]}; `rubricsvc judges probe` asks a member alone"
    if judge.engine != "openai_http" and reason is Reason.UNREACHABLE:
        if judge.adapter:
            return "name a LoRA adapter in peft's format, and the base that it was trained on (docs/judges.md)"
        return "name an instruction-tuned model: `embedded`, a folder, or a hub name (base models lack a chat template)"
    if judge.engine == "openai_http" and reason is Reason.REFUSED and not detail.startswith(("HTTP 401", "HTTP 403")):
        with suppress(UnavailableError):  # not every server lists them
            if judge.model not in (names := served_models(judge.endpoint)):
                return f"the server has no model {judge.model!r}; it has {cut(', '.join(names), 400)}"
    return FIXES[reason]


def _value(verdict: Verdict) -> str:
    if verdict.value is None:
        return str(verdict.reason or verdict.outcome)
    return f"{verdict.value:.2f}" if verdict.probability is None else f"P(yes) {verdict.probability:.2f}"


def agreement(
    judge: JudgeRef,
    *,
    job: Job = None,
    criterion: Annotated[str | None, typer.Option(help="Only this criterion.")] = None,
    resamples: Resamples = RESAMPLES,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare a judge's verdicts with people's labels: mean over criteria, each, pooled, and where they differ most.

    If several people labelled the same, their agreement with each other is printed beside the judge's. --json has the
    confusion of each criterion.
    """
    with local_service() as s:
        report = s.judges.agreement(judge, job=job, criterion=criterion, resamples=resamples, seed=seed)
    if as_json:
        print_json(asdict(report))
    else:
        _print_agreement(report)


def _print_agreement(report: AgreementReport) -> None:
    state = {True: "calibrated", False: "not calibrated", None: "no readout"}[report.calibrated]
    people = "1 person" if report.annotators == 1 else f"{report.annotators} people"
    used = f"{counted(report.labels, 'label')} by {people}, {report.pooled.pairs} used"
    print_data(f"{report.judge} ({state}): {used}")
    for reason, count in {**report.pooled.excluded, **(report.reward.excluded if report.reward else {})}.items():
        print_data(f"excluded: {count} ({reason})")
    shown = report.criteria[:MAX_ROWS]
    if len(report.criteria) > 1:  # one alone is its own mean
        _print_metrics("mean over criteria", report.mean.metrics, report.mean.inter_annotator)
    _print_metrics(report.pooled.name, report.pooled.metrics, report.pooled.inter_annotator)
    if report.reward:
        _print_metrics("reward and people's overall scores", report.reward.metrics, report.reward.inter_annotator)
    if len(report.criteria) > 1:
        names = [name for name in shown[0].metrics if any(one.metrics[name].value is not None for one in shown)]
        rows: list[list[Any]] = []
        for one in shown:
            judged = (shorten(one.name, 40), one.pairs, one.metrics)
            for label, pairs, estimates in (judged, ("- annotators", one.annotator_pairs, one.inter_annotator)):
                metrics = [estimate_cells(estimates.get(name))[0] for name in names]
                rows += [[label, pairs, *metrics]] if estimates else []
        print_data("")
        print_table(("criterion", "pairs", *(name.partition("_")[0] for name in names)), rows)
    if len(report.criteria) > MAX_ROWS:
        echo(f"{len(report.criteria) - MAX_ROWS} more criteria with --json")
    if report.worst:
        print_data("\nlargest disagreements")
        texts = [
            (one.completion_id, shorten(one.criterion, 40), shorten(one.annotator, 20), one.label, one.judge, reason)
            for one in report.worst
            for reason in [shorten(one.rationale or one.note or "-", 60)]
        ]
        print_table(("completion", "criterion", "annotator", "label", "judge", "reason"), texts)


def _print_metrics(title: str, judge: Mapping[str, Estimate], people: Mapping[str, Estimate]) -> None:
    """Print the known metrics with their intervals, and the reasons why others are missing."""
    known = [name for name in judge if judge[name].value is not None]
    print_data(f"\n{title}")
    rows = [[name, *estimate_cells(judge[name]), *estimate_cells(people.get(name))] for name in known]
    if rows:
        print_table(("metric", "judge", "95%", "annotators", "95%"), rows)
    missing: dict[str, list[str]] = {}
    for name, one in judge.items():
        if one.null_reason:
            missing.setdefault(one.null_reason, []).append(name if one.value is None else "intervals")
    for reason, names in missing.items():
        print_data(f"n/a: {shorten(', '.join(dict.fromkeys(names)), 200)}: {reason}")


def calibrate(
    judge: JudgeRef,
    *,
    name: Annotated[str | None, typer.Option("--as", help="New judge.", show_default="NAME-calibrated")] = None,
    job: Job = None,
    held_out: Annotated[float, typer.Option(min=0.05, max=0.9, help="Share of the prompts to measure on.")] = 0.3,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Calibrate a readout judge on labels, and store the calibrated judge under a new name.

    It needs labels on at least 10 prompts that the judge has scored. Each family of criteria (first tag, else kind of
    scale) with at least 20 labels gets a curve: temperature, Platt or isotonic, by cross-validated log loss. Its effect
    is measured on held-out prompts.
    """
    with local_service() as s:
        stored, families = s.judges.calibrate(judge, name, job=job, held_out=held_out, seed=seed)
    if as_json:
        dumped = [
            asdict(one) | {"curve": one.curve and one.curve.model_dump(mode="json", exclude_defaults=True)}
            for one in families
        ]
        print_json({"judge": stored and stored.name, "families": dumped})
        return
    rows = []
    for one in families:
        row = output.fields_of(one, "family", "labels") | {"method": one.curve and one.curve.method}
        for loss in ("ece", "brier", "log_loss"):
            row[loss] = " → ".join(cell(getattr(each, loss, None)) for each in (one.before, one.after))
        rows.append(row | {"held_out": one.after and one.after.n, "null_reason": one.null_reason})
    output.show_list(rows)
    for one in families:
        if one.before and one.after and one.after.log_loss > one.before.log_loss:
            echo(f"{one.family}: worse on held-out prompts than uncalibrated; add labels before you use the new judge")
    if stored is None:
        hint = "label more completions, good and bad ones of each family; see the column null_reason"
        raise InvalidError("no family of criteria could be calibrated; no judge was stored", hint=hint)
    echo(f"stored as judge {stored.name!r}")


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
    limit: Annotated[int, typer.Option(min=1, help="Maximum completions of --data or --job.")] = DEFAULT_LIMIT,
    out: Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Attack a judge and report how often it is fooled, with 95 % Wilson intervals.

    Master keys, empty and constant completions, prompt injection of seven kinds, padding, self-praise, format tricks,
    the order of criteria, and verdicts that contradict their rationale. A trajectory judge is asked about last steps;
    they also loop, claim what was not done, give up or end early. The audit is stored with the judge; `judges show`
    and `runs start` report it. An interrupted audit resumes. Exits with 4 if a suite is not passed.
    """
    from workers.audit import runner, suites
    from workers.audit.suites import AuditPlan

    with local_service() as s:
        stored = s.judges.value(judge)
        runner.check_auditable(stored)
        cases = _cases(s, stored.mode, limit, data=data, format=format, job=job)
    plan = AuditPlan(cases, suites.built_in(stored.mode), per_attack).adapted(stored)
    limits = _limits(plan, max_fpr or [])
    limited = (data or job is not None) and limit != DEFAULT_LIMIT
    options = {"--data": data and data.name, "--job": job, "--limit": limit if limited else None}
    options["--per-attack"] = per_attack if per_attack != DEFAULT_PER_ATTACK else None
    given = [f"{option} {value}" for option, value in options.items() if value is not None]
    given += [f"--max-fpr {one}" for one in max_fpr or []]
    result = _run(stored, plan.only(suite) if suite else plan, limits)
    result = result.model_copy(update={"non_default_options": " ".join(given)})
    if suite is None:
        with local_service() as s:
            s.judges.add_audit(stored.name, result)
    if out is not None:
        from rubricsvc.web.pages import render

        with output.open_output(out) as stream:
            stream.write(render("audit.html.j2", judge=stored, audit=result))
    with output.exit_with(output.OK if result.passed else output.NOT_PASSED):
        if as_json:
            print_json({"judge": stored.name, "passed": result.passed, **result.model_dump(mode="json")})
        else:
            _print_audit(stored, result)
        if suite is not None:
            echo("not stored: only some of the suites were run")


def _cases(
    s: LocalService, mode: Mode, limit: int, *, data: Path | None, format: str | None, job: int | None
) -> tuple[AuditCase, ...]:
    from workers.audit import cases

    if data is not None and job is not None:
        raise InvalidError("--data and --job exclude each other", hint="give one of them")
    if data is not None:
        every = cases.from_records(load(data, format), source=str(data))
    elif job is not None:
        every = cases.empty_completions(s.judges.tasks_of_job(job))
        if not every:
            raise InvalidError(f"job {job}: no rubric has a judged criterion", hint="checks need no audit")
    else:
        return cases.built_in(mode)
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

    path = get_settings().cache_dir / "audits" / f"{judge.digest[:32]}-{plan.digest[:32]}.jsonl"
    kept = output.continue_hint("the completions judged so far are kept")
    with kept, runner.AuditJournal(path) as journal, output.progress_bar("audit") as bar:
        if len(journal):
            echo(f"resuming an interrupted audit: {len(journal)} completions are judged")
        options: dict[str, Any] = {"max_rates": limits, "journal": journal, "on_progress": bar.update}
        result = ask(judge, lambda engine: runner.run(engine, judge, plan, **options))
        journal.delete()
    return result


def _print_audit(judge: Judge, audit: Audit) -> None:
    """Print the rates, the successful attacks, and on stderr whether the audit was passed."""
    columns = ("suite", "attacks", "findings", "rate", "95%", "baseline", "shift", "limit", "passed", "unscored")
    rows = []
    for suite in audit.suites:
        shift = "" if suite.mean_shift is None else f"{suite.mean_shift:+.3f}"
        rates = [*estimate_cells(suite.rate), estimate_cells(suite.baseline)[0], shift, suite.max_rate, suite.passed]
        unscored = suite.unscored if suite.passed is not None else suite.reason
        rows.append([suite.name, suite.attacks, suite.rate.n, *rates, unscored])
    print_table(columns, rows)
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
        texts = [
            (hit.suite, shorten(hit.attack, 30), hit.baseline, hit.value, shorten(hit.criterion, 40), text)
            for hit in hits[:MAX_ROWS]
            for text in [shorten(hit.completion, 80)]
        ]
        print_table(("suite", "attack", "baseline", "value", "criterion", "completion"), texts)
    given = f" ({audit.non_default_options})" if audit.non_default_options else ""
    echo(f"{judge.name}: {audit.result}{given}")


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

    with local_service() as s:
        stored = s.judges.value(judge)
        if job is None:
            groups = group_completions((c.rubric, c.prompt, Completion(text=c.text)) for c in cases.built_in())[:limit]
        else:
            compares = stored.mode == "comparative"
            groups = group_completions(s.judges.sample_of_job(job, limit, whole_groups=compares, seed=seed))
    source = f"job {job}" if job else "built-in cases"
    with output.progress_bar("repeatability") as bar:
        options: dict[str, Any] = {"source": source, "repeats": repeats, "seed": seed, "on_progress": bar.update}
        result = ask(stored, lambda engine: measure(engine, stored, groups, **options))
    if result.reward.value is None and not any(one.n for one in result.criteria.values()):
        hint = f"see what it answers: rubricsvc score --judge {stored.name} …"
        raise UnavailableError(f"{stored.name!r} scored no question twice ({cell(result.unscored)})", hint=hint)
    with local_service() as s:
        s.judges.set_repeatability(stored.name, result)
    echo(f"stored with judge {stored.name!r}, in place of any earlier measurement")
    if as_json:
        print_json({"judge": stored.name, **result.model_dump(mode="json")})
        return
    table = [
        [kind, one.n, *estimate_cells(one, digits=4)]
        for kind, one in (result.criteria | {"reward": result.reward}).items()
    ]
    print_table(("of", "questions", "std", "95%"), table)
    unscored = f"; without a value: {cell(result.unscored)}" if result.unscored else ""
    vetoed = f"; {counted(result.vetoed, 'completion')} vetoed in every repeat" if result.vetoed else ""
    echo(f"{stored.name}: {result.completions} completions of {source}, asked {repeats} times{unscored}{vetoed}")
