"""The rules of the house that code can hold: directions of imports, sizes, one place that commits, one that has SQL."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("rubricsvc", "workers", "trainer", "migrations")
LONGEST_MODULE = 800
LONGEST_FUNCTION = 100


def modules() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def test_imports_follow_the_layers() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_imports_have_no_cycles() -> None:
    """Imports inside functions count; those for type checkers do not."""
    graph = grimp.build_graph("rubricsvc", "workers", "trainer", cache_dir=None, exclude_type_checking_imports=True)
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(needs).prepare()


def test_modules_are_at_most_800_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): n
        for path in modules()
        if (n := len(path.read_text().splitlines())) > LONGEST_MODULE
    }
    assert not long


def test_functions_are_at_most_100_lines() -> None:
    """Counted with the signature and without decorators."""
    long = []
    for path in modules():
        if path.is_relative_to(ROOT / "migrations" / "versions"):
            continue  # a schema is one long list
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long.append(f"{path.relative_to(ROOT)}:{node.name} has {lines} lines")
    assert not long


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_sql_is_in_the_store_only() -> None:
    """Elsewhere SQLAlchemy is known by its errors and by the type of a session, and nothing else."""
    allowed = {"sqlalchemy", "sqlalchemy.exc", "sqlalchemy.orm", "sqlalchemy.orm.Session", "sqlalchemy.make_url"}
    for path in modules():
        if path.is_relative_to(ROOT / "rubricsvc" / "store") or path.is_relative_to(ROOT / "migrations"):
            continue
        used = {name for name in imports(path) if name.split(".")[0] == "sqlalchemy"}
        used = {name for name in used if not name.startswith("sqlalchemy.exc.")}
        assert used <= allowed, path


def test_tables_are_declared_in_one_module() -> None:
    homes = {path for path in modules() if "    __tablename__ = " in path.read_text()}
    assert homes == {ROOT / "rubricsvc" / "store" / "tables.py"}


def test_commit_is_called_by_the_session_only() -> None:
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit":
                assert path == ROOT / "rubricsvc" / "store" / "session.py", path


def called(tree: ast.AST) -> set[str]:
    """Names that are called: ``echo()``, ``output.echo()``."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    bare = {call.id for call in calls if isinstance(call, ast.Name)}
    module = {c.attr for c in calls if isinstance(c, ast.Attribute) and ast.unparse(c.value) in ("output", "typer")}
    return bare | module


def write_blocks(tree: ast.AST) -> Iterator[ast.With]:
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(ast.unparse(i.context_expr).endswith(".write()") for i in node.items):
            yield node


def test_commands_print_after_write_transactions() -> None:
    """A closed pipe (``| head -1``) would roll the transaction back. Functions that print are found by their calls."""
    trees = {path: ast.parse(path.read_text()) for path in sorted((ROOT / "rubricsvc" / "cli").rglob("*.py"))}
    calls = {
        node.name: called(node)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    printing, before = {"print"}, 0
    while len(printing) > before:
        before = len(printing)
        printing |= {name for name, callees in calls.items() if callees & printing}
    assert {"echo", "print_data", "show", "show_page", "report"} <= printing
    bad = {
        f"{path.name}:{statement.lineno}: {', '.join(names)}"
        for path, tree in trees.items()
        for block in write_blocks(tree)
        for statement in block.body
        if (names := called(statement) & printing)
    }
    assert not bad


@pytest.mark.parametrize("room", ROOMS)
def test_modules_have_docstrings(room: str) -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert not silent
