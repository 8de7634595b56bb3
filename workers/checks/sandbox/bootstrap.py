"""The first script in the sandbox: it sets limits, drops root, then runs ``main.py`` beside it.

Its one argument is JSON: ``{"limits": {"RLIMIT_CPU": 5}, "uid": 70000, "started": 5, "parent": 1234, "disk": "/tmp"}``;
``uid``, ``parent`` and ``disk`` may be null. ``started`` is a socket's file descriptor; a byte in it means that any
later failure is the program's. With it goes a descriptor of the folder ``disk``, whose files are counted outside.
Standard library only.
"""

import _socket  # socket itself costs start-up time
import array
import json
import os
import resource
import signal
import sys
import types
from contextlib import suppress

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_AWAITED = {signal.SIGCHLD, signal.SIGTERM}


def main() -> None:
    """Set limits that cannot be raised again; as root, become the user ``uid``; then run the program."""
    given = json.loads(sys.argv[1])
    if given["parent"] is not None:
        fork_below(given["parent"])
    box = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs start-up time
    with open(os.path.join(box, "main.py"), encoding="utf-8") as stream:  # noqa: PTH118, PTH123 - as above
        source = stream.read()
    for name, value in given["limits"].items():
        hard = value + (name == "RLIMIT_CPU")  # the soft limit has a signal of its own, the hard one kills
        resource.setrlimit(getattr(resource, name), (value, hard))
    if given["uid"] is not None:
        os.setgroups([])
        os.setgid(given["uid"])
        os.setuid(given["uid"])
    folders = [] if given["disk"] is None else [os.open(given["disk"], os.O_RDONLY | os.O_DIRECTORY)]
    message = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", folders))] if folders else []
    connection = _socket.socket(fileno=given["started"])
    connection.sendmsg([b"1"], message)
    connection.close()
    for folder in folders:
        os.close(folder)
    sys.argv = ["main.py"]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    exec(compile(source, "main.py", "exec"), module.__dict__)  # noqa: S102 - this is what the sandbox is for


def fork_below(parent: int) -> None:
    """Continue in a child process, all of whose descendants end with it (Linux; there is no sandbox that ends them).

    This process is a "child subreaper": orphans below it become its children, whatever session they are in. When its
    child ends, SIGTERM arrives, or the process ``parent`` is gone, it kills them all, then exits as the child did.
    """
    import ctypes

    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent ended before it could be watched
        sys.exit(128 + signal.SIGTERM)
    program, status = os.fork(), None
    if program == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while status is None and signal.sigwait(_AWAITED) == signal.SIGCHLD:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = ended[1] if ended[0] == program else status
    with suppress(ChildProcessError):
        while True:  # the children, then the orphans that each of them leaves
            for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - pathlib costs start-up time
                with suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123
                    if int(stat.read().rpartition(")")[2].split()[1]) == os.getpid():
                        os.kill(int(name), signal.SIGKILL)
            os.wait()
    code = -signal.SIGTERM if status is None else os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
