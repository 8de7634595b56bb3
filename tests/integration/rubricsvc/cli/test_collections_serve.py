"""`rubricsvc collections serve` against the client of MCP's own package, over HTTP and over stdin and stdout."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from rubricsvc import collections
from rubricsvc.collections import FaultyDocuments, Page
from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall
from tests.service_process import TIMEOUT, command
from workers.checks.citations import sources

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
        deadline = time.monotonic() + TIMEOUT
        while not (address := re.search(r"http://\S+", log.read_text())) and time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        assert address
        yield address[0]


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def test_serve_answers_wrong_calls_with_errors(server: StdioServerParameters | str) -> None:
    calls: list[tuple[str, dict[str, object]]] = [
        ("search", {"query": "zebra"}),
        ("search", {"query": "index", "limit": 0}),
        ("search", {"query": 3}),
        ("open", {"id": "nowhere"}),
        ("open", {"id": "index", "start": 9999}),
        ("find", {"id": "nowhere", "text": "x"}),
        ("quote", {"id": "index", "text": "An index slows down a query."}),
        ("quote", {"id": "index", "text": " "}),
        ("delete", {}),
    ]

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
        with collections.open_collection(folder, "docs") as collection:
            async with Client(mcp_server(collection)) as client:
                return text(await client.call_tool(name, arguments))

    made = ToolCall(name=prefix + name, arguments=f'{{"id": "{arguments["id"]}"}}', id="1")
    messages = (
        Message(role="assistant", content="", tool_calls=(made,)),
        Message(role="tool", content=asyncio.run(call()), tool_call_id="1"),
    )
    opened = sources(Prompt.of("?"), Completion(text="", messages=messages))
    assert "An index speeds\nup a query." in opened["index"]
