"""Run as a script, where there is no sandbox: ``PARENT COMMAND…`` runs the command, and outlives all that it starts.

It is a "child subreaper" (Linux): who loses a parent below it becomes its child, whatever session it made for itself.
When the command ends, or SIGTERM comes, or the process that started this (``PARENT``, its id) is gone, it kills them
all; then it ends as the command did, by a shell's exit codes. Standard library only.
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
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it went before it could be watched
        return 128 + signal.SIGTERM
    program, status = os.posix_spawn(command[0], command, os.environ, setsigmask=before), None
    while status is None and signal.sigwait(_AWAITED) == signal.SIGCHLD:
        status = ended().get(program)
    end_all()
    code = -signal.SIGTERM if status is None else os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def ended() -> dict[int, int]:
    """The children that have ended, each with its status."""
    found = dict[int, int]()
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            found |= [child]
    return found


def end_all() -> None:
    """Kill the children, then those whom each of them leaves behind."""
    with suppress(ChildProcessError):
        while True:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
            os.wait()


def children() -> Iterator[int]:
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - pathlib costs start-up time
        with suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123
            if int(stat.read().rpartition(")")[2].split()[1]) == os.getpid():
                yield int(name)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
