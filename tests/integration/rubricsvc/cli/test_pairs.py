"""`jobs export --kind sft` and `dpo`."""

from __future__ import annotations

import json

import pytest

from rubricsvc.settings import get_settings
from rubricsvc.store.migrate import open_database
from tests.cli import Cli, add_judge
from workers.queue.drain import Drainer

RECORD = {"name": "short", "criteria": [{"text": "Is long.", "check": {"words": {"min": 4}}}]}
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
TRACE = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "hit"},
    {"role": "assistant", "content": "one two three four"},
]


@pytest.fixture
def job(cli: Cli) -> Cli:
    """Score a job over two prompts: rewards 0.25, 0.5, 0.5 and 1; and a single completion."""
    cli("rubrics", "import", "-", stdin=json.dumps(RECORD))
    add_judge(cli)
    said = [{"text": "one"}, {"text": "one two"}, {"text": "two one"}, {"messages": TRACE}]
    lines = [{"prompt": "Count.", **answer} for answer in said] + [{"prompt": "Alone?", "text": "yes"}]
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    assert cli("jobs", "submit", "-", "--judge", "quick", "--rubric", "short", stdin=stdin).code == 0
    settings = get_settings()
    db = open_database(settings.database_url)
    Drainer(db, settings).run(1)
    db.close()
    return cli


def test_export_pairs_writes_conversations_with_different_rewards(job: Cli) -> None:
    ran = job("jobs", "export", 1, "--kind", "dpo")
    assert ran.code == 0
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
