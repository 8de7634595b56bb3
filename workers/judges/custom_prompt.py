"""Criteria that bring their own question (``Criterion.custom_prompt``, OpenAI's score_model and label_model).

Such a criterion is an ask of its own: its turns are filled from the prompt's item and the completion, cleaned, and put
to the judge as they are, without our template. Only what the reply must look like is added, at the end of the last
turn: for a written judge OpenAI's JSON object of ``steps`` and ``result``, for a readout one letter or digit. A written
reply that is a bare number or a bare label is read too. Where a turn names what is not there, nothing is asked.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import CustomPrompt, Numeric
from rubricsvc.core.templates import fill, template_data
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers.engines.base import Question, Reply
from workers.judges import readout
from workers.judges.requests import Asked, Call, joined
from workers.judges.template import Shown, Template, Text, sections
from workers.judges.thinking import apart
from workers.judges.untrusted import clean
from workers.judges.written import last_object, object_of, worth

VERSION = "1"
"""As in the other modes: raise it when the same question would be put, or the same reply read, in another way."""

_FILE = Path(__file__).parent / "prompts" / "custom" / "endings.txt"
_MODES = ("readout", "written")


@lru_cache
def _endings() -> tuple[dict[str, Text], str]:
    content = _FILE.read_bytes()
    return {name: Text(body) for name, body in sections(content.decode()).items()}, sha256(content).hexdigest()


def identity() -> list[str]:
    """What tells how such criteria are asked and read; for the fingerprint."""
    return [VERSION, _endings()[1]]


@dataclass(frozen=True, slots=True)
class Posed:
    """A question about one completion: who is asked, with what before it, the call, and what is shown."""

    judge: Judge
    template: Template
    call: Call
    shown: Shown


def pose(asked: Asked, judge: Judge, prompt: Prompt, completion: Completion) -> Posed:
    """The criterion's question about one completion.

    Raises:
        PlaceholderError: the question names what the item or the completion has not.
        InvalidError: a judge of this mode cannot be asked it.
    """
    own = asked.criterion.custom_prompt
    if own is None or judge.mode not in _MODES:
        raise InvalidError(
            f"a {judge.mode} judge cannot be asked a criterion's own question",
            hint="have it judged by a readout or a written judge",
        )
    system, turns, note = _turns(own, prompt, completion)
    question, values = _question(asked, own, judge)
    levels = own.labels or readout.names(asked.criterion.scale, values) if values else ()
    ending = clean(question.text).text
    turns[-1] = f"{turns[-1]}\n\n{ending}" if turns[-1] else ending
    first, *rest = turns
    call = Call((asked,), replace(question, text="", turns=tuple(rest)), values, note, levels)
    shown = Shown(first, "", completion.text, completion.text)
    sampling = own.sampling.model_dump(exclude_none=True) if own.sampling else {}
    drawn = judge.model_copy(update={"sampling": judge.sampling.model_copy(update=sampling)})
    return Posed(drawn, Template("own", _endings()[1], system, "", (), {}), call, shown)


def _turns(own: CustomPrompt, prompt: Prompt, completion: Completion) -> tuple[str, list[str], str]:
    """The system text; the turns, user's and assistant's by turns, the user's first and last; and what was cleaned."""
    names = template_data(prompt, completion)
    filled = [(turn.role, clean(fill(turn.content, names))) for turn in own.turns]
    notes = joined(*(text.note for _, text in filled)) or ""
    said = [(role, text.text) for role, text in filled]
    system: list[str] = []
    while said and said[0][0] in ("system", "developer"):
        system.append(said.pop(0)[1])
    turns = [""]
    for role, text in said:
        if (role == "assistant") != (len(turns) % 2 == 0):  # the other one speaks now
            turns.append(text)
        else:
            turns[-1] = f"{turns[-1]}\n\n{text}" if turns[-1] else text
    if len(turns) % 2 == 0:  # the assistant spoke last
        turns.append("")
    return "\n\n".join(system), turns, notes


