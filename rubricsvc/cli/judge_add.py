"""`rubricsvc judges add`, `update` and `init`: judges from options or files, stored after a test question."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from rubricsvc.cli.database import database
from rubricsvc.cli.embedded import EMBEDDED, warn_of_embedded
from rubricsvc.cli.judge_probe import probe_judge
from rubricsvc.cli.judge_row import judge_row
from rubricsvc.cli.output import Force, Json, echo, show, write_example
from rubricsvc.cli.served_models import only_served_model
from rubricsvc.core.base import Value
from rubricsvc.core.judge import FREE, Judge
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError
from rubricsvc.formats.judges import load_judges
from rubricsvc.store import judges
from workers.judges import validate

ApiKeyEnv = Annotated[
    str | None,
    typer.Option(
        help="Environment variable that holds the server's API key.", show_default="OPENAI_API_KEY for api.openai.com"
    ),
]
Probe = Annotated[bool, typer.Option("--probe/--no-probe", help="Ask a test question first.")]


def add(
    name: Annotated[
        str | None, typer.Argument(help="Name of the judge. A name always means the same judge.", show_default=False)
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Judge file with any fields (docs/judges.md); - is stdin.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="OpenAI-compatible server: http://127.0.0.1:8000/v1", show_default="api.openai.com"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model name on the server.", show_default="the only one at --url")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="readout (token probability), written (JSON verdict), comparative (completions side by side) or"
            " trajectory (steps of an agent).",
            show_default="readout",
        ),
    ] = None,
    api_key_env: ApiKeyEnv = None,
    embedded: Annotated[bool, typer.Option("--embedded", help="Use the embedded 135M model.")] = False,
    probe: Probe = True,
    as_json: Json = False,
) -> None:
    """Add a judge from options, or judges from a file, after a test question.

    Prices, limits, sampling, voting, thinking and the options of a mode are fields of a judge file.
    """
    options = {"NAME": name, "--url": url, "--model": model, "--mode": mode, "--api-key-env": api_key_env}
    given = [option for option, value in options.items() if value is not None] + ["--embedded"] * embedded
    if file is not None:
        if given:
            raise InvalidError(f"--file and {given[0]} exclude each other", hint="write it into the file")
        judges = _read(file)
    else:
        endpoint = {"base_url": url, "api_key_env": api_key_env}
        judges = [_from_options(name, model, mode or "readout", endpoint, embedded)]
    for judge in judges:
        _check(judge)
        if probe and not judge.members:
            probe_judge(judge)
    _store(judges, as_json)


def update(
    ref: Annotated[str, typer.Argument(help="Name or id of the judge.")],
    *,
    url: Annotated[str | None, typer.Option(help="New URL of the server.")] = None,
    api_key_env: ApiKeyEnv = None,
    probe: Probe = True,
    as_json: Json = False,
) -> None:
    """Change how a judge is reached. Its stored verdicts stay valid."""
    with database() as db, db.read() as session:
        judge = judges.get(session, ref).value
    if judge.members:
        hint = "write it with `judges show NAME --yaml`, change its members, and add the file"
        raise InvalidError(f"judge {judge.name!r} is a {judge.mode}: its members have the endpoints", hint=hint)
    changes = {name: v for name, v in (("base_url", url), ("api_key_env", api_key_env)) if v is not None}
    if not changes:
        raise InvalidError("nothing to change", hint="give --url or --api-key-env")
    fields = judge.model_dump(mode="json")
    judge = judge_from_options(**fields | {"endpoint": fields["endpoint"] | changes})
    if probe:
        probe_judge(judge)
    _store([judge], as_json)


def init(
    file: Annotated[Path, typer.Argument(help="File to write.")] = Path("judge.yaml"), force: Force = False
) -> None:
    """Write a commented example of a judge file."""
    write_example("example_judge.yaml", file, force)
    echo(f"wrote {file}; change it, then: rubricsvc judges add -f {file}")


def judge_from_options(**fields: Any) -> Judge:
    """Return a judge from the values of options; an error names the option."""
    try:
        return Judge.model_validate(fields)
    except ValidationError as error:
        path, message = first_error(error, model=Judge)
        option = _OPTIONS.get(path, f"--{path.rpartition('.')[2].replace('_', '-')}")
        hint = "see `rubricsvc judges add --help`"
        raise InvalidError(f"{option}: {message}" if path else message, hint=hint, path=path) from error


_OPTIONS = {"name": "NAME", "endpoint.base_url": "--url"}
"""Options whose names differ from their fields'."""


def _from_options(
    name: str | None, model: str | None, mode: str, endpoint: dict[str, str | None], embedded: bool
) -> Judge:
    if name is None:
        raise InvalidError("no name", hint="give NAME, or a judge file with --file")
    if embedded:
        if endpoint["base_url"] or model:
            raise InvalidError("--embedded excludes --url and --model", hint="give one of them")
        warn_of_embedded()
        return judge_from_options(name=name, engine="transformers_local", model=EMBEDDED, mode=mode)
    judge = judge_from_options(name=name, model=model or "unknown", mode=mode, endpoint=endpoint)
    if model is not None:
        return judge
    if endpoint["base_url"] is None:
        raise InvalidError("no model", hint="name one with --model, or use the embedded one with --embedded")

    only = only_served_model(judge.endpoint)
    echo(f"no --model: using the only one on the server, {only}")
    return judge.model_copy(update={"model": only})


def _read(file: Path) -> list[Judge]:
    def find(name: str) -> Judge:
        with database() as db, db.read() as session:
            return judges.get(session, name).value

    return load_judges(file, find)


def _check(judge: Judge) -> None:
    """Check that the judge's template, engine and mode fit, and that no setting is without effect."""
    unused = _unused_setting(judge)
    if unused:
        setting, needs = unused
        raise InvalidError(f"judge {judge.name!r}: {setting} has no effect; it needs {needs}", hint="leave it out")
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
    endpoint = set(_changed(judge.endpoint)) - {"concurrency", "price"} if judge.engine in FREE else set()
    sampling = [] if writes else _changed(judge.sampling)
    voting = judge.voting is not None and judge.voting.samples == 1 and judge.voting.rule != "mean"
    unused = {
        ("threshold", "a judge that is read out"): writes and judge.threshold is not None,
        ("min_answer_mass", "a judge that is read out"): writes and "min_answer_mass" in _changed(judge),
        ("criteria_per_call", "mode: written"): single and judge.criteria_per_call != 1,
        ("voting.rule", "voting.samples above 1"): voting,
        **{(f"sampling.{field}", "a judge that writes"): True for field in sampling},
        **{(f"endpoint.{field}", "engine: openai_http"): True for field in sorted(endpoint)},
    }
    return next((setting for setting, ignored in unused.items() if ignored), None)


def _changed(value: Value) -> list[str]:
    """Return the fields that differ from their defaults."""
    return [name for name, field in type(value).model_fields.items() if getattr(value, name) != field.get_default()]


def _store(added: list[Judge], as_json: bool) -> None:
    """Store all judges or none, and print them."""
    with database() as db, db.write() as session:
        rows = [judge_row(judges.add(session, judge)) for judge in added]
    for row in rows:
        show(row, as_json)
