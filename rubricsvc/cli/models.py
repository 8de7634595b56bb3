"""Reaching the model of a judge in this process: judges from options, and the embedded model."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError

from rubricsvc import telemetry
from rubricsvc.cli.output import echo
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.settings import get_settings, secret
from workers.engines import OPENAI, check_addresses, make_engine
from workers.engines.base import Engine
from workers.engines.local import embedded_model
from workers.engines.local.embedded_model import EMBEDDED
from workers.engines.local.weights import SHIPPED_ADAPTER, judge_with_adapter

Result = TypeVar("Result")
fetch_embedded = partial(embedded_model.fetch_embedded, echo)

ApiKeyEnv = Annotated[
    str | None, typer.Option(help="Variable that holds the API key.", show_default="OPENAI_API_KEY at api.openai.com")
]

_OPTIONS = {"name": "NAME", "endpoint.base_url": "--url"}  # options whose names differ from their fields'


def judge_from(
    name: str,
    *,
    url: str | None = None,
    model: str | None = None,
    mode: str | None = None,
    adapter: str | None = None,
    api_key_env: str | None = None,
    **fields: Any,
) -> Judge:
    """Return a judge from options: with an adapter, with the embedded model, or on a server; an error names the option.

    The embedded model has the shipped adapter for readouts, which it was trained for; other modes ask the bare model.
    Without a model a server is asked for the only one that it has.
    """
    if url is None and model == EMBEDDED and mode in (None, "readout"):
        adapter = SHIPPED_ADAPTER
    if adapter is not None:
        return judge_with_adapter(name, adapter, model, mode)
    if url is None and model is None:
        raise InvalidError("no model", hint="name one with --model, or use the embedded one with --embedded")
    if url is None and model == EMBEDDED:
        fields["engine"] = "transformers_local"
    fields["endpoint"] = {"base_url": url, "api_key_env": api_key_env} | fields.get("endpoint", {})
    fields = {"name": name, "model": model or "unknown", "mode": mode or "readout"} | fields
    try:
        judge = Judge.model_validate(fields)
        if model is not None:
            return judge
        names = served_models(judge.endpoint)
        if len(names) != 1:
            hint = f"name one with --model: {', '.join(names[:8]) or 'none'}"
            raise InvalidError(f"{url} serves {len(names)} models", hint=hint)
        echo(f"no --model: using the only one on the server, {names[0]}")
        return Judge.model_validate(fields | {"model": names[0]})
    except ValidationError as error:
        path, message = first_error(error, model=Judge)
        option = _OPTIONS.get(path, f"--{path.rpartition('.')[2].replace('_', '-')}")
        hint = "see `rubricsvc judges add --help`"
        raise InvalidError(f"{option}: {message}" if path else message, hint=hint, path=path) from error


def describe_embedded(added: Iterable[Judge]) -> None:
    """Print what judges with the embedded model can be relied on for."""
    if any(leaf.model == EMBEDDED and leaf.adapter is None for judge in added for leaf in judge.leaf_judges):
        echo("the embedded 135M model without its adapter, which is for readouts, is hardly better than chance")


def served_models(endpoint: Endpoint, *, timeout_s: float = 5.0) -> list[str]:
    """Return the models that an OpenAI-compatible server lists."""
    import httpx2

    url = (endpoint.base_url or OPENAI).rstrip("/")
    if (settings := get_settings()).local_only:
        check_addresses([("model server", url)], settings.local_networks)
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


def without_outage(judge: Judge) -> Judge:
    """Return a judge that does not wait for a server that is away."""
    return judge.model_copy(update={"endpoint": judge.endpoint.model_copy(update={"outage_timeout_s": 0.0})})


def ask(judge: Judge, action: Callable[[Engine], Coroutine[Any, Any, Result]]) -> Result:
    """Run an action with the judge's engine in this process."""
    telemetry.configure("WARNING", human=True)  # without a database, too: warnings of waits go to stderr
    fetch_embedded(judge)

    async def run() -> Result:
        async with aclosing(make_engine(judge)) as engine:
            return await action(engine)

    return asyncio.run(run())
