"""`rubricsvc bestofn`: judges that are checks choose among samples, by a gold that is another check."""

from __future__ import annotations

import json

import pytest

from rubricsvc.settings import get_settings
from rubricsvc.store.migrate import open_database
from tests.cli import Cli, add_judge
from workers.queue.drain import Drainer

RUBRICS = {"long": {"words": {"min": 6}}, "right": {"contains": {"terms": ["right"]}}}


@pytest.fixture
def jobs(cli: Cli) -> Cli:
    """Score 6 prompts with 4 completions each by length (job 1) and by what is right (job 2)."""
    add_judge(cli)
    for name, check in RUBRICS.items():
        rubric = {"name": name, "criteria": [{"text": f"Is {name}.", "check": check}]}
        assert cli("rubrics", "import", "-", stdin=json.dumps(rubric)).code == 0
    texts = ["one", "one two right", "one two three four right", "this one is long and wrong"]
    lines = [{"prompt": f"Question {n}?", "text": text} for n in range(6) for text in texts]
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    for name in RUBRICS:
        assert cli("jobs", "submit", "-", "--judge", "quick", "--rubric", name, stdin=stdin).code == 0
    db = open_database(get_settings().database_url)
    Drainer(db, get_settings()).run(1)
    db.close()
    return cli


def test_bestofn_prints_curves(jobs: Cli) -> None:
    ran = jobs("bestofn", "--job", 1, "--gold", 2, "--json")
    assert ran.code == 0, ran.err
    (judge,) = ran.json["judges"]
    assert ran.json["n"] == [1, 2, 4] and ran.json["prompts"] == 6
    assert [one["value"] for one in judge["proxy"]] == pytest.approx([15 / 24, 31 / 36, 1.0])
    assert [one["value"] for one in judge["gold"]] == pytest.approx([0.5, 0.5, 0.0])  # length pulls gold down
    assert [one["value"] for one in ran.json["oracle"]] == pytest.approx([0.5, 5 / 6, 1.0])
    table = jobs("bestofn", "--job", 1, "--gold", 2)
    assert table.code == 0 and "oracle_share".upper() in table.out
