"""Tools of MCP servers, in an environment of their own or beside those of another one.

What a server says is data of somebody else: descriptions are cleaned as results are, arguments are checked against the
schema before they are sent, and a server that is lost costs the calls that it does not answer.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import validators
from jsonschema.exceptions import SchemaError
from mcp_types import CallToolResult, EmbeddedResource, TextContent, TextResourceContents
from mcp_types import Tool as ServerTool

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.untrusted import clean
from rubricsvc.errors import InvalidError
from trainer.environments.config import McpServer
from trainer.environments.environment import Environment, Episode, Tool, ToolError
from trainer.environments.leaks import LeakGuard
from trainer.environments.mcp_connection import McpConnection, connect

_NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)


class McpTools:
    """An environment with the tools of servers, and those of the environment ``inner``, if there is one.

    All episodes share a session with each server, which the process keeps.
    """

    def __init__(self, servers: Sequence[McpServer], inner: Environment | None, timeout_s: float) -> None:
        """Connect to the servers.

        Raises:
            UnavailableError: A server cannot be reached.
            InvalidError: It lacks a tool that was named, a tool cannot be used, or two have one name.
        """
        self.inner, self.timeout_s = inner, timeout_s
        self.tools: tuple[Tool, ...] = tuple(inner.tools) if inner is not None else ()
        self.sources: dict[str, tuple[McpConnection, str]] = {}
        for server in servers:
            connection = connect(server)
            for offered in _chosen(server, connection.tools):
                tool = _tool(server, offered)
                self.tools += (tool,)
                self.sources[tool.name] = (connection, offered.name)
            _check_names(server, self.tools)

    def reset(self, prompt: Prompt) -> McpEpisode:
        """Begin an episode."""
        return McpEpisode(self, self.inner.reset(prompt) if self.inner is not None else None)

    def leak_guard(self, prompt: Prompt) -> LeakGuard | None:
        """Return what no tool must show of the answer: that of the inner environment."""
        guard: LeakGuard | None = getattr(self.inner, "leak_guard", lambda _prompt: None)(prompt)
        return guard


class McpEpisode:
    """One completion; ``inner`` is its episode in the other environment."""

    def __init__(self, environment: McpTools, inner: Episode | None) -> None:
        self._environment, self._inner = environment, inner

    @property
    def report(self) -> str | None:
        """The final text of the inner episode."""
        return self._inner.report if self._inner is not None else None

    def step(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result of a call."""
        if name in self._environment.sources:
            connection, own_name = self._environment.sources[name]
            return _text(connection.call(own_name, dict(arguments), self._environment.timeout_s))
        assert self._inner is not None  # noqa: S101 - the tools are those of the servers and of the inner environment
        return self._inner.step(name, arguments)


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


def _chosen(server: McpServer, offered: Sequence[ServerTool]) -> list[ServerTool]:
    names = [tool.name for tool in offered]
    if unknown := sorted(set(server.allowed_tools) - set(names)):
        hint = f"its tools are {', '.join(names) or 'none'}"
        raise InvalidError(f"MCP server {server.name!r} has no tool {unknown[0]!r}", hint=hint, path="tools.mcp")
    return [tool for tool in offered if not server.allowed_tools or tool.name in server.allowed_tools]


def _tool(server: McpServer, offered: ServerTool) -> Tool:
    """Return a tool of a server as the policy reads it."""
    name = server.prefix + offered.name
    if not _NAME.fullmatch(name):
        raise InvalidError(
            f"MCP server {server.name!r} has a tool with the invalid name {name[:80]!r}",
            hint="leave it out: name the other ones in `allowed_tools`",
            path="tools.mcp",
        )
    schema = json.loads(clean(json.dumps(offered.input_schema, ensure_ascii=False)).text, object_hook=_without_patterns)
    try:
        validators.validator_for(schema).check_schema(schema)
    except SchemaError as error:
        raise InvalidError(
            f"tool {name!r} of MCP server {server.name!r} has an invalid schema: {error.message}",
            hint="leave it out: name the other ones in `allowed_tools`",
            path="tools.mcp",
        ) from error
    properties = {
        one: str(about.get("description", "")) if isinstance(about, dict) else ""
        for one, about in schema.get("properties", {}).items()
    }
    return Tool(name, clean(offered.description or "").text, properties, schema)


def _without_patterns(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without regular expressions: one of somebody else may take for ever, and stop all episodes."""
    return {
        name: about
        for name, about in schema.items()
        if name != "patternProperties" and not (name == "pattern" and isinstance(about, str))
    }


def _check_names(server: McpServer, tools: Sequence[Tool]) -> None:
    name, count = Counter(tool.name for tool in tools).most_common(1)[0] if tools else ("", 0)
    if count > 1:
        raise InvalidError(
            f"{count} tools are named {name!r}, one of them of MCP server {server.name!r}",
            hint=f'give its tools a prefix, such as prefix = "{server.name}_", or choose others with `allowed_tools`',
            path="tools.mcp",
        )
