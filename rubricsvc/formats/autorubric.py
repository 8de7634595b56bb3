"""AutoRubric (arXiv 2603.00077) and rubric of The LLM Data Company: criteria of ``weight`` and ``requirement``.

A file is one rubric: a list of criteria or sections, or a mapping with ``rubric``, ``sections`` or ``criteria``; in
JSONL each line is one. AutoRubric's data sets hold a rubric, a prompt and submissions with labels. Guidelines apply to
every criterion and become its passage. An option that is not applicable is left to the judge, who may abstain; its
label is kept as a tag.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Binary, Criterion, Ordinal, Rubric, Scale, level_value
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import InvalidFileError, Location
from rubricsvc.formats.foreign import keys_of, plain_weight, rubric_in
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

_NOT_APPLICABLE = "na:"
_VERDICTS: dict[str, float | None] = {"MET": 1.0, "UNMET": 0.0, "CANNOT_ASSESS": None}
_LINES = (".jsonl", ".ndjson", ".parquet")


class _Option(ForeignModel):
    label: Text
    value: float = 0.0
    na: bool = False


class _Criterion(ForeignModel):
    requirement: Text
    weight: float = 10.0
    name: str | None = None
    options: Annotated[tuple[_Option, ...], Field(min_length=1)] | None = None
    scale_type: str = "ordinal"
    aggregation: str | None = None


class _WeightedCriterion(ForeignModel):
    requirement: Text
    weight: float


class _Submission(ForeignModel):
    submission: str
    description: str = ""
    ground_truth: list[str | None] | None = None
    ground_truth_reasons: list[str | None] | None = None
    prompt: str | None = None
    rubric: Any = None


def matches(first: Any) -> bool:
    """Return whether a file with this first record is AutoRubric's."""
    if isinstance(first, dict) and isinstance(first.get("items"), list) and "rubric" in first:
        return True
    return bool(_bare(first))


def matches_ldc(first: Any) -> bool:
    """Return whether a file with this first record is of The LLM Data Company: weights and requirements, no more."""
    criteria = _bare(first)
    plain = bool(criteria) and all(one.keys() == {"weight", "requirement"} for one in criteria)
    return plain and not (isinstance(first, dict) and first.keys() & {"items", "guidelines", "criteria"})


def _bare(data: Any) -> list[dict[str, Any]]:
    """Return the criteria of a rubric if it has some of this form; none for other data."""
    if isinstance(data, dict) and "requirement" in data:
        return [data]
    if isinstance(data, dict):
        data = next((data[name] for name in ("rubric", "sections", "criteria") if name in data), None)
        if isinstance(data, dict):
            return _bare(data)
    listed = data if isinstance(data, list) else []
    criteria = [one for item in listed for one in (_inner(item) if isinstance(item, dict) else ())]
    return criteria if criteria and all("requirement" in one for one in criteria) else []


def _inner(item: dict[str, Any]) -> list[dict[str, Any]]:
    inner = item.get("criteria", [item])
    return [one for one in inner if isinstance(one, dict)] if isinstance(inner, list) else []


def read(file: InputFile) -> Iterator[Record]:
    """Yield the record of each rubric, or of each submission of a data set."""
    yield from file.parse(_records, _rubrics(file))


def read_ldc(file: InputFile) -> Iterator[Record]:
    """Yield the record of each rubric, with the formula ``ldc``."""
    yield from file.parse(_ldc_record, _rubrics(file))


def _rubrics(file: InputFile) -> Iterator[Entry]:
    """Yield an entry for each rubric: criteria or sections that are the records of a document are one rubric."""
    several = file.path.suffix.lower() in _LINES
    parts: list[Entry] = []
    for entry in file.entries():
        is_part = isinstance(entry.data, dict) and _is_part(entry.data)
        if is_part and not several:
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


def _is_part(data: dict[str, Any]) -> bool:
    """Return whether this is a criterion or a section, and not a whole rubric."""
    return "requirement" in data or ("criteria" in data and not data.keys() & {"guidelines", "items"})


