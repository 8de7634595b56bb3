"""Reaching the model of a judge in this process: judges from options, a test question, and the embedded model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError

from rubricsvc.cli.output import echo, progress_bar
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.validation_messages import first_error
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError, UnavailableError, cut
from rubricsvc.settings import get_settings, secret
from workers.engines import make_engine
from workers.engines.base import Engine
from workers.engines.local.embedded_model import NAME, embedded_model
from workers.scoring.completions import score_group

Result = TypeVar("Result")

EMBEDDED = "embedded"

ApiKeyEnv = Annotated[
    str | None, typer.Option(help="Variable that holds the API key.", show_default="OPENAI_API_KEY at api.openai.com")
]

_HINTS = {
    "unreachable": "start the server, or correct its URL (it usually ends in /v1)",
    "timeout": "the server is slow or does not respond; allow more time with endpoint.timeout_s in a judge file",
    "refused": "check the model, and the API key in the variable of --api-key-env (in a judge file: api_key_env)",
    "rate_limited": "rate limited (429); try again later, or with a lower endpoint.concurrency in a judge file",
    "server_error": "see the server's own log",
    "engine_error": "run `rubricsvc doctor`",
    "no_logprobs": "the server returns no log-probabilities: use --mode written (comparative and trajectory judges"
    " can write too, see docs/judges.md)",
}
"""By reason of the probe's failure. Other failures are the model's reply, and the next one may be better."""

_OPTIONS = {"name": "NAME", "endpoint.base_url": "--url"}
"""Options whose names differ from their fields'."""

_LOCAL_HINT = "name an instruction-tuned model: `embedded`, a folder, or a hub name (base models have no chat template)"


def judge_from_options(**fields: Any) -> Judge:
    """Return a judge from the values of options; an error names the option."""
    try:
        return Judge.model_validate(fields)
    except ValidationError as error:
        path, message = first_error(error, model=Judge)
        option = _OPTIONS.get(path, f"--{path.rpartition('.')[2].replace('_', '-')}")
        hint = "see `rubricsvc judges add --help`"
        raise InvalidError(f"{option}: {message}" if path else message, hint=hint, path=path) from error


def embedded_judge(name: str, mode: str) -> Judge:
    """Return a judge with the embedded model, and print a warning."""
    warn_of_embedded()
    return judge_from_options(name=name, engine="transformers_local", model=EMBEDDED, mode=mode)


def served_judge(name: str, url: str | None, model: str | None, mode: str, api_key_env: str | None) -> Judge:
    """Return a judge on a server; without a model, with the only one that is served there."""
    fields = {"name": name, "mode": mode, "endpoint": {"base_url": url, "api_key_env": api_key_env}}
    judge = judge_from_options(model=model or "unknown", **fields)
    if model is not None:
        return judge
    names = served_models(judge.endpoint)
    if len(names) != 1:
        hint = f"name one with --model: {', '.join(names[:8]) or 'none'}"
        raise InvalidError(f"{url} serves {len(names)} models", hint=hint)
    echo(f"no --model: using the only one on the server, {names[0]}")
    return judge_from_options(model=names[0], **fields)


def check_reachable(endpoint: Endpoint) -> None:
    """Raise an UnavailableError if nothing answers at the URL; a server that lists no models is reachable."""
    import httpx2

    try:
        served_models(endpoint)
    except UnavailableError as error:
        if isinstance(error.__cause__, httpx2.TransportError):
            raise


def served_models(endpoint: Endpoint, *, timeout_s: float = 5.0) -> list[str]:
    """Return the models that an OpenAI-compatible server lists."""
    import httpx2

    url = (endpoint.base_url or "https://api.openai.com/v1").rstrip("/")
    key = secret(endpoint.key_variable)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    hint = "start the model server, see its log, or correct the URL (it usually ends in /v1)"
    try:
        response = httpx2.get(f"{url}/models", headers=headers, timeout=timeout_s)
        response.raise_for_status()
        return [str(model["id"]) for model in response.json()["data"]]
    except httpx2.HTTPStatusError as error:
        status = error.response.status_code
        if status in {401, 403}:
            hint = f"put the key into {endpoint.key_variable or 'a variable, and name it with --api-key-env'}"
        raise UnavailableError(f"{url}: HTTP {status}", hint=hint) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise UnavailableError(f"{url}/models: no list of models: {error}", hint=hint) from error


