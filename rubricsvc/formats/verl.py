"""verl's rubric rows (RuscaRL, RubricHub, verl-rubric): ``prompt`` and ``reward_model.rubrics`` in JSONL or Parquet.

A criterion has points and tags, a mapping or a list of ``key:value``. With ``verifier: rule`` a function decides it: it
becomes a check where there is one that decides the same, else a judged criterion with a note. The reward is
max(0, Σ_met points / Σ_{>0} points), which is `weighted_mean`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Message, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.formats.foreign import messages_of, prompt_in, rubric_in
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

_RULE = ("verifier", "function", "parameters")
_IFEVAL = {
    "KeywordChecker": "keywords:existence",
    "KeywordFrequencyChecker": "keywords:frequency",
    "ForbiddenWords": "keywords:forbidden_words",
    "LetterFrequencyChecker": "keywords:letter_frequency",
    "ResponseLanguageChecker": "language:response_language",
    "NumberOfSentences": "length_constraints:number_sentences",
    "ParagraphChecker": "length_constraints:number_paragraphs",
    "NumberOfWords": "length_constraints:number_words",
    "ParagraphFirstWordCheck": "length_constraints:nth_paragraph_first_word",
    "PlaceholderChecker": "detectable_content:number_placeholders",
    "PostscriptChecker": "detectable_content:postscript",
    "BulletListChecker": "detectable_format:number_bullet_lists",
    "ConstrainedResponseChecker": "detectable_format:constrained_response",
    "HighlightSectionChecker": "detectable_format:number_highlighted_sections",
    "SectionChecker": "detectable_format:multiple_sections",
    "JsonFormat": "detectable_format:json_format",
    "TitleChecker": "detectable_format:title",
    "TwoResponsesChecker": "combination:two_responses",
    "RepeatPromptThenAnswer": "combination:repeat_prompt",
    "EndChecker": "startend:end_checker",
    "CapitalWordFrequencyChecker": "change_case:capital_word_frequency",
    "CapitalLettersEnglishChecker": "change_case:english_capital",
    "LowercaseLettersEnglishChecker": "change_case:english_lowercase",
    "CommaChecker": "punctuation:no_comma",
    "QuotationChecker": "startend:quotation",
}
"""Instructions of IFEval by the class that decides them there."""
_CHECKER = {instruction: name for name, instruction in _IFEVAL.items()}


class _Item(ForeignModel):
    criterion: Text
    points: float = 1.0
    tags: dict[str, Any] | list[str] | None = None


class _RewardModel(ForeignModel):
    rubrics: Annotated[tuple[_Item, ...], Field(min_length=1)]
    ground_truth: Any = None


class _Line(ForeignModel):
    prompt: Annotated[tuple[Message, ...], Field(min_length=1)]
    reward_model: _RewardModel
    data_source: str | None = None
    ability: str | None = None
    extra_info: dict[str, Any] | None = None


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of a row."""
    line = entry.build(_Line, _decoded(entry.data))
    criteria = tuple(_criterion(entry, place, item) for place, item in enumerate(line.reward_model.rubrics))
    truth = line.reward_model.ground_truth
    prompt = Prompt(
        messages=line.prompt,
        reference=truth if isinstance(truth, str) and truth else None,
        tags=tuple(filter(None, (line.data_source, line.ability))),
    )
    rubric = entry.make(Rubric, ("reward_model", "rubrics"), criteria=criteria)
    id_ = (line.extra_info or {}).get("index")
    known = str(id_) if isinstance(id_, str | int) and not isinstance(id_, bool) and id_ != "" else None
    name = rubric_name(f"verl-{known or entry.name}")
    yield Record(prompt, rubric, id=known, name=name, location=entry.location)


def _decoded(data: Any) -> Any:
    """Return the row with ``reward_model`` as a mapping: some write it as JSON, and a prompt as one text."""
    if isinstance(data, dict) and isinstance(data.get("reward_model"), str):
        try:
            data = {**data, "reward_model": json.loads(data["reward_model"])}
        except ValueError:
            return data
    if isinstance(data, dict) and isinstance(data.get("prompt"), str):
        data = {**data, "prompt": [{"role": "user", "content": data["prompt"]}]}
    return data


