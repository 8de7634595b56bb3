"""Ask a model for a rubric for one prompt, and take its reply only where it is one."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

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
_FEWEST, _MOST = 2, 10


class Line(BaseModel):
    """One criterion as a model gives it. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=12, max_length=400)]
    weight: Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)] = 1.0


class _Lines(BaseModel):
    model_config = ConfigDict(extra="forbid")

    criteria: list[Line]


_JSON: TypeAdapter[_Lines | list[Line]] = TypeAdapter(_Lines | list[Line])


async def generate(engine: Engine, prompt: Prompt, *, seed: int, tries: int = 10, max_tokens: int = 256) -> Rubric:
    """A rubric of 2 to 10 judged criteria, written by the model.

    A reply that is no rubric is asked for again, with the next seed, up to ``tries`` times.

    Raises:
        UnavailableError: the model did not answer.
        InvalidError: none of its replies was a rubric; ``hint`` holds the last one.
    """
    system, shared, question = _template()
    tail = question.fill({"prompt": fence("question", clean(prompt.text).text)})
    why = raw = ""
    for attempt in range(tries):
        sampling = Sampling(temperature=0.7, top_p=0.9, max_tokens=max_tokens, seed=seed + attempt)
        (reply,) = await engine.ask(EngineRequest(system, shared, (Question(tail),), sampling))
        if isinstance(reply, Failure):
            raise UnavailableError(f"the model did not answer: {reply.reason}: {reply.detail}", hint=reply.raw or "")
        try:
            return parse(reply)
        except ValueError as error:
            why, raw = str(error), reply.text
    raise InvalidError(f"no rubric in {tries} replies; the last: {why}", hint=f"the model wrote: {raw}")


def parse(reply: Reply) -> Rubric:
    """The rubric in a reply: lines ``1. [weight] text``, or JSON, ``[{"text": …, "weight": …}, …]``.

    The list is numbered from 1; what stands before and after it is not read. A line that says the same as an earlier
    one is left out, and so is the last one where the reply was cut off in it.

    Raises:
        ValueError: it is not a rubric.
    """
    text = clean(reply.text).text.strip()
    fenced = _CODE_FENCE.match(text)
    body = fenced[1].strip() if fenced else text
    lines = _from_json(body) if body.startswith(("[", "{")) else _from_list(body, reply.truncated)
    by_words: dict[str, Line] = {}
    for line in lines:
        by_words.setdefault(_words(line.text), line)
    distinct = list(by_words.values())
    if not _FEWEST <= len(distinct) <= _MOST:
        raise ValueError(f"{len(distinct)} different criteria; there must be {_FEWEST} to {_MOST}")
    if not any(line.weight > 0 for line in distinct) or not all(line.weight for line in distinct):
        raise ValueError("a weight is 0, or none is positive")
    copied = by_words.keys() & {_words(line.text) for line in _from_list(_template()[1], truncated=False)}
    if copied:
        raise ValueError(f"a criterion is copied from the example: {copied.pop()!r}")
    return Rubric(
        criteria=tuple(Criterion(key=f"c{n}", text=line.text, weight=line.weight) for n, line in enumerate(distinct, 1))
    )


def _from_json(text: str) -> list[Line]:
    try:
        found = _JSON.validate_python(json.loads(text))
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error
    return found.criteria if isinstance(found, _Lines) else found


def _from_list(text: str, truncated: bool) -> list[Line]:
    found: list[Line] = []
    rows = text.splitlines()
    for place, row in enumerate(rows):
        match = _NUMBERED.fullmatch(row)
        if match and int(match[1]) == len(found) + 1:
            if truncated and place == len(rows) - 1:
                break
            found.append(Line(text=match[3].replace("**", "").strip(), weight=float(match[2] or 1.0)))
        elif found and row.strip():
            break
    return found


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


@lru_cache
def _template() -> tuple[str, str, TextTemplate]:
    found = sections(_FILE.read_text(encoding="utf-8"))
    return found["system"], found["shared"] + "\n\n", TextTemplate(found["question"])
