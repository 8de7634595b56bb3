"""The configured database: open it, or upgrade its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from rubricsvc.settings import Settings, get_settings
from rubricsvc.store import session
from rubricsvc.store.session import Database, sqlite_file

__all__ = ["open_database", "sqlite_file", "upgrade_schema"]


@contextmanager
def open_database(
    on_created: Callable[[str], None] = lambda _name: None, settings: Settings | None = None
) -> Iterator[Database]:
    """Open the configured database; new work is published to a broker that other processes use.

    An absent or empty SQLite file is created. Any other schema that is not the newest is an error, left to
    `rubricsvc db upgrade`: its data may be shared.
    """
    from rubricsvc.broker import MEMORY, attach

    settings = settings or get_settings()
    with closing(session.open_database(settings.database_url, on_created)) as db:
        yield db if settings.broker_url.startswith(MEMORY) else attach(db, settings)


def upgrade_schema(url: str) -> tuple[str | None, str]:
    """Upgrade a database to the newest schema; return the one before (None: there was none) and the newest."""
    with closing(Database(url)) as db:
        file = sqlite_file(db.url)
        before = None if file is not None and not file.exists() else session.current_revision(db)
        session.upgrade(db)
    return before, session.revisions()[0]
