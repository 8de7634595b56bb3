"""The connection to the database, and the only place that commits. A process has one ``Database``.

``with db.read()`` reads, ``with db.write()`` writes. A write on SQLite begins IMMEDIATE, so that a claim and the
update it leads to are one step; on PostgreSQL row locks do that. `Database.on_commit` is called once a write
to the outbox has committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.engine import Connection, ExceptionContext
from sqlalchemy.exc import ArgumentError, DatabaseError, DataError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.errors import InvalidError, UnavailableError, cut

PUBLISHED = "published"
"""Key in ``Session.info``: the session wrote to the outbox."""

AWAY = (OperationalError, InterfaceError, PoolTimeout)
"""The errors of a database that is unreachable for now."""

BUSY_SECONDS = 60
_POOL: dict[str, Any] = {"pool_size": 10, "max_overflow": 40}  # the HTTP service has 40 threads
_CHECK = "check RUBRICSVC_DATABASE_URL, or run `rubricsvc doctor`"
_URLS = "use sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME"


class Database:
    """An engine and its sessions.

    Args:
        url: SQLAlchemy URL, ``sqlite:///FILE`` or ``postgresql+psycopg://…``.

    ``on_commit`` is called, outside the transaction, after a session that wrote to the outbox has committed.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = make_engine(url)
        self.on_commit: Callable[[], None] | None = None
        self._immediate = self.engine.execution_options(rubricsvc_immediate=True)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a session for reading."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a session for writing; commit it at the end of the block."""
        with Session(self._immediate, expire_on_commit=False) as session:
            yield session
            session.commit()
        if session.info.get(PUBLISHED) and self.on_commit is not None:
            self.on_commit()

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def every(page: Callable[..., list[Any]], session: Session, **where: Any) -> Iterator[Any]:
    """Yield all rows that ``page`` lists, in pages."""
    after = 0
    while rows := page(session, after=after, limit=500, **where):
        yield from rows
        after = rows[-1].id


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite database, None for a PostgreSQL one; nothing is opened."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise InvalidError(f"not a database URL: {url.rsplit('@', maxsplit=1)[-1]!r}", hint=_URLS) from error
    match parsed.get_backend_name():
        case "postgresql":
            return None
        case "sqlite" if parsed.database in (None, "", ":memory:"):
            raise InvalidError("an in-memory SQLite database is lost with its connection", hint="use sqlite:///FILE")
        case "sqlite":
            return Path(str(parsed.database))
        case other:
            raise InvalidError(f"{other} is not supported", hint=_URLS)


def make_engine(url: str) -> Engine:
    """Return a SQLAlchemy engine with this project's settings for its dialect."""
    file = sqlite_file(url)
    try:
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS}, **_POOL)
            event.listen(engine, "connect", _open_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        else:
            engine = create_engine(url, pool_pre_ping=True, **_POOL, connect_args={"connect_timeout": 10})
    except NoSuchModuleError as error:
        raise InvalidError(f"there is no database driver for {url.partition(':')[0]!r}", hint=_URLS) from error
    except OSError as error:
        raise UnavailableError(f"no folder for the database: {error}", hint=_CHECK) from error
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"the database driver {error.name!r} is not installed", hint="pip install 'rubricsvc[postgres]'"
        ) from error
    event.listen(engine, "handle_error", _to_own_error)
    return engine


def _to_own_error(context: ExceptionContext) -> Exception | None:
    """Return our error for a wrong value or a damaged file. Errors of an unreachable database (AWAY) stay."""
    error, known = context.original_exception, context.sqlalchemy_exception
    if isinstance(error, UnicodeEncodeError):
        return InvalidError(f"text is not UTF-8: {cut(ascii(error.object), 80)}", hint="give it in UTF-8")
    if isinstance(known, DataError) or isinstance(error, OverflowError):
        hint = f"ids have at most 19 digits, names {MAX_NAME_LENGTH} characters"
        return InvalidError(f"a value is longer or larger than the database takes: {error}", hint=hint)
    if type(known) is DatabaseError:  # SQLite: not a database, or a damaged one
        where = f" {context.engine.url.render_as_string()}" if context.engine is not None else ""
        return UnavailableError(f"the database{where} cannot be read: {error}", hint=_CHECK)
    return None


def _open_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun by _begin_sqlite, not by the driver's guess
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "journal_size_limit=67108864"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("rubricsvc_immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
