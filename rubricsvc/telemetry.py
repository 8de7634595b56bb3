"""Logs (structlog to stderr, with ids of the current work) and Prometheus metrics."""

import logging
import sys
from collections.abc import Iterator
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from rubricsvc.store import leases
from rubricsvc.store.session import Database

_SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.stdlib.ExtraAdder(),
    lambda _logger, _method, event: {name: value for name, value in event.items() if name != "color_message"},
]
_ORIGIN = ("timestamp", "logger")
_VERBOSE_LIBRARIES = ("alembic", "asyncio", "httpx", "httpx2", "openai", "urllib3")
"""Libraries that log every step at INFO."""


def configure(level: str = "INFO", *, human: bool | None = None) -> None:
    """Send all log records of this process, structlog's and stdlib's, to stderr.

    ``human`` gives readable lines instead of JSON; by default on a terminal. Those of a command, which sets it, have
    neither time nor logger.
    """
    brief = human is True
    human = sys.stderr.isatty() if human is None else human
    render: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if brief:
        render.append(lambda _logger, _method, event: {n: v for n, v in event.items() if n not in _ORIGIN})
    if human:
        plain, colors = structlog.dev.plain_traceback, sys.stderr.isatty()
        layout: dict[str, Any] = {"pad_level": not brief, "pad_event_to": 0 if brief else 30}
        render.append(structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain, **layout))
    else:
        render += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=render, foreign_pre_chain=_SHARED))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _VERBOSE_LIBRARIES:
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


class Metrics(Collector):
    """Metrics of one service: requests are counted, the queue is read from the database at each scrape."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "rubricsvc_http_requests", "HTTP requests", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "rubricsvc_http_request_seconds", "HTTP request duration", ["method", "route"], registry=self.registry
        )
        ProcessCollector(registry=self.registry)
        self.registry.register(self)  # without a method `describe`, so that this does not read the database

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request. ``route`` is the template (``/v1/jobs/{job_id}``), so that ids do not create series."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of the queue."""
        up = "1 if the database responded to this scrape"
        try:
            with self._db.read() as session:
                queue = leases.queue(session)
        except SQLAlchemyError:
            yield GaugeMetricFamily("rubricsvc_database_up", up, value=0)
            return
        gauges = (
            ("database_up", up, 1),
            ("outbox_pending", "Messages not yet sent to the broker", queue.outbox),
            ("workers", "Running workers", queue.workers),
            ("unattended_items", "Pending items if no worker is running", 0 if queue.workers else queue.pending),
        )
        yield from (GaugeMetricFamily(f"rubricsvc_{name}", text, value=value) for name, text, value in gauges)
        items = GaugeMetricFamily("rubricsvc_queue_items", "Items not scored yet", labels=["judge", "state"])
        for names, count in queue.items.items():
            items.add_metric(names, count)
        yield items
