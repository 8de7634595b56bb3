"""Count the functions and files of the product on four main paths, from the call of a person to its result.

    python -m bench.walks [PATH …] [--list] [--out FILE]

A path runs once in this process, with a judge that answers at once and a tiny policy, under `sys.setprofile`. Counted
are the functions that call a function of another file, since there a reader has to change files. A function inside a
function belongs to the one around it, as do properties, special methods, validators, conversions of columns and
comprehensions to their caller.
What runs while a module is imported does not count, nor do errors, settings, metrics and the printer. A run is followed
in its own thread, up to the first loss: what scores it in the workers is the path of a job.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import sys
import tempfile
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(os.environ.get("WALKS_ROOT", Path(__file__).resolve().parents[1]))
PRODUCT = ("rubricsvc", "workers", "trainer", "migrations")
EVERYWHERE = {f"rubricsvc/{name}.py" for name in ("errors", "settings", "telemetry", "cli/output", "schemas/base")}
"""Files that all others use: nobody follows a path into them."""

Walk = dict[str, set[str]]
"""The functions that were counted, by file."""

_TRANSPARENT = {"property", "cached_property", "model_validator", "field_validator", "model_serializer", "setter"}
_CONVERSIONS = {"process_bind_param", "process_result_value"}  # of columns, which SQLAlchemy calls
_VALIDATORS = {"BeforeValidator", "AfterValidator", "PlainSerializer"}


@cache
def _transparent(path: str) -> frozenset[str]:
    """Return the qualified names of the properties and validators of a file."""
    names = set()
    tree = ast.parse(Path(path).read_text())
    scopes = [("", tree), *((f"{node.name}.", node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    for prefix, scope in scopes:
        for node in ast.iter_child_nodes(scope):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                used = {name for one in node.decorator_list for name in ast.unparse(one).split("(")[0].split(".")}
                if used & _TRANSPARENT:
                    names.add(prefix + node.name)
        for node in ast.walk(scope) if not prefix else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in _VALIDATORS:
                names |= {ast.unparse(one) for one in node.args}
    return frozenset(names)


@cache
def _function(code: CodeType) -> tuple[str, str] | None:
    """Return file and name of the function that this code belongs to; None where it is not counted."""
    file = Path(code.co_filename)
    if not any(file.is_relative_to(ROOT / room) for room in PRODUCT):
        return None
    name = code.co_qualname.split(".<locals>")[0]
    last = name.rpartition(".")[2]
    if last.startswith(("<", "__")) or last in _CONVERSIONS or name in _transparent(code.co_filename):
        return None
    return str(file.relative_to(ROOT)), name


def _caller(frame: FrameType | None) -> tuple[str, str] | None:
    """Return the nearest function of the product around a frame; None also while a module is imported."""
    nearest = None
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and frame.f_back is not None and "importlib" in frame.f_back.f_code.co_filename:
            return None
        nearest = nearest or _function(code)
        frame = frame.f_back
    return nearest


@contextlib.contextmanager
def counting(until: str | None = None, *, threads: bool = True) -> Iterator[Walk]:
    """Count what runs inside the block, up to the first call of the function ``until``; in all threads or in this."""
    walk: Walk = defaultdict(set)
    edges: set[tuple[CodeType, CodeType]] = set()
    over = False

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal over
        if event != "call" or over or frame.f_back is None:
            return
        called = _function(frame.f_code)
        edge = (frame.f_code, frame.f_back.f_code)
        if called is None or (_function(frame.f_back.f_code) is not None and edge in edges):
            return
        edges.add(edge)
        caller = _caller(frame.f_back)
        if caller is not None and caller[0] not in (called[0], *EVERYWHERE) and called[0] not in EVERYWHERE:
            walk[caller[0]].add(caller[1])
        over = called[1] == until

    if threads:
        threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


RUBRICS = """
- {id: one, name: first, prompt: What is one?, criteria: [Says one., {text: Is rude., weight: -1}]}
- {id: two, name: second, prompt: What is two?, criteria: [Says two.]}
"""
COMPLETIONS = '{"prompt_id": "one", "text": "One is a number."}\n{"prompt_id": "two", "text": "Two."}\n'
JUDGE = {"name": "quick", "engine": "instant", "model": "m"}
RUN = """
steps = 1
policy = {model = "policy", dtype = "float32"}
data = {path = "rubrics.yaml"}
judge = {name = "quick", engine = "instant", model = "m"}
sampling = {prompts_per_step = 2, group_size = 2, max_new_tokens = 4}
"""


def command(*args: str) -> None:
    """Run a command of the product in this process."""
    from rubricsvc.cli.main import run

    printed, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints):
        code = run(list(args))
    if code:
        raise RuntimeError(f"rubricsvc {' '.join(args)} exited with {code}: {complaints.getvalue()}")


@dataclass(frozen=True)
class MainPath:
    """What is walked: ``prepare`` returns the call that is counted, up to the first call of ``until``."""

    prepare: Callable[[Path], Callable[[], object]]
    until: str | None = None
    threads: bool = True


def job(folder: Path) -> Callable[[], object]:
    """`jobs submit FILE --wait` to the reward."""
    (folder / "judge.json").write_text(json.dumps(JUDGE))
    (folder / "completions.jsonl").write_text(COMPLETIONS)
    command("rubrics", "import", "rubrics.yaml")
    command("judges", "add", "-f", "judge.json", "--no-probe")
    return lambda: command("jobs", "submit", "completions.jsonl", "--judge", "quick", "--wait")


def run(folder: Path) -> Callable[[], object]:
    """`runs start` to the loss."""
    from tests.tiny_model import tiny_model

    tiny_model(folder / "policy")
    (folder / "run.toml").write_text(RUN)
    return lambda: command("runs", "start", "run.toml")


def rubric(_folder: Path) -> Callable[[], object]:
    """A rubric's YAML to the database."""
    return lambda: command("rubrics", "import", "rubrics.yaml")


