"""Fresh databases for tests: a copied SQLite file, or a PostgreSQL database made from a migrated template."""

import atexit
import functools
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from alembic import command
from sqlalchemy import make_url

from rubricsvc.store.session import Database, alembic_config, upgrade
from tests.services import POSTGRES

KINDS = ["sqlite", "postgresql"]


def fresh_url(kind: str, folder: Path) -> str:
    """The URL of a new, migrated, empty database; skips where the test run has no PostgreSQL."""
    return sqlite_at(folder / f"{uuid.uuid4().hex[:8]}.db") if kind == "sqlite" else _fresh_postgres()


@functools.cache
def _sqlite_template() -> Path:
    folder = tempfile.mkdtemp(prefix="rubricsvc-template-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "template.db"
    db = Database(f"sqlite:///{path}")
    upgrade(db)
    with db.engine.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA journal_mode=DELETE")  # one file, so that copying it copies everything
    db.close()
    return path


def sqlite_at(path: Path) -> str:
    """The URL of a new, migrated, empty database in this file."""
    shutil.copyfile(_sqlite_template(), path)
    return f"sqlite:///{path}"


def _server() -> str:
    if (url := os.environ.get(POSTGRES)) is None:
        pytest.skip(f"needs PostgreSQL: run the tests with `make test`, or set {POSTGRES}")
    return url


def _execute(statement: str) -> None:
    with psycopg.connect(
        make_url(_server()).set(drivername="postgresql").render_as_string(False), autocommit=True
    ) as c:
        c.execute(statement)  # type: ignore[call-overload]


@functools.cache
def _postgres_template() -> str:
    name = f"template_{uuid.uuid4().hex[:8]}"
    _execute(f"CREATE DATABASE {name}")
    db = Database(make_url(_server()).set(database=name).render_as_string(False))
    upgrade(db)
    db.close()
    return name


def _fresh_postgres() -> str:
    _server()
    name = f"t_{uuid.uuid4().hex[:12]}"
    _execute(f"CREATE DATABASE {name} TEMPLATE {_postgres_template()}")
    return make_url(_server()).set(database=name).render_as_string(False)


def downgrade(db: Database, revision: str, move: Callable[..., None] = command.downgrade) -> None:
    """Go back to ``revision``, or ``move`` to it. What the newer schema alone could hold is lost."""
    settings = alembic_config()
    with db.engine.connect().execution_options(begin="BEGIN IMMEDIATE") as connection, connection.begin():
        settings.attributes["connection"] = connection
        move(settings, revision)
