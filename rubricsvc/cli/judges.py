"""`rubricsvc judges`: judges, and what is known of their quality."""

import random
import re
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc import telemetry
from rubricsvc.cli import output
from rubricsvc.cli.commands import Service, command, service
from rubricsvc.cli.models import ApiKeyEnv, ask, describe_embedded, fetch_embedded, judge_from, served_models
from rubricsvc.cli.output import NOT_PASSED, OK, Json, cell, counted, echo, exit_with, progress_bar, show
from rubricsvc.cli.runs import stopping
from rubricsvc.core.audit import DEFAULT_PER_ATTACK, DEFAULT_REPEATS
from rubricsvc.core.judge import FREE, Judge
from rubricsvc.core.passport import TRAINED, UNTRAINED, Passport
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import TRANSIENT, Reason
from rubricsvc.errors import InvalidError, NotFoundError, UnavailableError, cut
from rubricsvc.formats import load
from rubricsvc.formats.documents import dump_judge, load_judges, load_passport
from rubricsvc.queries import AgreementQuery, CalibrationQuery, Paging
from rubricsvc.schemas.base import every_row
from rubricsvc.services.jobs import FIXES
from rubricsvc.settings import get_settings
from trainer.recording import Metrics
from workers.audit.suites import AuditPlan
from workers.engines.local.embedded_model import EMBEDDED
from workers.engines.local.weights import PASSPORT_FILE, adapter_folder, with_adapter_fields
from workers.judges import validate

app = output.group("Judges: add, test and compare them.")
JudgeRef = Annotated[str, typer.Argument(help="Name or id of the judge.", show_default=False)]

_COLUMNS = ("id", "name", "judge.engine", "judge.model", "judge.mode", "judge.endpoint.base_url", "audit", "error")
_DATA = {"name", "license", "completions", "questions", "share"}
ADD_TIMEOUT_S = 30.0  # seconds that `judges add` waits for a reply
_EMBEDDED_TOKENS = 96  # tokens of a written reply of the embedded model: it writes for minutes, and rarely a verdict
MIN_COMPLETIONS = 10  # fewer give a repeatability that says little
_NOT_REACHED = TRANSIENT | {Reason.REFUSED, Reason.ENGINE_ERROR, Reason.NO_LOGPROBS}
"""Reasons of a judge that does not answer. Other failures are the model's reply, and the next one may be better."""


@command(app, "show")
def show_(
    query: Paging,
    ref: Annotated[str | None, typer.Argument(help="Name or id.", show_default="list judges")] = None,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print a judge file.")] = False,
    passport: Annotated[bool, typer.Option("--passport", help="Print the passport of a trained judge.")] = False,
    as_json: Json = False,
) -> None:
    """Show a judge with its newest audit and its repeatability, or list judges.

    Of a passport it prints the data, what the judge must not be used for, and the figures of whole test sets beside
    baselines; with --json it is the file that `judges add --passport` reads.
    """
    with service() as s:
        if ref is None:
            empty = "no judges; add one with `rubricsvc judges add NAME --embedded`"
            show(s.judges.page(query), as_json, columns=_COLUMNS, empty=empty)
        elif passport:
            whole = s.judges.passport(ref)
            show(whole if as_json else _summary(whole), as_json)
        elif as_yaml:
            dump_judge(s.judges.get(ref).value, sys.stdout)
        else:
            show(s.judges.get(ref), as_json)


def _summary(passport: Passport) -> dict[str, Any]:
    """Return what a person reads of a passport: no parts of test sets, no settings."""
    repeatability, calibration = passport.repeatability, passport.calibration
    figures = {
        table.name: [{"scorer": row.scorer, "n": row.n, **row.figures} for row in table.whole]
        for table in passport.tables
    }
    return {
        **passport.model_dump(include={"created_at", "description", "not_for", "base", "weights_sha256"}),
        "data": [one.model_dump(include=_DATA) for one in passport.data],
        **figures,
        "calibration_error": calibration and {"before": calibration.before, "after": calibration.after},
        "repeatability": repeatability and repeatability.criteria,
        "audit": passport.audit and passport.audit.result,
    }


