"""`rubricsvc judges`: judges, and what is known of their quality."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc.cli.agreement import JudgeRef, agreement, calibrate
from rubricsvc.cli.audit import audit, failures_text, repeatability
from rubricsvc.cli.db import database
from rubricsvc.cli.judge_training import train
from rubricsvc.cli.local_judges import describe_embedded, embedded_judge
from rubricsvc.cli.merge import merge
from rubricsvc.cli.models import ApiKeyEnv, judge_from_options, served_judge
from rubricsvc.cli.output import After, Force, Json, Limit, echo, group, print_json, show, show_page, write_example
from rubricsvc.cli.passport import figure_texts, passport
from rubricsvc.cli.probe import probe as probe_command
from rubricsvc.cli.probe import probe_before_adding
from rubricsvc.core.judge import FREE, Judge
from rubricsvc.core.passport import Passport
from rubricsvc.errors import InvalidError
from rubricsvc.formats.documents import dump_judge, load_judges, load_passport
from rubricsvc.store import judges
from rubricsvc.store.tables import AuditRow, JudgeRow
from workers.engines.local.weights import adapter_passport, judge_with_adapter, with_adapter_fields
from workers.judges import validate

app = group("Judges: add, test and compare them.")
for command in (agreement, audit, calibrate, merge, passport, probe_command, repeatability, train):
    app.command()(command)

Probe = Annotated[bool, typer.Option("--probe/--no-probe", help="Ask two test questions first.")]


@app.command("list")
def list_(limit: Limit = 50, after: After = 0, as_json: Json = False) -> None:
    """List judges."""
    with database() as db, db.read() as session:
        rows = judges.page(session, after=after, limit=limit + 1)
        newest = judges.newest_audit(session, [row.id for row in rows])
        empty = "no judges; add one with `rubricsvc judges add NAME --embedded`"
        show_page(rows, lambda row: _row(row, newest.get(row.id)), limit, as_json, empty=empty)


@app.command("show")
def show_(
    ref: JudgeRef,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print a judge file.")] = False,
    as_json: Json = False,
) -> None:
    """Show a judge. With --json its newest audit, its repeatability and its passport are complete."""
    with database() as db, db.read() as session:
        row = judges.get(session, ref)
        if as_yaml:
            dump_judge(row.value, sys.stdout)
            return
        audit = judges.newest_audit(session, [row.id]).get(row.id)
        fields = _row(row, audit) | {"digest": row.digest}
        if as_json:
            newest = audit and audit.value.model_dump(mode="json")
            measured = {"newest_audit": newest, "repeatability": row.repeatability, "passport": row.passport}
            print_json(fields | {"judge": row.content} | measured)
        else:
            rates = {suite.name: suite.rate.value for suite in audit.value.audit.suites} if audit else {}
            trained = row.passport_value
            failures = failures_text(audit.value.audit) if audit else ""
            qualities = {"audit_failures": failures, "audit_rates": rates} | (figure_texts(trained) if trained else {})
            content = {name: value for name, value in row.content.items() if name not in fields}
            show(fields | qualities | content)


def _row(row: JudgeRow, audit: AuditRow | None = None) -> dict[str, Any]:
    """Return a judge with its newest audit and the standard deviation of its rewards."""
    stored, repeatability, judge = row.content, row.measured, row.valid
    return {
        "id": row.id,
        "name": row.name,
        "engine": "" if stored.get("members") else stored["engine"],  # members have their own
        "model": stored["model"],
        "mode": stored["mode"],
        "members": [member["name"] for member in stored.get("members") or ()],
        "calibrated": judge and judge.calibrated,
        "audit": audit and f"{'passed' if audit.passed else 'not passed'} {audit.created_at:%Y-%m-%d}",
        "reward_std": repeatability and repeatability.reward.value,
        "has_passport": row.has_passport,
        "url": stored["endpoint"]["base_url"],
        "digest": row.digest[:12],
        "error": row.error or "",
    }


@app.command()
def add(
    name: Annotated[str | None, typer.Argument(help="Name of the judge.", show_default=False)] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Judge file; - is stdin.")] = None,
    passport_file: Annotated[
        Path | None, typer.Option("--passport", help="Passport of a trained judge; see `judges passport`.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="URL, like http://host/v1", show_default="api.openai.com")] = None,
    model: Annotated[str | None, typer.Option(help="Model name.", show_default="the only one at --url")] = None,
    adapter: Annotated[str | None, typer.Option(help="Folder of a LoRA adapter; --model is its base.")] = None,
    mode: Annotated[str | None, typer.Option(help="How it is asked; see above.", show_default="readout")] = None,
    api_key_env: ApiKeyEnv = None,
    embedded: Annotated[bool, typer.Option("--embedded", help="Use the embedded 135M model.")] = False,
    untrained: Annotated[bool, typer.Option("--untrained", help="Leave out its shipped adapter.")] = False,
    probe: Probe = True,
    as_json: Json = False,
) -> None:
    """Add a judge from options, or judges from a file, after two test questions.

    Modes: readout (token probability), written (JSON verdict), comparative (completions side by side) and trajectory
    (steps of an agent). Prices, limits, sampling, voting and all other fields are in a judge file (docs/judges.md).
    """
    options = {"NAME": name, "--url": url, "--model": model, "--adapter": adapter, "--mode": mode}
    options["--api-key-env"] = api_key_env
    given = [option for option, value in options.items() if value is not None]
    given += ["--embedded"] * embedded + ["--untrained"] * untrained
    if file is not None:
        if given:
            raise InvalidError(f"--file and {given[0]} exclude each other", hint="write it into the file")
        added = [with_adapter_fields(judge) for judge in load_judges(file, _find)]
        describe_embedded(added)
    elif name is None:
        raise InvalidError("no name", hint="give NAME, or a judge file with --file")
    elif untrained and not embedded:
        raise InvalidError("--untrained needs --embedded", hint="leave --adapter out for a base without an adapter")
    elif embedded:
        if url or model or adapter:
            raise InvalidError("--embedded excludes --url, --model and --adapter", hint="give one of them")
        added = [embedded_judge(name, mode, untrained=untrained)]
    elif adapter is not None:
        if url:
            hint = "serve base and adapter as one model: `rubricsvc judges merge`"
            raise InvalidError("--adapter excludes --url", hint=hint)
        added = [judge_with_adapter(name, adapter, model, mode)]
    elif url is None and model is None:
        raise InvalidError("no model", hint="name one with --model, or use the embedded one with --embedded")
    else:
        added = [served_judge(name, url, model, mode or "readout", api_key_env)]
    trained = _passport_of(passport_file, added)
    for judge in added:
        _check(judge, file)
        if probe:
            probe_before_adding(judge)
    _store(added, as_json, trained)


@app.command()
def update(
    ref: JudgeRef,
    *,
    url: Annotated[str | None, typer.Option(help="New URL of the server.")] = None,
    api_key_env: ApiKeyEnv = None,
    probe: Probe = True,
    as_json: Json = False,
) -> None:
    """Change how a judge is reached. Its stored verdicts stay valid."""
    with database() as db, db.read() as session:
        fields = judges.get(session, ref).content  # whose address may be invalid
    if fields.get("members"):
        hint = "write it with `judges show NAME --yaml`, change its members, and add the file"
        raise InvalidError(f"judge {fields['name']!r} is a {fields['mode']}: its members have the endpoints", hint=hint)
    changes = {name: v for name, v in (("base_url", url), ("api_key_env", api_key_env)) if v is not None}
    if not changes:
        raise InvalidError("nothing to change", hint="give --url or --api-key-env")
    judge = judge_from_options(**fields | {"endpoint": fields["endpoint"] | changes})
    if probe:
        probe_before_adding(judge)
    _store([judge], as_json)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="File to write.")] = Path("judge.yaml"), force: Force = False
) -> None:
    """Write a commented example of a judge file."""
    write_example("example_judge.yaml", file, force, "rubricsvc judges add -f")


def _find(ref: str) -> Judge:
    with database() as db, db.read() as session:
        return judges.get(session, ref).value


def _passport_of(file: Path | None, added: list[Judge]) -> Passport | None:
    """Return the passport in ``file``, or else in the folder of the adapter, of the one judge that is added."""
    if len(added) != 1:
        if file is None:
            return None
        hint = "add the trained judge by itself, from a file of its own"
        raise InvalidError(f"--passport is of one judge, and {len(added)} are added", hint=hint)
    trained = adapter_passport(added[0]) if file is None else load_passport(file)
    if trained is not None:
        trained.check_judge(added[0])
    return trained


def _check(judge: Judge, file: Path | None) -> None:
    """Check that the judge's template, engine and mode fit, and that no setting is without effect."""
    unused = _unused_setting(judge)
    if unused:
        setting, needs = unused
        place = f"{file}: " if file and str(file) != "-" else ""
        message = f"{place}judge {judge.name!r}: {setting} has no effect; it needs {needs}"
        raise InvalidError(message, hint="leave it out")
    validate(judge)
    if judge.engine == "openai_http" and judge.endpoint.base_url is None and not judge.members:
        echo(f"{judge.name}: no URL, using api.openai.com")


