"""Errors of tests themselves: no code could pass such tests, so they must not score any.

A failing test is run again without the code. A name that it then lacks may be the code's to define, and so may be the
error of a line of the setup that names ``solution``. Any other error of the setup, and a package that a test cannot
import, is an error of the tests. The code takes no part in this run and cannot forge its result.
"""

from __future__ import annotations

import json
from functools import lru_cache

from workers.checks.sandbox.runner import Limits, run_python

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


class BrokenTestsError(RuntimeError):
    """The tests or their setup fail without any code."""


@lru_cache(maxsize=4096)  # errors are not cached: a timeout may be temporary
def run_without_code(setup: str, test: str, limits: Limits, packages: bool) -> None:
    """Run a setup and a test that failed. Raise `BrokenTestsError` where they fail without any code."""
    result = run_python(_RUN_WITHOUT_CODE, stdin=json.dumps([setup, test]), limits=limits, packages=packages)
    if not result.ok:
        hint = "correct the tests, or install what they import where the workers run"
        raise BrokenTestsError(f"the tests fail without any code: {result.error}; {hint}")
