"""Logs and metrics: structlog to stderr with the ids of what is being worked on, Prometheus at ``/metrics``."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterator

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from rubricsvc.store import monitoring as stats
from rubricsvc.store.session import Database

_SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.stdlib.ExtraAdder(),
    lambda _logger, _method, event: {name: value for name, value in event.items() if name != "color_message"},
]
_CHATTY = ("alembic", "asyncio", "httpx", "httpx2", "openai", "urllib3")
"""Libraries that report every step at INFO."""


def configure(level: str = "INFO", *, human: bool | None = None) -> None:
    """Send every log line of this process, structlog's and stdlib's alike, to stderr.

    ``human`` picks readable lines over JSON; unset, a terminal gets them. What is bound with
    ``structlog.contextvars.bound_contextvars(job_id=…)`` stands in every line logged inside.
    """
    human = sys.stderr.isatty() if human is None else human
    render: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)]
        if human
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render], foreign_pre_chain=_SHARED
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.getLogger("kombu.connection").setLevel(logging.ERROR)  # it warns that memory:// names no host
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


class Metrics:
    """The metrics of one service: requests counted here, the queue read from the database when asked."""

    def __init__(self, db: Database) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "rubricsvc_http_requests", "Requests answered", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "rubricsvc_http_request_seconds", "Time to answer", ["method", "route"], registry=self._registry
        )
        ProcessCollector(registry=self._registry)
        self._registry.register(_Queue(db))

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request. ``route`` is the template (``/v1/jobs/{job_id}``), so that ids make no series."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self._registry)


VERDICTS_SECONDS = 60.0


class _Queue(Collector):
    """What the database says at the moment of the scrape. Where it is gone, that is what is reported.

    The queue is counted in an index. Counting verdicts reads them all: that is done once a minute, however often one
    scrapes.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._verdicts: dict[str, int] = {}
        self._counted_at = -math.inf

    def describe(self) -> list[GaugeMetricFamily]:
        return []  # so that registering it reads nothing

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up = GaugeMetricFamily("rubricsvc_database_up", "1 when the database answered this scrape")
        try:
            with self._db.read() as session:
                queue = stats.queue(session)
                if time.monotonic() - self._counted_at >= VERDICTS_SECONDS:
                    self._verdicts, self._counted_at = stats.verdicts(session), time.monotonic()
        except SQLAlchemyError:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        items = GaugeMetricFamily("rubricsvc_queue_items", "Items not scored yet", labels=["judge", "state"])
        for (judge, state), count in queue.items.items():
            items.add_metric([judge, state], count)
        verdicts = GaugeMetricFamily("rubricsvc_verdicts", "Verdicts kept, counted once a minute", labels=["outcome"])
        for outcome, count in self._verdicts.items():
            verdicts.add_metric([outcome], count)
        bells = GaugeMetricFamily("rubricsvc_outbox_pending", "Bells not yet handed to the broker")
        bells.add_metric([], queue.bells)
        yield from (up, items, verdicts, bells)
