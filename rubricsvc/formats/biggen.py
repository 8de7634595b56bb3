"""BiGGen Bench (arXiv 2406.05761): one criterion for each instance, with a description for each score from 1 to 5."""

from __future__ import annotations

from collections.abc import Iterator

from rubricsvc.core.prompt import Completion, Message, Prompt
from rubricsvc.core.rubric import Criterion, Level, Ordinal, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats.foreign import prompt_in, rubric_in
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

_PLACEHOLDER = "sample-model"
"""The model of the benchmark's own file: its responses are a placeholder."""
_SCORES = range(1, 6)


class _ScoreRubric(ForeignModel):
    criteria: Text
    score1_description: str
    score2_description: str
    score3_description: str
    score4_description: str
    score5_description: str


class _Instance(ForeignModel):
    id: Text
    capability: str = ""
    task: str = ""
    system_prompt: str = ""
    input: Text
    reference_answer: str | None = None
    score_rubric: _ScoreRubric
    response: str | None = None
    response_model_name: str = ""


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of an instance."""
    given = entry.build(_Instance, entry.data)
    system = (Message(role="system", content=given.system_prompt),) if given.system_prompt else ()
    prompt = Prompt(
        messages=(*system, Message(role="user", content=given.input)),
        reference=given.reference_answer or None,
        tags=tuple(filter(None, (given.capability, given.task))),
    )
    scale = Ordinal(
        levels=tuple(
            Level(label=str(n), value=(n - 1) / 4, text=getattr(given.score_rubric, f"score{n}_description"))
            for n in _SCORES
        )
    )
    rubric = Rubric(
        criteria=(Criterion(key="score", text=given.score_rubric.criteria, scale=scale),), formula="prometheus"
    )
    completions: tuple[Completion, ...] = ()
    if given.response is not None and given.response_model_name != _PLACEHOLDER:
        completions = (Completion(text=given.response, policy=given.response_model_name),)
    name = rubric_name(f"biggen-{given.id}")
    yield Record(prompt, rubric, completions, id=given.id, name=name, location=entry.location)


def dump(record: Record) -> Iterator[Row]:
    """Yield the row of a rubric of one criterion with five levels."""
    rubric, prompt = rubric_in(record, "biggen", pitfalls=False), prompt_in(record, "biggen")
    scale = rubric.criteria[0].scale
    ordered = sorted(scale.levels, key=lambda level: level.value) if isinstance(scale, Ordinal) else []
    if len(rubric.criteria) > 1 or len(ordered) != len(_SCORES):
        hint = "choose a format of several criteria, such as verl or autorubric"
        raise InvalidError("biggen has one criterion with five levels", hint=hint, path="criteria")
    descriptions = {f"score{n}_description": level.text for n, level in zip(_SCORES, ordered, strict=True)}
    system = prompt.messages[0].content if prompt.messages[0].role == "system" else ""
    rest = prompt.model_copy(update={"messages": prompt.messages[bool(system) :]})
    capability, task, *_ = (*prompt.tags, "", "")
    yield {
        "id": record.id or record.name or "1",
        "capability": capability,
        "task": task,
        "instance_idx": 0,
        "system_prompt": system,
        "input": rest.text if rest.messages else "",
        "reference_answer": prompt.reference or "",
        "score_rubric": {"criteria": rubric.criteria[0].text, **descriptions},
    }
