"""Tools of MCP servers, in an environment of their own or beside those of another one.

What a server says is data of somebody else: descriptions are cleaned as results are, arguments are checked against the
schema before they are sent, and a server that is lost costs the calls that it does not answer.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import httpx2
import structlog
from jsonschema import validators
from jsonschema.exceptions import SchemaError
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolResult,
    EmbeddedResource,
    TextContent,
    TextResourceContents,
)
from mcp_types import Tool as ServerTool
from pydantic import ValidationError

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.untrusted import clean
from rubricsvc.errors import InvalidError, UnavailableError, cut
from rubricsvc.settings import secret
from trainer.config import McpServer
from trainer.environments.tool_calls import Environment, Episode, Tool, ToolError
from workers.event_loop import EventLoopThread

_NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)


class McpTools:
    """An environment with the tools of servers, and those of the environment ``inner``, if there is one.

    All episodes share a session with each server, which the process keeps.
    """

    def __init__(self, servers: Sequence[McpServer], inner: Environment | None, timeout_s: float) -> None:
        """Connect to the servers."""
        self.inner, self.timeout_s = inner, timeout_s
        self.tools: tuple[Tool, ...] = tuple(inner.tools) if inner is not None else ()
        self.sources: dict[str, tuple[McpConnection, str]] = {}
        for server in servers:
            connection = connect(server)
            names = [tool.name for tool in connection.tools]
            if unknown := sorted(set(server.allowed_tools) - set(names)):
                hint, message = f"its tools are {', '.join(names) or 'none'}", f"has no tool {unknown[0]!r}"
                raise InvalidError(f"MCP server {server.name!r} {message}", hint=hint, path="tools.mcp")
            for offered in connection.tools:
                if not server.allowed_tools or offered.name in server.allowed_tools:
                    tool = _tool(server, offered)
                    self.tools += (tool,)
                    self.sources[tool.name] = (connection, offered.name)
            name, count = max(Counter(tool.name for tool in self.tools).items(), key=itemgetter(1), default=("", 0))
            if count > 1:
                raise InvalidError(
                    f"{count} tools are named {name!r}, one of them of MCP server {server.name!r}",
                    hint=f'give its tools a prefix, such as prefix = "{server.name}_", or choose others with '
                    "`allowed_tools`",
                    path="tools.mcp",
                )

    def reset(self, prompt: Prompt) -> McpEpisode:
        """Begin an episode."""
        return McpEpisode(self, self.inner.reset(prompt) if self.inner is not None else None)


@dataclass(eq=False)
class McpEpisode:
    """One completion; ``inner`` is its episode in the other environment."""

    environment: McpTools
    inner: Episode | None

    @property
    def report(self) -> str | None:
        """The final text of the inner episode."""
        return self.inner.report if self.inner is not None else None

    def step(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result of a call.

        Raises:
            ToolError: The tool reports an error, or refuses the arguments.
            ServerUnavailable: The server did not answer, because the connection was lost or cannot be opened.
            TimeoutError: It did not answer in time.
        """
        if name in self.environment.sources:
            connection, own_name = self.environment.sources[name]
            return _text(connection.loop.run(connection.call(own_name, dict(arguments), self.environment.timeout_s)))
        assert self.inner is not None  # noqa: S101 - the tools are those of the servers and of the inner environment
        return self.inner.step(name, arguments)


def _text(result: CallToolResult) -> str:
    """Return the text of a result; what is no text is named in its place."""
    parts = []
    for content in result.content:
        if isinstance(content, TextContent):
            parts.append(content.text)
        elif isinstance(content, EmbeddedResource) and isinstance(content.resource, TextResourceContents):
            parts.append(content.resource.text)
        else:
            parts.append(f"[{content.type} left out]")
    text = "\n".join(parts) or (json.dumps(result.structured_content) if result.structured_content else "")
    if result.is_error:
        raise ToolError(text)
    return text


def _tool(server: McpServer, offered: ServerTool) -> Tool:
    """Return a tool of a server as the policy reads it."""
    name = server.prefix + offered.name
    problem = "" if _NAME.fullmatch(name) else "is no valid name"
    schema = json.loads(
        clean(json.dumps(offered.input_schema, ensure_ascii=False)).text,
        # without regular expressions: one of somebody else may take for ever, and stop all episodes
        object_hook=lambda part: {
            one: about
            for one, about in part.items()
            if one != "patternProperties" and not (one == "pattern" and isinstance(about, str))
        },
    )
    try:
        validators.validator_for(schema).check_schema(schema)
    except SchemaError as error:
        problem = problem or f"has an invalid schema: {error.message}"
    if problem:
        message = f"tool {name[:80]!r} of MCP server {server.name!r} {problem}"
        raise InvalidError(message, hint="leave it out: name the other ones in `allowed_tools`", path="tools.mcp")
    properties = {
        one: str(about.get("description", "")) if isinstance(about, dict) else ""
        for one, about in schema.get("properties", {}).items()
    }
    return Tool(name, clean(offered.description or "").text, properties, schema)


START_TIMEOUT_S = 30.0
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 60.0
"""Seconds without an attempt after a connection was lost: the first time, and at most; they double."""
MAX_TOOLS = 1000
MAX_PRINTED_CHARS = 80

log = structlog.get_logger("trainer.mcp")

