"""A collection as a server of the Model Context Protocol, with the tools search, open, find and quote.

Its tools have no state, so that one server serves many clients. Those that show a document return it with its id, so
that the checks of citations read them in any trajectory, whatever name a client gives them.
"""

from typing import Annotated, TypedDict

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from rubricsvc.collections.index import Collection
from rubricsvc.errors import NotFoundError

OPEN_CHARS = 1500  # default of ``open``: as JSON it fits into ``environment.max_result_chars``
MAX_OPEN_CHARS = 20_000
SNIPPET_CHARS = 160

Id = Annotated[str, Field(description="Id of a document, as `search` shows it.")]


class Part(TypedDict):
    """A part of a document, by the place of its first character, and the characters after it."""

    id: str
    start: int
    text: str
    more: int


def mcp_server(collection: Collection) -> MCPServer:
    """Return the server of a collection."""
    name, about = collection.name, collection.info
    server = MCPServer(
        f"rubricsvc collection {name}",
        instructions=f"Search the {about.documents} documents of {name!r}, and quote them. Cite them as [id].",
        version=collection.digest[:12],
        log_level="WARNING",
    )

    def text_of(id_: str) -> str:
        try:
            return collection.open(id_).text
        except NotFoundError as error:
            raise ToolError(f"no document {id_!r}; search for it") from error

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

    @server.tool("open")
    async def open_(
        id: Id,
        start: Annotated[int, Field(ge=0, description="Character of the document to begin at.")] = 0,
        chars: Annotated[int, Field(ge=1, le=MAX_OPEN_CHARS, description="Maximum number of characters.")] = OPEN_CHARS,
    ) -> Part:
        """Read a document; `more` is the number of characters after the part that is returned."""
        text = text_of(id)
        if start >= max(len(text), 1):
            raise ToolError(f"document {id!r} has {len(text)} characters")
        return Part(id=id, start=start, text=text[start : start + chars], more=max(len(text) - start - chars, 0))

    @server.tool()
    async def find(id: Id, text: Annotated[str, Field(description="Words to look for.")]) -> Part:
        """Show the best part of a document with these words; `open` reads on from its start."""
        length = len(text_of(id))
        part = collection.ranked_parts(text, [id])[0]
        return Part(id=id, start=part.start, text=part.text, more=length - part.start - len(part.text))

    @server.tool(structured_output=False)
    async def quote(id: Id, text: Annotated[str, Field(description="The passage.")]) -> str:
        """Check that a passage is in a document, word for word, and return it with its citation."""
        words = " ".join(text.split())  # only white space may differ
        if not words or words not in " ".join(text_of(id).split()):
            raise ToolError("the passage is not in this document, word for word")
        return f"“{text}” [{id}]"

    return server
