"""Commands about rubrics do at RUBRICSVC_URL what they do with a database of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rubricsvc.settings import get_settings
from rubricsvc.store.session import open_database
from tests.cli import Cli, Ran
from tests.integration.rubricsvc.cli.test_analysis import label_overall, scored
from tests.service_process import running


@pytest.fixture
def both(cli: Cli, rubric_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Run a command here and at a service of the same database; what it prints must be the same."""
    assert cli("rubrics", "import", rubric_file).code == 0
    db = open_database(get_settings().database_url)
    with running(db) as url:

        def run(*args: object, stdin: str = "") -> Ran:
            monkeypatch.delenv("RUBRICSVC_URL", raising=False)
            here = cli(*args, stdin=stdin)
            monkeypatch.setenv("RUBRICSVC_URL", url)
            assert cli(*args, stdin=stdin) == here
            return here

        yield run
    db.close()


def test_export_lint_and_review_are_the_same_over_http(cli: Cli, both: Cli) -> None:
    assert [one["id"] for one in both("rubrics", "export").lines] == ["one", "two"]
    assert both("rubrics", "export", "second").lines[0]["prompt"] == "What is two?"
    assert both("rubrics", "lint", "first").code == 0
    ran = cli("rubrics", "review", "first", "retire", "-m", "Too short.", "--json")
    assert (ran.code, ran.json["state"]) == (0, "retired")
    refused = both("rubrics", "review", "first", "submit")
    assert refused.code == 2 and "first@1 is retired" in refused.err
    assert cli("rubrics", "review", "first", "approve", "--by", "ann").code == 2, "the API key says who it is"
    assert both("rubrics", "export", "first").code == 2, "no approved version"


def test_analyse_and_fit_are_the_same_over_http(cli: Cli, both: Cli, tmp_path: Path) -> None:
    scored(cli, tmp_path, prompts=20)
    label_overall(cli, tmp_path)
    by_name, by_job = (both("rubrics", "analyse", *of, "--json").json for of in (["plain"], ["--job", 1]))
    assert by_name == by_job | {"job_id": None}
    assert both("rubrics", "fit", "plain", "--to", "labels", "--json").json["n"] == 40
    assert both("rubrics", "analyse", "first").code == 2, "no verdicts"
    assert both("rubrics", "analyse").code == 2