_server_name: ContextVar[str] = ContextVar("server_name", default="")
"""The server of the session that a task belongs to."""
_printing = set[str]()
"""Servers that print what is no message."""


def _report_once(record: logging.LogRecord) -> bool:
    """Report the first line of a server that is no message. The library logs each of them, with a traceback."""
    if record.funcName != "_parse_line":
        return True
    if (name := _server_name.get()) not in _printing:
        _printing.add(name)
        error = record.exc_info[1] if record.exc_info else None
        printed = error.errors()[0]["input"] if isinstance(error, ValidationError) else ""
        message = "MCP server prints what is no message; its stdout is for messages alone"
        log.warning(message, server=name, printed=cut(str(printed), MAX_PRINTED_CHARS))
    return False


logging.getLogger("mcp.client.stdio").addFilter(_report_once)


class ServerUnavailable(Exception):  # noqa: N818 - the policy reads the name
    """A call that the server did not answer, because the connection was lost or cannot be opened."""


class McpConnection:
    """A connection to a server; ``tools`` are those that it had when it was first opened."""

    def __init__(self, server: McpServer) -> None:
        """Open the connection."""
        self._server = server
        self._pause_s, self._not_before = FIRST_PAUSE_S, 0.0
        self._session: _Session | None = None
        self.loop = EventLoopThread(f"mcp {server.name}")
        self.tools: list[ServerTool] = self.loop.run(self._list_tools())
        atexit.register(self.close)

    def close(self) -> None:
        """Close the connection; a command ends."""
        if self._session is not None:
            self.loop.run(self._session.close())

    async def _list_tools(self) -> list[ServerTool]:
        session = self._session = _Session(self._server)
        tools: list[ServerTool] = []
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                client, cursor = await session.client(), None
                while len(tools) < MAX_TOOLS:
                    page = await client.list_tools(cursor=cursor)
                    tools += page.tools
                    if (cursor := page.next_cursor) is None:
                        break
        except Exception as error:
            await session.close()
            target = f"command {shlex.join(self._server.command)}" if self._server.command else self._server.url
            raise UnavailableError(
                f"MCP server {self._server.name!r} cannot be reached: {target}: {_reason(error)}",
                hint="start it, or correct `command` or `url` in `[tools] mcp`",
            ) from error
        return tools

    async def call(self, name: str, arguments: dict[str, Any], timeout_s: float) -> CallToolResult:
        """Call a tool, in the connection's ``loop``."""
        if self._session is None:
            if time.monotonic() < self._not_before:
                raise ServerUnavailable(self._server.name)
            self._session = _Session(self._server)
        session = self._session
        try:
            async with asyncio.timeout(timeout_s):
                result = await (await session.client()).call_tool(name, arguments)
        except Exception as error:
            is_late = isinstance(error, TimeoutError)
            if is_late and session.opened.done():
                raise
            if isinstance(error, MCPError) and error.code in (INVALID_PARAMS, METHOD_NOT_FOUND, INTERNAL_ERROR):
                raise ToolError(str(error)) from error
            if self._session is session:  # several calls may have been lost with it
                self._session, self._not_before = None, time.monotonic() + self._pause_s
                reason = f"no connection within {timeout_s:g} s" if is_late else _reason(error)
                log.warning("MCP server lost", server=self._server.name, reason=reason, retry_s=self._pause_s)
                self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
                _closing.add(task := asyncio.ensure_future(session.close()))
                task.add_done_callback(_closing.discard)
            if is_late:
                raise
            raise ServerUnavailable(self._server.name) from error
        self._pause_s = FIRST_PAUSE_S
        return result


_closing: set[asyncio.Task[None]] = set()  # else a task may be collected before it is done


class _Session:
    """One session, in a task of its own: a client must be closed by the task that opened it."""

    def __init__(self, server: McpServer) -> None:
        self.opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._task = asyncio.create_task(self._run(server))

    async def _run(self, server: McpServer) -> None:
        """Open the session, and keep it until it is to end."""
        _server_name.set(server.name)
        async with AsyncExitStack() as stack:
            if server.command:
                command, *arguments = server.command
                variables = {name: os.environ[name] for name in server.env if name in os.environ}
                parameters = StdioServerParameters(command=command, args=arguments, env=variables)
                # Not sys.stderr, which may be no file: the server writes to it by itself.
                client = Client(stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr))
            else:
                key = secret(server.api_key_env)
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                timeout = httpx2.Timeout(30.0, read=None)  # calls have a limit of their own
                http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=timeout))
                client = Client(streamable_http_client(str(server.url), http_client=http))
            self.opened.set_result(await stack.enter_async_context(client))
            await self._ended.wait()

    async def client(self) -> Client:
        """Return the client, once it is connected."""
        either: set[asyncio.Future[Any]] = {self.opened, self._task}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self.opened.done():
            self._task.result()
        return self.opened.result()

    async def close(self) -> None:
        """End the session; whatever it fails with has been reported."""
        self._ended.set()
        if not self.opened.done():
            self._task.cancel()
        with suppress(BaseException):
            await asyncio.wait_for(asyncio.shield(self._task), 10.0)


def _reason(error: BaseException) -> str:
    """Return what is wrong, out of groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


connect = cache(McpConnection)
"""The connection to a server, which the process opens once and keeps."""
