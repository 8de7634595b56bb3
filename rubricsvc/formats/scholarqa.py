"""ScholarQA-CS, as in ScholarQABench (arXiv 2411.14199): weighted ingredients of experts, with evidence.

A rubric has four fixed properties beside its ingredients: length (a check of the words), expertise, citations and
excerpts (judged). The files of answers (a system's, and people's with their sources) become completions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, JsonValue

from rubricsvc.core.prompt import Completion, Document, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.formats.foreign import prompt_in, rubric_in
from rubricsvc.formats.native import numbered_keys, rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

Weight = Annotated[float, Field(ge=0, le=1e9)]
_FIXED = {
    "length": "Has the length that was asked for.",
    "expertise": "Is written for readers with the expertise that the question implies.",
    "citations": "Supports its claims with citations.",
    "excerpts": "Quotes the passages of its sources that support its claims.",
}


class _Property(ForeignModel):
    name: Text
    criterion: Text
    weight: Weight
    evidence: tuple[str, ...] = ()


class _Config(ForeignModel):
    question: Text
    low_length: int = 0
    high_length: int | None = None
    length_weight: Weight = 0.0
    expertise_weight: Weight = 0.0
    citations_weight: Weight = 0.0
    excerpts_weight: Weight = 0.0
    other_properties: tuple[_Property, ...]


class _Metric(ForeignModel):
    config: _Config


class _Case(ForeignModel):
    initial_prompt: Text
    case_id: str | None = None
    annotator: str | None = None
    agreement: bool = False
    metric_config: _Metric


class _Answers(ForeignModel):
    question: Text
    src_answers: dict[str, Any]


class _Source(ForeignModel):
    title: str | None = None
    text: str | None = None


class _HumanAnswer(ForeignModel):
    input: Text
    output: str
    ctxs: tuple[_Source, ...] = ()
    id: str | int | None = None


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of a rubric, of the answers of several systems, or of a person's answer."""
    if isinstance(entry.data, dict) and "src_answers" in entry.data:
        yield _answers(entry)
    elif isinstance(entry.data, dict) and "ctxs" in entry.data:
        yield _human_answer(entry)
    else:
        yield _case(entry)


def _case(entry: Entry) -> Record:
    case = entry.build(_Case, entry.data)
    config = case.metric_config.config
    keys = numbered_keys([*_FIXED, *(one.name for one in config.other_properties)])[len(_FIXED) :]
    tags = ("agreement",) * case.agreement + ((case.annotator,) if case.annotator else ())
    criteria = []
    for place, (key, one) in enumerate(zip(keys, config.other_properties, strict=True)):
        fields = {"key": key, "text": one.criterion, "weight": one.weight, "passages": one.evidence or None}
        path = ("metric_config", "config", "other_properties", place)
        criteria.append(entry.make(Criterion, path, tags=tags, **fields))
    for key, text in _FIXED.items():
        if weight := getattr(config, f"{key}_weight"):
            bounds: dict[str, JsonValue] = {"min": config.low_length}
            if config.high_length:
                bounds["max"] = config.high_length
            check = Check(name="words", args=bounds) if key == "length" else None
            criteria.append(Criterion(key=key, text=text, weight=weight, check=check))
    name = "-".join(filter(None, ("scholarqa", case.case_id or entry.name, case.annotator)))
    rubric = entry.make(Rubric, ("metric_config",), criteria=tuple(criteria))
    prompt = Prompt.of(case.initial_prompt)
    return Record(prompt, rubric, id=case.case_id, name=rubric_name(name), location=entry.location)


def _answers(entry: Entry) -> Record:
    given = entry.build(_Answers, entry.data)
    completions = tuple(
        Completion(text=text, policy=system) for system, answer in given.src_answers.items() if (text := _text(answer))
    )
    return Record(Prompt.of(given.question), None, completions, location=entry.location)


def _text(answer: Any) -> str:
    """Return an answer, which is a text or a list of sections with a title and a text."""
    if isinstance(answer, str):
        return answer
    sections = answer if isinstance(answer, list) else [answer]
    known = [one for one in sections if isinstance(one, dict)]
    return "\n\n".join(f"## {one.get('title') or ''}\n\n{one.get('text') or ''}" for one in known).strip()


def _human_answer(entry: Entry) -> Record:
    given = entry.build(_HumanAnswer, entry.data)
    documents = [
        Document(id=str(number), text=source.text, title=source.title or "")
        for number, source in enumerate(given.ctxs)
        if source.text
    ]
    prompt = Prompt.of(given.input, documents=documents)
    id_ = str(given.id) if given.id not in (None, "") else None
    return Record(prompt, None, (Completion(text=given.output, policy="expert"),), id=id_, location=entry.location)


def dump(record: Record) -> Iterator[Row]:
    """Yield the row of a rubric."""
    rubric = rubric_in(record, "scholarqa", pitfalls=False)
    question = prompt_in(record, "scholarqa").text
    config: Row = {"question": question, "low_length": 0, "high_length": None, "other_properties": []}
    config |= {f"{key}_weight": 0.0 for key in _FIXED}
    tags: tuple[str, ...] = ()
    for criterion in rubric.criteria:
        if criterion.key in _FIXED and (criterion.check is not None) == (criterion.key == "length"):
            config[f"{criterion.key}_weight"] = criterion.weight
            if criterion.check is not None:
                config["low_length"] = criterion.check.args.get("min", 0)
                config["high_length"] = criterion.check.args.get("max")
            continue
        tags = tags or criterion.tags
        evidence = list(criterion.passages or ())
        fields = {"name": criterion.key, "criterion": criterion.text, "weight": criterion.weight, "evidence": evidence}
        config["other_properties"].append(fields)
    row: Row = {"initial_prompt": question, "metric_config": {"name": "rubric_corpusqa_generic", "config": config}}
    row |= {"case_id": record.id, "annotator": next((tag for tag in tags if tag != "agreement"), None)}
    yield row | {"agreement": "agreement" in tags}
