"""A module of untrusted code, loaded in the sandbox, and one action on it: run a test, or call a grader.

A failed test is run again without the code: no code could pass a test that fails by itself, so it must not score any.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from workers.checks.sandbox.runner import Limits, Result, run_python

_HARNESS = """
def main(run=exec, make=compile):
    import json, numbers, os, sys, types
    leave, write, size, output, take, read = os._exit, os.write, os.fstat(0).st_size, os.dup(1), os.dup(0), os.read
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 0)
    module = sys.modules[{name}] = types.ModuleType({name})
    run(make({code}, {name} + ".py", "exec"), module.__dict__)
    given = read(take, size)
    {action}
    leave(0)
main()
"""
"""The tests are read after the code is loaded, so that the code cannot find or change them."""

TEST = """token, test = given[:32], given[32:].decode()
    run(make(test, "test.py", "exec"), dict(module.__dict__, __name__="test"))
    write(output, token)"""
"""Run a test, then print the token that precedes it in the input."""

GRADE = """given = json.loads(given)
    value = module.grade(given["sample"], given["item"])
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"grade(sample, item) returned {ascii(value):.80}, not a number; return a float")
    write(output, json.dumps(float(value)).encode())"""
"""Call ``grade`` and print its number."""


def run_module(name: str, source: str, action: str, stdin: str, **options: Any) -> Result:
    """Load ``source`` as the module ``name`` in the sandbox, run the action `TEST` or `GRADE` with ``stdin``."""
    program = _HARNESS.format(name=json.dumps(name), code=json.dumps(source), action=action)
    return run_python(program, stdin=stdin, **options)


_RUN_WITHOUT_CODE = """
import json, sys, traceback, types
setup, test = json.load(sys.stdin)
solution = sys.modules["solution"] = types.ModuleType("solution")

def needs_code(error):
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] == "solution"
    if isinstance(error, NameError) or isinstance(error, AttributeError) and error.obj is solution:
        return True
    frames = traceback.extract_tb(error.__traceback__)
    lines = [setup.splitlines()[frame.lineno - 1] for frame in frames if frame.filename == "setup.py"]
    return any("solution" in line for line in lines) and not isinstance(error, (OSError, MemoryError))

def run(source, name, errors):
    try:
        exec(compile(source, name, "exec"), {"__name__": "test"})
    except BaseException as error:
        own = isinstance(error, errors) and not needs_code(error)
        sys.exit(f"{type(error).__name__}: {error}" if own else 0)

run(setup, "setup.py", BaseException)
run(test, "test.py", (ImportError, SyntaxError, MemoryError))
"""
"""A name that is missing here may be the code's to define, and so may be the error of a line of the setup that names
``solution``. Any other error of the setup, and a package that a test cannot import, is an error of the tests."""


class BrokenTestsError(RuntimeError):
    """The tests or their setup fail without any code."""


@lru_cache(maxsize=4096)  # errors are not cached: a timeout may be temporary
def run_without_code(setup: str, test: str, limits: Limits, packages: bool) -> None:
    """Run a setup and a test that failed. Raise `BrokenTestsError` where they fail without any code."""
    result = run_python(_RUN_WITHOUT_CODE, stdin=json.dumps([setup, test]), limits=limits, packages=packages)
    if not result.ok:
        hint = "correct the tests, or install what they import where the workers run"
        raise BrokenTestsError(f"the tests fail without any code: {result.error}; {hint}")