def _records(entry: Entry) -> Iterator[Record]:
    rubric = _rubric(entry, entry.data, ()) if _has_rubric(entry.data) else None
    data = entry.data if isinstance(entry.data, dict) else {}
    id_ = str(data["name"]) if data.get("name") else None
    name = rubric_name(id_ or entry.name)
    prompt = _prompt(data, {})
    if not isinstance(data.get("items"), list):
        yield Record(prompt, rubric, name=name, location=entry.location)
        return
    for place, item in enumerate(data["items"]):
        path = ("items", place)
        given = entry.build(_Submission, item, path)
        own = _rubric(entry, given.rubric, (*path, "rubric")) if given.rubric is not None else rubric
        if own is None:
            entry.add("missing", "expected a rubric, of the data set or of the item", path)
            continue
        whose = _prompt(data, item)
        completions = (Completion(text=given.submission, policy=given.description[:200]),) if whose else ()
        labels = tuple(_labels(entry, own, given, path))
        own_name = name if given.rubric is None else rubric_name(f"{name}-{place + 1}")
        yield Record(whose, own, completions, labels, name=own_name, location=entry.location)


def _has_rubric(data: Any) -> bool:
    return not isinstance(data, dict) or "items" not in data or data.get("rubric") is not None


def _prompt(data: dict[str, Any], item: dict[str, Any]) -> Prompt | None:
    text = item.get("prompt") or data.get("prompt")
    reference = item.get("reference_submission") or data.get("reference_submission")
    return Prompt.of(str(text), reference=str(reference) if reference else None) if text else None


def _rubric(entry: Entry, data: Any, path: FieldPath) -> Rubric:
    guidelines = data.get("guidelines") if isinstance(data, dict) else None
    flat, inner = _flattened(entry, data, path)
    criteria = []
    guidelines = guidelines or inner
    built = [(place, entry.build(_Criterion, one, place), group) for place, one, group in flat]
    for key, (place, one, group) in zip(keys_of([one.name for _, one, _ in built]), built, strict=True):
        extra: tuple[str, ...] = (f"scale_type:{one.scale_type}",) if one.scale_type != "ordinal" else ()
        extra += (f"aggregation:{one.aggregation}",) if one.aggregation else ()
        extra += tuple(_NOT_APPLICABLE + option.label for option in one.options or () if option.na)
        fields = {"key": key, "text": one.requirement, "weight": one.weight, "tags": extra, "group": group}
        passages = (str(guidelines),) if guidelines and str(guidelines).strip() else None
        criteria.append(entry.make(Criterion, place, scale=_scale(entry, one, place), passages=passages, **fields))
    return entry.make(Rubric, path, criteria=tuple(criteria))


def _flattened(entry: Entry, data: Any, path: FieldPath) -> tuple[list[tuple[FieldPath, Any, tuple[str, ...]]], Any]:
    """Return the criteria with their paths and groups, and the guidelines inside ``rubric``."""
    guidelines = None
    if isinstance(data, dict) and isinstance(data.get("rubric"), dict):
        path, data = (*path, "rubric"), data["rubric"]
        guidelines = data.get("guidelines")
    if isinstance(data, dict) and "requirement" in data:
        return [(path, data, ())], guidelines
    if isinstance(data, dict):
        name = next((one for one in ("rubric", "sections", "criteria") if one in data), "criteria")
        path, data = (*path, name), data.get(name)
    if not isinstance(data, list) or not data:
        entry.expected("list_type", "a list of criteria or sections", data, path)
        raise InvalidFileError(entry.errors)
    flat: list[tuple[FieldPath, Any, tuple[str, ...]]] = []
    for place, item in enumerate(data):
        if isinstance(item, dict) and isinstance(item.get("criteria"), list):
            title = str(item.get("name") or item.get("title") or "")
            group = (title,) if title else ()
            flat += (((*path, place, "criteria", n), one, group) for n, one in enumerate(item["criteria"]))
        else:
            flat.append(((*path, place), item, ()))
    if not flat:
        entry.add("too_short", "expected at least one criterion", path)
        raise InvalidFileError(entry.errors)
    return flat, guidelines


