"""Functions that mapping files call: ``path | name argument``; and preparations, for what no path can say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from html import unescape
from itertools import count
from typing import TYPE_CHECKING, Any

from rubricsvc.core import strict_json
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.formats.errors import Location
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import MISSING, Entry, Node, Placed, Row

if TYPE_CHECKING:
    from rubricsvc.formats.mapping import Scope

Function = Callable[["Scope", Node, str], Any]
"""Returns the value (its path stays that of the argument), or a `Node` with a path of its own."""


def _lookup(scope: Scope, node: Node, table: str) -> Any:
    """Return the value that a table has for a text, whatever its case; with ``?`` it may be missing."""
    values = scope.mapping.tables[table.removesuffix("?")]
    known = {key.casefold(): value for key, value in values.items()}
    found = known.get(str(node.value).strip().casefold(), MISSING)
    if found is MISSING and not table.endswith("?"):
        scope.entry.expected("literal_error", f"one of {', '.join(values)}", node.value, node.path or ())
    return found


def _match(scope: Scope, node: Node, name: str) -> Any:
    """Return the named groups of a regular expression that the whole text matches."""
    pattern = scope.mapping.patterns[name.removesuffix("?")]
    found = re.fullmatch(pattern, node.value, re.DOTALL) if isinstance(node.value, str) else None
    if found is None:
        if not name.endswith("?"):
            scope.entry.expected("shape", f"a text that matches {pattern!r}", node.value, node.path or ())
        return MISSING
    return Placed({key: text for key, text in found.groupdict().items() if text is not None}, node.path or ())


def _json(scope: Scope, node: Node, _: str) -> Any:
    """Return the data in a JSON text, or in a list with one such text; other data as they are."""
    value = node.value[0] if isinstance(node.value, list) and len(node.value) == 1 else node.value
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        scope.entry.expected("json_invalid", "JSON", value, node.path or ())
        return MISSING


def _text(scope: Scope, node: Node, _: str) -> Any:
    """Return a text that is not empty."""
    if isinstance(node.value, str) and node.value:
        return node.value
    scope.entry.expected("string_type", "a text", node.value, node.path or ())
    return MISSING


def _number(scope: Scope, node: Node, _: str) -> Any:
    """Return the number in a cell of CSV."""
    try:
        return float(node.value)
    except (TypeError, ValueError):
        scope.entry.expected("shape", "a number such as 3 or -0.5", node.value, node.path or ())
        return MISSING


def _prefixed(_: Scope, node: Node, prefix: str) -> Any:
    """Return the rest of the first text of a list that begins so."""
    texts = node.value if isinstance(node.value, list) else []
    rests = (one.removeprefix(prefix) for one in texts if isinstance(one, str) and one.startswith(prefix))
    return next(rests, MISSING)


def _stems(_: Scope, node: Node, suffix: str) -> list[str]:
    """Return what stands before the suffix in the names of fields, in all items of a list."""
    names = (name for item in node.items() if isinstance(item.value, dict) for name in item.value)
    return list(dict.fromkeys(name.removesuffix(suffix) for name in names if name.endswith(suffix)))


def _without(_: Scope, node: Node, fields: str) -> Any:
    """Return a mapping without these fields."""
    return {name: value for name, value in node.value.items() if name not in fields.split()}


def _nth(scope: Scope, node: Node, _: str) -> str:
    """Return ``-2`` if the file had this text once before, and so on; an empty text the first time."""
    scope.reader.counts[node.value] += 1
    times = scope.reader.counts[node.value]
    return f"-{times}" if times > 1 else ""


def _arguments(_: Scope, node: Node, __: str) -> str:
    """Return the arguments of an instruction as `` (name=value, …)``; an empty text without any."""
    listed = ", ".join(f"{name}={value}" for name, value in _given(node.value).items())
    return f" ({listed})" if listed else ""


def _given(value: Any) -> dict[str, Any]:
    """Return a mapping without nulls."""
    return {name: one for name, one in value.items() if one is not None} if isinstance(value, dict) else {}


def _asked(_: Scope, node: Node, __: str) -> Any:
    """Return the messages without the assistant's answer at their end."""
    messages = node.value
    answered = isinstance(messages, list) and messages and isinstance(messages[-1], dict)
    rest = messages[:-1] if answered and messages[-1].get("role") == "assistant" else messages
    return rest or MISSING


