"""Dependencies of endpoints: the service, and path parameters."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Path, Request
from pydantic import PlainValidator

from rubricsvc.services.local import LocalService


async def _service(request: Request) -> LocalService:
    state = request.app.state
    options = {"approval": state.settings.require_approval, "validators": state.validators}
    options |= {"collections_dir": state.settings.collections_dir}
    return LocalService(state.db, caller=getattr(request.state, "caller", ANONYMOUS), **options)


ANONYMOUS = "anonymous"
"""Who calls a service that requires no key."""

Service = Annotated[LocalService, Depends(_service)]
"""The service, for the caller of a request."""


_NUMBER = PlainValidator(
    lambda text: int(text) if isinstance(text, str) and re.fullmatch(r"-?[0-9]{1,20}", text) else text,
    json_schema_input_type=int,
)
"""Plain digits become a number; no row has another text as id, so that services say 404."""
IdInPath = Annotated[int, _NUMBER, Path(description="Id in the database.")]
_REF = "Id, or name of a judge or rubric (also name@version or digest), or external id of a prompt."
RefInPath = Annotated[str, Path(min_length=1, description=_REF)]
