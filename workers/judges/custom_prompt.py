"""Custom prompts: criteria with a prompt of their own (OpenAI's score_model and label_model).

Each such criterion is a request of its own. Its turns are filled from the prompt's item and the completion, cleaned,
and sent without a judge template. Only the required form of the reply is added to the last turn: OpenAI's JSON object
of ``steps`` and ``result`` for a written judge, one letter or digit for a readout. A written reply that is a bare
number or a bare label is accepted too. Where a turn refers to a missing value, nothing is asked.
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
from rubricsvc.core.rubric import Criterion, CustomPrompt, Numeric
from rubricsvc.core.templates import fill, template_data
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers.engines.base import Question, Reply
from workers.judges import readout
from workers.judges.replies import ParsedReply, ReplyError, object_schema, parse_items, parse_reply
from workers.judges.requests import AskedCriterion, JudgeCall, join_notes
from workers.judges.template import JudgeTemplate, SharedPrompt, TextTemplate, sections
from workers.judges.untrusted import clean
from workers.judges.written import value_on_scale

VERSION = "2"
"""As in the other modes: raise it when the same prompt would be sent, or the same reply parsed, in another way."""

_FILE = Path(__file__).parent / "prompts" / "custom" / "endings.txt"
_MODES = ("readout", "written")
_EXAMPLE_STEP = "what you look at: what you find"


@lru_cache
def _endings() -> tuple[dict[str, TextTemplate], str]:
    content = _FILE.read_bytes()
    return {name: TextTemplate(body) for name, body in sections(content.decode()).items()}, sha256(content).hexdigest()


def identity() -> list[str]:
    """Return what decides how custom prompts are sent and parsed, for the fingerprint."""
    return [VERSION, _endings()[1]]


@dataclass(frozen=True, slots=True)
class CustomCall:
    """The call of a custom prompt about one completion, with its judge and template."""

    judge: Judge
    template: JudgeTemplate
    call: JudgeCall
    shown: SharedPrompt


def build_call(criterion: Criterion, judge: Judge, prompt: Prompt, completion: Completion) -> CustomCall:
    """Return the call of a criterion's custom prompt about one completion.

    Raises:
        PlaceholderError: The prompt refers to a value that the item or the completion does not have.
        InvalidError: A judge of this mode cannot be asked.
    """
    custom = criterion.custom_prompt
    if custom is None or judge.mode not in _MODES:
        raise InvalidError(
            f"a {judge.mode} judge cannot be asked a custom prompt", hint="use a readout or a written judge"
        )
    system, turns, note = _turns(custom, prompt, completion)
    question, values = _question(criterion, custom, judge)
    levels = custom.labels or readout.level_names(criterion.scale, values) if values else ()
    ending = clean(question.text).text
    turns[-1] = f"{turns[-1]}\n\n{ending}" if turns[-1] else ending
    first, *rest = turns
    asked = (AskedCriterion(criterion, criterion.key),)
    call = JudgeCall(asked, replace(question, text="", turns=tuple(rest)), values, note, levels)
    overrides = custom.sampling.model_dump(exclude_none=True) if custom.sampling else {}
    return CustomCall(
        judge=judge.model_copy(update={"sampling": judge.sampling.model_copy(update=overrides)}),
        template=JudgeTemplate("custom", _endings()[1], system, "", (), {}),
        call=call,
        shown=SharedPrompt(first, "", completion.text, completion.text),
    )


def _turns(custom: CustomPrompt, prompt: Prompt, completion: Completion) -> tuple[str, list[str], str]:
    """Return the system text; alternating turns, the user's first and last; and what was cleaned."""
    data = template_data(prompt, completion)
    filled = [(turn.role, clean(fill(turn.content, data))) for turn in custom.turns]
    notes = join_notes(*(text.note for _, text in filled)) or ""
    messages = [(role, text.text) for role, text in filled]
    system: list[str] = []
    while messages and messages[0][0] in ("system", "developer"):
        system.append(messages.pop(0)[1])
    turns = [""]
    for role, text in messages:
        if (role == "assistant") != (len(turns) % 2 == 0):  # the speaker changes
            turns.append(text)
        else:
            turns[-1] = f"{turns[-1]}\n\n{text}" if turns[-1] else text
    if len(turns) % 2 == 0:  # the assistant spoke last
        turns.append("")
    return "\n\n".join(system), turns, notes


