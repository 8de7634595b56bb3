"""The parent of a program that runs without a sandbox: ``PARENT COMMAND…`` ends all processes of the command with it.

It is a "child subreaper" (Linux): orphans below it become its children, whatever session they are in. When the command
ends, SIGTERM arrives, or the process with the id ``PARENT`` is gone, it kills them all, then exits with the exit code
of the command, as a shell does. Standard library only.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_AWAITED = {signal.SIGCHLD, signal.SIGTERM}


def main(parent: int, command: list[str]) -> int:
    """Run the command and return its exit code."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent ended before it could be watched
        return 128 + signal.SIGTERM
    program, status = os.posix_spawn(command[0], command, os.environ, setsigmask=before), None
    while status is None and signal.sigwait(_AWAITED) == signal.SIGCHLD:
        status = ended().get(program)
    with suppress(ChildProcessError):
        while True:  # the children, then the orphans that each of them leaves
            for pid in children():
                os.kill(pid, signal.SIGKILL)
            os.wait()
    code = -signal.SIGTERM if status is None else os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def ended() -> dict[int, int]:
    """Return the status of each child that has ended."""
    statuses = dict[int, int]()
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            statuses |= [child]
    return statuses


def children() -> Iterator[int]:
    """Yield the ids of the children of this process."""
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - pathlib costs start-up time
        with suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123
            if int(stat.read().rpartition(")")[2].split()[1]) == os.getpid():
                yield int(name)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
