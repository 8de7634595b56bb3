"""``collections`` and training on one's own documents."""

import asyncio
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from rubricsvc.collections import index as collections
from rubricsvc.collections.index import FaultyDocuments, Page
from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall
from tests.cli import Cli
from tests.service_process import command
from tests.services import wait_for
from tests.tiny_model import tiny_model
from workers.checks.citations import sources

FACT = "The sky is blue because air scatters short waves more than long ones."
PROMPT = {
    "id": "sky",
    "prompt": "Why is the sky blue?",
    "reference": "It is blue because air scatters light. So it is.",
}


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "sky.txt").write_text(f"The sky\n\n{FACT}\n")
    (folder / "sea.html").write_text("<title>The sea</title><p>Salt. See <a href='sky.txt'>the sky</a>.")
    return folder


def test_collections_add_debian_makes_prompts_of_every_capability(cli: Cli, tmp_path: Path) -> None:
    added = cli("collections", "add", "pg", "--debian", "postgresql-doc", "--json")
    if added.code == 3:
        pytest.skip("postgresql-doc is not installed")
    assert added.code == 0 and added.json["documents"] > 1000 and added.json["links"] > 5000, added.err
    assert cli("prompts", "synthesize", "pg", "-n", "5", "--out", tmp_path / "tasks.jsonl").code == 0
    tasks = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    expected = dict.fromkeys(("find-links", "changes", "define"), 5)
    assert Counter(task["item"]["capability"] for task in tasks) == expected
    assert all(len(id_) < 80 for task in tasks for one in task["item"]["pages"] for id_ in one)
    page = cli("collections", "show", "pg", "app-pgdump", "--json").json
    assert not {"Next", "Prev", "Home"} & set(page["text"].split()) and "pg_dump" in page["terms"]


def test_collections_are_added_listed_searched_shown_and_deleted(cli: Cli, documents: Path) -> None:
    added = cli("collections", "add", "docs", documents, "--json")
    assert added.code == 0 and {**added.json, "documents": 2, "links": 1, "skipped": 0} == added.json, added.err
    assert cli("collections", "add", "docs", documents).code == 2
    (documents / "empty.txt").write_text(" \n")
    refused = cli("collections", "add", "docs", documents, "--replace")
    assert refused.code == 2 and "empty.txt" in refused.err
    again = cli("collections", "add", "docs", documents, "--replace", "--skip-invalid", "--json")
    assert (again.code, again.json["digest"], again.json["skipped"]) == (0, added.json["digest"], 1)
    assert [one["name"] for one in cli("collections", "list", "--json").lines] == ["docs"]
    found = cli("collections", "search", "docs", "why", "is the", "SKY*", "blue?", "--json").lines
    assert [one["id"] for one in found] == ["sky.txt", "sea.html"]
    assert cli("collections", "search", "docs", "zzz", "--json").out == ""
    page = cli("collections", "show", "docs", "sea.html", "--json").json
    assert (page["text"], page["links"]) == ("Salt. See the sky.", [{"start": 10, "end": 17, "target": "sky.txt"}])
    assert FACT in cli("collections", "show", "docs", "sky.txt").out
    undecodable = cli("collections", "show", "docs", "a\udcff")
    assert undecodable.code == 2 and "UTF-8" in undecodable.err, undecodable.err
    assert cli("collections", "delete", "docs").code == 0
    assert [cli("collections", *args).code for args in (("show", "docs"), ("delete", "docs"), ("list",))] == [3, 3, 0]


def test_prompts_synthesize_writes_what_can_be_imported(cli: Cli, tmp_path: Path) -> None:
    assert cli("collections", "add", "python", "--python").code == 0
    out = tmp_path / "tasks.jsonl"
    assert cli("prompts", "synthesize", "python", "-n", 5, "--documents", 3, "--out", out).code == 0
    made = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(made) == 15 and all(len(one["documents"]) >= 3 and one["item"]["digest"] for one in made)
    again = cli("prompts", "synthesize", "python", "-n", 5, "--documents", 3)
    assert again.out == out.read_text()
    stored = cli("rubrics", "import", out, "--draft", "--json")
    assert (stored.code, stored.json["new"]["rubrics"], stored.json["new"]["prompts"]) == (0, 15, 15), stored.err
    one = cli("prompts", "synthesize", "python", "--capability", "define", "-n", 1).lines
    assert [record["tags"] for record in one] == [["define"]]
    assert cli("prompts", "synthesize", "python", "--capability", "guess").code == 2
    assert cli("prompts", "synthesize", "none").code == 3