@app.command()
def add(
    name: Annotated[str | None, typer.Argument(help="Name of the judge.", show_default=False)] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Judge file; - is stdin.")] = None,
    passport: Annotated[Path | None, typer.Option(help="Passport of a trained judge; see `judges show`.")] = None,
    url: Annotated[str | None, typer.Option(help="URL, like http://host/v1", show_default="api.openai.com")] = None,
    model: Annotated[str | None, typer.Option(help="Model name.", show_default="the only one at --url")] = None,
    adapter: Annotated[str | None, typer.Option(help="Folder of a LoRA adapter; --model is its base.")] = None,
    mode: Annotated[str | None, typer.Option(help="How it is asked; see above.", show_default="readout")] = None,
    api_key_env: ApiKeyEnv = None,
    embedded: Annotated[bool, typer.Option("--embedded", help="Use the embedded 135M model.")] = False,
    probe: Annotated[bool, typer.Option("--probe/--no-probe", help="Ask two test questions first.")] = True,
    as_json: Json = False,
) -> None:
    """Add a judge from options, or judges from a file, after two test questions; or change the address of a known one.

    Modes: readout (token probability), written (JSON verdict), comparative (completions side by side) and trajectory
    (steps of an agent). Prices, limits, sampling, voting and all other fields are in a judge file (docs/judges.md).
    """
    place = "--api-key-env" if url is None else "--url"
    options = {"--file": file, "--embedded": embedded, "--adapter": adapter, place: url or api_key_env}
    options |= {"NAME": file and name, "--mode": file and mode, "--model": model and (file or embedded)}
    if len(given := [option for option, value in options.items() if value]) > 1:
        hint = "leave one of them out; `rubricsvc judges merge` writes base and adapter as one model"
        raise InvalidError(f"{given[0]} and {given[1]} exclude each other", hint=hint)
    with service() as s:
        if file is not None:
            added = [with_adapter_fields(one) for one in load_judges(file, lambda ref: s.judges.get(ref).value)]
        elif name is None:
            raise InvalidError("no name", hint="give NAME, or a judge file with --file")
        elif options[place] and not (model or mode) and (known := _known(s, name)):
            if known.members or known.engine in FREE:
                hint = "of a panel, write it with `judges show NAME --yaml`, change its members, and add the file"
                raise InvalidError(f"judge {name!r} has no address of its own", hint=hint)
            changes = {
                "base_url": url or known.endpoint.base_url,
                "api_key_env": api_key_env or known.endpoint.api_key_env,
            }
            added = [judge_from(**known.model_dump() | {"endpoint": known.endpoint.model_dump() | changes})]
        else:
            model = EMBEDDED if embedded else model
            added = [judge_from(name, url=url, model=model, mode=mode, adapter=adapter, api_key_env=api_key_env)]
    describe_embedded(added)
    if passport is not None and len(added) > 1:
        raise InvalidError(f"--passport is of one judge, and {len(added)} are added", hint="add the judge by itself")
    beside = adapter_folder(added[0].adapter or "") / PASSPORT_FILE
    if len(added) == 1 and added[0].adapter and beside.is_file():
        passport = passport or beside
    trained = load_passport(passport) if passport is not None else None
    for judge in added:
        validate(judge)
        if judge.engine == "openai_http" and judge.endpoint.base_url is None and not judge.members:
            echo(f"{judge.name}: no URL, using api.openai.com")
        if probe:
            ask_test_questions(judge)
    with service() as s:
        show([s.judges.add(judge=judge, passport=trained) for judge in added], as_json, columns=_COLUMNS)
    if trained is not None:
        echo(f"what it can judge and what it cannot: rubricsvc judges show {added[0].name} --passport")


def _known(s: Service, name: str) -> Judge | None:
    """Return the stored judge of a name, if there is one."""
    with suppress(NotFoundError):
        if (stored := s.judges.get(name)).name == name:  # not an id
            return stored.value
    return None


