"""FastAPI application: routers, error handlers and middleware."""

from importlib.metadata import version

from fastapi import Depends, FastAPI
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline

from rubricsvc.api import errors, graders, health, rewards, routes
from rubricsvc.api.auth import authenticate, reject_cross_site
from rubricsvc.api.body import validate_body
from rubricsvc.api.middleware import RequestContext
from rubricsvc.settings import Settings
from rubricsvc.store.session import Database
from rubricsvc.telemetry import Metrics

_DESCRIPTION = """Store per-prompt rubrics, score completions with generative judges, read the rewards.

Every error is `{"error": {"code", "message", "hint", "path"}}`; that of an invalid file
lists its `errors`. Lists are paginated with `?after=` and `?limit=`. The header `X-Note` says what was not read.
Prompts, rubrics, completions and judges are content-addressed: sending the same content again returns the same id.
"""


def create_app(settings: Settings, db: Database) -> FastAPI:
    """Create the application over an open database, which the caller closes."""
    app = FastAPIOffline(  # /docs loads nothing from other sites
        title="rubricsvc",
        version=version("rubricsvc"),
        description=_DESCRIPTION,
        separate_input_output_schemas=False,
        redoc_url=None,
        dependencies=[Depends(reject_cross_site)],
        exception_handlers=errors.HANDLERS,
    )
    set_state(app, settings, db)
    for router in (rewards.router, graders.router, routes.router()):
        app.include_router(router, prefix="/v1", dependencies=[Depends(authenticate), Depends(validate_body)])
    app.include_router(health.router)
    for route in app.routes:  # named by function and tag: submit_reward, run_grader
        if isinstance(route, APIRoute) and route.tags and route.include_in_schema:
            verb, _, what = route.name.partition("_")
            tag = str(route.tags[0])
            words = [route.name] if tag == "health" else [verb, tag.removesuffix("s"), what]
            route.operation_id = route.operation_id or "_".join(filter(None, words))
            route.summary = route.operation_id.replace("_", " ").capitalize()

    app.add_api_route("/", lambda: RedirectResponse("docs"), include_in_schema=False)
    app.add_middleware(RequestContext)
    return app


def set_state(app: FastAPI, settings: Settings, db: Database) -> None:
    """Set ``app.state``, which endpoints read. Tests reuse one application, since building routes takes long."""
    app.state.settings = settings
    app.state.db = db
    app.state.metrics = Metrics(db)
    app.state.job_waits = rewards.JobWaits(db)
