CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, place TEXT NOT NULL,
    characters INTEGER NOT NULL
);
CREATE TABLE places (part INTEGER PRIMARY KEY, document INTEGER NOT NULL, start INTEGER NOT NULL);
CREATE INDEX places_document ON places (document);
CREATE TABLE links (document TEXT NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, target TEXT NOT NULL);
CREATE INDEX links_document ON links (document);
CREATE TABLE terms (document TEXT NOT NULL, term TEXT NOT NULL, PRIMARY KEY (document, term)) WITHOUT ROWID;
CREATE VIRTUAL TABLE parts USING fts5(
    title, text, tokenize = "porter unicode61 remove_diacritics 2 tokenchars '_'"
);
