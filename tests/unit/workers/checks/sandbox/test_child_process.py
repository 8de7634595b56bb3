import os
from collections.abc import Iterator

import pytest

from workers.checks.sandbox.child_process import Child, ChildError

SOURCE = """
import time
def answer(what, x):
    if what == "sleep":
        time.sleep(x)
    if what == "raise":
        raise KeyError(x)
    if what == "leave":
        import os
        os._exit(1)
    print("noise")
    return [x]
"""


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child("question", SOURCE)
    yield child
    child.close()


def test_child_reports_errors_and_continues(child: Child) -> None:
    with pytest.raises(ChildError, match="KeyError: 7"):
        child.ask("raise", 7, timeout_s=30)
    process = child.process
    assert child.ask("echo", 1, timeout_s=30) == [1] and child.process is process


def test_child_is_replaced_after_a_timeout(child: Child) -> None:
    child.ask("echo", 1, timeout_s=30)
    late = child.process
    assert late is not None
    with pytest.raises(ChildError, match=r"0\.1 s"):
        child.ask("sleep", 60, timeout_s=0.1)
    assert late.returncode is not None
    assert child.ask("echo", 1, timeout_s=30) == [1]


def test_child_is_replaced_after_a_crash(child: Child) -> None:
    with pytest.raises(ChildError, match="crashed"):
        child.ask("leave", 1, timeout_s=30)
    assert child.ask("echo", 1, timeout_s=30) == [1] and child.process is not None
    child.process.kill()
    child.process.wait()
    assert child.ask("echo", 2, timeout_s=30) == [2]


def test_child_is_not_shared_with_a_forked_process(child: Child) -> None:
    child.ask("echo", 1, timeout_s=30)
    parents = child.process
    assert parents is not None
    if (forked := os.fork()) == 0:
        fine = child.process is None and child.ask("echo", 2, timeout_s=30) == [2]
        child.close()
        os._exit(0 if fine else 1)
    assert os.waitpid(forked, 0)[1] == 0
    assert child.process is parents and child.ask("echo", 3, timeout_s=30) == [3]
