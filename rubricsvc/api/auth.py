"""Who may call. On this machine anyone who is not a web page; from elsewhere whoever has an API key.

Keys are asked for when ``require_key`` is true, or unset while the service listens beyond loopback or the caller is not
on this machine. Without keys the two ways in which a foreign web page could speak for its reader are closed: a name
that resolves to 127.0.0.1 (DNS rebinding; see the Host header) and a cross-site form or fetch (see Sec-Fetch-Site).
"""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from rubricsvc.errors import ForbiddenError, UnauthorizedError
from rubricsvc.settings import Settings
from rubricsvc.store import keys
from rubricsvc.store.session import Database
from rubricsvc.store.tables import utcnow

_SAFE = {"GET", "HEAD", "OPTIONS"}
_bearer = HTTPBearer(auto_error=False, description="an API key: `rubricsvc keys create NAME`")


def is_loopback(host: str) -> bool:
    """Whether ``host`` (a name or an address) can only be this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def needs_key(settings: Settings, peer: str | None = None) -> bool:
    """Whether a caller at address ``peer`` must show a key. No peer is a Unix socket, or nobody yet."""
    if settings.require_key is not None:
        return settings.require_key
    return not is_loopback(settings.host) or (peer is not None and not is_loopback(peer))


def _asks_for_key(request: Request) -> bool:
    return needs_key(request.app.state.settings, request.client.host if request.client else None)


async def refuse_foreign_pages(request: Request) -> None:
    """Raises ForbiddenError for what a browser may have been tricked into sending."""
    if _asks_for_key(request):
        return
    if not is_loopback(_hostname(f"//{request.headers.get('host', '')}")):
        raise ForbiddenError(
            "without API keys the service answers only to localhost, 127.0.0.1 and [::1]",
            hint="set RUBRICSVC_REQUIRE_KEY=true to serve it under another name",
        )
    if request.method in _SAFE:
        return
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin")
    foreign_origin = origin is not None and origin.partition("://")[2] != request.headers["host"]
    if site not in ("none", "same-origin") or foreign_origin:
        raise ForbiddenError("a web page of another site may not write here", hint="use the client or the command line")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def authenticate(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """Raises UnauthorizedError where a key is asked for and none that is good was sent."""
    if not _asks_for_key(request):
        return
    if credentials is None:
        raise UnauthorizedError(
            "this service asks for an API key", hint="send Authorization: Bearer KEY; `rubricsvc keys create` makes one"
        )
    db: Database = request.app.state.db
    with db.read() as session:
        key = keys.verify(session, credentials.credentials)
    if key.last_used_at is None or utcnow() - key.last_used_at > timedelta(minutes=1):
        with db.write() as session:
            keys.touch(session, key.id)
