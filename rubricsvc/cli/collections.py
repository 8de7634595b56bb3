"""`rubricsvc collections`: documents in search indexes, one file each in the data folder."""

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rubricsvc.cli import output
from rubricsvc.cli.importing import print_problems
from rubricsvc.cli.output import Json, echo, print_data, show
from rubricsvc.collections import index as collections
from rubricsvc.collections import sources
from rubricsvc.errors import InvalidError, needs_extra
from rubricsvc.settings import get_settings

app = output.group("Collections of documents, to search and to quote.")

Name = Annotated[str, typer.Argument(help="Name of the collection.")]


@app.command()
def add(
    name: Name,
    path: Annotated[Path | None, typer.Argument(help="Folder, JSONL, text, Markdown or HTML file.")] = None,
    *,
    python: Annotated[bool, typer.Option("--python", help="Add CPython's language reference instead.")] = False,
    debian: Annotated[
        str | None, typer.Option(metavar="PACKAGE", help="Add the HTML of an installed Debian package instead.")
    ] = None,
    encoding: Annotated[str, typer.Option(help="Encoding of files that do not name theirs.")] = "utf-8",
    replace: Annotated[bool, typer.Option("--replace", help="Replace a collection of that name.")] = False,
    skip_invalid: Annotated[bool, typer.Option("--skip-invalid", help="Skip invalid documents and list them.")] = False,
    as_json: Json = False,
) -> None:
    """Add a collection: of a folder with .txt, .md and .html files, or of a JSONL file with id, title and text.

    A collection is added whole or not at all.
    """
    if [python, path is not None, debian is not None].count(True) != 1:
        raise InvalidError("expected a PATH, --python or --debian", hint="rubricsvc collections add NAME PATH")
    folder, faults = get_settings().collections_dir, collections.FaultyDocuments()
    collections.path_of(folder, name, exists=None if replace else False)
    if path is not None:
        pages, source = sources.read(path, faults, encoding=encoding), str(path.resolve())
    elif debian is not None:
        pages, source = sources.read_package(debian, faults, encoding=encoding), f"Debian package {debian}"
    else:
        listed = sources.python_pages()
        pages, source = sources.Pages(len(listed), listed), f"pydoc_data.topics of Python {platform.python_version()}"
    options = {"replace": replace, "skip_invalid": skip_invalid}
    with output.progress_bar("documents") as bar:

        def counted() -> Iterator[collections.Page]:
            for number, page in enumerate(pages.pages, start=1):
                yield page
                if number % 100 == 0 or number == pages.total:
                    bar.update(number, max(number, pages.total), "")

        info = collections.add(folder, name, counted(), faults, source=source, **options)
    print_problems("skipped", faults.messages, faults.count)
    show(info._asdict() | {"skipped": faults.count}, as_json)


@app.command("show")
def show_(
    name: Annotated[str | None, typer.Argument(help="Name.", show_default="list collections")] = None,
    document: Annotated[str | None, typer.Argument(help="Id of a document.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Show a collection, or one of its documents with its links; or list collections."""
    folder = get_settings().collections_dir
    if name is None:
        rows = []
        for one in collections.names(folder):
            with collections.Collection(folder, one) as collection:
                rows.append(collection.info._asdict())
        empty = "no collections; add one with `rubricsvc collections add NAME PATH`"
        show([row if as_json else row | {"digest": row["digest"][:12]} for row in rows], as_json, empty=empty)
        return
    with collections.Collection(folder, name) as collection:
        if document is None:
            show(collection.info._asdict(), as_json)
            return
        page = collection.open(document)
    links = [link._asdict() for link in page.links]
    about = {"id": page.id, "title": page.title, "place": page.place, "terms": list(page.terms)}
    targets = list(dict.fromkeys(link.target for link in page.links))
    show(about | ({"text": page.text, "links": links} if as_json else {"links": targets}), as_json)
    if not as_json:
        print_data(f"\n{output.clean(page.text)}")


@app.command()
def search(
    name: Name,
    query: Annotated[list[str], typer.Argument(help="Words to search for.")],
    *,
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, max=1000, help="Maximum number of documents.")] = 10,
    as_json: Json = False,
) -> None:
    """Search a collection for documents with any of the words, best first (BM25)."""
    with collections.Collection(get_settings().collections_dir, name) as collection:
        hits = collection.search(" ".join(query), limit)
    rows = [hit._asdict() | ({} if as_json else {"text": output.shorten(hit.text, 80)}) for hit in hits]
    show(rows, as_json, empty="no document has any of these words")


@app.command()
def serve(
    name: Name,
    *,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve one client on stdin and stdout instead of HTTP.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for a free one.")] = 8322,
) -> None:
    """Serve a collection to agents by the Model Context Protocol (MCP), with the tools search, open, find and quote."""
    with needs_extra("mcp"):
        from rubricsvc.collections.mcp_server import mcp_server
    with collections.Collection(get_settings().collections_dir, name) as collection:
        server = mcp_server(collection)
        if stdio:
            server.run("stdio")
            return
        import uvicorn

        from rubricsvc.api.auth import is_loopback
        from rubricsvc.cli.serve import listen, run_server

        with listen(host, port) as listener:
            echo(f"serving at http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/mcp")
            if not is_loopback(host):
                echo("warning: every machine that reaches this address can read the collection")
            app = server.streamable_http_app(host=host)
            run_server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=5), listener)


@app.command()
def delete(name: Name) -> None:
    """Delete a collection."""
    collections.delete(get_settings().collections_dir, name)
    echo(f"deleted {name}")
