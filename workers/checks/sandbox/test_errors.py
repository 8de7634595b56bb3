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

_RUN_WITHOUT_CODE = """
import json, os, sys, types
setup, test, code_lines = json.load(sys.stdin)
solution = sys.modules["solution"] = types.ModuleType("solution")

def needs_code(error):
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] == "solution"
    if isinstance(error, NameError) or isinstance(error, AttributeError) and error.obj is solution:
        return True
    return not isinstance(error, (SyntaxError, OSError, MemoryError)) and line_of(error) in code_lines

def line_of(error):
    at = error.__traceback__
    while at and at.tb_frame.f_code.co_filename != "setup.py":
        at = at.tb_next
    return at and at.tb_lineno

def run(source, name, errors):
    try:
        exec(compile(source, name, "exec"), {"__name__": "test"})
    except BaseException as error:
        own = isinstance(error, errors) and not needs_code(error)
        sys.exit(f"{type(error).__name__}: {error}" if own else 0)

run(setup, "setup.py", BaseException)
run(test, "test.py", (ImportError, SyntaxError, MemoryError))
"""

_CODE_ACCESS = {"solution", "globals", "locals", "vars", "dir", "eval"}
_NAMED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar

_SUSPICIOUS = ("ImportError", "ModuleNotFoundError", "SyntaxError", "MemoryError")


class BrokenTestsError(RuntimeError):
    """The tests or their setup fail without any code."""


def attribute_error(error: str, setup: str, test: str, limits: Limits, packages: bool) -> None:
    """Check that the error of a test is due to the code.

    Args:
        error: The last line of the traceback.
        setup: The source that runs before the test.
        test: The source of the test, with the setup before it.
        limits: The limits of the sandbox.
        packages: Whether installed packages can be imported.

    Raises:
        BrokenTestsError: It is due to the test or to the setup.
        NoSandboxError: There is no sandbox.
    """
    suspicious = error.startswith(_SUSPICIOUS)
    if setup or suspicious:
        _run_without_code(setup, test if suspicious else "", limits, packages)


@lru_cache(maxsize=4096)  # errors are not cached: a timeout may be temporary
def _run_without_code(setup: str, test: str, limits: Limits, packages: bool) -> None:
    given = json.dumps([setup, test, [*_lines_using_code(ast.parse(setup))]])
    result = run_python(_RUN_WITHOUT_CODE, stdin=given, limits=limits, packages=packages)
    if not result.ok:
        hint = "correct the tests, or install what they import where the workers run"
        raise BrokenTestsError(f"the tests fail without any code: {result.error}; {hint}")


def _lines_using_code(setup: ast.Module) -> Iterator[int]:
    """Yield the lines of the statements that use the code.

    They use ``solution`` and the like, a name that the setup does not define, or a name that such a statement defined.
    """
    from_code = _CODE_ACCESS | (_names_read(setup) - _names_bound(setup) - set(dir(builtins)))
    for part in setup.body:
        if isinstance(part, ast.Import):
            from_code |= {alias.asname for alias in part.names if alias.name == "solution" and alias.asname}
        elif from_code & _names_read(part):
            from_code |= _names_bound(part)
            yield from range(part.lineno, (part.end_lineno or part.lineno) + 1)


def _names_read(node: ast.AST) -> set[str]:
    """Return the names that are read, and ``solution`` where it is imported or appears as a string."""
    inner = [*ast.walk(node)]
    texts = {part.value for part in inner if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    texts |= {alias.name for part in inner if isinstance(part, ast.Import) for alias in part.names}
    texts |= {part.module or "" for part in inner if isinstance(part, ast.ImportFrom)}
    read = {part.id for part in inner if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    return read | (texts & {"solution"})


def _names_bound(node: ast.AST) -> set[str]:
    inner = [*ast.walk(node)]
    bound = {part.id for part in inner if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
    bound |= {part.arg for part in inner if isinstance(part, ast.arg)}
    imports = (alias for part in inner if isinstance(part, ast.Import | ast.ImportFrom) for alias in part.names)
    bound |= {alias.asname or alias.name.partition(".")[0] for alias in imports}
    return bound | {part.name for part in inner if isinstance(part, _NAMED) and part.name}
