"""Checks of a text: terms, patterns, lengths and repetition; headings, tables, lists, formats and its language."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from itertools import chain, pairwise
from typing import Annotated, Literal
from xml.etree import ElementTree as Xml

from pydantic import Field, JsonValue, field_validator, model_validator

from rubricsvc.core.prompt import Completion, Prompt, steps_of
from workers.checks.instructions import LANGUAGES, detect_language
from workers.checks.markdown import AFTER, BEFORE, Which, blocks, pick, tokens
from workers.checks.registry import Args, CheckResult
from workers.checks.sandbox.child_process import Child
from workers.repetitions import distinct_share, repetitions, words_of


class Contains(Args):
    """``mode``: any (at least one term), all, none, or share (of the terms, as the value).

    ``where``: anywhere, or at the start or the end (ignoring white space). ``whole``: match whole words, so that ``is``
    is not in ``this``. ``case``: match case.
    """

    terms: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    mode: Literal["any", "all", "none", "share"] = "any"
    where: Literal["anywhere", "start", "end"] = "anywhere"
    whole: bool = False
    case: bool = False


def contains(completion: Completion, prompt: Prompt, args: Contains) -> float:
    """Return 1 or 0; with ``mode="share"`` the share of terms found."""
    before, after = (BEFORE, AFTER) if args.whole else ("", "")
    first, last = (r"\A" if args.where == "start" else ""), (r"\Z" if args.where == "end" else "")
    patterns = [f"{first}{before}{re.escape(term)}{after}{last}" for term in args.terms]
    flags, text = re.NOFLAG if args.case else re.IGNORECASE, completion.text.strip()
    count = sum(re.search(pattern, text, flags) is not None for pattern in patterns)
    if args.mode == "share":
        return count / len(args.terms)
    return float({"any": count > 0, "all": count == len(args.terms), "none": count == 0}[args.mode])


_matcher = Child(
    "pattern",
    """
import re
from itertools import islice
def answer(pattern, text, limit):
    return sum(1 for _ in islice(re.finditer(pattern, text), limit))
