"""Words of an earlier dialect do not come back in identifiers, help texts, errors and docs (see CONTRIBUTING.md)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("rubricsvc", "workers", "trainer", "migrations")
MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

IDENTIFIER_WORDS = {
    "bell", "bells", "books", "doorbell", "doors", "drawing", "heard", "hear", "manners", "mend",
    "mended", "mending", "nobody", "patience", "patiently", "purse", "rang", "ring", "said", "seat", "seats", "told",
    "torn", "unjudged", "unlearned",
}  # fmt: skip
"""Parts of names, split at underscores and capitals."""

PHRASES = re.compile(
    r"\b(?:doorbells?|purses?|the books|bells?|nobody|whoever|mended|mends?|is told|are told|hears"
    r"|that there (?:is|are)|comes? to what|came to|stands? (?:so|in its place|for good)|has had enough"
    r"|thinks or learns|in vain|anew|no \w+ is at hand|it was there|what there is)\b",
    re.IGNORECASE,
)
"""In strings (help, errors, docstrings) and in docs."""


def name_parts(name: str) -> set[str]:
    """Return the lower-case words of an identifier."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return {part.lower() for part in spaced.split("_") if part}


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of every definition, argument, variable and import alias."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.alias(asname=str() as name):
                yield node.lineno, name


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every string literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_modules_use_plain_words() -> None:
    bad = []
    for path in MODULES:
        tree, place = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(ROOT)
        bad += [f"{place}:{line}: {name}" for line, name in identifiers(tree) if name_parts(name) & IDENTIFIER_WORDS]
        bad += [f"{place}:{line}: {found[0]!r}" for line, text in strings(tree) if (found := PHRASES.search(text))]
    assert bad == []


def test_pages_use_plain_words() -> None:
    lines = [(path.name, *line) for path in PAGES for line in enumerate(path.read_text("utf-8").splitlines(), 1)]
    assert [f"{name}:{n}: {found[0]!r}" for name, n, line in lines if (found := PHRASES.search(line))] == []


def test_identifier_words_finds_a_word_in_a_compound_name() -> None:
    tree = ast.parse("def _say_told(PURSE_SIZE): openSeats = 1")
    expected = ["_say_told", "PURSE_SIZE", "openSeats"]
    assert [name for _, name in identifiers(tree) if name_parts(name) & IDENTIFIER_WORDS] == expected
