"""Dependencies of endpoints: database, settings, validators, path parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Path, Request

from rubricsvc.core.base import MAX_ID
from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Rubric
from rubricsvc.lint import EmptyValue
from rubricsvc.queries import Whole
from rubricsvc.settings import Settings
from rubricsvc.store.session import Database


def _accept(_: object) -> None:
    pass


@dataclass(frozen=True)
class Validators:
    """Checks of values that only the workers can make: a rubric's checks exist, a judge's engine and template exist.

    The service does not import the workers, so the process that starts it passes their functions. ``rubric`` and
    ``judge`` raise InvalidError; ``empty_value`` runs a check on an empty completion.
    """

    rubric: Callable[[Rubric], None] = _accept
    judge: Callable[[Judge], None] = _accept
    empty_value: EmptyValue | None = None


def _state(name: str) -> Any:
    """Return the dependency on an attribute of ``app.state``."""

    async def read(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(read)


Db = Annotated[Database, _state("db")]
SettingsDep = Annotated[Settings, _state("settings")]
ValidatorsDep = Annotated[Validators, _state("validators")]
IdInPath = Annotated[Whole, Path(ge=1, le=MAX_ID, description="Id in the database.")]
_REF = "Id, or name of a judge or rubric (also name@version or digest), or external id of a prompt."
RefInPath = Annotated[str, Path(min_length=1, max_length=220, description=_REF)]