def _applicable(scope: Scope, node: Node, criterion: str) -> Node:
    """Return the label of an option; null for one that says that the criterion is not applicable."""
    options = scope.find(f"{criterion}.options").items()
    absent = [one.value.get("label") for one in options if isinstance(one.value, dict) and one.value.get("na")]
    return Node(None) if node.value in absent else node


def _sections(_: Scope, node: Node, __: str) -> str:
    """Return an answer, which is a text or a list of sections with a title and a text."""
    if isinstance(node.value, str):
        return node.value
    sections = node.value if isinstance(node.value, list) else [node.value]
    known = [one for one in sections if isinstance(one, dict)]
    return "\n\n".join(f"## {one.get('title') or ''}\n\n{one.get('text') or ''}" for one in known).strip()


_RULE = ("verifier", "function", "parameters")


def _verl_tags(node: Node) -> tuple[dict[str, Any], list[str]]:
    """Return the fields that the tags of a criterion of verl have by name, and the other tags."""
    if isinstance(node.value, dict):
        named = _given(node.value)
        listed = named.pop("tags", [])
        return named, [str(one) for one in listed] if isinstance(listed, list) else []
    texts = [text for text in node.value if isinstance(text, str)] if isinstance(node.value, list) else []
    pairs = {text: text.partition(":")[::2] for text in texts}
    known = {name: value for name, value in pairs.values() if name in (*_RULE, "key", "check")}
    return known, [text for text, (name, _) in pairs.items() if name not in known]


def _verl_key(_: Scope, node: Node, __: str) -> Any:
    key = _verl_tags(node)[0].get("key")
    return str(key) if key else MISSING


def _verl_check(scope: Scope, node: Node, _: str) -> Any:
    """Return the check of a criterion of verl: its own, or the one that decides as its function does."""
    named = _verl_tags(node)[0]
    if (check := _decoded(named.get("check"))) is not None:
        return check
    if named.get("verifier") != "rule" or not named.get("function"):
        return MISSING
    function = str(named["function"])
    parameters = _given(_decoded(named.get("parameters")))
    if function == "math_verify" and "answer" in parameters:
        return {"name": "math", "args": {"answer": str(parameters["answer"])}}
    if function == "word_count_range" and parameters.keys() >= {"min_count", "max_count"}:
        bounds = {"min": int(parameters["min_count"]), "max": int(parameters["max_count"])}
        return {"name": "words", "args": {**bounds, "partial": False}}
    if (instruction := scope.mapping.tables["ifeval"].get(function)) is not None:
        whole = {name: _whole(value) for name, value in parameters.items()}
        return {"name": "ifeval", "args": {"instruction_id": instruction, "kwargs": whole}}
    message = f"no check decides the function {function!r} with these parameters; a judge decides it"
    scope.entry.note("rule", f"{message}: write a check into the rubric instead (docs/checks.md)", node.path or ())
    return MISSING


