"""The command line as a fixture."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.letter_judge  # noqa: F401 - registers the engine "letters"
from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from tests.cli import Cli, Ran, add_judge, cli, new_machine, rubric_file
from tests.service_process import running

__all__ = ["Cli", "cli", "new_machine", "rubric_file"]


@pytest.fixture
def ready(cli: Cli, rubric_file: Path) -> Cli:
    """Store two rubrics, three completions (the third of a prompt without a rubric) and a judge."""
    stdin = "".join(
        json.dumps({"id": f"own{text}", "prompt": prompt, "text": text, "policy": policy}) + "\n"
        for prompt, text, policy in (
            ("What is one?", "1", "a"),
            ("What is two?", "2", "b"),
            ("What is three?", "3", "b"),
        )
    )
    assert cli("rubrics", "import", rubric_file).code == 0
    assert cli("completions", "import", "-", stdin=stdin).code == 0
    add_judge(cli)
    return cli


@pytest.fixture
def both(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Run a command at a service of the database, and here as well; what it prints must be the same."""
    db = Database(get_settings().database_url)
    with running(db) as url:

        def run(*args: object, stdin: str = "", only_there: bool = False) -> Ran:
            with monkeypatch.context() as remote:
                remote.setenv("RUBRICSVC_URL", url)
                there = cli(*args, stdin=stdin)
            assert only_there or cli(*args, stdin=stdin) == there
            return there

        yield run
    db.close()