def _question(asked: Asked, own: CustomPrompt, judge: Judge) -> tuple[Question, tuple[float, ...]]:
    """What is added at the end, as the question's tail, and what each label of a readout is worth."""
    endings, scale = _endings()[0], asked.criterion.scale
    if judge.mode == "readout":
        choices = _letters(own) if own.labels else readout.options(scale)
        labels, values, told = zip(*choices, strict=True)
        lines = "\n".join(f"{label}: {text}" for label, text in zip(labels, told, strict=True))
        return Question(endings["readout"].fill({"labels": lines}), labels), values
    if own.labels:
        told_labels = ", ".join(json.dumps(label, ensure_ascii=False) for label in own.labels)
        return Question(endings["label"].fill({"labels": told_labels}), schema=_schema({"enum": [*own.labels]})), ()
    low, high = (scale.low, scale.high) if isinstance(scale, Numeric) else (0.0, 1.0)
    tail = endings["number"].fill({"low": f"{low:g}", "high": f"{high:g}"})
    return Question(tail, schema=_schema({"type": "number", "minimum": low, "maximum": high})), ()


def _letters(own: CustomPrompt) -> list[readout.Option]:
    if len(own.labels) > len(readout.LETTERS):
        raise InvalidError(f"{len(own.labels)} labels are more than a readout can letter", hint="mode: written")
    pairs = zip(readout.LETTERS, own.labels, strict=False)
    return [(letter, float(label in own.passing), label) for letter, label in pairs]


def _schema(result: dict[str, Any]) -> dict[str, Any]:
    step = object_of({"description": {"type": "string"}, "conclusion": {"type": "string"}})
    return object_of({"steps": {"type": "array", "items": step}, "result": result})


def repair(call: Call, reply: Reply, judge: Judge, template: Template) -> Question | None:
    """None: what stands there is not ours to send back."""
    return None


def read(call: Call, reply: Reply, judge: Judge, shown: Shown) -> list[Verdict]:
    """The verdict of the one criterion of the call."""
    if judge.mode == "readout":
        return readout.read(call, reply, judge, shown)
    said, one = apart(reply, judge.thinking), call.asked[0]
    if said.error:
        return call.failed(Reason.TRUNCATED, said.error, said, shown)
    labels = one.criterion.custom_prompt.labels if one.criterion.custom_prompt else ()
    try:
        result, reasoning = _result(said.text, labels)
    except ValueError as error:
        return call.failed(Reason.UNPARSEABLE, str(error), said, shown)
    try:
        value = _worth(result, one)
    except ValueError as error:
        return call.failed(Reason.OUT_OF_RANGE, str(error), said, shown)
    told = {
        "rationale": joined(str(result) if labels else "", reasoning),
        "thinking": said.thinking or None,
        "detail": joined(said.note, call.note),
    }
    return [Verdict.scored(one.criterion.key, value, **told, **call.spent(said))]


def _result(text: str, labels: tuple[str, ...]) -> tuple[Any, str]:
    """The result and the reasons for it.

    Raises:
        ValueError: the reply holds none.
    """
    bare = text.strip()
    if bare in labels:
        return bare, ""
    with suppress(ValueError):
        return float(bare), ""
    found = last_object(text)
    if "result" not in found:
        raise ValueError("the reply's JSON object has no result")
    steps = found.get("steps")
    return found["result"], "\n".join(map(_told, steps)) if isinstance(steps, list) else ""


def _told(step: Any) -> str:
    if isinstance(step, dict) and step.keys() == {"description", "conclusion"}:
        return f"{step['description']}: {step['conclusion']}"
    return step if isinstance(step, str) else json.dumps(step, ensure_ascii=False)


def _worth(result: Any, one: Asked) -> float:
    """Raises ValueError where it is none of the labels, or not on the scale."""
    own = one.criterion.custom_prompt
    if own is not None and own.labels:
        label = next((label for label in own.labels if label.strip() == str(result).strip()), None)
        if label is None:
            raise ValueError(f"{str(result)[:80]!r} is none of the labels {', '.join(own.labels)}")
        return float(label in own.passing)
    found = worth(one.criterion.scale, result) if isinstance(result, float | int) and result is not True else None
    if found is None or result is False:
        raise ValueError(f"{str(result)[:80]!r} is no number of the scale")
    return found
