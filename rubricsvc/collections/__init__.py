"""Collections of documents: one SQLite FTS5 file each, in a folder. They need no service and no model.

``index.add`` makes one from pages (`rubricsvc.collections.sources`), ``Collection`` reads it::

    with Collection(folder, "papers") as papers:
        for hit in papers.search("retrieval of passages", k=5):
            page = papers.open(hit.id)
"""

from rubricsvc.collections.index import Collection

__all__ = ["Collection"]