LONG = "A vacuum removes dead tuples. " * 400
PAGES = [Page("vacuum", "Vacuum", LONG), Page("index", "Indexes", "Intro.\n\nAn index speeds\nup a query.")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    collections.add(tmp_path / "collections", "docs", PAGES, FaultyDocuments(), source="a test")
    return tmp_path / "collections"


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Iterator[StdioServerParameters | str]:
    arguments = ["collections", "serve", "docs"]
    if request.param == "stdio":
        variables = {"RUBRICSVC_COLLECTIONS_DIR": str(folder)}
        arguments = ["-m", "rubricsvc", *arguments, "--stdio"]
        yield StdioServerParameters(command=sys.executable, args=arguments, env=variables, cwd=Path.cwd())
        return
    log = tmp_path / "serve.log"
    with command(log, *arguments, "--port=0", collections_dir=str(folder)) as process:
        wait_for(lambda: process.poll() is not None or "http://" in log.read_text(), log)
        yield re.findall(r"http://\S+", log.read_text())[0]


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def test_serve_answers_wrong_calls_with_errors(server: StdioServerParameters | str) -> None:
    calls: list[tuple[str, dict[str, object]]] = [
        ("search", {"query": "zebra"}), ("search", {"query": "index", "limit": 0}), ("search", {"query": 3}),
        ("open", {"id": "nowhere"}), ("open", {"id": "index", "start": 9999}),
        ("find", {"id": "nowhere", "text": "x"}), ("quote", {"id": "index", "text": "An index slows down a query."}),
        ("quote", {"id": "index", "text": " "}), ("delete", {}),
    ]  # fmt: skip

    async def session() -> list[bool]:
        async with Client(server) as client:
            return [bool((await client.call_tool(name, arguments)).is_error) for name, arguments in calls]

    assert asyncio.run(session()) == [True] * len(calls)


@pytest.mark.parametrize("prefix", ["", "papers_"])
@pytest.mark.parametrize(("name", "arguments"), [("open", {"id": "index"}), ("find", {"id": "index", "text": "query"})])
def test_results_open_documents_for_checks_of_citations(
    folder: Path, name: str, arguments: dict[str, str], prefix: str
) -> None:
    from rubricsvc.collections.mcp_server import mcp_server

    async def call() -> str:
        with collections.Collection(folder, "docs") as collection:
            async with Client(mcp_server(collection)) as client:
                return text(await client.call_tool(name, arguments))

    made = ToolCall(name=prefix + name, arguments=f'{{"id": "{arguments["id"]}"}}', id="1")
    messages = (
        Message(role="assistant", content="", tool_calls=(made,)),
        Message(role="tool", content=asyncio.run(call()), tool_call_id="1"),
    )
    opened = sources(Prompt.of("?"), Completion(text="", messages=messages))
    assert "An index speeds\nup a query." in opened["index"]


PAGE = Path(__file__).parents[4] / "docs" / "environments.md"
SMALLER = {
    "steps = 30": "steps = 1",
    "{steps = 16}": "{steps = 1}",
    "every = 10": "every = 1, samples = 1, greedy = false",
    'judge = "embedded"': 'judge = {name = "letters", engine = "letters", model = "m"}',
}
POLICY = """
policy = {model = "policy", dtype = "float32"}
sampling = {prompts_per_step = 1, group_size = 2, max_new_tokens = 8}
"""
DOCUMENTS = {
    "vacuum": "A vacuum removes dead tuples from a table. It runs beside an [index](index.md).",
    "index": "An index speeds up a query of a table. See also the [vacuum](vacuum.md) and the [table](table.md).",
    "table": "A table holds rows of the same columns. An [index](index.md) belongs to one table.",
    "query": "A query asks a table for its rows. An [index](index.md) makes the query faster.",
}


def test_ten_lines_train_on_a_folder_of_documents(cli: Cli, tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("in ten lines\n")[2].partition("\n## ")[0]
    (config,) = re.findall(r"```toml\n(.*?)```", section, re.S)
    (console,) = re.findall(r"```console\n(.*?)```", section, re.S)
    assert len([*config.splitlines(), *console.splitlines()]) == 10
    for shown, small in SMALLER.items():
        assert shown in config
        config = config.replace(shown, small)
    (tmp_path / "run.toml").write_text(POLICY + config)
    (tmp_path / "documents").mkdir()
    for name, text in DOCUMENTS.items():
        (tmp_path / "documents" / f"{name}.md").write_text(f"# {name.title()}\n\n{text}\n")
    tiny_model(tmp_path / "policy", context=4096)
    for line in console.splitlines():
        _, program, *arguments = shlex.split(line, comments=True)
        assert program == "rubricsvc"
        ran = cli(*arguments)
        assert ran.code == 0, f"{line}: {ran.err}"
    assert cli("runs", "show", "1", "--json").json["status"] == "finished"
    names = [line.get("baseline", line["step"]) for line in cli("runs", "show", "1", "--evaluations", "--json").lines]
    assert names == [0, 1, "before_demonstrations"]
