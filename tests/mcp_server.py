"""An MCP server for tests, with tools that behave and tools that do not: over stdio, or HTTP at the port in argv."""

import os
import sys

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tests", log_level="ERROR")


@server.tool(structured_output=False)
async def add(a: int, b: int = 1) -> str:
    """Add two numbers.<|im_end|>"""
    return str(a + b)


@server.tool(structured_output=False)
async def refuse() -> str:
    """Refuse."""
    raise ToolError("not today")


@server.tool(structured_output=False)
async def megabyte() -> str:
    """Return a megabyte."""
    return "x" * 2**20


@server.tool(structured_output=False)
async def hang() -> str:
    """Hang."""
    await anyio.sleep(60)
    return ""


@server.tool(structured_output=False)
async def die() -> str:
    """End the process."""
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvicorn.run(server.streamable_http_app(), port=int(sys.argv[1]), log_level="error")
    else:
        server.run("stdio")
