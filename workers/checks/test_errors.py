"""What tests do wrong by themselves: no code could pass them, so that no code must be scored by them.

They are run once more without any code. What they then lack by name may be the code's to define, and so may be what a
statement of the setup ends by that looks for the code. What else ends the setup, and a package that a test cannot
import, is their own fault. The code has no part in this and cannot forge it.
"""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Iterator
from functools import lru_cache

from workers.checks.sandbox.runner import Limits, run_python

_ALONE = """
import json, os, sys, types
setup, test, looking = json.load(sys.stdin)
solution = sys.modules["solution"] = types.ModuleType("solution")

def asks_for_code(error):
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] == "solution"
    if isinstance(error, NameError) or isinstance(error, AttributeError) and error.obj is solution:
        return True
    return not isinstance(error, (SyntaxError, OSError, MemoryError)) and line_of(error) in looking

def line_of(error):
    at = error.__traceback__
    while at and at.tb_frame.f_code.co_filename != "setup.py":
        at = at.tb_next
    return at and at.tb_lineno

def run(source, name, faults):
    try:
        exec(compile(source, name, "exec"), {"__name__": "test"})
    except BaseException as error:
        own = isinstance(error, faults) and not asks_for_code(error)
        sys.exit(f"{type(error).__name__}: {error}" if own else 0)

run(setup, "setup.py", BaseException)
run(test, "test.py", (ImportError, SyntaxError, MemoryError))
"""

_LOOKS = {"solution", "globals", "locals", "vars", "dir", "eval"}
_NAMED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar

_OFTEN_OWN = ("ImportError", "ModuleNotFoundError", "SyntaxError", "MemoryError")


class BrokenTestsError(RuntimeError):
    """The tests or their setup break by themselves."""


def see_whose(trouble: str, setup: str, test: str, limits: Limits, packages: bool) -> None:
    """See that the trouble a test had is the code's. ``test`` is its source, with the setup before it.

    Raises:
        BrokenTestsError: it is the test's own, or that of the setup.
        NoSandboxError: there is no sandbox.
    """
    suspect = trouble.startswith(_OFTEN_OWN)
    if setup or suspect:
        _alone(setup, test if suspect else "", limits, packages)


@lru_cache(maxsize=4096)
def _alone(setup: str, test: str, limits: Limits, packages: bool) -> None:
    """As ``see_whose``. What is in order is remembered; what is not may be out of time only now, and is tried again."""
    given = json.dumps([setup, test, [*_looking(ast.parse(setup))]])
    done = run_python(_ALONE, stdin=given, limits=limits, packages=packages)
    if not done.ok:
        hint = "mend them, or install what they import where the workers run"
        raise BrokenTestsError(f"the tests break without any code: {done.trouble}; {hint}")


def _looking(setup: ast.Module) -> Iterator[int]:
    """The lines of the statements that look for the code: through ``solution`` and the like, by a name that the setup
    does not make itself, or through what such a statement made."""
    seeks = _LOOKS | (_read(setup) - _made(setup) - set(dir(builtins)))
    for part in setup.body:
        if isinstance(part, ast.Import):
            seeks |= {alias.asname for alias in part.names if alias.name == "solution" and alias.asname}
        elif seeks & _read(part):
            seeks |= _made(part)
            yield from range(part.lineno, (part.end_lineno or part.lineno) + 1)


def _read(node: ast.AST) -> set[str]:
    """The names that are read, and ``solution`` where it is imported or written out as a text."""
    inner = [*ast.walk(node)]
    said = {part.value for part in inner if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    said |= {alias.name for part in inner if isinstance(part, ast.Import) for alias in part.names}
    said |= {part.module or "" for part in inner if isinstance(part, ast.ImportFrom)}
    read = {part.id for part in inner if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    return read | (said & {"solution"})


def _made(node: ast.AST) -> set[str]:
    inner = [*ast.walk(node)]
    made = {part.id for part in inner if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
    made |= {part.arg for part in inner if isinstance(part, ast.arg)}
    imports = (alias for part in inner if isinstance(part, ast.Import | ast.ImportFrom) for alias in part.names)
    made |= {alias.asname or alias.name.partition(".")[0] for alias in imports}
    return made | {part.name for part in inner if isinstance(part, _NAMED) and part.name}
