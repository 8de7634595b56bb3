"""The reports of a worker process: its row in the table of workers says that it runs."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from structlog import get_logger

from rubricsvc.errors import RubricsvcError
from rubricsvc.store import workers
from rubricsvc.store.session import Database

log = get_logger(__name__)


NAME = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
"""The name of this worker. A forked child has its parent's: it is a part of the same worker."""


def dead_processes(names: Iterable[str]) -> list[str]:
    """Return the names of workers of this host whose process does not exist; a name may have the part of a drain."""
    return [name for name in names if not _exists(int(name.split(":")[1]))]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class WorkerReporter:
    """A thread that reports every `workers.REPORT_SECONDS`, also while other threads are busy with a local model.

    A failure is logged when it begins and when it ends, and changes nothing else.
    """

    def __init__(self, db: Database) -> None:
        self.db = db
        self._started = time.monotonic()
        self._failing = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> WorkerReporter:
        """Report once, start the thread, and return the reporter."""
        self._write(self._report)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the thread, which removes the worker's row."""
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(workers.REPORT_SECONDS):
            self._write(self._report)
        self._write(lambda session: workers.remove(session, NAME))

    def _report(self, session: Session) -> None:
        uptime = time.monotonic() - self._started
        workers.report(session, NAME, host=socket.gethostname(), pid=os.getpid(), uptime=uptime)

    def _write(self, step: Callable[[Session], None]) -> None:
        try:
            with self.db.write() as session:
                step(session)
        except (SQLAlchemyError, RubricsvcError) as error:
            if not self._failing:
                log.warning("worker report not written, the work goes on", error=str(error).splitlines()[0])
            self._failing = True
        else:
            if self._failing:
                log.info("worker report written again")
            self._failing = False
