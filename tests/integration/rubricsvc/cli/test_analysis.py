"""`rubricsvc jobs bestofn`: judges that are checks choose among samples, by a gold that is another check."""

import json
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from tests.cli import Cli, add_judge
from tests.rubric_writer import is_question, rubric_about, verdict
from tests.scripted_server import ScriptedReply, scripted_server, text_reply
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
    db = Database(get_settings().database_url)
    Drainer(db, get_settings()).run(1)
    db.close()
    return cli


def test_bestofn_prints_curves(jobs: Cli) -> None:
    ran = jobs("jobs", "bestofn", "--job", 1, "--gold", 2, "--json")
    assert ran.code == 0, ran.err
    (judge,) = ran.json["judges"]
    assert ran.json["n"] == [1, 2, 4] and ran.json["prompts"] == 6
    assert [one["value"] for one in judge["gold"]] == pytest.approx([0.5, 0.5, 0.0])  # length pulls gold down
    assert [one["value"] for one in ran.json["oracle"]] == pytest.approx([0.5, 5 / 6, 1.0])
    table = jobs("jobs", "bestofn", "--job", 1, "--gold", 2)
    assert table.code == 0 and "oracle_share".upper() in table.out


def scored(cli: Cli, tmp_path: Path, completions: int = 40, prompts: int = 2) -> None:
    """A job over completions of some prompts, judged by a check and by the instant judge."""
    rubric = tmp_path / "rubric.yaml"
    checks = "{key: full, text: Has 10 words., check: {name: words, args: {min: 10}}}, " + (
        "{key: short, text: Has 1 to 40 characters., check: {name: characters, args: {min: 1, max: 40}}}"
    )
    rubric.write_text(f"criteria: [{{key: clear, text: Is clear., weight: 2}}, {checks}]\n")
    answers = tmp_path / "answers.jsonl"
    lines = [
        {"prompt": f"Why {n % prompts}?", "text": f"Because of {n}. " + "More. " * (n % 10)} for n in range(completions)
    ]
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    add_judge(cli)
    assert cli("rubrics", "import", rubric, "--name", "plain").code == 0
    ran = cli("jobs", "submit", answers, "--judge", "quick", "--rubric", "plain", "--wait")
    assert ran.code == 0, ran.err


def test_analyse_prints_a_table_and_json(cli: Cli, tmp_path: Path) -> None:
    scored(cli, tmp_path)
    ran = cli("rubrics", "analyse", "plain")
    assert (ran.code, "clear" in ran.out, "short" in ran.out) == (0, True, True), ran.err
    found = cli("rubrics", "analyse", "--job", 1, "--json").json
    assert (found["rubric"], found["judge"], found["completions"]) == ("plain@1", "quick", 40)
    assert [one["key"] for one in found["criteria"]] == ["clear", "full", "short"]


def label_overall(cli: Cli, tmp_path: Path) -> None:
    """A person's score of each completion, the shorter the better."""
    people = tmp_path / "people.jsonl"
    shared = {"rubric": "plain@1", "criterion": "overall", "annotator": "ann"}
    rows = [{"completion_id": n, "value": 1 - (n - 1) % 10 / 10, **shared} for n in range(1, 41)]
    people.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli("labels", "import", people).code == 0


def test_fit_prints_weights_and_saves_a_draft(cli: Cli, tmp_path: Path) -> None:
    scored(cli, tmp_path, prompts=20)
    label_overall(cli, tmp_path)
    options = ("--to", "labels")
    ran = cli("rubrics", "fit", "plain", *options)
    assert (ran.code, "short" in ran.out, "gain" in ran.out) == (0, True, True), ran.err
    found = cli("rubrics", "fit", "plain", *options, "--save", "--json").json
    assert (found["n"], found["prompts"], found["saved"]) == (40, 20, "plain@2")
    assert cli("rubrics", "show", "plain@2", "--json").json["state"] == "draft"
    assert cli("rubrics", "fit", "plain", "--to", "preferences").code == 2  # 20 pairs


