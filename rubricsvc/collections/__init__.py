"""Collections of documents: one SQLite FTS5 file each, in a folder. They need no service and no model.

``add`` makes one from pages (`rubricsvc.collections.sources`), ``open_collection`` reads it::

    with open_collection(folder, "papers") as papers:
        for hit in papers.search("retrieval of passages", k=5):
            page = papers.open(hit.id)
"""

from rubricsvc.collections.index import (
    Collection,
    CollectionInfo,
    FaultyDocuments,
    Link,
    Page,
    Part,
    SearchHit,
    add,
    check_new,
    delete,
    names,
    open_collection,
)

__all__ = [
    "Collection",
    "CollectionInfo",
    "FaultyDocuments",
    "Link",
    "Page",
    "Part",
    "SearchHit",
    "add",
    "check_new",
    "delete",
    "names",
    "open_collection",
]