def probe_judge(judge: Judge) -> None:
    """Ask ``judge`` about a greeting and print the answer; the error of a judge without one says what to change."""
    rubric = Rubric(criteria=(Criterion(key="greets", text="The answer greets the user."),))
    answers = ["Hello! Nice to meet you.", "No."][: 2 if judge.mode == "comparative" else 1]
    once = _with_endpoint(judge, max_retries=min(judge.endpoint.max_retries, 1))
    (verdict,) = score_once(once, rubric, Prompt.of("Say hello."), *(Completion(text=text) for text in answers))
    if verdict.outcome != "failed":
        value = verdict.outcome if verdict.value is None else f"{verdict.value:.2f}"
        echo(f"{judge.name} answers: {value if verdict.probability is None else f'P(yes) {verdict.probability:.2f}'}")
        return
    problem = f"{verdict.reason}: {verdict.detail}" if verdict.detail else str(verdict.reason)
    if hint := _hint(judge, verdict):
        hint = f"{hint} (--no-probe skips the question)"
        raise UnavailableError(f"judge {judge.name!r} does not answer: {problem}", hint=hint)
    echo(f"{judge.name} answers, but without a verdict: {problem}")
    echo("hint: it is added, as its next answer may be better; else use more tokens, another mode or another model")


def _hint(judge: Judge, verdict: Verdict) -> str | None:
    """Return what to do about a failure; None if the model answered and may answer better next time."""
    reason, unauthorized = str(verdict.reason), (verdict.detail or "").startswith(("HTTP 401", "HTTP 403"))
    if judge.engine != "openai_http" and reason == "unreachable":
        return _LOCAL_HINT
    if judge.engine == "openai_http" and reason == "refused" and not unauthorized:
        with suppress(UnavailableError):  # not every server lists them
            if judge.model not in (names := served_models(judge.endpoint)):
                return f"the server has no model {judge.model!r}; it has {cut(', '.join(names), 400)}"
    return _HINTS.get(reason)


def score_once(judge: Judge, rubric: Rubric, prompt: Prompt, *completions: Completion) -> list[Verdict]:
    """Score the first completion, beside the others for a comparative judge, without waiting for an outage."""
    judge = _with_endpoint(judge, outage_timeout_s=0.0)
    return ask(judge, lambda engine: score_group(engine, judge, rubric, prompt, completions))[0]


def ask(judge: Judge, action: Callable[[Engine], Coroutine[Any, Any, Result]]) -> Result:
    """Run an action with the judge's engine in this process."""
    fetch_if_embedded(judge)

    async def run() -> Result:
        async with aclosing(make_engine(judge)) as engine:
            return await action(engine)

    return asyncio.run(run())


def _with_endpoint(judge: Judge, **fields: float) -> Judge:
    """Return the judge with these endpoint fields, its own and its members'."""
    endpoint = judge.endpoint.model_copy(update=fields)
    members = tuple(_with_endpoint(member, **fields) for member in judge.members) if judge.members else None
    return judge.model_copy(update={"endpoint": endpoint, "members": members})


def warn_of_embedded() -> None:
    """Print a warning that the embedded model is no judge to rely on."""
    echo("the embedded 135M model is for trying things out: untrained, its verdicts are hardly better than chance")


def fetch_if_embedded(judge: Judge) -> None:
    """Fetch the embedded model if the judge or one of its members uses it."""
    if any(leaf.model == EMBEDDED for leaf in judge.leaf_judges):
        fetch_embedded()


def fetch_embedded() -> None:
    """Unpack the embedded model into the cache, with a progress bar, if it is missing."""
    cache = get_settings().cache_dir
    if not (cache / NAME).is_dir():
        with progress_bar("embedded model") as bar:
            embedded_model(cache, lambda what, share: bar.update(round(share * 100), 100, what))
