"""What each installation can do: the base is the SDK, `[service]` adds the command line, the service and workers."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.planted_faults import load_faults

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

ONLY = """
import sys
from importlib.machinery import PathFinder
class OnlyInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, OnlyInstalled())
"""


def installed(*extras: str) -> set[str]:
    """Return the distributions that the project's dependencies and these extras install."""
    found: set[str] = set()
    own: set[str] = set()
    wanted = [(line, "") for line in PROJECT["dependencies"]]
    wanted += [(line, "") for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    while wanted:
        line, extra = wanted.pop()
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        if name == "rubricsvc":
            new = requirement.extras - own
            own |= new
            wanted += [(line, "") for extra in new for line in PROJECT["optional-dependencies"][extra]]
            continue
        if name in found and not requirement.extras:
            continue
        found.add(name)
        wanted += [(line, one) for line in metadata.requires(name) or () for one in ("", *requirement.extras)]
    return found


def run_with(distributions: set[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process where only modules of these distributions can be imported."""
    modules = metadata.packages_distributions()
    absent = {
        module
        for module, names in modules.items()
        if not {canonicalize_name(name) for name in names} & distributions
        and module not in ("rubricsvc", "workers", "trainer", "migrations", "tests", "sitecustomize")
        and not re.match(r"_{1,2}editable", module)
    }
    return subprocess.run(
        [sys.executable, "-c", ONLY.format(absent=repr(absent)) + code], capture_output=True, text=True, check=False
    )


def test_base_installation_is_the_sdk() -> None:
    base = installed()
    assert len(base) < 20
    code = """
import rubricsvc
for name in rubricsvc.__all__:
    getattr(rubricsvc, name)
import rubricsvc.schemas
with rubricsvc.Client("http://127.0.0.1:9") as client:
    print(client.jobs)
"""
    done = run_with(base, code)
    assert done.returncode == 0, done.stderr


def test_base_installation_names_the_extra_of_the_command_line() -> None:
    done = run_with(installed(), "from rubricsvc.__main__ import main\nmain()")
    assert (done.returncode, "rubricsvc[service]" in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize("extras", [("service",), ("redis",), ("postgres",)])
def test_service_extra_has_command_line_service_and_worker(extras: tuple[str, ...]) -> None:
    code = """
from importlib import import_module
from rubricsvc.cli.main import COMMANDS, load
for name in COMMANDS:
    load(name)
for name in ("rubricsvc.api.app", "workers.queue.app", "workers.queue.drain", "workers.engines.http.openai"):
    import_module(name)
"""
    done = run_with(installed(*extras), code)
    assert done.returncode == 0, done.stderr


def test_all_extra_has_every_extra_but_vllm_and_trackers() -> None:
    named = Requirement(PROJECT["optional-dependencies"]["all"][0]).extras
    assert named == PROJECT["optional-dependencies"].keys() - {
        "all", "dev", "vllm", "service", "tensorboard", "trackio", "wandb",
    }  # fmt: skip


def test_faults_have_their_places_and_tests() -> None:
    faults = load_faults()
    assert len({fault.id for fault in faults}) == len(faults) >= 40
    for fault in faults:
        assert fault.planted(ROOT) != (ROOT / fault.file).read_text()
        assert fault.tests and all((ROOT / test).exists() for test in fault.tests), fault.id
