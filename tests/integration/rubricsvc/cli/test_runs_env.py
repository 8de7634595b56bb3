"""Runs in environments, with trackers and in outages."""

import json
from pathlib import Path

import pytest

from rubricsvc.services.runs import Runs
from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from tests.cli import Cli
from tests.tiny_model import tiny_model

CONFIG = """
steps = 2
policy = {model = "policy", dtype = "float32"}
data = {path = "rubrics.yaml"}
judge = {name = "letters", engine = "letters", model = "m"}
sampling = {prompts_per_step = 2, group_size = 2, max_new_tokens = 8}
"""
LETTERS = "[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t]"
CHECKED = f"""
- prompt: What is 6 * 7?
  criteria: [{{text: Has letters., check: {{contains: {{terms: {LETTERS}, mode: share}}}}}}]
"""
CALCULATOR = '[environment]\nname = "calculator"\nmax_tokens = 64\n'


@pytest.fixture
def config(tmp_path: Path, rubric_file: Path) -> Path:
    tiny_model(tmp_path / "policy", context=1024)
    path = tmp_path / "first.toml"
    path.write_text(CONFIG + CALCULATOR)
    return path


def test_resumed_run_in_an_environment_equals_uninterrupted(cli: Cli, config: Path, tmp_path: Path) -> None:
    (tmp_path / "rubrics.yaml").write_text(CHECKED)
    wider = CONFIG.replace("group_size = 2, max_new_tokens = 8", "group_size = 4, max_new_tokens = 24")
    settings = wider + CALCULATOR
    config.write_text(settings)
    assert cli("runs", "start", config).code == 0
    lines = (tmp_path / "runs" / "first" / "metrics.jsonl").read_text().splitlines()
    assert all(json.loads(line)["grad_norm"] > 0 for line in lines), "else any resume would pass"
    longer = tmp_path / "longer.toml"
    longer.write_text(settings.replace("steps = 2", 'steps = 1\nout = "longer"'))
    assert cli("runs", "start", longer).code == 0
    longer.write_text(settings.replace("steps = 2", 'steps = 2\nout = "longer"'))
    assert cli("runs", "start", longer, "--resume").code == 0
    first, second = (
        sorted((tmp_path / run).rglob("step-000002/model/model.safetensors")) for run in ("runs/first", "longer")
    )
    assert first[0].read_bytes() == second[0].read_bytes()


RESEARCH = """
[environment]
name = "research"
collection = "docs"
max_turns = 3
max_tokens = 600

[demonstrations]
steps = 1
lr = 0.1

[eval]
path = "held-out.yaml"
every = 2
samples = 1
greedy = false
baselines = ["before_demonstrations", "without_tools", "empty_results", "script", "other"]

[eval.other]
path = "elsewhere.yaml"
collection = "notes"
"""
PAGES = {"vacuum": "A vacuum removes dead tuples from a table.", "index": "An index speeds up a query of a table."}


def asked(page: str) -> str:
    criteria = "[{text: Cites a page., check: cites}, {text: Has letters.}]"
    return f"- {{prompt: What does “{page}” mean? Cite the page., criteria: {criteria}}}\n"


def test_run_begins_with_demonstrations_and_ends_with_baselines(cli: Cli, tmp_path: Path, rubric_file: Path) -> None:
    tiny_model(tmp_path / "policy", context=4096)
    for collection, pages in (("docs", PAGES), ("notes", {"note": "A note is a short text about something."})):
        (tmp_path / collection).mkdir()
        for name, text in pages.items():
            (tmp_path / collection / f"{name}.md").write_text(f"# {name}\n\n{text}\n")
        assert cli("collections", "add", collection, tmp_path / collection).code == 0
    (tmp_path / "rubrics.yaml").write_text(asked("vacuum"))
    (tmp_path / "held-out.yaml").write_text(asked("index"))
    (tmp_path / "elsewhere.yaml").write_text(asked("note"))
    config = tmp_path / "first.toml"
    config.write_text(CONFIG.replace("prompts_per_step = 2", "prompts_per_step = 1") + RESEARCH)
    (tmp_path / "runs" / "first" / "demonstrations").mkdir(parents=True)  # as after a stop in the warm-up
    ran = cli("runs", "start", config, "--resume")
    assert ran.code == 0, ran.err
    assert "1 demonstration of 1 of 1 prompt" in ran.err
    found = {
        line.get("baseline", line["step"]): line for line in cli("runs", "show", "1", "--evaluations", "--json").lines
    }
    names = ["before_demonstrations", "start", "without_tools", "empty_results", "script", "other_start", "other"]
    assert list(found) == [0, 2, *names]
    run = tmp_path / "runs" / "first"
    assert found["script"]["scores"]["reward"]["mean"]["value"] > found[2]["scores"]["reward"]["mean"]["value"]
    assert found["other"]["setup"] != found["script"]["setup"]
    assert cli("runs", "start", config, "--resume").code == 0, "nothing is left to do"
    ((prompt, shown),) = Runs(Database(get_settings().database_url)).report(1).samples.items()
    assert "index" in prompt
    first, last = shown["before demonstrations"], shown["step 2"]
    assert first.messages != shown["step 0"].messages, "it was learned"
    assert len(last.verdicts) == 2 and last.where.startswith("step 2,")
    assert (found[2]["leak_hits"], found["script"]["leak_hits"]) == (0, 0)
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [step["tools/leak_hits"] for step in steps] == [0, 0] and not (run / "leaks.jsonl").exists()
    assert "leak_hits: 0" in cli("runs", "show", "1", "--evaluations").err
    assert cli("runs", "report", "1", "--out", tmp_path / "report.html").code == 0
    assert (tmp_path / "report.html").read_text().count('data-name="leak_hits">0<') == 2