def test_analyse_and_fit_pool_the_rubrics_of_a_job(cli: Cli) -> None:
    """Each prompt has a rubric of its own; people like what is right, and do not mind what is long."""
    records = []
    for n in range(12):
        right = {
            "text": f"Says {n}.",
            "check": {"name": "contains", "args": {"terms": [f"right {n}"]}},
            "weight": n + 1,
        }
        long = {"text": f"Is long {n}.", "check": {"name": "contains", "args": {"terms": ["long"]}}, "weight": -n - 1}
        criteria = [right | {"tags": ["axis:right"]}, long | {"tags": ["axis:long"]}]
        texts = [f"right {n}", f"right {n} and long", "wrong", "wrong and long too"]
        completions = [{"text": text, "id": str(place)} for place, text in enumerate(texts)]
        theme = {"tags": [f"theme:{n % 2}"], "completions": completions}
        records.append({"id": f"p{n}", "name": f"r{n}", "prompt": f"Question {n}?", "criteria": criteria, **theme})
    stdin = "".join(json.dumps(record) + "\n" for record in records)
    add_judge(cli)
    assert cli("jobs", "submit", "-", "--judge", "quick", "--wait", stdin=stdin).code == 0
    found = cli("rubrics", "analyse", "--job", 1, "--pool", "axis", "--json").json
    assert (found["rubric"], found["completions"], found["prompts"], found["advice"]) == ("12 rubrics", 48, 12, [])
    rows = {one["key"]: one for one in found["criteria"]}
    assert rows.keys() == {"axis:right", "axis:long (pitfalls)"}
    assert all((one["n"], one["met"]["value"], one["failed"]) == (48, 0.5, 0.0) for one in rows.values())
    assert sum(one["variance_share"] for one in rows.values()) == pytest.approx(1.0)
    assert "axis, theme" in cli("rubrics", "analyse", "--job", 1, "--pool", "topic").err
    keys = [one["key"] for one in cli("rubrics", "analyse", "--job", 1, "--pool", "theme", "--json").json["criteria"]]
    assert keys == ["theme:0", "theme:0 (pitfalls)", "theme:1", "theme:1 (pitfalls)"]
    likes = [
        {"prompt_id": f"p{n}", "completion_id": str(place), "rubric": f"r{n}", "annotator": "ann", "value": value}
        for n in range(12)
        for place, value in enumerate((1.0, 0.9, 0.0, 0.1))
    ]
    stdin = "".join(json.dumps(one | {"criterion": "overall"}) + "\n" for one in likes)
    assert cli("labels", "import", "-", stdin=stdin).code == 0
    assert cli("rubrics", "fit", "--job", 1, "--to", "labels", "--pool", "axis", "--save").code == 2
    fitted = cli("rubrics", "fit", "--job", 1, "--to", "labels", "--pool", "axis", "--json").json
    factors = {one["key"]: one["new"] for one in fitted["weights"]}
    assert factors["axis:right"] > 1.5 and -0.5 < factors["axis:long (pitfalls)"] <= 0
    assert fitted["gain"]["spearman"]["value"] > 0


PROMPT = "Why is the sky blue?"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.txt"
    file.write_text("It is blue because air scatters short waves more. So it is.")
    return file


def author(number: int, request: dict[str, Any]) -> ScriptedReply:
    """Write another rubric for each seed, or for the seed 8 none; find its cause where there is a "because"."""
    if is_question(request):
        return verdict(request, on="because")
    seed = request.get("seed") or 0
    return text_reply("No idea.") if seed >= 8 else text_reply(rubric_about(seed // 4))


def test_propose_writes_what_can_be_imported(cli: Cli, good: Path, tmp_path: Path) -> None:
    out = tmp_path / "sky.yaml"
    with scripted_server(author) as server:
        ran = cli("rubrics", "propose", PROMPT, "--good", good, "-n", 2, "--out", out, "--judge", server.url)
    assert ran.code == 0, ran.err
    assert cli("rubrics", "lint", out).code == 0 and cli("rubrics", "import", out).code == 0
    stored = cli("rubrics", "list", "--json").lines
    assert [(one["state"], len(one["rubric"]["criteria"])) for one in stored] == [("draft", 3)] * 2
