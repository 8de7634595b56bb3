"""Programs that run in the sandbox, where this file is the start of ``main.py`` and a call of a function its end."""

import json
import numbers
import os
import sys
import types


def run_action(name: str, code: str, action: str) -> None:
    """Load ``code`` as the module ``name``; then ``test`` it, or ``grade`` with it.

    Input (token and test, or sample and item as JSON) is read after the code is loaded, which cannot find or change it.
    """
    run, make, leave, write, read = exec, compile, os._exit, os.write, os.read  # before code can replace them
    size, output, given = os.fstat(0).st_size, os.dup(1), os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 0)
    module = sys.modules[name] = types.ModuleType(name)
    run(make(code, name + ".py", "exec"), module.__dict__)
    data = read(given, size)
    if action == "test":
        run(make(data[32:].decode(), "test.py", "exec"), dict(module.__dict__, __name__="test"))
        write(output, data[:32])
    else:
        value = module.grade(*map(json.loads(data).get, ("sample", "item")))
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"grade(sample, item) returned {value!a:.80}, not a number; return a float")
        write(output, json.dumps(float(value)).encode())
    leave(0)


def run_test_alone() -> None:
    """Run a test without the code. Fail where a test cannot import a package; the code may define a missing name."""
    sys.modules["solution"] = types.ModuleType("solution")
    try:
        exec(compile(sys.stdin.read(), "test.py", "exec"), {"__name__": "test"})  # noqa: S102 - as the bootstrap
    except BaseException as error:  # noqa: BLE001 - what else a test raises is not its error
        missing = isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "solution"
        broken = isinstance(error, ImportError | SyntaxError | MemoryError) and not missing
        sys.exit(f"{type(error).__name__}: {error}" if broken else 0)
