"""Custom prompts: criteria with a prompt of their own (OpenAI's score_model and label_model).

Each such criterion is a request of its own. Its turns are filled from the prompt's item and the completion, cleaned,
and sent without a judge template. Only the required form of the reply is added to the last turn: OpenAI's JSON object
of ``steps`` and ``result`` for a written judge, one letter or digit for a readout. A written reply that is a bare
number or a bare label is accepted too. Where a turn refers to a missing value, nothing is asked.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, CustomPrompt, Numeric
from rubricsvc.core.scale_values import value_on_scale
from rubricsvc.core.templates import fill, template_data
from rubricsvc.core.untrusted import clean
from rubricsvc.core.verdict import Reason, Verdict
from workers.engines.base import Question
from workers.judges import calls, readout

VERSION = "8"
"""As in the other modes: raise it when the same prompt would be sent, or the same reply parsed, in another way."""

_FILE = Path(__file__).parent / "prompts" / "custom" / "endings.txt"


@lru_cache
def endings() -> tuple[dict[str, calls.TextTemplate], str, calls.TemplateWords]:
    """Return the forms of a reply that turns end with, the digest of their file, and the words of their example."""
    content = _FILE.read_bytes()
    texts = {name: calls.TextTemplate(body) for name, body in calls.sections(content.decode()).items()}
    return texts, sha256(content).hexdigest(), calls.TemplateWords(texts["number"].text)


def build_call(
    criterion: Criterion, custom: CustomPrompt, judge: Judge, prompt: Prompt, completion: Completion
) -> tuple[calls.JudgeCall, calls.JudgeTemplate, calls.SharedPrompt]:
    """Return the call of a criterion's custom prompt about one completion, with its template and first turn."""
    forms, digest, _ = endings()
    scale, levels, values = criterion.scale, custom.labels, tuple(float(one in custom.passing) for one in custom.labels)
    labels: tuple[str, ...] = ()
    result: dict[str, Any] = {}
    if judge.mode == "readout":
        options = list(zip(readout.letters(len(levels)), values, levels, levels, strict=True))
        labels, values, levels, texts = zip(*(options or readout.options(scale)), strict=True)
        lines = "\n".join(f"{label}: {text}" for label, text in zip(labels, texts, strict=True))
        ending = forms["readout"].fill({"labels": lines})
    elif levels:
        names = ", ".join(json.dumps(label, ensure_ascii=False) for label in levels)
        ending, result = forms["label"].fill({"labels": names}), {"enum": [*levels]}
    else:
        low, high = (scale.low, scale.high) if isinstance(scale, Numeric) else (0.0, 1.0)
        ending = forms["number"].fill({"low": f"{low:g}", "high": f"{high:g}"})
        result = {"type": "number", "minimum": low, "maximum": high}
    step = calls.object_schema({"description": {"type": "string"}, "conclusion": {"type": "string"}})
    schema = calls.object_schema({"steps": {"type": "array", "items": step}, "result": result}) if result else None
    data = template_data(prompt, completion)
    filled = [(turn.role, clean(fill(turn.content, data))) for turn in custom.turns]
    messages = [(role, text.text) for role, text in filled]
    system: list[str] = []
    while messages and messages[0][0] in ("system", "developer"):
        system.append(messages.pop(0)[1])
    turns = [""]  # alternating, the user's first and last
    for role, text in [*messages, ("user", clean(ending).text)]:
        if (role == "assistant") != (len(turns) % 2 == 0):  # the speaker changes
            turns.append(text)
        else:
            turns[-1] = f"{turns[-1]}\n\n{text}" if turns[-1] else text
    question = Question("", labels, schema=schema, turns=tuple(turns[1:]))
    notes = calls.join_notes(*(text.note for _, text in filled)) or ""
    call = calls.JudgeCall((calls.AskedCriterion(criterion, criterion.key),), question, values, notes, levels)
    template = calls.JudgeTemplate("custom", digest, "\n\n".join(system), "", (), {})
    return call, template, calls.SharedPrompt(turns[0], "", completion.text, completion.text, completion.full_text)


def parse(call: calls.JudgeCall, text: str) -> dict[str, Any]:
    """Return the verdict's value and rationale in a written reply."""
    result, steps = _result(text, call.levels)
    parts = [
        (field, part)
        for step in steps  # a step in another form is a description
        for field, part in (step if isinstance(step, dict) else {"description": step}).items()
    ]
    if any(isinstance(part, str) and endings()[2].repeated_by(field, part) for field, part in parts):
        raise calls.ReplyError(Reason.TEMPLATE_COPIED, "the reply repeats the example of a step")
    try:
        value = _value(result, call)
    except ValueError as error:
        raise calls.ReplyError(Reason.OUT_OF_RANGE, str(error)) from None
    texts = [": ".join(map(str, step.values())) if isinstance(step, dict) else str(step) for step in steps]
    return {"value": value, "rationale": calls.join_notes(str(result) if call.levels else "", "\n".join(texts))}


def verdicts(
    call: calls.JudgeCall, parsed: calls.ParsedReply, judge: Judge, shown: calls.SharedPrompt
) -> list[Verdict]:
    """Return the verdict on the criterion."""
    fields = {**parsed.content, **call.common_fields(parsed.reply, shown)}
    return [Verdict.scored(call.asked[0].criterion.key, **fields)]


def _result(text: str, labels: tuple[str, ...]) -> tuple[Any, list[Any]]:
    """Return the result and the steps to it."""
    bare = text.strip()
    if bare in labels:
        return bare, []
    with suppress(ValueError):
        return float(bare), []

    def with_result(value: dict[str, Any]) -> list[dict[str, Any]]:
        if "result" not in value:
            raise ValueError("the reply's JSON object has no key 'result'")
        return [value]

    (reply,) = calls.parse_items(text, with_result, lambda one: ("the result", one["result"]))
    steps = reply.get("steps")
    return reply["result"], steps if isinstance(steps, list) else []


def _value(result: Any, call: calls.JudgeCall) -> float:
    """Return the value of a result; raise a ValueError where it is not a label, or not on the scale."""
    if call.levels:
        for label, passed in zip(call.levels, call.values, strict=True):
            if label.strip() == str(result).strip():
                return passed
        raise ValueError(f"{str(result)[:80]!r} is not one of the labels {', '.join(call.levels)}")
    number = isinstance(result, float | int) and not isinstance(result, bool)
    value = value_on_scale(call.asked[0].criterion.scale, result) if number else None
    if value is None:
        raise ValueError(f"{str(result)[:80]!r} is not a number on the scale")
    return value