def _unused_setting(judge: Judge) -> tuple[str, str] | None:
    """Return the first setting that this judge ignores, and what it needs to have an effect."""
    if judge.members:
        return None
    comparison = judge.effective_comparison
    written_by_mode = {"written": True, "comparative": comparison.is_written}
    writes = written_by_mode.get(judge.mode, judge.mode == "trajectory" and judge.effective_trajectory.written)
    single = not writes or (judge.mode == "comparative" and comparison.kind == "groupwise")
    changed = judge.model_dump(exclude_defaults=True)
    endpoint = changed.get("endpoint", {}).keys() - {"concurrency", "price"} if judge.engine in FREE else set()
    sampling = {} if writes else changed.get("sampling", {})
    voting = judge.voting is not None and judge.voting.samples == 1 and judge.voting.rule != "mean"
    unused = {
        ("threshold", "a judge that is read out"): writes and judge.threshold is not None,
        ("min_answer_mass", "a judge that is read out"): writes and "min_answer_mass" in changed,
        ("criteria_per_call", "mode: written"): single and judge.criteria_per_call != 1,
        ("voting.rule", "voting.samples above 1"): voting,
        **{(f"sampling.{field}", "a judge that writes"): True for field in sampling},
        **{(f"endpoint.{field}", "engine: openai_http"): True for field in sorted(endpoint)},
    }
    return next((setting for setting, ignored in unused.items() if ignored), None)


def _store(added: list[Judge], as_json: bool, trained: Passport | None = None) -> None:
    """Store all judges or none, with the passport of the only one, and print them."""
    with database() as db, db.write() as session:
        stored = [judges.add(session, judge) for judge in added]
        if trained is not None:
            judges.set_passport(session, stored[0].id, trained)
        newest = judges.newest_audit(session, [row.id for row in stored])
        rows = [_row(row, newest.get(row.id)) for row in stored]
    for row in rows:
        show(row, as_json)
    if trained is not None:
        echo(f"what it can judge and what it cannot: rubricsvc judges passport {added[0].name}")
