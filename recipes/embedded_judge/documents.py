"""The plain sentences of documents, and documents that are on every machine."""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

from recipes.embedded_judge.alterations.frames import fillers, read
from recipes.embedded_judge.alterations.tables import base_forms, third_person, words_of
from recipes.embedded_judge.edits import sentences
from rubricsvc.collections.sources import python_reference
from rubricsvc.core.prompt import Completion, Document, Prompt
from trainer.judge_training.data import Example

SHORTEST, LONGEST = 6, 30
"""Words of a sentence."""

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`“_])|(?<=[.!?]\))\s+(?=[A-Z`“_])")
_BULLET = re.compile(r"^\s*(?:[*•-]|\d+[.)]|\([a-z0-9]+\))\s+")
_NOTES = re.compile(
    r"^(?:Note|Warning|See also|Changed in version|Added in version|New in version|Deprecated)\b[^.]{0,30}:"
)
_LEADING = re.compile(
    r"^(?:(?:However|Thus|Therefore|Hence|So|Also|Moreover|Furthermore|Consequently|Similarly|Likewise|Otherwise|Note|Again|"
    r"Finally|Then|Additionally|Instead|That is|In addition|As a result|In particular|In contrast|On the other hand|"
    r"Nevertheless|For example|For instance|In other words|In this case|In that case),|Note that|But|And)\s+"
)
_ASIDE = re.compile(
    r"\s*\((?:see|See|cf\.|described|discussed|e\.g\.|i\.e\.|for example)[^()]*\)|\s*\[\d+\]|\s*\*?\*?PEP \d+\*?\*?:? –"
)
_MARKS = (
    r"::|\.\.\.|\.\. |>>>|->|\\|[|<>{}=#“”;?!]|:$|\*\*|https?:|\w\. \S|^`[^`]+`: |[\w`\])]: [A-Z]|:\w+:| : | --? | \+ "
)
_REFERENCES = (
    r"\b(?:section|chapter|[Ss]ee|below|above|PEP|[Hh]ere|e\.g\.|i\.e\.|etc|TODO|XXX|I|we|[Ee]xample)\b|\bversions? \d|"
    r"\bfollow(?:s|ing):|^This is an? |^Note\b|"
    r"^(?!This)[A-Z][a-z]+s (?:an?|the|all|any|each|its|one)\b|^\w+: |^ +[A-Z]"
)
_JOINED = r"\w+ (?:The|An?|If|It|This|When|In|Documentation|Returns?)\b"


@cache
def _unfit() -> re.Pattern[str]:
    """Return what a sentence must not contain: marks, references to other places, a lost line break, an imperative."""
    third = "|".join(sorted(base_forms().keys() - words_of("nouns")))
    imperative = rf"^(?:With|Without|For|To|In|If|When|On)\b[^,]*, (?:{'|'.join(sorted(words_of('verbs')))})\b"
    return re.compile(
        rf"{_MARKS}|{_REFERENCES}|{_JOINED}|^(?:If|When)\b[^,]*, (?:does|is|are|has|{third})\b|{imperative}"
    )


_CODE_SPAN = re.compile(r"`[^`]*`")


def prose(document: Document) -> Iterator[tuple[str, ...]]:
    """Yield the document's paragraphs (and lists) as sentences that state something; without code, tables, headings."""
    for paragraph in _PARAGRAPH.split(document.text):
        lines = [line for line in paragraph.splitlines() if line.strip()]
        if not lines or _is_code(lines):
            continue
        items = _items(lines)
        sentences = [fit for item in items for raw in _SENTENCE_END.split(item) if (fit := _statement(raw))]
        if sentences:
            yield tuple(dict.fromkeys(sentences))


def plain_title(document: Document, names: frozenset[str] = frozenset()) -> str:
    """Return the title as the subject of a question: ``The `if` statement`` becomes ``the `if` statement``."""
    title = re.sub(r"[*]", "", document.title).strip().rstrip(".:") or document.id
    return " ".join(lower_first(word, names) for word in title.split())


