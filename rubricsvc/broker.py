"""Celery and its broker, which wake workers when work is stored."""

from urllib.parse import urlsplit

from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError as BrokerError
from kombu.transport import TRANSPORT_ALIASES, memory

from rubricsvc.errors import UnavailableError
from rubricsvc.settings import Settings

MEMORY = "memory://"
BROKER_SECONDS = 2
_REDIS_TIMEOUTS = dict.fromkeys(("socket_connect_timeout", "socket_timeout"), BROKER_SECONDS)
"""Without them a server that hangs would hang the sender, too; workers read for 1 s at most."""

LISTEN_SECONDS = 0.1
_AT_ONCE = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
"""A send to an unreachable broker fails at once (the default waits 6 s): the reconciler sends it later."""


class Memory(memory.Transport):
    """The ``memory://`` transport with short calls of ``drain_events``.

    Celery's worker checks its stop flag between two calls, and makes one more call after it is set. With kombu's 2 s a
    call, `serve` would take 4 s to stop.
    """

    def drain_events(  # type: ignore[override]  # kombu's two base classes contradict each other
        self, connection: Connection, timeout: float | None = None
    ) -> None:
        """Wait for messages for `LISTEN_SECONDS` at most."""
        super().drain_events(connection, timeout=min(timeout or LISTEN_SECONDS, LISTEN_SECONDS))


TRANSPORT_ALIASES["memory"] = f"{__name__}:{Memory.__name__}"


def make_celery(settings: Settings) -> Celery:
    """Return a Celery application on the configured broker. It has no tasks, and can send them by name.

    A message is acknowledged when its work is done or released, so that a killed worker's message is delivered again.
    Redis delivers a message again after ``visibility_timeout`` even while it is being worked on. That is harmless (the
    second drain finds other leases or none), but the timeout is well above the longest drain.
    """
    options: dict[str, object] = {"visibility_timeout": int(settings.drain_seconds * 2 + 3600), **_AT_ONCE}
    if settings.broker_url.startswith(("redis", "sentinel")):
        from kombu.transport import redis

        class QoS(redis.QoS):  # uses no lost connection, which would end the worker; the reconciler announces the work
            restore_at_shutdown = False

            def ack(self, delivery_tag: str) -> None:
                if self.channel.connection is not None:
                    super().ack(delivery_tag)

        redis.Channel.QoS = QoS
        options |= _REDIS_TIMEOUTS
    app = Celery("rubricsvc", broker=settings.broker_url, set_as_current=False)
    if settings.broker_url.startswith(MEMORY):
        options = {"polling_interval": 0.05, **_AT_ONCE}
    app.conf.update(
        task_default_queue="rubricsvc",
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        broker_transport_options=options,
        broker_connection_timeout=3,
        broker_connection_retry_on_startup=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    return app


def send(app: Celery, task: str, args: list[object]) -> None:
    """Send a task by its name, or raise a ConnectionError."""
    try:
        app.send_task(task, args, retry=False, ignore_result=True)
    except BrokerError as error:
        raise ConnectionError(str(error)) from error


def check_broker(url: str) -> None:
    """Check that the broker answers; ``memory://`` always does."""
    options = _REDIS_TIMEOUTS if url.startswith("redis") else {}
    try:
        with Connection(url, connect_timeout=BROKER_SECONDS, transport_options=options) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=BROKER_SECONDS)
    except Exception as error:  # each transport raises kinds of its own
        message = f"the broker at {shown(url)} does not answer: {error or type(error).__name__}"
        hint = "check RUBRICSVC_BROKER_URL and that Redis or RabbitMQ runs; work waits in the database meanwhile"
        raise UnavailableError(message, hint=hint) from error


def shown(url: str) -> str:
    """Return the URL without its password."""
    parts = urlsplit(url)
    return url.replace(f":{parts.password}@", ":***@") if parts.password else url