def _scale(entry: Entry, one: _Criterion, path: FieldPath) -> Scale:
    applicable = [option for option in one.options or () if not option.na]
    if one.options is None:
        return Binary()
    levels = tuple({"label": option.label, "value": option.value} for option in applicable)
    return entry.make(Ordinal, (*path, "options"), levels=levels)


def _labels(entry: Entry, rubric: Rubric, given: _Submission, path: FieldPath) -> Iterator[Label]:
    truth, reasons = given.ground_truth or [], given.ground_truth_reasons or []
    if truth and len(truth) != len(rubric.criteria):
        message = f"expected one for each of the {len(rubric.criteria)} criteria, found {len(truth)}"
        entry.add("length", message, (*path, "ground_truth"))
        return
    for place, (criterion, verdict) in enumerate(zip(rubric.criteria, truth, strict=False)):
        note = reasons[place] if place < len(reasons) else None
        try:
            value = _value(criterion, verdict)
        except InvalidError as error:
            entry.add("unknown_level", str(error), (*path, "ground_truth", place))
            continue
        yield Label(criterion=criterion.key, annotator="dataset", value=value, note=note)


def _value(criterion: Criterion, verdict: str | None) -> float | None:
    if verdict is None or _NOT_APPLICABLE + verdict in criterion.tags:
        return None
    if isinstance(criterion.scale, Binary) and verdict in _VERDICTS:
        return _VERDICTS[verdict]
    return level_value(criterion.scale, verdict)


def _ldc_record(entry: Entry) -> Iterator[Record]:
    flat, _ = _flattened(entry, entry.data, ())
    criteria = tuple(
        entry.make(Criterion, path, key=f"c{n}", text=one.requirement, weight=one.weight, group=group)
        for n, (path, data, group) in enumerate(flat, start=1)
        for one in (entry.build(_WeightedCriterion, data, path),)
    )
    rubric = entry.make(Rubric, (), criteria=criteria, formula="ldc")
    yield Record(None, rubric, name=rubric_name(entry.name), location=entry.location)


def dump(record: Record) -> Iterator[Row]:
    """Yield the row of a rubric, with its prompt where it has one."""
    rubric = rubric_in(record, "autorubric")
    row: Row = {"rubric": [_plain(criterion) for criterion in rubric.criteria]}
    passages = {criterion.passages for criterion in rubric.criteria}
    if len(passages) == 1 and (shared := passages.pop()) is not None and len(shared) == 1:
        row = {"guidelines": shared[0], **row}
    if record.prompt is not None:
        row = {"prompt": record.prompt.text, "reference_submission": record.prompt.reference, **row}
    yield {"name": record.name, **row}


def _plain(criterion: Criterion) -> Row:
    data: Row = {"name": criterion.key, "weight": plain_weight(criterion.weight), "requirement": criterion.text}
    if isinstance(criterion.scale, Ordinal):
        options = [{"label": level.label, "value": level.value} for level in criterion.scale.levels]
        absent = [tag.removeprefix(_NOT_APPLICABLE) for tag in criterion.tags if tag.startswith(_NOT_APPLICABLE)]
        data["options"] = [*options, *({"label": label, "value": 0.0, "na": True} for label in absent)]
        fields = (tag.partition(":") for tag in criterion.tags)
        data |= {name: value for name, _, value in fields if name in ("scale_type", "aggregation")}
    return data


def dump_ldc(record: Record) -> Iterator[Row]:
    """Yield the row of a rubric."""
    rubric = rubric_in(record, "ldc")
    criteria = [{"weight": plain_weight(one.weight), "requirement": one.text} for one in rubric.criteria]
    yield {"rubric": criteria}
