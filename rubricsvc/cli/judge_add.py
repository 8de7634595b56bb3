"""`rubricsvc judges add`: a judge from options, kept once it has answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.database import database
from rubricsvc.cli.embedded import EMBEDDED, warn_of_embedded
from rubricsvc.cli.judge_probe import probe_judge
from rubricsvc.cli.judge_row import judge_row
from rubricsvc.cli.output import Json, echo, show
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from rubricsvc.core.base import Value
    from rubricsvc.core.judge import Judge

_IDLE = "leave it out"


def add(
    name: Annotated[str, typer.Argument(help="What to call it. A name stands for one judge for good.")],
    *,
    embedded: Annotated[bool, typer.Option("--embedded", help="The 135M model that needs no account.")] = False,
    model: Annotated[
        str | None, typer.Option(help="The model's name at the server, or a local folder; else the only one at --url.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="An OpenAI-compatible server: http://127.0.0.1:8000/v1", show_default="api.openai.com"),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="openai_http, vllm_local or transformers_local.", show_default="openai_http")
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            help="readout (a token's probability), written (a JSON verdict), comparative (answers side by side) or"
            " trajectory (an agent's steps)."
        ),
    ] = "readout",
    compare: Annotated[
        str | None, typer.Option(help="comparative: pairwise or groupwise.", show_default="groupwise")
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(min=1, help="groupwise: most answers in one call.", show_default="8")
    ] = None,
    opponents: Annotated[
        int | None, typer.Option(min=1, help="pairwise: others that each answer meets.", show_default="all")
    ] = None,
    top_n: Annotated[
        int | None, typer.Option(min=1, help="comparative: the best so many are worth 1, the others 0.")
    ] = None,
    traces: Annotated[
        bool, typer.Option("--traces", help="comparative: show agents' whole traces, not their last answers.")
    ] = False,
    segment: Annotated[
        int | None, typer.Option(min=1, help="trajectory: steps from one look to the next.", show_default="1")
    ] = None,
    final: Annotated[
        str | None, typer.Option(help="trajectory: last, mean, median or min of all looks.", show_default="mean")
    ] = None,
    written: Annotated[
        bool, typer.Option("--written", help="pairwise, trajectory: it writes its verdicts, and may think.")
    ] = False,
    revision: Annotated[
        str | None,
        typer.Option(help="The model's revision, part of the judge's identity.", show_default="the newest"),
    ] = None,
    template: Annotated[str | None, typer.Option(help="A prompt template by name.", show_default="the mode's")] = None,
    criteria_per_call: Annotated[int, typer.Option(min=0, help="written: criteria in one call; 0 is all.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, help="How the reply is drawn.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Draw from the likeliest tokens that share so much.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the first sample; the next ones count on.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply.")] = 1024,
    samples: Annotated[int, typer.Option(min=1, help="written: replies to draw, at a temperature above 0.")] = 1,
    vote: Annotated[str, typer.Option(help="How samples become one: mean, median, min or majority.")] = "mean",
    thinking: Annotated[
        int | None,
        typer.Option(
            min=1, help="written: let it think first; so many tokens on top of --max-tokens.", show_default="off"
        ),
    ] = None,
    require_evidence: Annotated[
        bool,
        typer.Option(
            "--require-evidence",
            help="written: quotes must stand in the answer; a positive finding needs one of 3 words or 12 letters.",
        ),
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(help="readout: met from this probability on.", show_default="none; the probability is the value"),
    ] = None,
    min_answer_mass: Annotated[
        float | None,
        typer.Option(help="readout: no answer where its labels share less probability.", show_default="0.1"),
    ] = None,
    max_context: Annotated[
        int | None, typer.Option(min=1, help="Refuse longer asks (tokens).", show_default="the model's own")
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help="The variable that holds the server's API key.",
            show_default="OPENAI_API_KEY for api.openai.com, else none",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for one call.")] = 120.0,
    max_retries: Annotated[int, typer.Option(min=0, help="How often a call that failed is made again.")] = 4,
    outage_timeout: Annotated[
        float, typer.Option(help="Seconds that a job waits for its server while that is down.")
    ] = 120.0,
    concurrency: Annotated[int, typer.Option(min=1, help="Most calls at once, of each process that scores.")] = 64,
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="Of each process that scores.")] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(min=1, help="Of each process that scores.")] = None,
    prompt_lists: Annotated[
        bool, typer.Option("--prompt-lists/--no-prompt-lists", help="Several readouts in one request, where it can.")
    ] = True,
    price: Annotated[
        tuple[float, float] | None,
        typer.Option(help="US dollars for a million tokens: of prompts, of replies.", show_default="unknown"),
    ] = None,
    price_cached: Annotated[
        float | None, typer.Option(help="The same for prompt tokens that the server knew.", show_default="as others")
    ] = None,
    probe: Annotated[bool, typer.Option("--probe/--no-probe", help="Ask it something before keeping it.")] = True,
    as_json: Json = False,
) -> None:
    """Add a judge, after asking it something."""
    if embedded:
        _refuse_beside_embedded(model=model, url=url, engine=engine)
        engine, model = "transformers_local", EMBEDDED
        warn_of_embedded()
    if model is None and url is not None and engine in (None, "openai_http"):
        model = _only_model(url, api_key_env)
    judge = make_judge(
        name=name,
        model=model,
        engine=engine or "openai_http",
        mode=mode,
        revision=revision,
        template=template,
        criteria_per_call=criteria_per_call,
        sampling={"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed},
        voting={"samples": samples, "rule": vote} if (samples, vote) != (1, "mean") else None,
        thinking={"budget_tokens": thinking} if thinking else None,
        require_evidence=require_evidence or None,
        **_ways(
            mode,
            written,
            comparative={
                "kind": compare,
                "group_size": group_size,
                "opponents": opponents,
                "top_n": top_n,
                "traces": traces or None,
            },
            trajectory={"segment": segment, "value": final},
        ),
        threshold=threshold,
        **({} if min_answer_mass is None else {"min_answer_mass": min_answer_mass}),
        max_context=max_context,
        endpoint={
            "base_url": url,
            "api_key_env": api_key_env,
            "timeout_s": timeout,
            "max_retries": max_retries,
            "outage_timeout_s": outage_timeout,
            "concurrency": concurrency,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
            "prompt_lists": prompt_lists,
            "price": _price(price, price_cached),
        },
    )
    reads = {"threshold": threshold, "min_answer_mass": min_answer_mass}
    _refuse_without_effect(judge, reads, criteria_per_call=criteria_per_call, vote=vote)
    _keep(judge, url, probe, as_json)


def _refuse_without_effect(judge: Judge, reads: dict[str, float | None], *, criteria_per_call: int, vote: str) -> None:
    """Raises InvalidError for an option that this judge would pass over; ``reads`` are those of readouts."""
    from rubricsvc.core.judge import FREE

    comparative = judge.mode == "comparative"
    written = judge.effective_comparison.is_written if comparative else judge.effective_trajectory.written
    writes = judge.mode == "written" or written
    idle = next((option for option, value in reads.items() if writes and value is not None), None)
    if idle:
        raise InvalidError(f"{_option_of(idle)} is for a readout, and this judge writes", hint=_IDLE)
    if not writes and (drawn := _changed(judge.sampling)):
        raise InvalidError(f"{_option_of(drawn[0])} is for a judge that writes, and this one is read out", hint=_IDLE)
    reached = [field for field in _changed(judge.endpoint) if field not in ("concurrency", "price")]
    if judge.engine in FREE and reached:
        raise InvalidError(f"{_option_of(reached[0])} is for a judge at a server, not for {judge.engine}", hint=_IDLE)
    alone = not writes or (judge.mode == "comparative" and judge.effective_comparison.kind == "groupwise")
    if criteria_per_call != 1 and alone:
        hint = "leave it out, or say --mode written"
        raise InvalidError("--criteria-per-call: this judge is asked each criterion by itself", hint=hint)
    if vote != "mean" and (judge.voting is None or judge.voting.samples == 1):
        raise InvalidError("--vote says nothing of a single reply", hint="draw several, with --samples")


def _changed(value: Value) -> list[str]:
    """The fields that are not as they are by themselves."""
    return [name for name, field in type(value).model_fields.items() if getattr(value, name) != field.get_default()]


def _keep(judge: Judge, url: str | None, probe: bool, as_json: bool) -> None:
    from rubricsvc.store import judges
    from workers.judges import validate

    validate(judge)
    if judge.engine == "openai_http" and url is None:
        echo("no --url: asking api.openai.com")
    if probe:
        probe_judge(judge)
    with database() as db, db.write() as session:
        row = judges.add(session, judge)
        show(judge_row(row), as_json)


def _only_model(url: str, api_key_env: str | None) -> str:
    from rubricsvc.cli.served_models import only_served_model

    endpoint = {"base_url": url, "api_key_env": api_key_env}
    found = only_served_model(make_judge(name="?", model="?", endpoint=endpoint).endpoint)
    echo(f"no --model: taking the only one that the server has, {found}")
    return found


_WAYS = {"comparative": "comparison", "trajectory": "trajectory"}
"""Modes with settings of their own, and the field of a judge that has them."""


def _ways(mode: str, written: bool, **options: dict[str, Any]) -> dict[str, Any]:
    """The settings of the mode; those of another one are refused."""
    given = {own: {n: v for n, v in each.items() if v is not None} for own, each in options.items()}
    wrong = [(own, next(iter(each))) for own, each in given.items() if each and own != mode]
    if wrong:
        own, field = wrong[0]
        raise InvalidError(f"{_option_of(field)} is for --mode {own}", hint=f"leave it out, or say --mode {own}")
    if written and mode not in given:
        raise InvalidError("--written is for --mode comparative or trajectory", hint="--mode written writes too")
    return {_WAYS[mode]: given[mode] | ({"written": True} if written else {})} if mode in given else {}


def _price(price: tuple[float, float] | None, cached: float | None) -> dict[str, float | None] | None:
    if price is None:
        if cached is not None:
            raise InvalidError("--price-cached says nothing without --price", hint="give both")
        return None
    return {"prompt": price[0], "completion": price[1], "cached": cached}


def _refuse_beside_embedded(**given: str | None) -> None:
    clash = next((option for option, value in given.items() if value is not None), None)
    if clash:
        raise InvalidError(f"--embedded and --{clash} exclude each other", hint="give one of them")


def make_judge(**fields: Any) -> Judge:
    """A judge from options.

    Raises:
        InvalidError: an option is missing or has no meaning; the message names it.
    """
    from pydantic import ValidationError

    from rubricsvc.core.judge import Judge
    from rubricsvc.core.validation_messages import first_error

    if fields["model"] is None:
        raise InvalidError("which model?", hint="name one with --model, or take the shipped one with --embedded")
    try:
        return Judge.model_validate(fields)
    except ValidationError as error:
        path, message = first_error(error, model=Judge)
        option = f"{_option_of(path.rpartition('.')[2])}: " if path else ""
        raise InvalidError(f"{option}{message}", hint="`rubricsvc judges add --help` lists the options") from error


def _option_of(field: str) -> str:
    return _OPTIONS.get(field, f"--{field.replace('_', '-')}")


_OPTIONS = {
    "name": "NAME",
    "base_url": "--url",
    "timeout_s": "--timeout",
    "outage_timeout_s": "--outage-timeout",
    "rule": "--vote",
    "budget_tokens": "--thinking",
    "kind": "--compare",
    "comparison": "--compare",
    "value": "--final",
}
"""Fields of a judge that the command line calls otherwise."""