""",
    "-S",
)


class Regex(Args):
    """``count``: the minimum number of matches. ``absent``: there must be no match. ``(?i)`` ignores case."""

    pattern: str = Field(min_length=1, max_length=1000)
    count: int = Field(default=1, ge=1)
    absent: bool = False
    timeout_s: float = Field(default=1.0, gt=0.0, le=60.0)

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return pattern


def regex(completion: Completion, prompt: Prompt, args: Regex) -> float:
    """Return 1 or 0. A pattern that takes longer than ``timeout_s`` fails with ``check_error``."""
    limit = 1 if args.absent else args.count
    return float((_matcher.ask(args.pattern, completion.text, limit, timeout_s=args.timeout_s) >= limit) != args.absent)


class Span(Args):
    """The range of a count. Outside, ``partial`` gives linear credit: n/min below, 1 - (n - max)/max above."""

    min: int = Field(default=0, ge=0)
    max: int | None = Field(default=None, ge=1)
    partial: bool = True

    @model_validator(mode="after")
    def _ordered(self) -> Span:
        if self.max is None and not self.min:
            raise ValueError("give min, max or both")
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min ({self.min}) must not be above max ({self.max})")
        return self


_SENTENCE_END = re.compile(r"[.!?…](?:[\"'”’)\]]*)(?=\s|\Z)|[。｡！？।॥؟۔]|．(?!\d)|\n\s*\n|\Z")
"""Sentences end at ``.!?`` before white space, at the marks of other scripts, and at blank lines."""

COUNTS: dict[str, Callable[[str], int]] = {
    "words": lambda text: len(words_of(text)),
    "sentences": lambda text: sum(any(map(str.isalnum, piece)) for piece in _SENTENCE_END.split(text)),
    "paragraphs": lambda text: sum(bool(part.strip()) for part in re.split(r"\n[ \t]*(?=\n)", text)),
    "characters": lambda text: len(text.strip()),
}
"""Lengths, by the names of their checks."""


class Distinct(Args):
    """``n``: words in an n-gram."""

    n: int = Field(default=3, ge=1, le=20)


def distinct(completion: Completion, prompt: Prompt, args: Distinct) -> float:
    """Return `distinct_share`, ignoring case. A short text repeats nothing; use ``words`` for its length."""
    return distinct_share(words_of(completion.text.casefold()), args.n)


def loops(completion: Completion, prompt: Prompt, args: Args) -> CheckResult:
    """Return 1 less the share of steps in loops."""
    found = repetitions(steps_of(completion))
    return CheckResult(1 - found.share, found.text[:1000] or "nothing repeats")


class Headings(Span):
    """``level``: only headings of this level. ``titles``: headings that must occur, each counted once."""

    min: int = Field(default=1, ge=0)
    level: int | None = Field(default=None, ge=1, le=6)
    titles: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class Tables(Span):
    """``columns`` and ``rows`` (below the head): a table with fewer does not count."""

    min: int = Field(default=1, ge=0)
    columns: int = Field(default=1, ge=1)
    rows: int = Field(default=1, ge=0)


class Lists(Span):
    """``kind``: bullets (``-``, ``*``, ``+``), numbers (``1.``, ``1)``), or any of them."""

    min: int = Field(default=1, ge=0)
    kind: Literal["any", "bullets", "numbers"] = "any"


_MARKERS = {"any": "-*+.)", "bullets": "-*+", "numbers": ".)"}


def counted(completion: Completion, prompt: Prompt, args: Span, *, of: Callable[[str], int] | None = None) -> float:
    """Return the credit for a length, or for the number of Markdown headings, tables or list items.

    Headings are multiplied by the share of ``titles`` among them; tables have at least the size that is asked for;
    list items are not empty, and may be nested.
    """
    count, share = of(completion.text) if of else 0, 1.0
    pairs = () if of else pairwise(tokens(completion.text))
    if isinstance(args, Headings):
        every = [(int(token.tag[1:]), title.content) for token, title in pairs if token.type == "heading_open"]
        fitting = [title for level, title in every if args.level in (None, level)]
        present = {title.strip(" #\t:").casefold() for title in fitting}
        wanted = {title.strip(" #\t:").casefold() for title in args.titles}
        count, share = len(fitting), len(wanted & present) / len(wanted) if wanted else 1.0
    elif isinstance(args, Tables):
        types = " ".join(token.type for token in tokens(completion.text))
        found = [part.partition("table_close")[0] for part in types.split("table_open")[1:]]
        count = sum(one.count("th_open") >= args.columns and one.count("tr_open") > args.rows for one in found)
    elif isinstance(args, Lists):
        items = [one for one, content in pairs if one.type == "list_item_open" and content.type != "list_item_close"]
        count = sum(item.markup in _MARKERS[args.kind] for item in items)
    if count < args.min:
        value = count / args.min
    else:
        value = 1.0 if args.max is None else min(1.0, max(0.0, 1.0 - (count - args.max) / args.max))
    return (value if args.partial else float(value == 1.0)) * share


class Format(Args):
    """``kind``: what the text must be. ``block``: where to look for it (see ``json_schema``)."""

    kind: Literal["json", "yaml", "csv", "xml", "code", "plain"]
    block: Which = "last"


_MARKUP = {"heading_open", "fence", "bullet_list_open", "table_open", "strong_open", "code_inline"}
_YAML_SECONDS = 5.0
_yaml = Child(
    "YAML",
    """
import yaml
def answer(text):
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)  # not loaded: merge keys can grow without bound
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        return str(error)
    return "" if isinstance(node, yaml.CollectionNode) else "neither a mapping nor a list"
