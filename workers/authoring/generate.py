"""Generation of a rubric for one prompt by a model."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from rubricsvc.core import strict_json
from rubricsvc.core.judge import Sampling
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError, UnavailableError
from workers.engines.base import Engine, EngineRequest, Failure, Question, Reply
from workers.judges.template import TextTemplate, sections
from workers.judges.untrusted import clean, fence

_FILE = Path(__file__).parent / "prompts" / "generate.txt"
_NUMBERED = re.compile(r"\s*(\d{1,2})[.)]\s+(?:\[([+-]?\d{1,3}(?:\.\d{1,6})?)\]\s*)?(\S.*)")
_CODE_FENCE = re.compile(r"\A```(?:json)?\n(.*)\n```\Z", re.DOTALL)
_MIN_CRITERIA, _MAX_CRITERIA = 2, 10


class GeneratedCriterion(BaseModel):
    """One criterion of a reply. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=12, max_length=400)]
    weight: Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)] = 1.0


class _GeneratedRubric(BaseModel):
    model_config = ConfigDict(extra="forbid")

    criteria: list[GeneratedCriterion]


_JSON: TypeAdapter[_GeneratedRubric | list[GeneratedCriterion]] = TypeAdapter(
    _GeneratedRubric | list[GeneratedCriterion]
)


async def generate(engine: Engine, prompt: Prompt, *, seed: int, attempts: int = 10, max_tokens: int = 256) -> Rubric:
    """Return a rubric of 2 to 10 judged criteria, written by the model.

    A reply that is not a rubric is retried with the next seed, up to ``attempts`` requests.

    Raises:
        UnavailableError: The model did not answer.
        InvalidError: None of its replies was a rubric; ``hint`` has the last one.
    """
    system, shared, question = _template()
    tail = question.fill({"prompt": fence("question", clean(prompt.text).text)})
    error_text = raw = ""
    for attempt in range(attempts):
        sampling = Sampling(temperature=0.7, top_p=0.9, max_tokens=max_tokens, seed=seed + attempt)
        (reply,) = await engine.ask(EngineRequest(system, shared, (Question(tail),), sampling))
        if isinstance(reply, Failure):
            raise UnavailableError(f"the model did not answer: {reply.reason}: {reply.detail}", hint=reply.raw or "")
        try:
            return parse(reply)
        except ValueError as error:
            error_text, raw = str(error), reply.text
    raise InvalidError(f"no rubric in {attempts} replies; the last: {error_text}", hint=f"the model wrote: {raw}")


def parse(reply: Reply) -> Rubric:
    """Return the rubric in a reply: lines ``1. [weight] text``, or JSON, ``[{"text": …, "weight": …}, …]``.

    The list is numbered from 1; text before and after it is ignored. Duplicates are left out, and so is the last line
    of a truncated reply.

    Raises:
        ValueError: The reply is not a rubric.
    """
    text = clean(reply.text).text.strip()
    fenced = _CODE_FENCE.match(text)
    body = fenced[1].strip() if fenced else text
    lines = _from_json(body) if body.startswith(("[", "{")) else _from_list(body, reply.truncated)
    by_text: dict[str, GeneratedCriterion] = {}
    for line in lines:
        by_text.setdefault(_normalize(line.text), line)
    distinct = list(by_text.values())
    if not _MIN_CRITERIA <= len(distinct) <= _MAX_CRITERIA:
        raise ValueError(f"expected {_MIN_CRITERIA} to {_MAX_CRITERIA} different criteria, found {len(distinct)}")
    if not any(line.weight > 0 for line in distinct) or not all(line.weight for line in distinct):
        raise ValueError("expected weights other than 0, and at least one positive")
    copied = by_text.keys() & {_normalize(line.text) for line in _from_list(_template()[1], truncated=False)}
    if copied:
        raise ValueError(f"a criterion is copied from the example: {copied.pop()!r}")
    return Rubric(
        criteria=tuple(Criterion(key=f"c{n}", text=line.text, weight=line.weight) for n, line in enumerate(distinct, 1))
    )


def _from_json(text: str) -> list[GeneratedCriterion]:
    value = _JSON.validate_python(strict_json.parse(text))
    return value.criteria if isinstance(value, _GeneratedRubric) else value


def _from_list(text: str, truncated: bool) -> list[GeneratedCriterion]:
    criteria: list[GeneratedCriterion] = []
    rows = text.splitlines()
    for place, row in enumerate(rows):
        match = _NUMBERED.fullmatch(row)
        if match and int(match[1]) == len(criteria) + 1:
            if truncated and place == len(rows) - 1:
                break
            criteria.append(GeneratedCriterion(text=match[3].replace("**", "").strip(), weight=float(match[2] or 1.0)))
        elif criteria and row.strip():
            break
    return criteria


def _normalize(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


@lru_cache
def _template() -> tuple[str, str, TextTemplate]:
    parts = sections(_FILE.read_text(encoding="utf-8"))
    return parts["system"], parts["shared"] + "\n\n", TextTemplate(parts["question"])
