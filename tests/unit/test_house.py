"""The rules of the house that code can hold: directions of imports, sizes, one place that commits, one that has SQL."""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import median
from typing import Any

import grimp

from rubricsvc.cli.main import COMMANDS, load

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


BUDGETS = {
    "rubricsvc/core": 3_580,
    "rubricsvc/stats": 1_500,
    "rubricsvc/formats": 2_670,
    "rubricsvc/graders": 460,
    "rubricsvc/lint": 720,
    "rubricsvc/collections": 1_250,
    "rubricsvc/store": 3_890,
    "rubricsvc/schemas": 1_290,
    "rubricsvc/services": 3_830,
    "rubricsvc/client": 760,
    "rubricsvc/api": 835,
    "rubricsvc/web": 530,
    "rubricsvc/cli": 3_990,
    "rubricsvc": 26_000,
    "workers/queue": 1_270,
    "workers/scoring": 770,
    "workers/judges": 1_610,
    "workers/engines": 2_655,
    "workers/checks": 2_495,
    "workers/audit": 870,
    "workers/authoring": 1_760,
    "workers": 12_000,
    "trainer/algorithms": 690,
    "trainer/policies": 1_600,
    "trainer/environments": 1_300,
    "trainer/monitors": 500,
    "trainer/judge_training": 1_440,
    "trainer/integrations": 500,
    "trainer": 11_000,
    "migrations": 300,
    "recipes": 2_500,
    "rubricsvc/**/evol*.py workers/evol*.py trainer/evol*.py": 1_430,
    "rubricsvc workers trainer migrations": 49_100,
    "tests": 36_070,
}
"""Lines of Python that a room may have, docstrings included. At its budget, one in means one out. See ADR 38."""

MAX_MODULES = 261
MAX_WORDS = 40_600  # of the README and docs; bars of tables are none
MIN_MEDIAN_FUNCTION_LINES = 11
MAX_SMALL_MODULES = 4  # towards 0, as are those below
MAX_UNTYPED_FUNCTIONS = 90
MAX_PRINTING_CALLS = 2
MAX_COMMANDS = 62
MAX_OPTIONS = 272


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_rooms_are_within_their_budgets() -> None:
    large = []
    for room, budget in BUDGETS.items():
        globs = [part if "*" in part else f"{part}/**/*.py" for part in room.split()]
        lines = sum(lines_of(path) for pattern in globs for path in ROOT.glob(pattern))
        if lines > budget:
            large.append(f"{room} has {lines} lines, its budget is {budget}")
    assert not large, "\n".join(large)
    pages = [path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))]
    assert sum(len(re.findall(r"\S*\w\S*", page)) for page in pages) <= MAX_WORDS


def test_house_has_few_modules() -> None:
    assert len(list(modules())) <= MAX_MODULES


def test_functions_are_not_chopped() -> None:
    """Overloads and members of protocols, which have a docstring or ``...`` for a body, do not count."""
    lengths = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not (isinstance(last := node.body[-1], ast.Expr) and isinstance(last.value, ast.Constant))
    ]
    assert median(lengths) >= MIN_MEDIAN_FUNCTION_LINES


NOUN_ROOMS = ("schemas", "services", "store", "api", "cli", "web")


def test_small_modules_have_several_importers() -> None:
    """A module of a noun that stands in several layers may be small: it is the noun's home there."""
    graph = grimp.build_graph("rubricsvc", "workers", "trainer", cache_dir=None)
    homes = Counter(path.stem for room in NOUN_ROOMS for path in (ROOT / "rubricsvc" / room).glob("*.py"))
    small = {
        name
        for path in modules()
        if path.stem != "__init__" and lines_of(path) < 60 and homes[path.stem] < 2
        for name in [".".join(path.relative_to(ROOT).with_suffix("").parts)]
        if name in graph.modules and len(graph.find_modules_that_directly_import(name)) == 1
    }
    assert len(small) <= MAX_SMALL_MODULES, sorted(small)


def is_public(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def public_functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef) and is_public(node.name):
            yield from public_functions(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_public(node.name):
            yield node


def test_public_functions_take_and_return_models() -> None:
    """Count ``dict[str, Any]`` and ``**options: Any`` in the signatures of public functions."""
    untyped = []
    for path in modules():
        for node in public_functions(nodes(path)[0]):
            kinds = [one.annotation for one in (*node.args.args, *node.args.kwonlyargs)]
            texts = [ast.unparse(kind) for kind in (*kinds, node.returns) if kind is not None]
            options = node.args.kwarg
            if options is not None and options.annotation is not None and ast.unparse(options.annotation) == "Any":
                texts.append("dict[str, Any]")
            if any("dict[str, Any]" in text or "Mapping[str, Any]" in text for text in texts):
                untyped.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert len(untyped) <= MAX_UNTYPED_FUNCTIONS, "\n".join(untyped)


def test_only_the_printer_prints() -> None:
    """In `rubricsvc.cli` nothing but the printer writes to a terminal; elsewhere ruff forbids ``print``."""
    writing = {"print", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write", "Console"}
    bad = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "rubricsvc" / "cli").rglob("*.py")
        if path.name != "output.py"
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in writing
    }
    assert len(bad) <= MAX_PRINTING_CALLS, sorted(bad)


def test_commands_and_options_are_few() -> None:
    commands = {(name, verb): command for name in COMMANDS for verb, command in verbs_of(name).items()}
    options = [p.opts[0] for one in commands.values() for p in one.params if p.param_type_name == "option"]
    assert len(commands) <= MAX_COMMANDS, sorted(commands)
    assert len([one for one in options if one != "--help"]) <= MAX_OPTIONS


def verbs_of(name: str) -> dict[str, Any]:
    command = load(name)
    return getattr(command, "commands", {"": command})


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
    assert {"echo", "print_data", "show", "report"} <= printing
    bad = {
        f"{path.name}:{statement.lineno}: {', '.join(names)}"
        for path, tree in trees.items()
        for block in write_blocks(tree)
        for statement in block.body
        if (names := called(statement) & printing)
    }
    assert not bad


def test_modules_have_docstrings() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert not silent


OTHER_ENVIRONMENTS = {"autorubric_judge", "trl_step"}
"""Measures that run in an environment of another product."""


def test_measures_can_be_imported() -> None:
    """No test runs them, so a name that is gone would show when somebody measures."""
    for path in sorted((ROOT / "bench").glob("*.py")):
        if path.stem not in {"__init__", *OTHER_ENVIRONMENTS}:
            importlib.import_module(f"bench.{path.stem}")
