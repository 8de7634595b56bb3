"""The database: its connection, its schema, and the only place that commits. A process has one ``Database``.

``with db.read()`` reads, ``with db.write()`` writes. A write on SQLite begins IMMEDIATE, so that a claim and the
update it leads to are one step; on PostgreSQL row locks do that. `Database.on_commit` is called once a write
to the outbox has committed.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from sqlalchemy import ColumnElement, Select, cast, column, event, exc, func, inspect, literal, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Engine, ExceptionContext, create_engine, make_url
from sqlalchemy.orm import Session
from sqlalchemy.orm.interfaces import ORMOption
from sqlalchemy.types import JSON, Text
from structlog import get_logger

from rubricsvc.core.base import MAX_ID, MAX_NAME_LENGTH
from rubricsvc.errors import InvalidError, NotFoundError, RubricsvcError, UnavailableError, cut
from rubricsvc.settings import Settings, get_settings
from rubricsvc.store.tables import Base, DatedRow, OutboxRow, PromptRow, RubricRow

if TYPE_CHECKING:
    from alembic.config import Config
    from celery import Celery

log = get_logger(__name__)

Row = TypeVar("Row", bound=Base)
Dated = TypeVar("Dated", bound=DatedRow)
Ts = TypeVarTuple("Ts")


def id_of(ref: int | str) -> int | None:
    """Return the id that ``ref`` is or writes in ASCII digits (not ``1_0``, not ``１``); None if it is no id."""
    if isinstance(ref, str):
        if not re.fullmatch(r"[0-9]{1,19}", ref):
            return None
        ref = int(ref)
    return ref if 0 < ref <= MAX_ID else None


def find(session: Session, table: type[Row], ref: int | str, *, lock: bool = False) -> Row | None:
    """Return the row of this id, if there is one; with ``lock`` as it is now, locked until the commit."""
    number, locked = id_of(ref), {"of": table} if lock else None
    return session.get(table, number, with_for_update=locked) if number is not None else None


def existing(
    session: Session, table: type[Row], noun: str, ref: int | str, *, lock: bool = False, hint: str = ""
) -> Row:
    """Return the row of this id, or raise a NotFoundError; with ``lock`` as it is now, locked until the commit."""
    if (row := find(session, table, ref, lock=lock)) is None:
        raise missing(noun, ref, hint)
    return row


def page_of(
    session: Session,
    table: type[Row],
    after: int = 0,
    limit: int | None = 50,
    *where: ColumnElement[bool],
    options: Sequence[ORMOption] = (),
    **columns: object,
) -> list[Row]:
    """Return up to ``limit`` rows with ids above ``after``, ascending, that have these values in ``columns``.

    A set has the values that a column may have. None leaves it open; a ``limit`` of None returns all.
    """
    column = table.__table__.c
    equal = [column[key].in_(one if isinstance(one, set) else [one]) for key, one in columns.items() if one is not None]
    query = select(table).where(column.id > after, *equal, *where).order_by(column.id).limit(limit)
    return list(session.scalars(query.options(*options)))


def rows_with(session: Session, query: Select[*Ts], column: Any, values: Iterable[object]) -> Iterator[Any]:
    """Yield the rows of a query whose ``column``, or `tuple_` of columns, is one of any number of values."""
    for chunk in batched(values):
        yield from session.execute(query.where(column.in_(chunk)))


def by_id(session: Session, table: type[Dated], ids: Iterable[int]) -> dict[int, Dated]:
    """Return the rows of these ids; unknown ones are left out."""
    return {row.id: row for (row,) in rows_with(session, select(table), table.id, sorted(set(ids)))}


def ids_by_digest(session: Session, table: type[PromptRow | RubricRow], digests: Iterable[str]) -> dict[str, int]:
    """Return the id of a row with each of these digests that is stored."""
    return dict(map(tuple, rows_with(session, select(table.digest, table.id), table.digest, sorted(set(digests)))))


def missing(noun: str, ref: int | str, hint: str = "") -> NotFoundError:
    """Return the error for a row that does not exist."""
    hint = hint or f"list them with `rubricsvc {noun}s show` or GET /v1/{noun}s"
    shown = ref if isinstance(ref, int) or re.fullmatch("-?[0-9]+", ref) else repr(ref)
    return NotFoundError(f"no {noun} {cut(str(shown), 80)}", hint=hint)


def name_of(what: str, text: str, *, least: int = 1) -> None:
    """Raise an InvalidError unless ``text`` can be a name."""
    if not least <= len(text.strip()) or len(text) > MAX_NAME_LENGTH:
        found = f"found {len(text)}" if text.strip() else "found none"
        hint = f"give it a name of {least} to {MAX_NAME_LENGTH} characters"
        raise InvalidError(f"{what} has {least} to {MAX_NAME_LENGTH} characters, {found}", hint=hint)


CHUNK = 500  # rows in a statement; SQLite takes 32,766 parameters

T = TypeVar("T")


def batched(items: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Yield lists of up to ``size`` items, in order."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def insert(session: Session, table: type[Base]) -> Any:
    """Return the dialect's ``insert``, with ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    return (postgresql if session.get_bind().dialect.name == "postgresql" else sqlite).insert(table)


