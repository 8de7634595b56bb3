"""`jobs export --pairs`: what a preference trainer reads."""

from __future__ import annotations

import json

import pytest

from rubricsvc.settings import get_settings
from rubricsvc.store.migrate import open_database
from tests.unit.rubricsvc.cli.conftest import Cli
from workers.queue.drain import Drainer

pytestmark = pytest.mark.integration

RECORD = {"name": "short", "criteria": [{"text": "Is long.", "check": {"words": {"min": 4}}}]}
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
TRACE = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "hit"},
    {"role": "assistant", "content": "one two three four"},
]


@pytest.fixture
def job(cli: Cli) -> Cli:
    """A job over two prompts: rewards 0.25, 0.5, 0.5 and 1; and one answer alone."""
    cli("rubric", "import", "-", stdin=json.dumps(RECORD))
    cli("judge", "add", "quick", "--engine", "instant", "--model", "m", "--no-probe")
    said = [{"text": "one"}, {"text": "one two"}, {"text": "two one"}, {"messages": TRACE}]
    lines = [{"prompt": "Count.", **answer} for answer in said] + [{"prompt": "Alone?", "text": "yes"}]
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    assert cli("job", "submit", "-", "--judge", "quick", "--rubric", "short", stdin=stdin).code == 0
    settings = get_settings()
    db = open_database(settings.database_url)
    Drainer(db, settings).run(1)
    db.close()
    return cli


def test_each_two_that_differ_are_a_pair_of_conversations(job: Cli) -> None:
    ran = job("job", "export", 1, "--pairs")
    assert ran.code == 0
    assert ran.err == "5 pairs; left out: 1 as ties (or closer than --min-margin)\n"
    assert sorted((line["chosen_reward"], line["rejected_reward"]) for line in ran.lines) == [
        (0.5, 0.25),
        (0.5, 0.25),
        (1.0, 0.25),
        (1.0, 0.5),
        (1.0, 0.5),
    ]
    best = next(line for line in ran.lines if line["margin"] == 0.75)
    assert best["prompt"] == [{"role": "user", "content": "Count."}]
    assert best["rejected"] == [{"role": "assistant", "content": "one"}]
    assert best["chosen"] == [{**TRACE[0], "content": ""}, *TRACE[1:]]
    assert (best["rubric"], best["judge"]) == ("short@1", "quick")


def test_a_margin_leaves_out_what_is_close(job: Cli) -> None:
    assert [line["margin"] for line in job("job", "export", 1, "--pairs", "--min-margin", 0.5).lines] == [
        0.75,
        0.5,
        0.5,
    ]


def test_no_pair_at_all_says_why(job: Cli) -> None:
    ran = job("job", "export", 1, "--pairs", "--min-margin", 0.9)
    assert (ran.out, ran.err) == ("", "0 pairs; left out: 6 as ties (or closer than --min-margin)\n")
    assert job("job", "submit", "--judge", "quick", "--rubric", "short", "--limit", 1).code == 0
    assert (
        job("job", "export", 2, "--pairs").err == "0 pairs; no prompt has two answers with rewards under one rubric\n"
    )


@pytest.mark.parametrize(
    ("args", "words"), [(["--pairs", "--csv"], "exclude each other"), (["--min-margin", "1"], "is for --pairs")]
)
def test_options_that_do_not_go_together(job: Cli, args: list[str], words: str) -> None:
    ran = job("job", "export", 1, *args)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


def test_an_unknown_job(cli: Cli) -> None:
    assert cli("job", "export", 7, "--pairs").code == 3
