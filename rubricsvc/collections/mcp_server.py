"""A collection as a server of the Model Context Protocol, with the tools search, open, find and quote.

Its tools have no state, so that one server serves many clients. Their results have the form of the tools of the
environment `research`, so that the checks of citations read them in any trajectory.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from rubricsvc.collections.index import Collection
from rubricsvc.errors import NotFoundError

OPEN_CHARS = 8000
"""Characters of a document that a call of ``open`` returns."""
SNIPPET_CHARS = 160

Id = Annotated[str, Field(description="Id of a document, as `search` shows it.")]


class FoundPart(TypedDict):
    """A part of a document, by the place of its first character."""

    id: str
    start: int
    text: str


def mcp_server(collection: Collection) -> MCPServer:
    """Return the server of a collection."""
    name, about = collection.name, collection.info
    server = MCPServer(
        f"rubricsvc collection {name}",
        instructions=f"Search the {about.documents} documents of {name!r}, and quote them. Cite them as [id].",
        version=collection.digest[:12],
        log_level="WARNING",
    )

    # Coroutines, so that all run in the thread of the event loop: a collection is used from one thread at a time.
    @server.tool(structured_output=False)
    async def search(
        query: Annotated[str, Field(description="Words to search for.")],
        limit: Annotated[int, Field(ge=1, le=100, description="Maximum number of documents.")] = 5,
    ) -> str:
        """Search for documents with any of the words, best first; returns ids, titles and beginnings."""
        if not (hits := collection.search(query, limit)):
            raise ToolError("no document has these words")
        return "\n".join(hit.line(SNIPPET_CHARS) for hit in hits)

    @server.tool("open", structured_output=False)
    async def open_(
        id: Id, start: Annotated[int, Field(ge=0, description="Character of the document to begin at.")] = 0
    ) -> str:
        """Read a document."""
        text = _text(collection, id)
        if start >= max(len(text), 1):
            raise ToolError(f"document {id!r} has {len(text)} characters")
        end = start + OPEN_CHARS
        more = f"\n[{len(text) - end} more characters: start={end}]" if end < len(text) else ""
        return text[start:end] + more

    @server.tool()
    async def find(id: Id, text: Annotated[str, Field(description="Words to look for.")]) -> FoundPart:
        """Show the best part of a document with these words; `open` reads on from its start."""
        _text(collection, id)
        part = collection.ranked_parts(text, [id])[0]
        return FoundPart(id=id, start=part.start, text=part.text)

    @server.tool(structured_output=False)
    async def quote(id: Id, text: Annotated[str, Field(description="The passage.")]) -> str:
        """Check that a passage is in a document, word for word, and return it with its citation."""
        _text(collection, id)
        if not collection.has_passage(id, text):
            raise ToolError("the passage is not in this document, word for word")
        return f"“{text}” [{id}]"

    return server


def _text(collection: Collection, id_: str) -> str:
    try:
        return collection.open(id_).text
    except NotFoundError as error:
        raise ToolError(f"no document {id_!r}; search for it") from error