def episode(folder: Path) -> Callable[[], object]:
    """An episode with tools: a policy searches a collection, opens a document and writes its report."""
    from rubricsvc.core.prompt import Prompt
    from tests.tiny_model import tiny_model
    from trainer.config import EnvironmentConfig, SamplingConfig
    from trainer.environments.tool_calls import call_text
    from trainer.environments.tools import make_acting
    from trainer.policies.policy import Policy

    (folder / "documents").mkdir()
    (folder / "documents" / "seas.md").write_text("# Seas\n\nThe Baltic Sea is brackish.\n")
    command("collections", "add", "seas", "documents")
    calls = [call_text("search", query="Baltic"), call_text("open", id="seas.md"), call_text("finish", report="Salt.")]
    turns = iter([(call,) for call in calls])
    policy = Policy.load(str(tiny_model(folder / "policy", context=4096)), dtype="float32")
    policy.texts = lambda _rows: next(turns)  # type: ignore[method-assign]
    policy.acting = make_acting(
        EnvironmentConfig(name="research", collection="seas"), collections_dir=folder / "collections"
    )
    return lambda: policy.sample([Prompt.of("How salty is the Baltic Sea?")], 1, SamplingConfig(max_new_tokens=8), 0)


PATHS = {
    "job": MainPath(job),
    "run": MainPath(run, until="loss", threads=False),
    "rubric": MainPath(rubric),
    "episode": MainPath(episode),
}


def walked(name: str) -> Walk:
    """Return what is counted on a path."""
    from rubricsvc.settings import get_settings
    from tests.instant_engine import InstantEngine
    from workers.engines import ENGINES
    from workers.engines.base import EngineRequest, Failure, Reply

    class Varied(InstantEngine):
        """Answers by the completion: rewards of a group that are equal have no loss."""

        async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
            share = zlib.crc32(request.shared.encode()) % 97 / 100
            return [Reply(label_mass={"Yes": share, "No": 1.0 - share}) for _ in request.questions]

    ENGINES["instant"] = lambda _judge: Varied()

    environment, here, path = os.environ.copy(), Path.cwd(), PATHS[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        database = f"sqlite:///{folder}/rubricsvc.db"
        os.environ |= {"RUBRICSVC_DATABASE_URL": database, "RUBRICSVC_BROKER_URL": "memory://"}
        os.environ["RUBRICSVC_COLLECTIONS_DIR"] = str(folder / "collections")
        os.chdir(folder)
        get_settings.cache_clear()
        try:
            (folder / "rubrics.yaml").write_text(RUBRICS)
            act = path.prepare(folder)
            with counting(path.until, threads=path.threads) as walk:
                act()
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ |= environment
            get_settings.cache_clear()
    return walk


def counts(walk: Walk) -> dict[str, int]:
    """Return the numbers of functions and files."""
    return {"functions": sum(map(len, walk.values())), "files": len(walk)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("paths", nargs="*", metavar="PATH", help="job, run, rubric or episode; all by default")
    parser.add_argument("--list", action="store_true", help="list the functions")
    parser.add_argument("--out", type=Path, help="write the counts as JSON")
    options = parser.parse_args()
    found = {}
    for name in options.paths or PATHS:
        walk = walked(name)
        found[name] = counts(walk)
        print(f"{name:8} {found[name]['functions']:4} functions in {found[name]['files']:3} files")
        if options.list:
            for path, names in sorted(walk.items()):
                print(f"    {path}: {', '.join(sorted(names))}")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
