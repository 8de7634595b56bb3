"""Routes made from the methods of services: the client's endpoint of the same name says where it is over HTTP.

Those of a file that is imported and of a job's report have functions of their own, as their bodies are no models.

A method's last argument, a request model, is the query of a GET and the body of a POST; arguments before it are in the
path. Its docstring is the operation's description, its annotations are the types.
"""

import re
from collections.abc import Callable
from http import HTTPStatus
from inspect import Parameter, Signature, getattr_static, isclass, signature
from typing import Annotated, Any, cast, get_args, get_type_hints

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from rubricsvc.api.auth import IdInPath, RefInPath, Service
from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.client import nouns
from rubricsvc.errors import InvalidError
from rubricsvc.queries import ImportQuery, ReportQuery
from rubricsvc.schemas.base import Attribute, ImportedFile, Page
from rubricsvc.services.completions import Completions, Labels, Prompts, Verdicts
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.services.jobs import Jobs
from rubricsvc.services.judges import Judges
from rubricsvc.services.rubrics import Rubrics
from rubricsvc.services.runs import Runs

CREATED, OK = HTTPStatus.CREATED, HTTPStatus.OK
SERVICES = (Prompts, Completions, Jobs, Judges, Verdicts, Labels, Rubrics, Evolutions, Runs)
_OF_OTHER_METHODS: tuple[tuple[type, str, str], ...] = (
    (Completions, "add", "POST completions"),
    (Runs, "record", "POST runs/{}/steps"),
    (Runs, "record_evaluation", "POST runs/{}/evaluations"),
)
"""Routes of the client's methods that are no endpoints of `client.nouns`."""
_ANSWERS = {"cancel", "fit", "heartbeat", "lint", "record_repeatability", "retry", "review", "reward_changes", "stop"}
"""Methods with a POST that answer 200 in place of 201."""
_STATUS = {"GET": OK, "DELETE": OK}

IdempotencyKey = Annotated[
    str | None, Header(min_length=1, max_length=200, description="The same key returns the same job, with 200.")
]