@app.command()
def merge(ref: JudgeRef, *, out: Annotated[Path, typer.Option(help="New folder.", show_default=False)]) -> None:
    """Write a judge's base with its LoRA adapter merged, as a Hugging Face folder for `vllm serve`.

    The tokenizer and the judge's passport are in the folder, too.
    """
    with service() as s:
        stored = s.judges.get(ref)
        judge, trained = stored.value, s.judges.passport(ref) if stored.has_passport else None
    if judge.adapter is None:
        hint = "serve its model as it is" if not judge.members else "merge one of its members"
        raise InvalidError(f"judge {judge.name!r} has no adapter", hint=hint)
    from workers.engines.local.models import write_merged
    from workers.engines.local.weights import ModelWeights

    fetch_embedded(judge)
    with output.replaced(out, folder=True) as part:
        write_merged(part, ModelWeights(judge.model, judge.revision, judge.adapter, judge.weights_sha256))
        if trained is not None:
            with (part / PASSPORT_FILE).open("w", encoding="utf-8") as stream:
                stream.write(trained.model_dump_json(exclude_none=True) + "\n")
    echo(f"serve it with `vllm serve {out}`")


def ask_test_questions(judge: Judge) -> None:
    """Ask both test questions once, print what came, and warn where the judge does not distinguish them.

    The judge waits for no outage, retries once at most, and writes little if it is the embedded model. It is an
    UnavailableError if the model cannot be reached.
    """
    from workers.audit.repeatability import COMPLETION, MIN_DIFFERENCE, OTHER, PROMPT, RUBRIC
    from workers.scoring.completions import score_group

    if all(leaf.engine == "none" for leaf in judge.leaf_judges):
        echo(f"{judge.name} has no model to ask: it only runs checks")
        return

    def once(leaf: Judge) -> Judge:
        own = leaf.endpoint
        limits = {"max_retries": min(own.max_retries, 1), "timeout_s": min(own.timeout_s, ADD_TIMEOUT_S)}
        tokens = min(leaf.sampling.max_tokens, _EMBEDDED_TOKENS if leaf.model == EMBEDDED else 10**9)
        sampling = leaf.sampling.model_copy(update={"max_tokens": tokens})
        endpoint = own.model_copy(update={"outage_timeout_s": 0.0, **limits})
        return leaf.model_copy(update={"endpoint": endpoint, "sampling": sampling})

    hasty = judge.map_leaves(once)
    echo(f"asking {judge.name} about {COMPLETION.text!r}: {' / '.join(one.text for one in RUBRIC.criteria)}")
    shown = (COMPLETION, OTHER) if judge.mode == "comparative" else (COMPLETION,)
    start = time.perf_counter()
    verdicts, *_ = ask(hasty, lambda engine: score_group(engine, hasty, RUBRIC, PROMPT, shown))
    seconds = time.perf_counter() - start
    unscored = sorted((one for one in verdicts if one.value is None), key=lambda one: one.outcome != "failed")
    reason = unscored[0].reason if unscored else None
    problem = f"{reason or unscored[0].outcome}: {unscored[0].detail or ''}".rstrip(": ") if unscored else ""
    if reason in _NOT_REACHED:
        hint = _reach_hint(judge, reason, unscored[0].detail or "")
        raise UnavailableError(f"judge {judge.name!r} does not answer: {problem}", hint=hint)
    answers, values = [], list[float]()
    for name, one in zip(("met", "not met"), verdicts, strict=True):
        if one.value is None:
            answers.append(f"{one.reason or one.outcome} ({name})")
            continue
        values.append(one.value if one.probability is None else one.probability)
        answers.append(f"{'' if one.probability is None else 'P(yes) '}{values[-1]:.2f} ({name})")
    echo(f"{judge.name} answers: {', '.join(answers)}; {seconds:.1f} s")
    for vote in {v.by: v for one in verdicts for v in one.votes if v.outcome == "failed"}.values():
        echo(f"warning: {vote.by} of {judge.name} failed: {vote.reason}: {vote.detail or ''}")
    if unscored:
        echo(f"warning: {judge.name} answers without a verdict: {problem}")
    elif values[0] - values[1] < MIN_DIFFERENCE:
        echo(f"warning: {judge.name} does not distinguish a met criterion from one that is not: {', '.join(answers)}")
    else:
        return
    echo(f"hint: {FIXES[reason] if reason else 'use another mode or another model'}")