def proper_names(documents: Iterable[Document]) -> frozenset[str]:
    """Return the words that the documents have with a capital letter only, and not only in first place."""
    small, capital = set(), set()
    for document in documents:
        small.update(re.findall(r"\b[a-z]+\b", document.text))
        capital.update(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+\b", document.text))
    return frozenset(word for word in capital if word.lower() not in small | words_of("openers"))


def lower_first(text: str, names: frozenset[str] = frozenset()) -> str:
    """Return the text with a small first letter, unless it begins with one of the names, code or an abbreviation."""
    first = re.split(r"[\s,.]|'s\b", text, maxsplit=1)[0]
    plain = first.replace("'", "").replace("-", "").isalpha()
    if not plain or any(letter.isupper() for letter in first[1:]) or first in words_of("proper") | names | fillers():
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
    if read(raw.strip()):
        return raw.strip()
    text = _ASIDE.sub("", " ".join(raw.split())).replace("’", "'")
    text = re.sub(r"(?<!\w)\*(\w[^*`]*)\*(?!\w)", r"\1", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r":\w+:`[!~]?([^`]+)`", r"`\1`", text)
    text = _NOTES.sub("", text).strip()
    text = re.sub(r"(\w)- (\w)", r"\1-\2", text)
    text = re.sub(r"\.\.$", ".", text)
    while (shorter := _LEADING.sub("", text)) != text:
        text = shorter[:1].upper() + shorter[1:]
    words = re.sub(_CODE_SPAN, "code", text).split()
    plain = _CODE_SPAN.sub("", text)
    if not SHORTEST <= len(words) <= LONGEST or not text.endswith(".") or not re.match(r"[A-Z`]", text):
        return None
    if (
        _unfit().search(plain)
        or '"`' in text
        or '`"' in text
        or any(text.count(a) != text.count(b) for a, b in ("()", "[]"))
        or text.count("`") % 2
    ):
        return None
    if plain.count('"') % 2 or plain.count("'") - len(re.findall(r"\w'\w", plain)) > 0 or "*" in plain:
        return None
    first = words[0].lower()
    if (
        first in words_of("verbs") | words_of("auxiliaries")
        or first in base_forms()
        or first in ("only", "also", "do", "please", "or", "nor", "which", "that", "what", "why", "how", "where")
    ):
        return None  # an imperative, or a piece of a sentence
    return text if _has_main_verb(words) else None


def _has_main_verb(words: list[str]) -> bool:
    """Whether there are more finite verbs than words that begin a clause. A plural noun may look like a verb."""
    lowered = [word.strip(",.()").lower() for word in words]
    finite = 0
    for before, word in pairwise(lowered):
        if word in words_of("auxiliaries") - {"be", "had"}:
            finite += 1
        elif word in base_forms():
            finite += word not in words_of("nouns") or before in words_of("subjects") or before == "code"
    opening = ("which", "that", "who", "whose", "if", "when", "where", "because", "while", "since", "unless")
    return finite > sum(word in opening for word in lowered)


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
    """Return a docstring whose first word, if it is a verb, is in the third person, after its subject."""
    first, _, rest = docstring.strip().partition(" ")
    verb = base_forms().get(first.lower(), first.lower())
    if verb not in words_of("verbs"):
        return docstring
    sentence, end, others = rest.partition(".")
    return f"{subject} {third_person(verb)} {_second_verb().sub(_in_third_person, sentence)}{end}{others}"


@cache
def _second_verb() -> re.Pattern[str]:
    """Return what finds another verb of an imperative sentence ("… and return the value")."""
    return re.compile(
        rf"\b(and|or|then) ({'|'.join(sorted(words_of('verbs')))}) (?=(?:an?|the|its?|all|any|each|True|None)\b)"
    )


def _in_third_person(found: re.Match[str]) -> str:
    return f"{found.group(1)} {third_person(found.group(2))} "


_REQUESTS = (
    "What does Python's documentation say about {title}?", "Tell me about {title} in Python.", "Explain {title}.",
    "Write some lines on {title} in Python's language reference.", "What is to be known about {title}?",
)  # fmt: skip


def document_answers(seed: int, count: int) -> Iterator[Example]:
    """Yield completions of one to four sentences from a passage of CPython's language reference, without targets.

    Raises:
        UnavailableError: This Python was installed without its language reference.
    """
    rng = Random(f"documents {seed}")
    prose = []
    for document in python_reference():
        for passage in passages(document):
            whole = [sentence for sentence in sentences(passage.text) if _is_prose(sentence)]
            if whole:
                prose.append((document.id, document.title.strip("* "), whole))
    for _ in range(count):
        ident, title, whole = rng.choice(prose)
        number = min(rng.randint(1, 4), len(whole))
        first = rng.randint(0, len(whole) - number)
        text = " ".join(whole[first : first + number])
        prompt = Prompt.of(rng.choice(_REQUESTS).format(title=title))
        yield Example(prompt, Completion(text=text), (), source="documents", group=ident)


def _is_prose(sentence: str) -> bool:
    """Return whether it is one sentence of 5 to 45 words: a capital, a full stop, no code, no number of a list item."""
    number = len(sentence.split())
    return 5 <= number <= 45 and re.fullmatch(r"[A-Z](?:(?!- )[^\n:=>|])*[^\d\n][.]", sentence) is not None


PASSAGE_WORDS = 60
"""Target length of a passage, in words."""

_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
_UNDERLINE = re.compile(r"^[*=~^-]{3,}$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*“])")


def passages(document: Document, words: int = PASSAGE_WORDS) -> Iterator[Document]:
    """Split a document into passages of about ``words`` words at most.

    It is split between paragraphs, a long paragraph of prose between sentences, and always before a heading. Line
    breaks inside a paragraph of prose become spaces.
    """
    pending: list[str] = []
    number = 1
    for heading, text in [*_pieces(document.text, words), (False, "")]:
        full = len(" ".join([*pending, text]).split()) > words
        if pending and (heading or full or not text):
            ident = document.id if number == 1 else f"{document.id}.{number}"
            yield Document(id=ident, text="\n".join(pending), title=document.title)
            pending, number = [], number + 1
        if text:
            pending.append(text)


def _pieces(text: str, words: int) -> Iterator[tuple[bool, str]]:
    """Yield whether it begins with a heading, and a paragraph or a part of one. Code and grammar keep their lines."""
    for paragraph in _PARAGRAPH_BREAK.split(text):
        lines = [line for line in _UNDERLINE.sub("", paragraph).splitlines() if line.strip()]
        heading = _UNDERLINE.search(paragraph) is not None
        if any("::=" in line or line.lstrip().startswith((">>>", "+-", "|")) for line in lines):
            yield heading, "\n".join(lines)
            continue
        joined = " ".join(line.strip() for line in lines)
        part: list[str] = []
        for sentence in _SENTENCE.split(joined):
            if part and len(" ".join([*part, sentence]).split()) > words:
                yield heading, " ".join(part)
                part, heading = [], False
            part.append(sentence)
        if joined:
            yield heading, " ".join(part)