def insert_rows(session: Session, table: type[Base], rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    """Return an ``insert`` of many rows with the same columns, and its parameters.

    PostgreSQL is handed all rows as one JSON text: its driver takes longer to quote thousands of parameters, or arrays
    of them, than the server to write. What a JSON column holds is a text in that text, so that it stays as it is.
    """
    statement = insert(session, table)
    if session.get_bind().dialect.name != "postgresql":
        return statement, rows
    columns = [table.__table__.columns[name] for name in rows[0]]
    documents = [c.name for c in columns if isinstance(c.type, JSON)]
    given = literal(json.dumps([row | {name: json.dumps(row[name]) for name in documents} for row in rows]), Text)
    typed = [column(c.name, Text() if c.name in documents else c.type) for c in columns]
    read = func.json_to_recordset(cast(given, JSON)).table_valued(*typed).render_derived("given", with_types=True)
    given_rows = select(*(cast(read.c[c.name], c.type) for c in columns))
    return statement.from_select([c.name for c in columns], given_rows), None


def add_new(session: Session, table: type[Base], rows: Iterable[dict[str, Any]]) -> None:
    """Insert the rows (all with the same columns) that are new, and count them in ``added``."""
    for chunk in batched(rows):
        statement, parameters = insert_rows(session, table, chunk)
        statement = statement.on_conflict_do_nothing().execution_options(preserve_rowcount=True)
        done = session.connection().execute(statement, parameters)
        added(session)[table.__tablename__] += done.rowcount


def added(session: Session) -> Counter[str]:
    """Return how many rows this session has added, by table."""
    counts: Counter[str] = session.info.setdefault("added", Counter())
    return counts


def get_or_add(session: Session, table: type[Row], unique: dict[str, Any], **others: Any) -> tuple[Row, bool]:
    """Return the row with these ``unique`` columns and whether it was added now, with the ``others``."""
    statement = insert(session, table).values(**unique, **others).on_conflict_do_nothing(index_elements=list(unique))
    new = session.execute(statement.returning(literal(1))).first() is not None
    added(session)[table.__tablename__] += new
    return session.scalars(select(table).filter_by(**unique)).one(), new


PUBLISHED = "published"  # key in ``Session.info``: the session wrote to the outbox
AWAY = (exc.OperationalError, exc.InterfaceError, exc.TimeoutError)
"""The errors of a database that is unreachable for now."""

BUSY_SECONDS = 60
_POOL: dict[str, Any] = {"pool_size": 10, "max_overflow": 40}  # the HTTP service has 40 threads
_CHECK = "check RUBRICSVC_DATABASE_URL, the server and the free disk space, or run `rubricsvc doctor`"
_URLS = "use sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME"


class Database:
    """An engine of a SQLAlchemy URL, ``sqlite:///FILE`` or ``postgresql+psycopg://…``, and its sessions.

    ``on_commit`` is called, outside the transaction, after a session that wrote to the outbox has committed.
    ``outage`` is when what is tried again failed first, on the monotonic clock, and its error; None after a commit.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = make_engine(url)
        self.on_commit: Callable[[], object] | None = None
        self.outage: tuple[float, RubricsvcError] | None = None
        self._warned_at = 0.0
        self._immediate = self.engine.execution_options(begin="BEGIN IMMEDIATE")

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a session for reading; its transaction begins at once."""
        with Session(self.engine, expire_on_commit=False) as session:
            session.connection()
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a session for writing; its transaction begins at once, and is committed at the end of the block."""
        with Session(self._immediate, expire_on_commit=False) as session:
            session.connection()
            yield session
            session.commit()
        if self.outage:
            log.info("database available again")
            self.outage = None
        if session.info.get(PUBLISHED) and self.on_commit is not None:
            self.on_commit()

    def note_outage(self, error: Exception, began: float | None = None) -> None:
        """Log once that a transaction, tried since ``began``, failed; smaller ones may fit on a full disk meanwhile."""
        if self.outage is None:
            away = error if isinstance(error, RubricsvcError) else UnavailableError.of_database(error)
            self.outage = time.monotonic() if began is None else began, away
            if self.outage[0] >= self._warned_at:
                self._warned_at = time.monotonic()
                log.warning("database unavailable, trying again", error=away.message, hint=away.hint)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


Send = Callable[[str, list[object]], object]


def relay(db: Database, send: Send) -> int:
    """Send the messages that are not sent yet, each by one of those who do so at once; return how many.

    An unreachable broker (an OSError of ``send``) or database is logged: the work is committed in any case, and the
    reconciler sends the rest later, what was claimed by a process that died too.
    """
    unsent = select(OutboxRow.id).where(OutboxRow.sent_at.is_(None)).order_by(OutboxRow.id).limit(CHUNK)
    claimed, sent = list[tuple[int, str, int]](), 0
    try:
        with db.write() as session:
            claim = update(OutboxRow).where(OutboxRow.id.in_(unsent.with_for_update(skip_locked=True)))
            now = func.extract("epoch", func.clock_timestamp()) if db.engine.name == "postgresql" else time.time()
            claim = claim.values(sent_at=now)
            rows = session.execute(claim.returning(OutboxRow.id, OutboxRow.task, OutboxRow.judge_id))
            claimed = sorted((id_, task, judge_id) for id_, task, judge_id in rows)
        try:
            for id_, task, judge_id in claimed:
                send(task, [judge_id, id_])
                sent += 1
        finally:
            if left := [id_ for id_, *_ in claimed[sent:]]:
                with db.write() as session:
                    session.execute(update(OutboxRow).where(OutboxRow.id.in_(left)).values(sent_at=None))
    except OSError as error:
        log.warning("broker unreachable; messages are sent later", error=str(error).partition("\n")[0])
    except AWAY as error:
        db.note_outage(error)
    return sent


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
    except (exc.ArgumentError, ValueError) as error:
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
            event.listen(engine, "begin", lambda c: c.exec_driver_sql(c.get_execution_options().get("begin", "BEGIN")))
        else:
            engine = create_engine(url, pool_pre_ping=True, **_POOL, connect_args={"connect_timeout": 10})
    except exc.NoSuchModuleError as error:
        raise InvalidError(f"there is no database driver for {url.partition(':')[0]!r}", hint=_URLS) from error
    except OSError as error:
        raise UnavailableError(f"no folder for the database: {error}", hint=_CHECK) from error
    except ModuleNotFoundError as error:
        message = f"the database driver {error.name!r} is not installed"
        raise UnavailableError(message, hint="pip install 'rubricsvc[postgres]'") from error
    event.listen(engine, "handle_error", _to_own_error)
    return engine


def _to_own_error(context: ExceptionContext) -> Exception | None:
    """Return our error for a wrong value or a damaged file. Errors of an unreachable database (AWAY) stay."""
    error, known = context.original_exception, context.sqlalchemy_exception
    if isinstance(error, UnicodeEncodeError):
        return InvalidError(f"text is not UTF-8: {cut(ascii(error.object), 80)}", hint="give it in UTF-8")
    if getattr(error, "sqlstate", "") == "25006":  # a standby, to psycopg an internal error; it may become the primary
        return exc.OperationalError(context.statement, context.parameters, error)
    if isinstance(known, exc.DataError) or isinstance(error, OverflowError):
        hint = f"ids have at most 19 digits, names {MAX_NAME_LENGTH} characters"
        return InvalidError(f"a value is longer or larger than the database takes: {error}", hint=hint)
    if type(known) is exc.DatabaseError:  # SQLite: not a database, or a damaged one
        where = f" {context.engine.url.render_as_string()}" if context.engine is not None else ""
        return UnavailableError(f"the database{where} cannot be read: {error}", hint=_CHECK)
    return None


def _open_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun by `make_engine`, not by the driver's guess
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "journal_size_limit=67108864"):
        connection.execute(f"PRAGMA {pragma}")


LOCK = 7_215_411_903  # the PostgreSQL advisory lock of a migrating process: an arbitrary number
_MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
"""Found beside the installed package, never by the current directory."""


def alembic_config() -> Config:
    """Return Alembic's configuration."""
    from alembic.config import Config

    settings = Config()
    settings.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    return settings


@cache
def revisions() -> tuple[str, ...]:
    """Return the revisions that this version knows, the newest first: the numbers of their files."""
    return tuple(sorted((path.name[:4] for path in _MIGRATIONS.glob("versions/[0-9]*.py")), reverse=True))


def current_revision(db: Database) -> str | None:
    """Return the revision of the database; None for an empty one.

    Raises:
        UnavailableError: No migration of this version leads to it.
    """
    with db.engine.connect() as connection:
        is_empty = not inspect(connection).has_table("alembic_version")
        found = None if is_empty else connection.scalar(text("SELECT version_num FROM alembic_version"))
    if found is not None and found not in revisions():
        raise UnavailableError(
            f"the database is at schema {found}, which is unknown to this version (its newest is {revisions()[0]})",
            hint="a newer rubricsvc has upgraded it: install that version or a later one",
        )
    return found


def upgrade(db: Database) -> None:
    """Bring the schema to the newest revision. Several processes may call it at once; the second finds nothing to do.

    On PostgreSQL a process waits for another that migrates as long as that takes. Then each of its statements may take
    60 s and wait 5 s for a lock: better to fail and be called again than to hold up the service behind a lock queue.
    """
    from alembic import command

    settings = alembic_config()
    current_revision(db)
    with db.engine.connect().execution_options(begin="BEGIN IMMEDIATE") as connection, connection.begin():
        if db.engine.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
            connection.execute(text("SET LOCAL statement_timeout = '60s'"))
            connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        settings.attributes["connection"] = connection
        command.upgrade(settings, "head")


def attach(db: Database, settings: Settings, app: Celery | None = None) -> Database:
    """Send the outbox after each commit that writes to it, by ``app`` or an application of its own; return ``db``."""
    from rubricsvc.broker import make_celery, send

    db.on_commit = partial(relay, db, partial(send, app or make_celery(settings)))
    return db


@contextmanager
def open_database(
    on_created: Callable[[str], object] = lambda _name: None, settings: Settings | None = None
) -> Iterator[Database]:
    """Open the configured database; new work is published to a broker that other processes use.

    An absent or empty SQLite file is created, and ``on_created`` is called with its name. Any other schema that is not
    the newest is an error, left to `rubricsvc db upgrade`: its data may be shared.
    """
    settings = settings or get_settings()
    with closing(Database(settings.database_url)) as db:
        with suppress(exc.DBAPIError, UnavailableError, TypeError):  # which `see_ready` raises with a hint
            if sqlite_file(db.url) is not None and not inspect(db.engine).get_table_names():
                upgrade(db)  # several first commands may do so at once
                on_created(str(make_url(db.url).database))
        see_ready(db)
        yield db if settings.broker_url.startswith("memory:") else attach(db, settings)


def see_ready(db: Database) -> None:
    """Raise UnavailableError if the database cannot be reached, or its schema is not the newest."""
    try:
        found = current_revision(db)
    except (exc.DBAPIError, TypeError) as error:  # TypeError: an option of the URL is unknown to the driver
        url = make_url(db.url).render_as_string()
        message = f"the database {url} cannot be opened: {getattr(error, 'orig', error)}"
        raise UnavailableError(message, hint=_CHECK) from error
    if found != revisions()[0]:
        message = f"the database is at schema {found or 'none'}, this version needs {revisions()[0]}"
        raise UnavailableError(message, hint="run `rubricsvc db upgrade`")
