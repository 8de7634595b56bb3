"""The bootstrap's signal that the untrusted program starts, which brings a descriptor of the sandbox's ``/tmp``.

Each file takes about a kilobyte of the kernel's memory, and ``/tmp`` is a file system in memory. bubblewrap bounds its
size, but not the number of its files, and there is no resource limit for it. So the files are counted from outside.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from rubricsvc.errors import UnavailableError
from rubricsvc.settings import get_settings
from workers.checks.sandbox import seccomp


@contextmanager
def start_signal() -> Iterator[tuple[int, Callable[[], int | None]]]:
    """Yield the descriptor to pass to a program, and the count of files, folders and links in its ``/tmp``.

    The count is None before the start, and 0 without a sandbox.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    disk: list[int] | None = None

    def files() -> int | None:
        nonlocal disk
        if disk is None:
            with suppress(BlockingIOError):
                data, folders, *_ = socket.recv_fds(ours, 1, 1)
                disk = folders if data else None
        counts = [os.fstatvfs(folder) for folder in disk or ()]
        return None if disk is None else sum(count.f_files - count.f_ffree for count in counts)

    try:
        yield theirs.fileno(), files
    finally:
        for folder in disk or ():  # which frees the file system
            os.close(folder)
        ours.close()
        theirs.close()


Termination = Literal["exit", "signal", "cpu", "wall", "output", "files"]
_REASONS = {"cpu": "out of CPU time", "wall": "out of time", "output": "too much output", "files": "too many files"}

_BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
_BOX = "/box"
_MIB = 1 << 20
_HINT = "apt-get install bubblewrap; or set RUBRICSVC_SANDBOX=none to run untrusted code with your own permissions"
_FILES = 64  # open files of a process; files in memory (memfd) count here only, each up to output_mib
_LAST_S = 10.0  # for ending a program that timed out
_COUNT_S = 0.05  # between counts of the files in /tmp
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",  # noqa: S108 - the sandbox's own
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",  # a thread counts as a process
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of each process (``cpu_s``, ``memory_mib``) and of all together (the others).

    Threads count as processes. ``disk_mib`` is that of ``/tmp``, ``output_mib`` that of the output and of any file.
    ``files`` bounds the files, folders and links in ``/tmp`` at any time.
    """

    cpu_s: int = 5
    wall_s: float = 20.0
    memory_mib: int = 512
    processes: int = 16
    output_mib: int = 4
    disk_mib: int = 32
    files: int = 10_000


@dataclass(frozen=True, slots=True)
class Result:
    """The output of a program and how it ended. ``exit_code`` is None after a timeout."""

    stdout: str
    stderr: str
    exit_code: int | None
    termination: Termination

    @property
    def ok(self) -> bool:
        """Whether the program exited with code 0."""
        return self.termination == "exit" and self.exit_code == 0

    @property
    def error(self) -> str:
        """The reason of a failure, in one line."""
        if self.termination != "exit":
            return _REASONS.get(self.termination, f"killed (exit code {self.exit_code})")
        return self.stderr.strip().rpartition("\n")[2][:300] or f"exit code {self.exit_code}"


class NoSandboxError(UnavailableError):
    """The sandbox is missing or does not start."""


def run_python(source: str, *, stdin: str = "", limits: Limits | None = None) -> Result:
    """Run a program in the sandbox, where it can write to a private ``/tmp`` and import installed packages."""
    limits, kind = limits or Limits(), ready()
    with (
        tempfile.TemporaryDirectory(prefix="rubricsvc-") as folder,
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
        start_signal() as (passed, count_files),
        seccomp.passed_fds() as filter_,
    ):
        box = Path(folder, "box")
        box.mkdir()
        (box / "main.py").write_text(source, "utf-8", errors="replace")
        shutil.copy(_BOOTSTRAP, box)
        box.chmod(0o755)
        given.write(stdin.encode("utf-8", "replace"))
        given.seek(0)
        process = subprocess.Popen(  # noqa: S603 - a fixed command; what it runs is confined
            _command(box, limits, passed, filter_ if kind == "bwrap" else None),
            stdin=given,
            stdout=output,
            stderr=errors,
            cwd=box,
            env=_ENVIRONMENT,
            start_new_session=True,
            pass_fds=(passed, *filter_),
        )
        code = _wait(process, limits, count_files)
        for stream in (output, errors):
            stream.seek(0)
        stdout, stderr = (stream.read(limits.output_mib * _MIB) for stream in (output, errors))
        if (files := count_files()) is None:
            why = stderr.decode("utf-8", "replace").strip()[:300] or "it took too long"
            raise NoSandboxError(f"the sandbox did not start: {why}", hint=_HINT)
        full = max(len(stdout), len(stderr)) >= limits.output_mib * _MIB
        number = 0 if code is None else -code if code < 0 else code - 128  # bubblewrap encodes signals as a shell does
        ended: Termination = "files" if files > limits.files else "wall" if code is None else "exit"
        if ended == "exit" and number == signal.SIGXCPU:
            ended = "cpu"
        elif ended == "exit" and (full or number > 0):
            ended = "output" if full else "signal"
        return Result(stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"), code, ended)


def ready() -> Literal["bwrap", "none"]:
    """Return the kind of sandbox."""
    if get_settings().sandbox == "none":
        return "none"
    problem = bubblewrap_problem()
    if problem:
        raise NoSandboxError(f"no sandbox for code: {problem}", hint=_HINT)
    return "bwrap"


@lru_cache(maxsize=1)
def bubblewrap_problem() -> str:
    """Return why bubblewrap does not work; empty if it does."""
    if sys.platform != "linux":
        return "bubblewrap is for Linux only"
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    with seccomp.passed_fds() as filter_:
        command = [*_bwrap_options(8, filter_), "--ro-bind", "/", "/", "/bin/true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, pass_fds=filter_)  # noqa: S603, PLW1510
    why = "it needs user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu), or to be root"
    return f"bubblewrap does not work: {done.stderr.strip()[:300]}; {why}" if done.returncode else ""


@lru_cache(maxsize=1)
def _unassigned_uids() -> range:
    """Return user ids that root can take and no user has; none for other users than root.

    They are the upper half of the ids of the namespace; none if it has fewer than a container usually has.
    """
    if os.geteuid() != 0:
        return range(0)
    uid_map = Path("/proc/self/uid_map").read_text("utf-8")
    top = max(int(first) + int(count) for first, _, count in map(str.split, uid_map.splitlines()))
    return range(min(top, 1 << 31) // 2, min(top, 1 << 31) - 2) if top >= 1 << 16 else range(0)


def _bwrap_options(disk_mib: int, filter_: Sequence[int]) -> list[str]:
    """Return the options of bubblewrap except for the visible paths.

    Users get a user namespace in which no other can be made. Root does without: in one, processes would count as
    root's, whose number is not limited. ``filter_`` is the descriptor of the filter of system calls, if there is one.
    """
    spaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    rights = (
        ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        if _unassigned_uids()
        else ["--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534"]
    )
    places = ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    room = ["--perms", "1777", "--size", str(disk_mib * _MIB), "--tmpfs", "/tmp"]  # noqa: S108 - its own, see above
    calls = [word for file in filter_ for word in ("--seccomp", str(file))]
    program = shutil.which("bwrap") or "bwrap"  # the program starts with a PATH of its own
    return [program, *spaces, *rights, *calls, "--die-with-parent", "--new-session", "--clearenv", *places, *room]


def _command(box: Path, limits: Limits, started: int, filter_: tuple[int, ...] | None) -> list[str]:
    """Return the command line of the bootstrap, in the sandbox unless ``filter_`` is None.

    ``started`` is the socket of its signal. Readable are the system's libraries and this Python; no home folder, and no
    configuration.
    """
    bounds = {
        "RLIMIT_CPU": limits.cpu_s,
        "RLIMIT_AS": limits.memory_mib * _MIB,
        "RLIMIT_FSIZE": limits.output_mib * _MIB,
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_NOFILE": _FILES,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_CORE": 0,
    }
    given: dict[str, object] = {"limits": bounds, "uid": None, "started": started, "parent": None, "disk": "/tmp"}  # noqa: S108
    if filter_ is None:
        given["disk"] = None
        del bounds["RLIMIT_NPROC"]  # it would count all processes of this user
        given["parent"] = os.getpid() if sys.platform == "linux" else None
        return [sys.executable, "-I", f"{box}/{_BOOTSTRAP.name}", json.dumps(given)]
    if _unassigned_uids():
        given["uid"] = random.choice(_unassigned_uids())  # of its own, so that its processes are counted
    environment = [word for name, value in _ENVIRONMENT.items() for word in ("--setenv", name, value)]
    system = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives")
    prefixes = {sys.prefix, sys.base_prefix, str(Path(os.path.realpath(sys.executable)).parent.parent)}
    paths = [path for path in system if Path(path).exists()]
    paths += [prefix for prefix in sorted(prefixes) if not prefix.startswith("/usr")]
    above = sorted({str(parent) for path in paths for parent in Path(path).parents if parent != Path("/")}, key=len)
    folders = [word for path in above for word in ("--perms", "0755", "--dir", path)]  # 0700 where bubblewrap adds them
    shown = [*folders, *(word for path in paths for word in ("--ro-bind", path, path))]
    last = ["--ro-bind", str(box), _BOX, "--remount-ro", "/", "--chdir", _BOX]
    walls = [*_bwrap_options(limits.disk_mib, filter_), *shown, *environment, *last]
    return [*walls, sys.executable, "-I", f"{_BOX}/{_BOOTSTRAP.name}", json.dumps(given)]


def _wait(process: subprocess.Popen[bytes], limits: Limits, count_files: Callable[[], int | None]) -> int | None:
    """Return the exit code of a process; None after a timeout or too many files. All its processes end with it."""
    end = time.monotonic() + limits.wall_s
    try:
        while (left := end - time.monotonic()) > 0 and (count_files() or 0) <= limits.files:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(min(left, _COUNT_S))
        return None
    finally:
        process.terminate()  # bubblewrap and the bootstrap end all others
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


PROGRAMS = Path(__file__).with_name("programs.py").read_text("utf-8")  # a call follows


class BrokenTestsError(RuntimeError):
    """A test fails without any code."""


@lru_cache(maxsize=4096)  # errors are not cached: a timeout may be temporary
def run_without_code(test: str, limits: Limits) -> None:
    """Run a test that failed. Raise `BrokenTestsError` where it cannot run without any code either."""
    result = run_python(f"{PROGRAMS}\nrun_test_alone()", stdin=test, limits=limits)
    if not result.ok:
        hint = "correct the tests, or install what they import where the workers run"
        raise BrokenTestsError(f"the tests fail without any code: {result.error}; {hint}")