def router() -> APIRouter:
    """Return the router of all methods."""
    made = APIRouter(route_class=StrictRoute)
    given = [(service, vars(getattr(nouns, service.__name__))) for service in SERVICES]
    known = [(of, name, one.route) for of, ones in given for name, one in ones.items() if getattr(one, "route", "")]
    # a reference may have slashes, so that the path of a single thing takes all that the others leave
    for service, name, route in sorted((*known, *_OF_OTHER_METHODS), key=lambda row: row[2].endswith("{}")):
        (method, _, path), noun, plain = route.partition(" "), service.__name__.lower(), getattr_static(service, name)
        function = plain.function if isinstance(plain, Attribute) else plain
        hints = get_type_hints(function, include_extras=True)
        for ref in list(signature(function).parameters)[1:]:
            path = path.replace("{}", f"{{{ref}}}" if hints[ref] is int else f"{{{ref}:path}}", 1)
        returns = hints["return"]
        responses = error_responses(404, *([409] if method != "GET" or noun == "rubrics" else []))
        makes_job = isclass(returns) and issubclass(returns, BaseModel) and "is_new" in returns.model_fields
        if makes_job:
            responses |= {OK: {"model": returns}}
        single = noun.removesuffix("s")  # names of operations: list_jobs, submit_job, list_job_items
        if method == "GET" and getattr(returns, "__pydantic_generic_metadata__", {}).get("origin") is Page:
            operation = f"list_{noun}" if name == "page" else f"list_{single}_{name}"
        elif method == "GET":
            operation = f"get_{single}" if name == "get" else f"get_{single}_{name}"
        else:
            verb, _, what = name.partition("_")
            operation = "_".join(filter(None, (verb, single, what)))
        made.add_api_route(
            f"/{path}",
            _endpoint(noun, name, function, hints, in_query=method != "POST", makes_job=makes_job),
            methods=[method.rstrip("?")],
            status_code=OK if name in _ANSWERS else _STATUS.get(method, CREATED),
            response_model=None if returns is type(None) else returns,
            responses=responses,
            tags=[noun],
            operation_id=operation,
        )
    html = {OK: {"content": {"text/html": {"schema": {"type": "string"}}}}}
    options: dict[str, Any] = {"response_model": None, "responses": error_responses(404) | html, "tags": ["jobs"]}
    made.add_api_route("/jobs/{job_id}/report", get_report, **options)
    content = {"application/octet-stream": {"schema": {"type": "string"}}}
    options = {"status_code": CREATED, "responses": error_responses(404, 409), "tags": ["imports"]}
    options["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    made.add_api_route("/imports", create, methods=["POST"], **options)
    return made


MAX_REPORT_ITEMS = 2000  # about 4 seconds of reading


def get_report(service: Service, job_id: IdInPath, query: Annotated[ReportQuery, Query()]) -> HTMLResponse:
    """Get the report of a job as one HTML page that loads nothing: of at most 2,000 items, since it reads them all."""
    progress = service.jobs.get(job_id).progress
    if progress is not None and progress.total > MAX_REPORT_ITEMS:
        message = f"job {job_id} has {progress.total} items; a report over HTTP is limited to {MAX_REPORT_ITEMS}"
        command = f"rubricsvc jobs export {job_id} --format html"
        raise InvalidError(message, hint=f"write it on the service's machine: `{command}`")
    return HTMLResponse(service.jobs.report(job_id, completions=query.completions))


async def create(service: Service, request: Request, query: Annotated[ImportQuery, Query()]) -> ImportedFile:
    """Import a file, whole or not at all. The request body is the file's content.

    Importing a file again changes nothing. 422: the file is invalid; `errors` lists what is wrong with it. 409 with a
    `parent` that has been edited already: the rubric is kept as a draft.
    """
    return await run_in_threadpool(service.imports.content, await request.body(), query)


def _endpoint(
    noun: str, name: str, function: Callable[..., Any], hints: dict[str, Any], *, in_query: bool, makes_job: bool
) -> Callable[..., Any]:
    """Return the function that FastAPI calls: it passes what the path, query and body have to the method."""
    parameters, given = [Parameter("service", Parameter.KEYWORD_ONLY, annotation=Service)], []
    for one in list(signature(function).parameters.values())[1:]:
        kind, default = hints[one.name], one.default
        if isclass(kind) and issubclass(kind, BaseModel):
            kind = Annotated[kind, Query()] if in_query else cast(Any, Json)[kind]
        elif default is not Parameter.empty:
            plain, field = get_args(kind)  # of Annotated, with a pydantic Field
            kind = Annotated[plain, *field.metadata, Query(description=field.description)]
        else:
            kind = IdInPath if kind is int else RefInPath
        parameters.append(Parameter(one.name, Parameter.KEYWORD_ONLY, annotation=kind, default=default))
        given.append((one.name, one.kind is Parameter.KEYWORD_ONLY))
    if makes_job:
        parameters.append(Parameter("response", Parameter.KEYWORD_ONLY, annotation=Response))
        if not in_query and "key" in getattr(hints[given[-1][0]], "model_fields", ()):
            key = Parameter("idempotency_key", Parameter.KEYWORD_ONLY, annotation=IdempotencyKey, default=None)
            parameters.append(key)

    def call(service: Any, response: Any = None, idempotency_key: str | None = None, **values: Any) -> Any:
        if idempotency_key is not None and values[given[-1][0]].key is None:
            values[given[-1][0]] = values[given[-1][0]].model_copy(update={"key": idempotency_key})
        arguments = [values[key] for key, named in given if not named]
        named = {key: values[key] for key, named in given if named}
        result = getattr(getattr(service, noun), name)(*arguments, **named)
        if makes_job and not result.is_new and response is not None:
            response.status_code = OK
        return Response(status_code=HTTPStatus.NO_CONTENT) if result is None else result

    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__name__, call.__annotations__ = name, {}
    call.__doc__ = re.split(r"\n\s*\n\s*(?:Args|Raises):\n", function.__doc__ or "")[0]
    return call