def _reach_hint(judge: Judge, reason: Reason, detail: str) -> str:
    """Return what to do about a failure to reach the model."""
    if judge.members:
        return f"{FIXES[reason]}; `rubricsvc judges add` asks a member alone"
    if judge.engine != "openai_http" and reason is Reason.UNREACHABLE:
        if judge.adapter:
            return "name a LoRA adapter in peft's format, and the base that it was trained on (docs/judges.md)"
        return "name an instruction-tuned model: `embedded`, a folder, or a hub name (base models lack a chat template)"
    if judge.engine == "openai_http" and reason is Reason.REFUSED and not detail.startswith(("HTTP 401", "HTTP 403")):
        with suppress(UnavailableError):  # not every server lists them
            if judge.model not in (names := served_models(judge.endpoint)):
                return f"the server has no model {judge.model!r}; it has {cut(', '.join(names), 400)}"
    return FIXES[reason]


@command(app, without=("resamples",))
def agreement(
    query: AgreementQuery,
    judge: Annotated[str | None, typer.Argument(help="Name or id.", show_default="between people")] = None,
    as_json: Json = False,
) -> None:
    """Compare a judge's verdicts with people's labels, or, without a judge, people's with each other.

    It prints the mean over criteria, all pooled, the 20 criteria with the most labels, and the completions on which
    they differ most. --json has every criterion, with its confusion.
    """
    with service() as s:
        found = s.labels.agreement(query) if judge is None else s.judges.agreement(judge, query)
    show(found if as_json else found.model_copy(update={"criteria": found.criteria[:20]}), as_json)


@command(app)
def calibrate(
    judge: JudgeRef,
    query: CalibrationQuery,
    *,
    name: Annotated[str | None, typer.Option("--as", help="New judge.", show_default="NAME-calibrated")] = None,
    as_json: Json = False,
) -> None:
    """Calibrate a readout judge on labels, and store the calibrated judge under a new name.

    It needs labels on at least 10 prompts that the judge has scored. Each family of criteria (first tag, else kind of
    scale) with at least 20 labels gets a curve: temperature, Platt or isotonic, by cross-validated log loss. Its effect
    is measured on held-out prompts.
    """
    with service() as s:
        calibrated = s.judges.calibrate(judge, query)
    show(calibrated, as_json)
    for one in calibrated.families:
        if one.before and one.after and one.after.log_loss > one.before.log_loss:
            echo(f"{one.family}: worse on held-out prompts than uncalibrated; add labels before you use the new judge")
    if calibrated.judge is None and not as_json:
        hint = "label more completions, good and bad ones of each family; see the column null_reason"
        raise InvalidError("no family of criteria could be calibrated; no judge was stored", hint=hint)


@app.command()
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
    as_json: Json = False,
) -> None:
    """Attack a judge and report how often it is fooled, with 95 % Wilson intervals.

    Master keys, empty and constant completions, prompt injection of seven kinds, padding, self-praise, format tricks,
    the order of criteria, and verdicts that contradict their rationale. A trajectory judge is asked about last steps;
    they also loop, claim what was not done, give up or end early. The audit is stored with the judge; `judges show`
    and `runs start` report it. An interrupted audit resumes. Exits with 4 if a suite is not passed.
    """
    from workers.audit import cases, runner, suites

    with service() as s:
        stored = s.judges.get(judge).value
    taken = cases.built_in(stored.mode) if data is None else cases.from_records(load(data), source=str(data))
    plan = suites.AuditPlan(taken, suites.built_in(stored.mode), per_attack).adapted(stored)
    limits = _limits(plan, max_fpr or [])
    plan = plan.only(suite) if suite else plan
    path = get_settings().cache_dir / "audits" / f"{stored.digest[:32]}-{plan.digest[:32]}.jsonl"
    kept = output.continue_hint("the completions judged so far are kept")
    with kept, runner.open_journal(path) as journal, progress_bar("audit") as bar:
        if done := len(journal.verdicts):
            echo(f"resuming an interrupted audit: {done} completions are judged")
        options: dict[str, Any] = {"max_rates": limits, "journal": journal, "on_progress": bar.update}
        result = ask(stored, lambda engine: runner.run(engine, stored, plan, **options))
    given = [f"--data {data.name}"] if data is not None else []
    given += [f"--per-attack {per_attack}"] * (per_attack != DEFAULT_PER_ATTACK)
    given += [f"--max-fpr {one}" for one in max_fpr or []]
    result = result.model_copy(update={"non_default_options": " ".join(given)})
    if suite is None:
        with service() as s:
            s.judges.record_audit(stored.name, result)
    else:
        echo("not stored: only some of the suites were run")
    path.unlink(missing_ok=True)  # kept where the service could not store the result
    with exit_with(OK if result.passed else NOT_PASSED):
        if as_json:
            show({"judge": stored.name, "passed": result.passed} | result.model_dump(mode="json"), as_json)
            return
        columns = ("name", "attacks", "rate", "baseline", "mean_shift", "max_rate", "passed", "unscored", "reason")
        show(result.suites, columns=columns)
        families = [(one.name, one.families.items()) for one in result.suites]
        kinds = [{"suite": suite, "kind": kind, "rate": rate} for suite, rates in families for kind, rate in rates]
        show({"kinds": kinds, "worst": result.worst})
        echo(f"{stored.name}: {result.result}{f' ({result.non_default_options})' * bool(given)}")


