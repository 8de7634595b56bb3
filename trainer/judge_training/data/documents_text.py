"""The plain sentences of documents, and documents that are on every machine."""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rubricsvc.core.prompt import Document
from trainer.judge_training.data.statements_tables import auxiliaries, base_forms, third_person, verbs, words_of

SHORTEST, LONGEST = 6, 30
"""Words of a sentence."""

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`“_])|(?<=[.!?]\))\s+(?=[A-Z`“_])")
_BULLET = re.compile(r"^\s*(?:[*•-]|\d+[.)]|\([a-z0-9]+\))\s+")
_NOTES = re.compile(
    r"^(?:Note|Warning|See also|Changed in version|Added in version|New in version|Deprecated)\b[^.]{0,30}:"
)
_LEADING = re.compile(
    r"^(?:However|Thus|Therefore|Hence|So|But|And|Also|Moreover|Furthermore|Consequently|Similarly|Likewise|Otherwise|"
    r"In addition|As a result|In particular|In contrast|On the other hand|Nevertheless|For example|For instance|"
    r"Note that|Note|In other words|That is|Again|Finally|Then|Additionally|Instead|In this case|In that case),?\s+"
)
_ASIDE = re.compile(
    r"\s*\((?:see|See|cf\.|described|discussed|e\.g\.|i\.e\.|for example)[^()]*\)|\s*\[\d+\]|\s*\*?\*?PEP \d+\*?\*?:? –"
)
_UNFIT = re.compile(
    r"::|\.\.\.|\.\. |>>>|->|\\|[|<>{}=#“”;?!]|\bsection\b|\bchapter\b|\b[Ss]ee\b|\bbelow\b|\babove\b|"
    r"\bPEP\b|\bfollow(?:s|ing):|:$|\*\*|https?:|\be\.g\.|\betc\b|\bi\.e\.|\bHere\b|\bdescribed here\b|"
    r"^\W*This is an? |"
    r"\bversions? \d|\bTODO\b|\bXXX\b|\bI\b|\bwe\b|\b[Ee]xample\b"
)
_CODE_SPAN = re.compile(r"`[^`]*`")


@dataclass(frozen=True)
class Passage:
    """Sentences of a document that follow one another, and the document's id and title."""

    document: str
    title: str
    sentences: tuple[str, ...]


def prose(document: Document) -> Iterator[Passage]:
    """Yield the document's paragraphs (and lists) as sentences that state something; without code, tables, headings."""
    for paragraph in _PARAGRAPH.split(document.text):
        lines = [line for line in paragraph.splitlines() if line.strip()]
        if not lines or _is_code(lines):
            continue
        items = _items(lines)
        sentences = [fit for item in items for raw in _SENTENCE_END.split(item) if (fit := _statement(raw))]
        if sentences:
            yield Passage(document.id, plain_title(document), tuple(dict.fromkeys(sentences)))


def plain_title(document: Document) -> str:
    """Return the title as the subject of a question: ``The `if` statement`` becomes ``the `if` statement``."""
    title = re.sub(r"[*]", "", document.title).strip().rstrip(".:") or document.id
    return " ".join(lower_first(word) for word in title.split())


def lower_first(text: str) -> str:
    """Return the text with a small first letter, unless it begins with a name, code or an abbreviation."""
    first = re.split(r"[\s,]", text, maxsplit=1)[0]
    if not first.isalpha() and "'" not in first and "’" not in first and "-" not in first:
        return text
    if first in words_of("proper") or any(letter.isupper() for letter in first[1:]) or text.split()[:1] == ["I"]:
        return text
    return text[:1].lower() + text[1:]


def _is_code(lines: list[str]) -> bool:
    marks = (">>>", "+-", "|", "...", "::")
    return any("::=" in line or line.lstrip().startswith(marks) for line in lines) or any(
        re.match(r"^[*=~^-]{3,}$", line.strip()) for line in lines
    )


def _items(lines: list[str]) -> list[str]:
    """Return the lines joined, a list item for itself."""
    items: list[str] = []
    for line in lines:
        if _BULLET.match(line) or not items:
            items.append(_BULLET.sub("", line).strip())
        else:
            items[-1] += " " + line.strip()
    return items


def _statement(raw: str) -> str | None:
    """Return the sentence without marks and asides, if it states something in 6 to 30 words."""
    text = _ASIDE.sub("", " ".join(raw.split())).replace("’", "'")
    text = re.sub(r"(?<!\w)\*(\w[^*`]*)\*(?!\w)", r"\1", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r":\w+:`[!~]?([^`]+)`", r"`\1`", text)
    text = _NOTES.sub("", text).strip()
    text = re.sub(r"(\w)- (\w)", r"\1-\2", text).replace("..", ".")
    while (shorter := _LEADING.sub("", text)) != text:
        text = shorter
    text = text[:1].upper() + text[1:]
    words = re.sub(_CODE_SPAN, "code", text).split()
    plain = _CODE_SPAN.sub("", text)
    if not SHORTEST <= len(words) <= LONGEST or not text.endswith(".") or not re.match(r"[A-Z`]", text):
        return None
    if _UNFIT.search(plain) or any(text.count(a) != text.count(b) for a, b in ("()", "[]")) or text.count("`") % 2:
        return None
    if plain.count('"') % 2 or plain.count("'") - len(re.findall(r"\w'\w", plain)) > 0 or "*" in plain:
        return None
    first = words[0].lower()
    if first in verbs() or first in ("do", "please", "or", "nor", "which", "that", "what", "why", "how", "where"):
        return None  # an imperative, or a piece of a sentence
    lowered = [word.strip(",.()").lower() for word in words[1:]]
    finite = sum(word in auxiliaries() or word in base_forms() for word in lowered)
    relative = sum(word in ("which", "that", "who", "whose", "if", "when", "where", "because") for word in lowered)
    if words[0].lower() in ("if", "when", "because", "while", "since", "unless"):
        relative += 1
    return text if finite > relative else None


def standard_library_docstrings() -> Iterator[Document]:
    """Yield the documentation of the standard library's modules, read from their source: a document for each module.

    An imperative first sentence ("Return the value …") becomes a statement about its function. Modules of tests and
    those that hold no prose are left out. CPython's licence (PSF-2.0) applies to the texts.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    skipped = ("test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "__pycache__", "ensurepip")
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if any(part in skipped for part in parts) or (parts[-1].startswith("_") and parts[-1] != "__init__"):
            continue
        name = ".".join(parts).removesuffix(".__init__")
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        text = "\n\n".join(filter(None, _docstrings(tree, "")))
        if len(text.split()) >= 60:
            yield Document(id=f"stdlib.{name}", text=text, title=f"the module `{name}`")


def _docstrings(tree: ast.AST, owner: str) -> Iterator[str]:
    if isinstance(tree, ast.Module):
        yield ast.get_docstring(tree) or ""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        called = f"{owner}{node.name}"
        is_class = isinstance(node, ast.ClassDef)
        yield _about(ast.get_docstring(node) or "", f"`{called}`" if is_class else f"`{called}()`")
        if is_class:
            yield from _docstrings(node, f"{called}.")


def _about(docstring: str, subject: str) -> str:
    """Return a docstring whose first word, if it is an imperative, is in the third person, after its subject."""
    first, _, rest = docstring.strip().partition(" ")
    if first.lower() in verbs():
        return f"{subject} {third_person(first.lower())} {rest}"
    return docstring
