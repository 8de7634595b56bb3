"""A real PostgreSQL and a real Redis for the tests: started in a temporary folder, stopped and removed afterwards.

    python -m tests.services COMMAND [ARG …]

runs COMMAND with RUBRICSVC_TEST_POSTGRES and RUBRICSVC_TEST_REDIS set, and exits with its status. What is not
installed is installed with apt where this runs as root on Debian or Ubuntu; otherwise it says what to install.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

POSTGRES = "RUBRICSVC_TEST_POSTGRES"
REDIS = "RUBRICSVC_TEST_REDIS"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find(program: str) -> Path | None:
    """A program on the PATH, or where Debian keeps PostgreSQL's servers."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    found = shutil.which(program, path=os.pathsep.join([*map(str, versions), os.environ.get("PATH", os.defpath)]))
    return Path(found) if found else None


def need(program: str, package: str) -> Path:
    """The path of ``program``; its Debian package is installed first where that is possible."""
    if (path := find(program)) is not None:
        return path
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {package} with apt-get", file=sys.stderr)
        quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        keep_off = Path("/usr/sbin/policy-rc.d")  # Debian starts servers on installation; the tests start their own
        ours = not keep_off.exists()
        if ours:
            keep_off.write_text("#!/bin/sh\nexit 101\n")
            keep_off.chmod(0o755)
        try:
            subprocess.run(["apt-get", "update", "-q"], check=False, **quiet)
            subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", package], check=True, **quiet)
        finally:
            if ours:
                keep_off.unlink()
        if (path := find(program)) is not None:
            return path
    sys.exit(f"the tests need {program}; install it, for example: sudo apt-get install {package}")


def as_server_user(folder: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then it runs as `postgres` (or nobody), who is given the folder."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    run_as: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    if subprocess.run(["test", "-w", folder], check=False, cwd="/", **run_as).returncode:
        sys.exit(f"user {user.pw_name} cannot enter the temporary folder {folder.parent}; set another: TMPDIR=/tmp")
    return run_as


class Postgres:
    """A PostgreSQL server on a free port of the loopback, with its data in ``folder``; it can be started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.user = as_server_user(folder)
        initdb = [need("initdb", "postgresql"), "-D", folder / "data", "-U", "rubricsvc", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*initdb, "--no-sync"], check=True, stdout=subprocess.DEVNULL, cwd=folder, **self.user)

    @property
    def url(self) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg://rubricsvc@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        place = ["-D", self.folder / "data", "-p", str(self.port), "-h", "127.0.0.1", "-k", self.folder]
        with (self.folder / "log").open("ab") as log:
            settings = ["-c", "fsync=off", "-c", "max_connections=200"]
            server = [need("postgres", "postgresql"), *place, *settings]
            self.process = subprocess.Popen(server, stdout=log, stderr=log, cwd=self.folder, **self.user)
        wait_until(self._takes_connections, self.process, "PostgreSQL", self.folder / "log")

    def _takes_connections(self) -> bool:
        """Its port is open before that; it writes when it is ready."""
        return "ready" in (self.folder / "data" / "postmaster.pid").read_text().split()

    def stop(self) -> None:
        stop(self.process, signal.SIGINT)


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """A server that runs; its folder is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="rubricsvc-pg-", ignore_cleanup_errors=True) as folder:
        server = Postgres(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def redis(port: int = 0) -> Iterator[str]:
    """A Redis server on a port of the loopback (0: a free one), keeping nothing on disk; its URL."""
    server, port = need("redis-server", "redis-server"), port or free_port()
    process = subprocess.Popen(
        [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--databases", "1000"],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for_port(port, process, "Redis", None)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        stop(process, signal.SIGTERM)


RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Where Debian keeps it. It is not installed for the tests: those that want it skip without it."""


@contextlib.contextmanager
def rabbitmq() -> Iterator[str]:
    """A RabbitMQ server on a free port of the loopback, with everything that it writes in its own folder; its URL."""
    with tempfile.TemporaryDirectory(prefix="rubricsvc-mq-", ignore_cleanup_errors=True) as name:
        folder, port, names_port = Path(name), free_port(), str(free_port())
        user = as_server_user(folder)
        settings = {
            "NODENAME": f"rubricsvc-{port}@localhost", "NODE_IP_ADDRESS": "127.0.0.1", "NODE_PORT": str(port),
            "DIST_PORT": str(free_port()), "MNESIA_BASE": name, "LOG_BASE": name, "PID_FILE": f"{name}/pid",
            "ENABLED_PLUGINS_FILE": f"{name}/plugins", "CONF_ENV_FILE": "/dev/null",
        }  # fmt: skip
        environment = {**os.environ, "HOME": name, "ERL_EPMD_PORT": names_port, "ERL_EPMD_ADDRESS": "127.0.0.1"}
        environment |= {f"RABBITMQ_{key}": value for key, value in settings.items()}
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen([RABBITMQ], env=environment, cwd=name, stdout=log, stderr=log, **user)
        try:
            wait_for_port(port, process, "RabbitMQ", folder / "log")
            yield f"amqp://guest:guest@127.0.0.1:{port}//"
        finally:
            stop(process, signal.SIGTERM)
            subprocess.run(["epmd", "-kill"], env=environment, check=False, stdout=subprocess.DEVNULL)


def wait_for_port(
    port: int, process: subprocess.Popen[bytes], what: str, log: Path | None, patience: float = 60
) -> None:
    def answers() -> bool:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True

    wait_until(answers, process, what, log, patience)


def wait_until(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], what: str, log: Path | None, patience: float = 60
) -> None:
    """An ``OSError`` of ``ready`` says that it is not."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            if ready():
                return
        time.sleep(0.05)
    sys.exit(f"{what} did not start\n{log.read_text() if log else ''}")


def wait_for(condition: Callable[[], object], log: Path | None = None, seconds: float = 90) -> None:
    """Wait until the condition holds; where it does not come about, show the log."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-4000:] if log else "waited in vain"
        time.sleep(0.02)


def stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    process.send_signal(how)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main(command: list[str]) -> int:
    # a `kill` must unwind the servers too, not only Ctrl-C
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    need("bwrap", "bubblewrap")  # not a server: what confines the code that checks run
    with postgres() as database, redis() as redis_url:
        child = subprocess.Popen(command, env={**os.environ, POSTGRES: database.url, REDIS: redis_url})
        try:
            return child.wait()
        except (KeyboardInterrupt, SystemExit):
            stop(child, signal.SIGTERM)
            raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["true"]))