def _criterion(entry: Entry, place: int, item: _Item) -> Criterion:
    path = ("reward_model", "rubrics", place)
    tags, listed = _tags(item.tags)
    key = str(tags.pop("key", None) or f"c{place + 1}")
    own, check = _json(tags.pop("check", None)), None
    if isinstance(own, dict):
        check = entry.make(Check, (*path, "tags", "check"), **own)
    elif tags.get("verifier") == "rule" and tags.get("function"):
        given = tags.get("parameters")
        given = given if isinstance(given, dict) else _json(given)
        check = _check(str(tags["function"]), given if isinstance(given, dict) else {})
        if check is None:
            message = f"no check decides the function {tags['function']!r} with these parameters; a judge decides it"
            entry.note("rule", f"{message}: write a check into the rubric instead (docs/checks.md)", (*path, "tags"))
    if check is not None or tags.get("verifier") == "llm":
        tags = {name: value for name, value in tags.items() if name not in _RULE}
    fields = {"key": key, "text": item.criterion, "weight": item.points, "check": check}
    rest = (f"{name}:{value if isinstance(value, str) else strict_json.dump(value)}" for name, value in tags.items())
    return entry.make(Criterion, path, tags=(*rest, *listed), **fields)


def _tags(given: dict[str, Any] | list[str] | None) -> tuple[dict[str, Any], list[str]]:
    """Return the fields that tags have by name, and the other tags."""
    if isinstance(given, dict):
        named = {name: value for name, value in given.items() if value is not None}
        listed = named.pop("tags", [])
        return named, [str(one) for one in listed] if isinstance(listed, list) else []
    known = (*_RULE, "key", "check")
    pairs = [(text, *text.partition(":")[::2]) for text in given or ()]
    return {name: value for _, name, value in pairs if name in known}, [t for t, name, _ in pairs if name not in known]


def _json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _check(function: str, parameters: Mapping[str, Any]) -> Check | None:
    """Return the check that decides as a function of verl-rubric does, if there is one."""
    given = {name: value for name, value in parameters.items() if value is not None}
    match function, given:
        case "math_verify", {"answer": answer}:
            return Check(name="math", args={"answer": str(answer)})
        case "word_count_range", {"min_count": low, "max_count": high}:
            return Check(name="words", args={"min": int(low), "max": int(high), "partial": False})
    if function in _IFEVAL:
        kwargs = {  # Parquet and JSON of other writers make 2 a 2.0
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in given.items()
        }
        return Check(name="ifeval", args={"instruction_id": _IFEVAL[function], "kwargs": kwargs})
    return None


def dump(record: Record) -> Iterator[Row]:
    """Yield the row of a rubric; a check becomes a rule where verl-rubric has its function."""
    rubric, prompt = rubric_in(record, "verl"), prompt_in(record, "verl")
    items: list[Row] = []
    for place, criterion in enumerate(rubric.criteria, start=1):
        tags: Row = {"key": criterion.key} if criterion.key != f"c{place}" else {}
        rule = _rule(criterion.check) if criterion.check else None
        tags |= {"verifier": "rule", "function": rule[0], "parameters": rule[1]} if rule else {"verifier": "llm"}
        if criterion.check and not rule:  # a judge of theirs decides it; here it is a check again
            tags["check"] = strict_json.dump(criterion.check.model_dump(mode="json"))
        if criterion.tags:
            tags["tags"] = list(criterion.tags)
        items.append({"criterion": criterion.text, "points": criterion.weight, "tags": tags})
    source, ability, *_ = (*prompt.tags, "", "")
    messages = messages_of(prompt)
    model = {"style": "rubric", "rubrics": items, "ground_truth": prompt.reference or ""}
    extra: Row = {"prompt": messages, "reward_model": model} | ({"index": record.id} if record.id else {})
    row: Row = {"prompt": messages, "data_source": source, "ability": ability, "reward_model": model}
    yield row | {"extra_info": extra}


def _rule(check: Check) -> tuple[str, Row] | None:
    """Return the function of verl-rubric, or the class of IFEval, that decides as a check does; None without one."""
    match check.name, check.args:
        case "math", {"answer": answer, **others} if not others:
            return "math_verify", {"answer": answer}
        case "words", {"min": low, "max": high, "partial": False, **others} if not others:
            return "word_count_range", {"min_count": low, "max_count": high}
        case "ifeval", {"instruction_id": str(name), "kwargs": dict(kwargs), **others} if (
            name in _CHECKER and not others
        ):
            return _CHECKER[name], kwargs
    return None
