"""A module of untrusted code, loaded in the sandbox, and one action on it: run a test, or call a grader."""

from __future__ import annotations

import json
from typing import Any

from workers.checks.sandbox.runner import Result, run_python

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
