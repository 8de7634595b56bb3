"""What endpoints take from a request, besides its body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Request

from rubricsvc.core.base import MAX_ID
from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Rubric
from rubricsvc.schemas import Whole
from rubricsvc.store.session import Database


def _nothing(_: object) -> None:
    pass


@dataclass(frozen=True)
class Examine:
    """Whether there are the checks that a rubric names, and the engine and template of a judge.

    Those who know are the workers, whom the service does not import: whoever starts it brings their functions. Each
    raises InvalidError.
    """

    rubric: Callable[[Rubric], None] = _nothing
    judge: Callable[[Judge], None] = _nothing


def _examine(request: Request) -> Examine:
    examine: Examine = request.app.state.examine
    return examine


Examined = Annotated[Examine, Depends(_examine)]


def _db(request: Request) -> Database:
    db: Database = request.app.state.db
    return db


Db = Annotated[Database, Depends(_db)]
IdInPath = Annotated[Whole, Path(ge=1, le=MAX_ID)]
RefInPath = Annotated[str, Path(min_length=1, max_length=220)]
