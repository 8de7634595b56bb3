"""The first script in the sandbox: it sets limits, drops root, then runs ``main.py`` beside it.

Its one argument is JSON: ``{"limits": {"RLIMIT_CPU": 5, …}, "uid": 70000 or null, "started": 5}``. ``started`` is a
file descriptor; a byte on it means that any later failure is the program's. Standard library only.
"""

import json
import os
import resource
import sys
import types


def main() -> None:
    """Set limits that cannot be raised again; as root, become the user ``uid``; then run the program."""
    given = json.loads(sys.argv[1])
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
    os.write(given["started"], b"1")
    os.close(given["started"])
    sys.argv = ["main.py"]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    exec(compile(source, "main.py", "exec"), module.__dict__)  # noqa: S102 - this is what the sandbox is for


if __name__ == "__main__":
    main()
