"""The first script in the sandbox: it sets limits, drops root, then runs ``main.py`` beside it.

Its one argument is JSON: ``{"limits": {"RLIMIT_CPU": 5, …}, "uid": 70000 or null, "started": 5}``. ``started`` is a
file descriptor; a byte on it means that any later failure is the program's. Standard library only.
"""

import json
import os
import resource
import sys
import types


def enter(limits: dict[str, int], uid: int | None) -> None:
    """Set limits that cannot be raised again; as root, become the user ``uid``."""
    for name, value in limits.items():
        hard = (
            value + 1 if name == "RLIMIT_CPU" else value
        )  # the soft limit has a signal of its own, the hard one kills
        resource.setrlimit(getattr(resource, name), (value, hard))
    if uid is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)


def main() -> None:
    """Run the program."""
    given = json.loads(sys.argv[1])
    box = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs start-up time
    with open(os.path.join(box, "main.py"), encoding="utf-8") as stream:  # noqa: PTH118, PTH123 - as above
        source = stream.read()
    enter(given["limits"], given["uid"])
    os.write(given["started"], b"1")
    os.close(given["started"])
    sys.argv = ["main.py"]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    exec(compile(source, "main.py", "exec"), module.__dict__)  # noqa: S102 - this is what the sandbox is for


if __name__ == "__main__":
    main()