""",
)


def format_(completion: Completion, prompt: Prompt, args: Format) -> CheckResult:
    """Return 1 if the text parses: ``yaml`` as a mapping or list, ``csv`` with two or more rows of as many columns.

    ``code`` is a fenced block that is not empty, ``plain`` a text without headings, fences, bullets, tables, bold and
    code in Markdown.
    """
    languages = ("yaml", "yml") if args.kind == "yaml" else (args.kind,)
    text = pick(completion.text, "whole" if args.kind in ("code", "plain") else args.block, languages)
    problem = ""
    try:
        match args.kind:
            case "json":
                json.loads(text)
            case "yaml":
                problem = _yaml.ask(text, timeout_s=_YAML_SECONDS)  # some texts take quadratic time
            case "csv":
                rows = [row for row in csv.reader(io.StringIO(text.strip()), strict=True) if row]
                is_table = len(rows) > 1 and len({*map(len, rows)}) == 1 and len(rows[0]) > 1
                problem = "" if is_table else "not a table"
            case "xml" if "<!DOCTYPE" in text.upper():  # entities can blow up
                problem = "has a DOCTYPE, which is not supported"
            case "xml":
                Xml.fromstring(text.strip())  # noqa: S314 - without a DOCTYPE there are no entities
            case "code":
                problem = "" if any(block.strip() for _, block in blocks(text)) else "no fenced code block"
            case _:
                used = {token.type for token in tokens(text, inline=True)} & _MARKUP
                problem = f"has Markdown: {', '.join(sorted(used)).replace('_open', '')}" if used else ""
    except (ValueError, RecursionError, csv.Error, Xml.ParseError) as error:
        problem = str(error)
    return CheckResult(float(not problem), problem or f"is {args.kind}")


class Language(Args):
    """``codes``: ISO 639-1 codes, any of which will do; ``zh`` stands for ``zh-cn`` and ``zh-tw``."""

    codes: tuple[str, ...] = Field(min_length=1)

    @field_validator("codes")
    @classmethod
    def _known(cls, codes: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := next((code for code in codes if code not in ("zh", *LANGUAGES)), None):
            raise ValueError(f"{unknown[:20]!r} is not a language of langdetect: {', '.join(['zh', *LANGUAGES])}")
        return codes


def language(completion: Completion, prompt: Prompt, args: Language) -> CheckResult:
    """Return 1 if langdetect finds one of the languages outside of code blocks, else 0."""
    lines = re.split(r"\r\n|\r|\n", completion.text)
    spans = [token.map for token in tokens(completion.text) if token.type == "fence" and token.map]
    fenced = {line for span in spans for line in range(*span)}
    code = detect_language("\n".join(line for number, line in enumerate(lines) if number not in fenced))
    return CheckResult(float(code in args.codes or (code or "")[:2] in args.codes), f"language {code or 'unknown'}")


_validator = Child(
    "schema",
    """
def answer(schema, text):
    import json
    from jsonschema.validators import validator_for, Draft202012Validator
    from referencing import Registry
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [f"not JSON: {error}"]
    check = validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())
    errors = sorted(check.iter_errors(value), key=lambda error: error.json_path)
    return [f"{error.json_path}: {error.message[:200]}" for error in errors[:5]]
""",
)


MAX_SCHEMA_DEPTH = 64
"""Levels of a JSON Schema. The validator needs eight frames for each, of the interpreter's 1,000."""


class JsonSchema(Args):
    """``schema_``: a JSON Schema (2020-12 unless it says otherwise; ``schema`` in a file). References stay inside it.

    ``block``: the last fenced block that is JSON or of no language (``last``, else the whole text where there is none),
    the ``first``, ``all`` joined, or the ``whole`` text.
    """

    schema_: dict[str, JsonValue] = Field(alias="schema")
    block: Which = "last"
    timeout_s: float = Field(default=5.0, gt=0.0, le=60.0)

    @field_validator("schema_")
    @classmethod
    def _is_schema(cls, schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
        level: list[JsonValue] = [schema]
        for _ in range(MAX_SCHEMA_DEPTH + 1):  # without recursion
            inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
            level = list(chain.from_iterable(inner))
        if level:
            raise ValueError(f"is nested deeper than {MAX_SCHEMA_DEPTH} levels")
        try:
            from jsonschema.exceptions import SchemaError
            from jsonschema.validators import Draft202012Validator, validator_for
        except ImportError:  # reported when the check runs
            return schema
        try:
            validator_for(schema, default=Draft202012Validator).check_schema(schema)
        except SchemaError as error:
            raise ValueError(f"not a JSON Schema: {error.json_path}: {error.message[:200]}") from error
        return schema


def json_schema(completion: Completion, prompt: Prompt, args: JsonSchema) -> CheckResult:
    """Return 1 if the text is valid JSON for the schema, else 0; the rationale lists the errors."""
    text = pick(completion.text, args.block, ("json",))
    errors = _validator.ask(args.schema_, text, timeout_s=args.timeout_s)
    return CheckResult(float(not errors), "\n".join(errors) or "valid")
