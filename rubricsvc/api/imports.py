"""``/v1/imports``: files of rubrics, prompts, completions and labels."""

from __future__ import annotations

import io
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool

from rubricsvc.api.errors import error_responses, file_problems
from rubricsvc.api.request import Db, ValidatorsDep
from rubricsvc.core.base import Name
from rubricsvc.formats import InputFile
from rubricsvc.schemas import ImportedFile
from rubricsvc.services.importing import ImportResult, import_file

router = APIRouter(prefix="/imports", tags=["imports"])

_BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string"}}}}}


async def _body(request: Request) -> bytes:
    return await request.body()


@router.post("", status_code=201, responses=error_responses(404, 409), openapi_extra=_BODY)
async def create(
    db: Db,
    validators: ValidatorsDep,
    content: Annotated[bytes, Depends(_body)],
    *,
    format: Annotated[Name | None, Query(description="A format of docs/formats.md; detected by default.")] = None,
    name: Annotated[Name, Query(description="File name; its ending selects YAML, JSON or JSONL.")] = "file",
    rubric_name: Annotated[Name | None, Query(description="Name of the rubric, for a file with one.")] = None,
    replace_labels: Annotated[bool, Query(description="Overwrite earlier labels of the same people.")] = False,
    skip_invalid: Annotated[bool, Query(description="Skip invalid records instead of rejecting the file.")] = False,
) -> ImportedFile:
    """Import a file, whole or not at all. The request body is the file's content.

    Importing a file again changes nothing. 422: the file is invalid; `errors` lists what is wrong with it.
    """

    def run() -> ImportResult:
        with db.write() as session:
            return import_file(
                session,
                InputFile(name, stream=io.BytesIO(content)),
                format,
                rubric_name=rubric_name,
                replace_labels=replace_labels,
                skip_invalid=skip_invalid,
                check=validators.rubric,
            )

    result = await run_in_threadpool(run)
    completion_ids = [completion.id for completion in result.completions]
    return ImportedFile.of(result, completion_ids=completion_ids, skipped=file_problems(result.skipped))
