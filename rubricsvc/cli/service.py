"""The service that commands use: that of RUBRICSVC_URL over HTTP, or one over the configured database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from getpass import getuser
from typing import TYPE_CHECKING

from rubricsvc import telemetry
from rubricsvc.cli.output import echo
from rubricsvc.errors import InvalidError
from rubricsvc.services.database import open_database
from rubricsvc.services.local import LocalService, Validators
from rubricsvc.settings import get_settings

if TYPE_CHECKING:
    from rubricsvc.client import Client
    from rubricsvc.services.runs import Sign


@contextmanager
def service(caller: str | None = None) -> Iterator[LocalService | Client]:
    """Open the service, for as long as the block runs."""
    if url := os.environ.get("RUBRICSVC_URL"):
        from rubricsvc.client import Client

        with Client(url) as client:
            yield client
    else:
        with local_service(caller) as found:
            yield found


@contextmanager
def local_service(caller: str | None = None) -> Iterator[LocalService]:
    """Open the service in this process, for a command that needs the database itself.

    Args:
        caller: Who acts, by default the user of the operating system.

    Raises:
        InvalidError: RUBRICSVC_URL is set.
    """
    if os.environ.get("RUBRICSVC_URL"):
        hint = "run it on the service's machine, or unset RUBRICSVC_URL"
        raise InvalidError("this command needs the database, and RUBRICSVC_URL names a remote service", hint=hint)
    telemetry.configure("WARNING", human=True)  # to stderr: stdout is for data
    with open_database(lambda name: echo(f"created the database {name}")) as db:
        if caller is None:
            try:
                caller = getuser()
            except (OSError, KeyError):  # no such user, as in some containers
                caller = "unknown"
        yield LocalService(db, caller=caller, approval=get_settings().require_approval, validators=validators())


def validators() -> Validators:
    """Return what the workers and the trainer check and measure for services."""
    from workers import checks, judges

    def signs() -> Mapping[str, Sign]:
        from trainer.monitors.measures import SIGNS

        return SIGNS

    empty_value = checks.value_of_empty
    return Validators(rubric=checks.validate, judge=judges.validate, empty_value=empty_value, signs=signs)
