"""Errors of tests themselves: no code could pass such tests, so they must not score any.

A failing test is run again without the code. A name that it then lacks may be the code's to define, and so may be the
error of a setup statement that uses the code. Any other error of the setup, and a package that a test cannot import,
is an error of the tests. The code takes no part in this run and cannot forge its result.
"""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Iterator
from functools import lru_cache

from workers.checks.sandbox.runner import Limits, run_python
from workers.checks.syntax import global_names

_RUN_WITHOUT_CODE = """
import json, sys, traceback, types
setup, test, code_lines = json.load(sys.stdin)
solution = sys.modules["solution"] = types.ModuleType("solution")

def needs_code(error):
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] == "solution"
    if isinstance(error, NameError) or isinstance(error, AttributeError) and error.obj is solution:
        return True
    frames = traceback.walk_tb(error.__traceback__)
    uses_code = any(line in code_lines for frame, line in frames if frame.f_code.co_filename == "setup.py")
    return uses_code and not isinstance(error, (SyntaxError, OSError, MemoryError))

def run(source, name, errors):
    try:
        exec(compile(source, name, "exec"), {"__name__": "test"})
    except BaseException as error:
        own = isinstance(error, errors) and not needs_code(error)
        sys.exit(f"{type(error).__name__}: {error}" if own else 0)

run(setup, "setup.py", BaseException)
run(test, "test.py", (ImportError, SyntaxError, MemoryError))
"""

_CODE_ACCESS = {"globals", "locals", "vars", "dir", "eval"}


class BrokenTestsError(RuntimeError):
    """The tests or their setup fail without any code."""


@lru_cache(maxsize=4096)  # errors are not cached: a timeout may be temporary
def run_without_code(setup: str, test: str, limits: Limits, packages: bool) -> None:
    """Run a setup and a test that failed. Raise `BrokenTestsError` where they fail without any code."""
    given = json.dumps([setup, test, [*_lines_using_code(ast.parse(setup))]])
    result = run_python(_RUN_WITHOUT_CODE, stdin=given, limits=limits, packages=packages)
    if not result.ok:
        hint = "correct the tests, or install what they import where the workers run"
        raise BrokenTestsError(f"the tests fail without any code: {result.error}; {hint}")


def _lines_using_code(setup: ast.Module) -> Iterator[int]:
    """Yield the lines of the statements that use the code.

    They use ``solution`` and the like, a name that the setup does not define, or a name that such a statement defined.
    """
    names = [(part, *global_names(part)) for part in setup.body]
    defined = set(dir(builtins)).union(*(bound for _, _, bound in names)) - _CODE_ACCESS
    from_code = set[str]()
    for part, read, bound in names:
        if isinstance(part, ast.Import):
            from_code |= {alias.asname for alias in part.names if alias.name == "solution" and alias.asname}
        elif read - defined or read & from_code or "solution" in ast.unparse(part):
            from_code |= bound
            yield from range(part.lineno, (part.end_lineno or part.lineno) + 1)
