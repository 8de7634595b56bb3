"""``/v1/imports``: files of rubrics, prompts, completions and labels."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool

from rubricsvc.api.errors import error_responses
from rubricsvc.api.request import Service
from rubricsvc.queries import ImportQuery
from rubricsvc.schemas import ImportedFile

router = APIRouter(prefix="/imports", tags=["imports"])

_BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string"}}}}}


@router.post("", status_code=201, responses=error_responses(404, 409), openapi_extra=_BODY)
async def create(service: Service, request: Request, query: Annotated[ImportQuery, Query()]) -> ImportedFile:
    """Import a file, whole or not at all. The request body is the file's content.

    Importing a file again changes nothing. 422: the file is invalid; `errors` lists what is wrong with it. 409 with a
    `parent` that has been edited already: the rubric is kept as a draft.
    """
    return await run_in_threadpool(service.imports.content, await request.body(), query)
