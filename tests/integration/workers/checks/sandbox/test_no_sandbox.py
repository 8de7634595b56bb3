"""Where there is no sandbox no code is run, and no code is scored."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import UnavailableError
from rubricsvc.settings import get_settings
from workers import checks
from workers.checks.sandbox import runner as sandbox
from workers.checks.sandbox.runner import Limits, run_python, start_signal


@pytest.fixture
def no_bwrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine without bubblewrap."""
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.bubblewrap_problem.cache_clear()
    yield
    monkeypatch.undo()
    sandbox.bubblewrap_problem.cache_clear()


@pytest.mark.usefixtures("no_bwrap")
def test_run_python_fails_without_bubblewrap() -> None:
    with pytest.raises(UnavailableError) as caught:
        run_python("print(1)")
    assert "bubblewrap" in caught.value.hint
    check = Check(name="code", args={"tests": ["assert True"]})
    rubric = Rubric(criteria=(Criterion(key="c", text="t", check=check),))
    (found,) = checks.run(rubric, Prompt.of("q"), Completion(text="x = 1"))
    assert (found.outcome, found.reason, found.value) == ("failed", Reason.NO_SANDBOX, None)
    assert "bubblewrap" in (found.detail or "")


@pytest.mark.usefixtures("no_bwrap")
@pytest.mark.parametrize(("ci", "ends"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_sandboxed_fixture_skips_locally_and_fails_in_ci(
    ci: str, ends: type[BaseException], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(ends, match="bubblewrap"):
        request.getfixturevalue("sandboxed")


@pytest.fixture
def broken_bwrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine where bubblewrap fails."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    sandbox.bubblewrap_problem.cache_clear()
    yield
    monkeypatch.undo()
    sandbox.bubblewrap_problem.cache_clear()


@pytest.mark.usefixtures("broken_bwrap")
def test_run_python_fails_when_the_sandbox_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "ready", lambda: "bwrap")
    with pytest.raises(UnavailableError, match="uid map"):
        run_python("print(1)")


@pytest.fixture
def no_walls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine where code runs under limits only."""
    monkeypatch.setenv("RUBRICSVC_SANDBOX", "none")
    get_settings.cache_clear()
    yield
    monkeypatch.undo()
    get_settings.cache_clear()


@pytest.mark.usefixtures("no_walls")
def test_run_python_without_sandbox_applies_limits() -> None:
    assert sandbox.ready() == "none"
    assert run_python("print(6 * 7)").stdout == "42\n"
    assert run_python("import sys\nsys.exit(3)").exit_code == 3
    assert run_python("import os\nos.kill(os.getpid(), 9)").termination == "signal"
    assert run_python("while True: pass", limits=Limits(cpu_s=1, wall_s=300)).termination == "cpu"
    assert run_python("import time\ntime.sleep(60)", limits=Limits(wall_s=2)).termination == "wall"
    assert "MemoryError" in run_python("x = bytearray(1 << 30)", limits=Limits(memory_mib=256)).error


linux = pytest.mark.skipif(sys.platform != "linux", reason="of Linux only")


@linux
@pytest.mark.usefixtures("no_walls")
@pytest.mark.parametrize(
    ("end", "ended"), [("print('gone')", "exit"), ("time.sleep(60)", "wall"), ("os.abort()", "signal")]
)
def test_bootstrap_ends_all_processes_with_the_run(end: str, ended: str, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    assert run_python(brood(alive, end), limits=Limits(wall_s=3)).termination == ended and stays(alive)


@linux
@pytest.mark.parametrize(("parent", "code"), [(os.getpid, 0), (os.getppid, 128 + signal.SIGTERM)], ids=["ours", "gone"])
def test_bootstrap_starts_nothing_without_its_parent(parent: Callable[[], int], code: int, tmp_path: Path) -> None:
    script = tmp_path / "bootstrap.py"
    script.write_text(Path(sandbox.__file__).with_name("bootstrap.py").read_text("utf-8"), "utf-8")
    (tmp_path / "main.py").write_text("pass", "utf-8")
    with start_signal() as (passed, count_files):
        given = {"limits": {}, "uid": None, "started": passed, "parent": parent(), "disk": None}
        command = [sys.executable, "-I", "-S", str(script), json.dumps(given)]
        assert subprocess.run(command, check=False, pass_fds=[passed]).returncode == code
        assert count_files() == (0 if code == 0 else None)


def brood(alive: Path, end: str) -> str:
    """A program whose children leave its session, and write to ``alive`` as long as they are."""
    return f"""
import os, time
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)  # so that its child has lost its parent
        for _ in range(3000):
            open({str(alive)!r}, "a").write("x")
            time.sleep(0.01)
while not (os.path.exists({str(alive)!r}) and os.path.getsize({str(alive)!r})):
    time.sleep(0.01)
{end}
"""


def stays(alive: Path) -> bool:
    """Whether it comes to rest; a bootstrap that was left alone needs a moment."""
    sizes = [0]
    while len(sizes) < 20 and (len(sizes) < 3 or sizes[-1] != sizes[-2]):
        time.sleep(0.3)
        sizes.append(alive.stat().st_size)
    return sizes[-1] == sizes[-2] > 0