def _limits(plan: AuditPlan, given: Sequence[str]) -> dict[str, float]:
    """Return limits by suite; a bare rate is the limit of all rates of false positives that are not named."""
    limits: dict[str, float] = {}
    attacks = [one.name for one in (*plan.baseline, *plan.attacks) if one.measure in ("met", "preferred")]
    for text in sorted(given, key=lambda text: "=" in text):
        name, sign, number = text.rpartition("=")
        if not re.fullmatch(r"0|1|[01]?\.\d+", number) or float(number) > 1:
            hint = "write --max-fpr 0.05, or --max-fpr injection=0.1"
            raise InvalidError(f"--max-fpr: expected a rate from 0 to 1, found {cut(number, 70)!r}", hint=hint)
        limits |= {name: float(number)} if sign else dict.fromkeys(attacks, float(number))
    plan.check_names(limits)
    return limits


@app.command()
def repeatability(
    judge: JudgeRef,
    *,
    job: Annotated[int | None, typer.Option(help="Ask about this job.", show_default="built-in cases")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum completions; of a job a random sample.")] = 40,
    repeats: Annotated[int, typer.Option(min=2, max=100, help="Times that each is asked.")] = DEFAULT_REPEATS,
    as_json: Json = False,
) -> None:
    """Measure how far a judge's verdicts and rewards vary when it is asked the same again.

    The questions are asked in other batches and orders, and with other seeds. Reports the standard deviation of verdict
    values by kind of scale, and of rewards, with 95 % bootstrap intervals. It is stored with the judge in place of an
    earlier one; `judges show` has it, and GRPO takes it as the least deviation that it divides by.
    """
    from workers.audit import cases
    from workers.audit.repeatability import measure

    with service() as s:
        stored = s.judges.get(judge).value
        if job is None:
            rows = [(case.rubric, case.prompt, Completion(text=case.text)) for case in cases.built_in()[:limit]]
        else:
            rows = _sample(s, job, limit, whole_groups=stored.mode == "comparative")
    options: dict[str, Any] = {"source": f"job {job}" if job else "built-in cases", "repeats": repeats}
    with progress_bar("repeatability") as bar:
        result = ask(stored, lambda engine: measure(engine, stored, rows, on_progress=bar.update, **options))
    if result.reward.value is None and not any(one.n for one in result.criteria.values()):
        hint = f"see what it answers: rubricsvc score --judge {stored.name} …"
        raise UnavailableError(f"{stored.name!r} scored no question twice ({cell(result.unscored)})", hint=hint)
    with service() as s:
        s.judges.record_repeatability(stored.name, result)
    echo(f"stored with judge {stored.name!r}, in place of any earlier measurement")
    if result.completions < MIN_COMPLETIONS:
        echo(f"warning: {counted(result.completions, 'completion')} say little: name a larger job, or leave out --job")
    show({"judge": stored.name, **result.model_dump(mode="json")}, as_json)


def _sample(s: Service, job: int, limit: int, *, whole_groups: bool) -> list[tuple[Rubric, Prompt, Completion]]:
    """Return a random sample of a job's completions; ``whole_groups`` keeps those of a prompt together."""
    items = list(every_row(s.jobs.items, job, verdicts=False))
    draw = random.Random(0)
    place = cache(lambda *_: draw.random())
    items.sort(key=lambda one: place(one.prompt_id, one.rubric_id) if whole_groups else place(one.id))
    rubric, prompt = cache(s.rubrics.get), cache(s.prompts.get)
    return [
        (rubric(one.rubric_id).rubric, prompt(one.prompt_id).prompt, s.completions.get(one.completion_id).completion)
        for one in items[:limit]
        if one.rubric_id is not None and one.completion_id is not None
    ]


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="See docs/judge-training.md.")],
    *,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Load and divide the data; train nothing.")] = False,
    audit: Annotated[bool, typer.Option("--audit/--no-audit", help="Also measure repeatability.")] = True,
    add: Annotated[bool, typer.Option("--add/--no-add", help="Add the judge to the database.")] = True,
    as_json: Json = False,
) -> None:
    """Train a judge from labels, stored verdicts or questions by construction, and add it with its passport.

    Ctrl-C stops after the current step and saves a checkpoint; --resume continues, also an examination that was
    interrupted: without training again. The weights, judge.json and passport.json are written to
    the folder judge/ in the training's folder.
    """
    from trainer import checkpoint
    from trainer.judge_training.config import load_config
    from trainer.judge_training.data import load_data
    from trainer.judge_training.run import FOLDER, check_judge, examine_judge, train_judge

    telemetry.configure("WARNING", human=True)
    loaded = load_config(config)
    with ExitStack() as stack:
        opened = cache(lambda: stack.enter_context(service()))
        check_judge(loaded, _known(opened(), loaded.judge.name) if add else None)
        if not dry_run:
            checkpoint.check_folder(loaded.out, resume=resume)
        echo("loading the data")
        prepared = load_data(loaded, opened)
    hidden = {"digest", "license", "pairs"}
    plan = [one.model_dump(mode="json", exclude=hidden) for one in prepared.sources(loaded)]
    sizes = {name: len(part) for name, part in prepared.parts.items()} | {"left_out": prepared.left_out}
    if dry_run:
        show({"data": plan, "split": sizes}, as_json)
        return
    for row in plan:
        echo(f"data: {cell(row)}")
    echo(f"split by prompt: {cell(sizes)}")
    if loaded.judge.model == EMBEDDED:
        fetch_embedded()
    switches = [option for option, on in (("--no-audit", not audit), ("--no-add", not add)) if on]
    command = shlex.join(["rubricsvc", "judges", "train", str(config), *switches, "--resume"])
    with checkpoint.locked(loaded.out), output.continue_hint("the checkpoints are kept", command):
        with progress_bar("training") as bar, stopping() as stop:

            def on_step(step: Metrics) -> None:
                rate = step["tokens"] / step["step_time"]
                validation = f", validation {cell(step['validation_loss'])}" if "validation_loss" in step else ""
                note = f"loss {cell(step['loss'])}{validation}, {rate:.0f} tokens/s"
                bar.update(step["step"], loaded.steps, note)

            judge, trained = train_judge(
                loaded, prepared, on_encode=bar.update, on_step=on_step, stop=stop, resume=resume
            )
        for name, one in prepared.datasets.items():
            if one.left_out:
                echo(f"left out of {name}: {one.reasons}")
        if judge is None:
            raise KeyboardInterrupt
        with progress_bar("examination") as bar:
            judge, passport, failed = examine_judge(
                loaded, prepared, judge, trained, audited=audit, on_progress=bar.update
            )
        if failed:
            echo(f"warning: {counted(failed, 'verdict')} of the test failed, and counts as 0.5")
        if add:
            with service() as s:
                s.judges.add(judge=judge, passport=passport)
    table = passport.tables[0]
    measured = {row.scorer: row[table.measure] for row in table.whole}
    figure = measured[TRAINED]
    baselines = {name: one.value for name, one in measured.items() if name not in (TRAINED, UNTRAINED)}
    best, name = max(((value, name) for name, value in baselines.items() if value is not None), default=(None, ""))
    if best is not None and (figure.value or 0.0) <= best:
        echo(f"warning: on {table.name} the judge does not beat the best baseline ({name} {cell(best)})")
    fields = {"name": judge.name, "folder": str(loaded.out / FOLDER), "added": add}
    fields |= {"steps": trained.best_step, "validation_loss": trained.best_loss, "test_set": table.name}
    fields |= {"measure": table.measure, "n": table.whole[0].n, **figure.model_dump()}
    fields["best_baseline"] = None if best is None else {"scorer": name, "value": best}
    show(fields | {"audit": passport.audit and passport.audit.result, "not_for": passport.not_for}, as_json)