def _question(criterion: Criterion, custom: CustomPrompt, judge: Judge) -> tuple[Question, tuple[float, ...]]:
    """Return the question, whose text is the ending to add, and the value of each label of a readout."""
    endings, scale = _endings()[0], criterion.scale
    if judge.mode == "readout":
        labels, values, texts = zip(*(_options(custom) if custom.labels else readout.options(scale)), strict=True)
        lines = "\n".join(f"{label}: {text}" for label, text in zip(labels, texts, strict=True))
        return Question(endings["readout"].fill({"labels": lines}), labels), values
    if custom.labels:
        names = ", ".join(json.dumps(label, ensure_ascii=False) for label in custom.labels)
        return Question(endings["label"].fill({"labels": names}), schema=_schema({"enum": [*custom.labels]})), ()
    low, high = (scale.low, scale.high) if isinstance(scale, Numeric) else (0.0, 1.0)
    text = endings["number"].fill({"low": f"{low:g}", "high": f"{high:g}"})
    return Question(text, schema=_schema({"type": "number", "minimum": low, "maximum": high})), ()


def _options(custom: CustomPrompt) -> list[readout.Option]:
    pairs = zip(readout.letters(len(custom.labels)), custom.labels, strict=True)
    return [(letter, float(label in custom.passing), label) for letter, label in pairs]


def _schema(result: dict[str, Any]) -> dict[str, Any]:
    step = object_schema({"description": {"type": "string"}, "conclusion": {"type": "string"}})
    return object_schema({"steps": {"type": "array", "items": step}, "result": result})


def parse(call: JudgeCall, reply: Reply, judge: Judge) -> ParsedReply[dict[str, Any]]:
    """Parse a reply into the verdict's value and rationale."""
    if judge.mode == "readout":
        return readout.parse(call, reply, judge)
    criterion = call.asked[0].criterion
    labels = criterion.custom_prompt.labels if criterion.custom_prompt else ()

    def fields(text: str) -> dict[str, Any]:
        result, reasoning = _result(text, labels)
        if _EXAMPLE_STEP in reasoning:
            raise ReplyError(Reason.TEMPLATE_COPIED, "the reply repeats the example of a step")
        try:
            value = _value(result, criterion)
        except ValueError as error:
            raise ReplyError(Reason.OUT_OF_RANGE, str(error)) from None
        return {"value": value, "rationale": join_notes(str(result) if labels else "", reasoning)}

    return parse_reply(reply, judge, fields)


def verdicts(call: JudgeCall, parsed: ParsedReply[Any], judge: Judge, shown: SharedPrompt) -> list[Verdict]:
    """Return the verdict on the criterion."""
    if judge.mode == "readout":
        return readout.verdicts(call, parsed, judge, shown)
    fields = {
        **(parsed.content or {}),
        "thinking": parsed.reply.thinking or None,
        "detail": join_notes(parsed.reply.note, call.note),
        **call.usage_fields(parsed.reply),
    }
    return [Verdict.scored(call.asked[0].criterion.key, **fields)]


def _result(text: str, labels: tuple[str, ...]) -> tuple[Any, str]:
    """Return the result and its reasoning.

    Raises:
        ValueError: The reply has no result.
    """
    bare = text.strip()
    if bare in labels:
        return bare, ""
    with suppress(ValueError):
        return float(bare), ""
    (reply,) = parse_items(text, _with_result, lambda one: ("the result", one["result"]))
    steps = reply.get("steps")
    return reply["result"], "\n".join(map(_step_text, steps)) if isinstance(steps, list) else ""


def _with_result(value: dict[str, Any]) -> list[dict[str, Any]]:
    if "result" not in value:
        raise ValueError("the reply's JSON object has no key 'result'")
    return [value]


def _step_text(step: Any) -> str:
    if isinstance(step, dict) and step.keys() == {"description", "conclusion"}:
        return f"{step['description']}: {step['conclusion']}"
    return step if isinstance(step, str) else json.dumps(step, ensure_ascii=False)


def _value(result: Any, criterion: Criterion) -> float:
    """Return the value of a result; raise a ValueError where it is not a label, or not on the scale."""
    custom = criterion.custom_prompt
    if custom is not None and custom.labels:
        label = next((label for label in custom.labels if label.strip() == str(result).strip()), None)
        if label is None:
            raise ValueError(f"{str(result)[:80]!r} is not one of the labels {', '.join(custom.labels)}")
        return float(label in custom.passing)
    number = isinstance(result, float | int) and not isinstance(result, bool)
    value = value_on_scale(criterion.scale, result) if number else None
    if value is None:
        raise ValueError(f"{str(result)[:80]!r} is not a number on the scale")
    return value
