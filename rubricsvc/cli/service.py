"""The service that commands use: that of RUBRICSVC_URL over HTTP, or one over the configured database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from getpass import getuser
from typing import TYPE_CHECKING, Any

from rubricsvc.cli.db import database
from rubricsvc.errors import InvalidError
from rubricsvc.services.local import LocalService
from rubricsvc.services.validators import Validators
from rubricsvc.settings import get_settings

if TYPE_CHECKING:
    from rubricsvc.client import Client
    from rubricsvc.services.runs import Sign
    from rubricsvc.store.session import Database


@contextmanager
def service() -> Iterator[LocalService | Client]:
    """Open the service, for as long as the block runs."""
    if url := os.environ.get("RUBRICSVC_URL"):
        from rubricsvc.client import Client

        with Client(url) as client:
            yield client
    else:
        with database() as db:
            yield local(db)


@contextmanager
def local_service() -> Iterator[LocalService]:
    """Open the service in this process, for a command that needs the database itself.

    Raises:
        InvalidError: RUBRICSVC_URL is set.
    """
    if os.environ.get("RUBRICSVC_URL"):
        hint = "run it on the service's machine, or unset RUBRICSVC_URL"
        raise InvalidError("this command needs the database, and RUBRICSVC_URL names a remote service", hint=hint)
    with database() as db:
        yield local(db)


def local(db: Database, caller: str | None = None) -> LocalService:
    """Return the service over a database, which acts for this caller, by default the user of the operating system."""
    options: dict[str, Any] = {"approval": get_settings().require_approval, "validators": validators()}
    return LocalService(db, caller=caller or os_user(), **options)


def validators() -> Validators:
    """Return what the workers and the trainer check and measure for services."""
    from workers import checks, judges

    def signs() -> Mapping[str, Sign]:
        from trainer.monitors.measures import SIGNS

        return SIGNS

    empty_value = checks.value_of_empty
    return Validators(rubric=checks.validate, judge=judges.validate, empty_value=empty_value, signs=signs)


def os_user() -> str:
    """Return the name of the user of the operating system."""
    try:
        return getuser()
    except (OSError, KeyError):  # no such user, as in some containers
        return "unknown"
