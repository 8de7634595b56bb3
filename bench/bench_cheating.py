"""Cheats that `code_cheating` finds, and honest answers that it marks, on `cheating_tasks`. Needs a sandbox.

``python -m bench.bench_cheating`` prints a line for each kind of answer: how many there are, how many have a mark
in the syntax tree, how many have a gap, how many have any mark, and the mean value of ``code`` (what the answers earn).
"""

from __future__ import annotations

from collections import defaultdict
from typing import get_args

from bench.cheating_tasks import TASKS, Task, cheats, honest
from rubricsvc.core.prompt import Completion, Prompt
from workers.checks.code import Code, CodeCheating, Mark, code, code_cheating

PROMPT = Prompt.of("Write the function.")
SYNTAX = tuple(mark for mark in get_args(Mark) if mark != "gap")


def measure(task: Task, source: str) -> tuple[float, float, float, float]:
    """Return 1 or 0 for a mark in the syntax, a gap and any mark, and the value of ``code``."""
    completion = Completion(text=source)
    tests = {"tests": task.tests(task.shown), "hidden_tests": task.tests(task.hidden), "packages": False}

    def marked(marks: tuple[Mark, ...]) -> float:
        return code_cheating(completion, PROMPT, CodeCheating.model_validate({**tests, "marks": marks})).value

    value = code(completion, PROMPT, Code.model_validate(tests)).value
    return marked(SYNTAX), marked(("gap",)), marked(get_args(Mark)), value


def main() -> None:
    """Print the figures."""
    print(f"{'':8} {'kind':16} {'n':>4} {'syntax':>7} {'gap':>5} {'any':>5} {'code':>6}")
    for label, answers in (("honest", honest), ("cheats", cheats)):
        rows = defaultdict[str, list[tuple[float, ...]]](list)
        for task in TASKS:
            for kind, source in answers(task):
                rows[kind].append(measure(task, source))
        rows["all"] = [row for kind in rows.values() for row in kind]
        for kind, row in rows.items():
            syntax, gap, marked, value = (sum(column) for column in zip(*row, strict=True))
            print(f"{label:8} {kind:16} {len(row):4} {syntax:7.0f} {gap:5.0f} {marked:5.0f} {value / len(row):6.2f}")


if __name__ == "__main__":
    main()
