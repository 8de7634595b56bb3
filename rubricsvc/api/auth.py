"""Dependencies of endpoints: who calls, the service for the caller, and what is in a path.

A key is required with four eyes or if ``require_key`` is true, or if that is unset and the service listens beyond
loopback or the caller is on another machine. Without keys, two attacks by web pages are rejected: DNS rebinding (by the
Host header) and cross-site forms or fetches (by Sec-Fetch-Site and Origin).
"""

import ipaddress
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import PlainValidator

from rubricsvc.errors import ForbiddenError, UnauthorizedError
from rubricsvc.services.local import LocalService
from rubricsvc.settings import Settings
from rubricsvc.store import keys
from rubricsvc.store.session import Database
from rubricsvc.store.tables import KeyRow

ANONYMOUS = "anonymous"  # who calls a service that requires no key
_SAFE = {"GET", "HEAD", "OPTIONS"}
_bearer = HTTPBearer(auto_error=False, description="API key; create one with `rubricsvc keys create NAME`")


def is_loopback(host: str) -> bool:
    """Return whether ``host`` (name or address) can only be this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def needs_key(settings: Settings, peer: str | None = None) -> bool:
    """Return whether a caller at address ``peer`` needs a key. ``peer`` is None for a Unix socket."""
    if settings.require_approval == "four_eyes":
        return True  # who has no key has no name
    if settings.require_key is not None:
        return settings.require_key
    return not is_loopback(settings.host) or (peer is not None and not is_loopback(peer))


async def reject_cross_site(request: Request) -> None:
    """Raise ForbiddenError for a request that a foreign web page may have sent."""
    if needs_key(request.app.state.settings, request.client.host if request.client else None):
        return
    if not is_loopback(re.sub(r":\d*$", "", request.headers.get("host", ""))):
        message = "without API keys the service accepts only the hosts localhost, 127.0.0.1 and [::1]"
        raise ForbiddenError(message, hint="set RUBRICSVC_REQUIRE_KEY=true to serve under another name")
    if request.method in _SAFE:
        return
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin")
    foreign_origin = origin is not None and origin.partition("://")[2] != request.headers["host"]
    if site not in ("none", "same-origin") or foreign_origin:
        raise ForbiddenError("cross-site requests may not write", hint="use the Python client or the command line")


def authenticate(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """Set the caller to the name of the API key."""
    required = needs_key(request.app.state.settings, request.client.host if request.client else None)
    request.state.caller = ANONYMOUS
    if credentials is None:
        if required:
            hint = "send Authorization: Bearer KEY; create a key with `rubricsvc keys create`"
            raise UnauthorizedError("an API key is required", hint=hint)
        return
    db: Database = request.app.state.db
    try:
        with db.read() as session:
            key = keys.verify(session, credentials.credentials)
    except UnauthorizedError:
        if required:
            raise
        return
    request.state.caller = key.name
    now = datetime.now(UTC)
    if required and (key.last_used_at is None or now - key.last_used_at > timedelta(minutes=1)):
        with db.write() as session:
            session.get_one(KeyRow, key.id).last_used_at = now


async def _service(request: Request) -> LocalService:
    state = request.app.state
    caller, settings = getattr(request.state, "caller", ANONYMOUS), state.settings
    options = {"approval": settings.require_approval, "collections_dir": settings.collections_dir, "over_http": True}
    return LocalService(state.db, caller=caller, **options)


Service = Annotated[LocalService, Depends(_service)]  # the service, for the caller of a request

_NUMBER = PlainValidator(
    lambda text: int(text) if isinstance(text, str) and re.fullmatch(r"-?[0-9]{1,20}", text) else text,
    json_schema_input_type=int,
)
"""Plain digits become a number; no row has another text as id, so that services say 404."""
IdInPath = Annotated[int, _NUMBER, Path(description="Id in the database.")]
_REF = "Id, or name of a judge or rubric (also name@version or digest), or external id of a prompt."
RefInPath = Annotated[str, Path(min_length=1, description=_REF)]