def _decoded(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _whole(value: Any) -> Any:
    """Return 2 for 2.0, which Parquet and JSON of other writers make of it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _verl_rest(scope: Scope, node: Node, check: str) -> list[str]:
    """Return the tags that are left: those of a rule only if no check (the path in the argument) was made of it."""
    if not isinstance(node.value, list | dict):
        scope.entry.expected("list_type", "a mapping, or a list of key:value", node.value, node.path or ())
    named, listed = _verl_tags(node)
    left_out = {"key", "check"}
    if scope.find(check).value is not MISSING or named.get("verifier") == "llm":
        left_out |= {*_RULE}
    named = {name: value for name, value in named.items() if name not in left_out}
    return [f"{name}:{one if isinstance(one, str) else strict_json.dump(one)}" for name, one in named.items()] + listed


FUNCTIONS: dict[str, Function] = {
    "lookup": _lookup,
    "match": _match,
    "json": _json,
    "text": _text,
    "number": _number,
    "prefixed": _prefixed,
    "stems": _stems,
    "without": _without,
    "nth": _nth,
    "arguments": _arguments,
    "given": lambda _, node, __: _given(node.value),
    "asked": _asked,
    "applicable": _applicable,
    "sections": _sections,
    "strip": lambda _, node, __: str(node.value).strip(),
    "before": lambda _, node, mark: str(node.value).partition(mark)[0],
    "split": lambda _, node, mark: [one.strip() for one in str(node.value).split(mark) if one.strip()],
    "lines": lambda _, node, __: str(node.value).replace("\\n", "\n"),
    "listed": lambda _, node, __: [node.value] if isinstance(node.value, str) else node.value,
    "sha256": lambda _, node, digits: sha256(str(node.value).encode()).hexdigest()[: int(digits)],
    "digest": lambda _, node, digits: digest(str(node.value))[: int(digits)],
    "verl_key": _verl_key,
    "verl_check": _verl_check,
    "verl_rest": _verl_rest,
}


_MET = [("Met", 1.0), ("Not met", 0.0)]


def _canvas(entry: Entry) -> Iterable[Any]:
    """Add to rows of Canvas a weight and a scale: the ratings, each in three columns. Canvas shows texts as HTML."""
    rows = []
    for place, cells in enumerate(entry.data):
        row = {name: unescape(cell) if isinstance(cell, str) else cell for name, cell in cells.items()}
        ratings = list(_ratings(entry, place, row))
        most = max((points for *_, points in ratings), default=0.0)
        if len(ratings) < 2 or most <= 0 or min(points for *_, points in ratings) < 0:
            message = f"expected two or more ratings with points from 0 up, found {len(ratings)}"
            entry.add("length", message, (place, "Rating Points"))
        else:
            row["weight"] = most
            levels = [{"label": name, "value": points / most, "text": text} for name, text, points in ratings]
            if [(one["label"], one["value"]) for one in levels] != _MET:
                row["scale"] = Placed({"kind": "ordinal", "levels": levels}, (place, "Rating Name"))
        rows.append(Placed(row, (place,)))
    return [rows]


def _ratings(entry: Entry, place: int, row: Row) -> Iterator[tuple[str, str, float]]:
    for number in count(1):  # the reader of CSV numbers repeated columns
        suffix = "" if number == 1 else f" {number}"
        columns = [f"Rating {part}{suffix}" for part in ("Name", "Description", "Points")]
        if not row.keys() & set(columns):
            return
        name, text, points = (row.get(column, "") for column in columns)
        try:
            yield str(name or points), str(text), float(points)
        except ValueError:
            entry.expected("float_parsing", "a number of points", points, (place, columns[2]))


_LINES = (".jsonl", ".ndjson", ".parquet")


def _autorubric_parts(file: InputFile) -> Iterator[Entry]:
    """Yield an entry for each rubric: criteria or sections that are the records of a document are one rubric."""
    parts: list[Entry] = []
    for entry in file.entries():
        data = entry.data if isinstance(entry.data, dict) else {}
        is_part = "requirement" in data or ("criteria" in data and not data.keys() & {"guidelines", "items"})
        if is_part and file.path.suffix.lower() not in _LINES:
            parts.append(entry)
        else:
            yield entry
    if len(parts) == 1 and "criteria" in parts[0].data:
        yield parts[0]
    elif parts:
        lines: dict[FieldPath, tuple[int, int]] = {
            (place,): (part.location.line or 1, part.location.column or 1) for place, part in enumerate(parts)
        }
        location = Location(parts[0].location.file, parts[0].location.line, positions=lines)
        yield replace(parts[0], data=[part.data for part in parts], location=location)


def _autorubric(entry: Entry) -> Iterable[Any]:
    """Return the rubric, or that of each submission, with its criteria in one list and their groups."""
    data = entry.data if isinstance(entry.data, dict) else {}
    shared: Row = {name: data[name] for name in ("name", "prompt", "reference_submission") if name in data}
    has_rubric = not isinstance(entry.data, dict) or "items" not in data or data.get("rubric") is not None
    flat = _flattened(entry, entry.data, ()) if has_rubric else None
    if not isinstance(data.get("items"), list):
        return [{**shared, **(flat or {})}]
    made = []
    for place, item in enumerate(data["items"]):
        path: FieldPath = ("items", place)
        own = item.get("rubric") if isinstance(item, dict) else None
        rubric = _flattened(entry, own, (*path, "rubric")) if own is not None else flat
        if not isinstance(item, dict):
            entry.expected("dict_type", "a submission", item, path)
        elif rubric is None:
            entry.add("missing", "expected a rubric, of the data set or of the item", path)
        else:
            number = {"number": f"-{place + 1}" if own is not None else ""}
            made.append({**shared, **rubric, **number, "item": Placed(item, path)})
    return made


def _flattened(entry: Entry, data: Any, path: FieldPath) -> Row:
    guidelines = data.get("guidelines") if isinstance(data, dict) else None
    if isinstance(data, dict) and isinstance(data.get("rubric"), dict):
        path, data = (*path, "rubric"), data["rubric"]
        guidelines = guidelines or data.get("guidelines")
    if isinstance(data, dict) and "requirement" in data:
        return {"criteria": [Placed({**data, "group": []}, path)], "guidelines": guidelines}
    if isinstance(data, dict):
        name = next((one for one in ("rubric", "sections", "criteria") if one in data), "criteria")
        path, data = (*path, name), data.get(name)
    if not isinstance(data, list) or not data:
        entry.expected("list_type", "a list of criteria or sections", data, path)
        return {}
    flat: list[Any] = []
    for place, item in enumerate(data):
        inner = item.get("criteria") if isinstance(item, dict) else None
        title = str(item.get("name") or item.get("title") or "") if isinstance(inner, list) else ""
        for number, one in enumerate(inner if isinstance(inner, list) else [item]):
            where = (*path, place, "criteria", number) if isinstance(inner, list) else (*path, place)
            if not isinstance(one, dict):
                entry.expected("model_type", "a criterion", one, where)
            else:
                flat.append(Placed({**one, "group": [title] if title else []}, where))
    if not flat and not entry.errors:
        entry.add("too_short", "expected at least one criterion", path)
    return {"criteria": flat, "guidelines": guidelines}


def _bare_criteria(first: Any) -> list[Row]:
    """Return the criteria of a rubric of AutoRubric's form; none for other data."""
    criteria: list[Row] = _flattened(Entry(None, Location("")), first, ()).get("criteria", [])
    return criteria if all("requirement" in one for one in criteria) else []


def _is_autorubric(first: Any) -> bool:
    if isinstance(first, dict) and isinstance(first.get("items"), list) and "rubric" in first:
        return True
    return bool(_bare_criteria(first))


def _is_ldc(first: Any) -> bool:
    """Return whether the criteria have weights and requirements, and no more."""
    plain = [one.keys() == {"weight", "requirement", "group"} for one in _bare_criteria(first)]
    others = isinstance(first, dict) and first.keys() & {"items", "guidelines", "criteria"}
    return bool(plain) and all(plain) and not others


DETECTORS: Mapping[str, Callable[[Any], bool]] = {"autorubric": _is_autorubric, "ldc": _is_ldc}


_AGGREGATIONS = {"weighted-mean": "weighted_mean", "weighted-sum": "ldc_raw", "all-pass": "multichallenge_all"}
_AGGREGATIONS |= {"required-pass": "multichallenge_all", "any-pass": "multichallenge_any"}


def _harbor(entry: Entry) -> Iterable[Any]:
    """Add to criteria of Harbor whether they are negated and optional, and their scale; and the formula."""
    data = entry.data
    if not isinstance(data, dict) or not isinstance(data.get("criterion"), list):
        entry.expected("list_type", "a list of criteria", None, ("criterion",))
        return []
    criteria = []
    for place, one in enumerate(data["criterion"]):
        if not isinstance(one, dict):
            entry.expected("dict_type", "a criterion", one, ("criterion", place))
            continue
        notes = one["annotations"] if isinstance(one.get("annotations"), dict) else {}
        negated = one.get("negate", "negative" in str(notes.get("type", "")).lower())
        optional = one.get("optional", "optional" in str(notes.get("importance", "")).lower())
        made = {**one, "negated": negated, "optional": optional}
        criteria.append(Placed({**made, "scale": _harbor_scale(entry, made, place)}, ("criterion", place)))
        if one.get("files"):
            note = "the files that the judge may read are not part of a rubric"
            entry.note("files", note, ("criterion", place, "files"))
    judge = data.get("judge")
    if judge and isinstance(judge, dict):
        message = f"settings of the judge are not part of a rubric: {', '.join(sorted(judge))}; see `judges add`"
        entry.note("judge", message, ("judge",))
    return [{**data, "criterion": criteria, "formula": _harbor_formula(entry, data, criteria)}]


def _harbor_scale(entry: Entry, one: Row, place: int) -> Any:
    kind, path, levels = one.get("type", "binary"), ("criterion", place), one.get("levels", [])
    if kind in ("likert", "numeric") and one["negated"]:
        message = "a number cannot be negated here: reword the criterion so that more is better, or describe levels"
        entry.add("shape", f'{message} (type = "rubric")', (*path, "negate"))
    elif kind == "likert":
        return [1, one.get("points", 5)]
    elif kind == "numeric":
        return [one.get("min", 0.0), one.get("max", 1.0)]
    elif kind == "rubric" and not (isinstance(levels, list) and 2 <= len(levels) <= 10):
        entry.expected("length", "2 to 10 levels", levels, (*path, "levels"))
    elif kind == "rubric":
        most = len(levels) - 1
        values = [1.0 - n / most if one["negated"] else n / most for n in range(most + 1)]
        made = [{"label": str(n), "value": values[n], "text": text} for n, text in enumerate(levels)]
        return Placed({"kind": "ordinal", "levels": made}, (*path, "levels"))
    elif kind != "binary":
        entry.expected("literal_error", "binary, likert, numeric or rubric", kind, (*path, "type"))
    return "binary"


def _harbor_formula(entry: Entry, data: Row, criteria: list[Any]) -> str:
    """Return the formula of the aggregation; one that no formula computes is an error."""
    scoring = data["scoring"] if isinstance(data.get("scoring"), dict) else {}
    path, given = ("scoring", "aggregation"), scoring.get("aggregation", "weighted-mean")
    aggregation = str(given).replace("_", "-")
    optional = next((one for one in criteria if one["optional"]), None)
    if aggregation == "threshold":
        message = "no formula computes the aggregation 'threshold'; import it as weighted-mean, and apply the threshold"
        entry.add("formula", f"{message} to the rewards", path)
    elif aggregation not in _AGGREGATIONS:
        entry.expected("literal_error", f"one of {', '.join([*_AGGREGATIONS, 'threshold'])}", given, path)
    elif aggregation == "required-pass" and optional is not None:
        message = "no formula computes 'required-pass' beside optional criteria"
        entry.add("formula", f"{message}; remove the optional ones, or use weighted-mean", optional.path)
    elif aggregation != "weighted-sum":
        for one in criteria:
            if isinstance(weight := one.get("weight", 1), int | float) and weight < 0:
                message = f"negative weights need aggregation 'weighted-sum', found {aggregation!r}"
                entry.add("formula", message, (*one.path, "weight"))
    if aggregation.endswith("-pass") and any(one.get("type", "binary") != "binary" for one in criteria):
        entry.note("formula", "Harbor passes a value of 1, this formula one of 0.99 and above", path)
    return _AGGREGATIONS.get(aggregation, "weighted_mean")


PREPARATIONS: Mapping[str, Callable[[Entry], Iterable[Any]]] = {
    "autorubric": _autorubric,
    "canvas": _canvas,
    "harbor": _harbor,
}
GATHERERS: Mapping[str, Callable[[InputFile], Iterator[Entry]]] = {"autorubric": _autorubric_parts}
"""Preparations that make one record of several of the file."""
