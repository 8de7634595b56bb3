"""Fixtures and settings of the whole test suite."""

import gc
import logging
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from rubricsvc.errors import UnavailableError
from rubricsvc.store.session import Database
from tests.databases import KINDS, fresh_url

settings.register_profile("house", deadline=None)  # no test is about how long something took
# for `make test` and `make test-unit`
settings.register_profile("quick", settings.get_profile("house"), max_examples=20, stateful_step_count=20)
settings.load_profile("house")

TESTS = Path(__file__).resolve().parent
SHARED = TESTS.parents[1] / "shared" / "data"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """An empty SQLite database at the newest schema."""
    database = Database(fresh_url("sqlite", tmp_path))
    yield database
    database.close()


@pytest.fixture(params=KINDS)
def each_db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database at the newest schema: the test runs on SQLite, then on PostgreSQL."""
    database = Database(fresh_url(request.param, tmp_path))
    yield database
    database.close()


@pytest.fixture
def shared_data() -> Path:
    """The folder of public data sets beside the repository; the test skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the public data sets (../shared/data) are not on this machine")
    return SHARED


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Lines that the trainer logs. (`make test-unit` runs without pytest's own capturing, which costs a tenth.)"""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    trainer = logging.getLogger("trainer")
    trainer.addHandler(handler)
    yield lines
    trainer.removeHandler(handler)


@pytest.fixture
def sandboxed() -> None:
    """Skip the test if the sandbox is not available; fail it if ``CI`` is set."""
    from workers.checks.sandbox import runner as sandbox

    try:
        sandbox.ready()
    except UnavailableError as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{error}; {error.hint}")


@pytest.fixture
def trl_installed() -> None:
    """Skip the test if TRL is not installed; fail it if ``CI`` is set."""
    if find_spec("trl") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("TRL is not installed: run `make install`")


@pytest.fixture
def research(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The environment of research in the ``PAGES`` of the test's module, with its ``RESEARCH`` for options."""
    from rubricsvc.collections import index
    from trainer.environments.tools import Research

    index.add(tmp_path, "docs", request.module.PAGES, index.FaultyDocuments(), source="a test")
    environment = Research(tmp_path, "docs", **getattr(request.module, "RESEARCH", {}))
    with environment.collection:
        yield environment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder (``tests/crash`` needs the services of ``tests/integration``), and the slow ones."""
    marks = {"integration": "integration", "crash": "integration", "model": "model"}
    slow = set((TESTS / "slow.txt").read_text().split("\n"))
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if mark := marks.get(folder):
            item.add_marker(mark)
        if folder == "crash" or item.name.partition("[")[0] in slow:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Exempt imported objects from garbage collection, which makes the tests faster."""
    gc.collect()
    gc.freeze()
