"""`rubricsvc judges`: judges, and what is known of their quality."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc.cli.judge_quality import (
    ADD_TIMEOUT_S,
    JudgeRef,
    agreement,
    audit,
    calibrate,
    probe,
    probed,
    repeatability,
)
from rubricsvc.cli.judge_training import train
from rubricsvc.cli.models import (
    ApiKeyEnv,
    describe_embedded,
    embedded_judge,
    fetch_if_embedded,
    judge_from_options,
    served_judge,
)
from rubricsvc.cli.options import command
from rubricsvc.cli.output import (
    Force,
    Json,
    clean,
    echo,
    estimate_cells,
    group,
    number,
    print_data,
    print_json,
    print_table,
    replaced,
    show,
    show_list,
    write_example,
)
from rubricsvc.cli.service import local_service, service
from rubricsvc.core.judge import FREE, Judge
from rubricsvc.core.passport import Passport, Table
from rubricsvc.errors import InvalidError
from rubricsvc.formats.documents import dump_judge, load_judges, load_passport
from rubricsvc.queries import Paging
from rubricsvc.schemas import StoredJudge
from workers.engines.local.weights import adapter_passport, judge_with_adapter, with_adapter_fields
from workers.judges import validate

app = group("Judges: add, test and compare them.")
for function in (agreement, audit, calibrate, probe, repeatability, train):
    app.command()(function)

MAX_SHOWN = 5
"""Test sets whose figures `judges show` prints."""

Probe = Annotated[bool, typer.Option("--probe/--no-probe", help="Ask two test questions first.")]


@command(app, "list")
def list_(query: Paging, as_json: Json = False) -> None:
    """List judges."""
    with service() as s:
        page = s.judges.page(query)
    if as_json:
        show(page, as_json)
        return
    show_list(map(_row, page.data), empty="no judges; add one with `rubricsvc judges add NAME --embedded`")
    if page.next is not None:
        echo(f"more rows follow: continue with --after {page.next}, or raise --limit")


def _row(stored: StoredJudge) -> dict[str, Any]:
    """Return a judge, its newest audit and the standard deviation of its rewards as a line of a table."""
    judge, measured = stored.judge, stored.repeatability
    return {
        "id": stored.id,
        "name": stored.name,
        "engine": judge.engine if judge and not judge.members else None,
        "model": judge and judge.model,
        "mode": judge and judge.mode,
        "members": [member.name for member in (judge.members if judge else None) or ()],
        "calibrated": judge and judge.calibrated,
        "audit": stored.audit,
        "reward_std": measured and measured.reward.value,
        "has_passport": stored.has_passport,
        "url": judge and judge.endpoint.base_url,
        "digest": stored.digest[:12],
        "error": stored.error,
    }


@app.command("show")
def show_(
    ref: JudgeRef,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print a judge file.")] = False,
    as_json: Json = False,
) -> None:
    """Show a judge with the result of its newest audit, its repeatability and what its passport says."""
    with service() as s:
        stored = s.judges.get(ref)
        passport = s.judges.passport(stored.id) if stored.has_passport and not (as_json or as_yaml) else None
    if as_yaml:
        if stored.judge is None:
            raise InvalidError(f"judge {stored.name!r} is not valid", hint=stored.error or "")
        dump_judge(stored.judge, sys.stdout)
    elif as_json:
        show(stored, as_json)
    else:
        content = stored.judge.model_dump(mode="json", exclude={"engine", "model"}) if stored.judge else {}
        fields = content | _row(stored) | (figure_texts(passport) if passport else {})
        show({name: value for name, value in fields.items() if value is not None})


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
            _probe(judge)
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
    with local_service() as s:
        fields = s.judges.content(ref)  # whose address may be invalid
    if fields.get("members"):
        hint = "write it with `judges show NAME --yaml`, change its members, and add the file"
        raise InvalidError(f"judge {fields['name']!r} is a {fields['mode']}: its members have the endpoints", hint=hint)
    changes = {name: v for name, v in (("base_url", url), ("api_key_env", api_key_env)) if v is not None}
    if not changes:
        raise InvalidError("nothing to change", hint="give --url or --api-key-env")
    judge = judge_from_options(**fields | {"endpoint": fields["endpoint"] | changes})
    if probe:
        _probe(judge)
    _store([judge], as_json)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="File to write.")] = Path("judge.yaml"), force: Force = False
) -> None:
    """Write a commented example of a judge file."""
    write_example("example_judge.yaml", file, force, "rubricsvc judges add -f")


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
    with local_service() as s:
        stored = s.judges.add_all(added, trained)
    for one in stored:
        show(one.model_dump(mode="json") if as_json else _row(one), as_json)
    if trained is not None:
        echo(f"what it can judge and what it cannot: rubricsvc judges passport {added[0].name}")


def _find(ref: str) -> Judge:
    with local_service() as s:
        return s.judges.value(ref)


def _probe(judge: Judge) -> None:
    more = f" (--no-probe skips the questions, whose replies may take {ADD_TIMEOUT_S:g} s)"
    probed(judge, timeout_s=ADD_TIMEOUT_S, more=more)


@app.command()
def merge(ref: JudgeRef, *, out: Annotated[Path, typer.Option(help="New folder.", show_default=False)]) -> None:
    """Write a judge's base with its LoRA adapter merged, as a Hugging Face folder for `vllm serve`.

    The tokenizer and the judge's passport are in the folder, too.
    """
    with local_service() as s:
        judge, stored = s.judges.value(ref), s.judges.get(ref)
        passport = s.judges.passport(ref) if stored.has_passport else None
    if judge.adapter is None:
        hint = "serve its model as it is" if not judge.members else "merge one of its members"
        raise InvalidError(f"judge {judge.name!r} has no adapter", hint=hint)
    from workers.engines.local.models import write_merged
    from workers.engines.local.weights import PASSPORT_FILE, ModelWeights

    fetch_if_embedded(judge)
    with replaced(out, folder=True) as part:
        write_merged(part, ModelWeights(judge.model, judge.revision, judge.adapter, judge.weights_sha256))
        if passport is not None:
            with (part / PASSPORT_FILE).open("w", encoding="utf-8") as stream:
                stream.write(passport.model_dump_json(exclude_none=True) + "\n")
    echo(f"serve it with `vllm serve {out}`")


@app.command()
def passport(ref: JudgeRef, as_json: Json = False) -> None:
    """Print the passport of a trained judge: figures beside baselines, data, what it must not be used for.

    --json prints the file that `judges add --passport` reads.
    """
    with service() as s:
        value = s.judges.passport(ref)
    if as_json:
        print_json(value.model_dump(mode="json"))
    else:
        _print_passport(value)


def figure_texts(value: Passport) -> dict[str, Any]:
    """Return the main figures of a passport, and what the judge must not be used for, as fields of a record."""
    figures = []
    for table in [table for table in value.tables if table.whole][:MAX_SHOWN]:
        row, best = table.trained, table.best_baseline
        text = " ".join((table.measure, *estimate_cells(row[table.measure]))) if row else "not measured"
        baseline = f" ({best.scorer} {number(best[table.measure].value)})" if best else ""
        figures.append(f"{table.name}: {text.strip()}{baseline}")
    return {
        "trained_on": [source.name for source in value.data if not source.absent],
        "figures": "; ".join(figures),
        "not_for": " ".join(value.not_for),
    }


def _print_passport(value: Passport) -> None:
    """Print the figures, the ablations, the data, the audit, and on what the judge must not be used."""
    columns = ("measure", "n", "trained", "95%", "untrained", "best baseline", "")
    whole = [table for table in value.tables if table.whole]
    for heading, tables in [("test set", whole), *((table.name, table.parts) for table in value.tables)]:
        if tables:
            print_table((heading, *columns), map(_cells, tables))
            print_data("")
    if value.ablations:
        rows = [
            [a.left_out, a.table, *(number(one) for one in (a.complete.value, a.without.value, a.gain))]
            for a in value.ablations
        ]
        print_table(("left out of the data", "test set", "with it", "without it", "adds"), rows)
        print_data("")
    counts = ("completions", "questions", "pairs", "duplicates", "contradictions")
    sources = [
        [one.name, *(getattr(one, name) for name in counts), number(one.share), one.license, one.absent]
        for one in value.data
    ]
    print_table(("data", *counts, "share", "license", ""), sources)
    print_data(f"\nbase: {value.base.name}, {value.base.license}")
    report, again, audited = value.calibration, value.repeatability, value.audit
    if report is not None:
        errors = (" ".join(estimate_cells(one)).strip() for one in (report.before, report.after))
        print_data(f"calibration error, before and after: {', '.join(errors)}")
    if again is not None:
        print_data(f"reward_std: {' '.join(estimate_cells(again.reward, 4)).strip()}")
    print_data(f"audit: {audited.result if audited else 'not measured'}")
    for sentence in value.not_for:
        print_data(f"not for: {clean(sentence)}")


def _cells(table: Table) -> list[Any]:
    trained, best, measure = table.trained, table.best_baseline, table.measure
    figures = [estimate_cells(row and row[measure]) for row in (trained, table.untrained, best)]
    return [table.name, measure, trained and trained.n, *figures[0], figures[1][0], figures[2][0], best and best.scorer]
