"""Written: the judge writes a JSON object per criterion: id, rationale, evidence quotes and then the verdict.

``Judge.criteria_per_call`` criteria share a call (0: all). One criterion is answered by one object, several by
``{"verdicts": [...]}``. The reply must answer exactly the criteria asked: one that is missing, foreign or answered
twice fails the whole call as ``wrong_criteria``, since the judge then lost count and its other verdicts may belong
elsewhere. A verdict off its scale fails that criterion alone, as ``out_of_range``. A reply that cannot be read, or that
answers other criteria, is sent back once with the fault (``repair``).

With ``Judge.require_evidence`` a finding whose quotes do not all stand in the completion fails as ``no_evidence``, and
a positive one (worth more than the lowest of its scale) must have a quote that tells something: three words, twelve
characters, or all of a shorter completion. Nobody can quote what is absent: the lowest needs no quote.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Binary, Level, Numeric, Ordinal, Scale
from rubricsvc.core.verdict import Evidence, Reason, Verdict
from rubricsvc.errors import InvalidError
from workers.engines.base import Question, Reply
from workers.judges.requests import Asked, Call, joined, put, raw
from workers.judges.template import Shown, Template
from workers.judges.thinking import apart
from workers.judges.untrusted import clean

VERSION = "3"
"""Part of the verdicts' fingerprint. Raise it when the same rubric would be put in other words, or the same reply read
in another way: by a change of the levels' words, the schema, the cleaning in ``untrusted``, or of ``read``."""

CANNOT_TELL = "cannot_tell"

T = TypeVar("T")


class Finding(BaseModel):
    """What the judge must write about one criterion, in this order: the reasons come before the verdict."""

    model_config = ConfigDict(extra="forbid", strict=True)

    criterion: str
    rationale: str
    evidence: list[str] = []
    verdict: str | int | float


class Findings(BaseModel):
    """What it must write about several."""

    model_config = ConfigDict(extra="forbid", strict=True)

    verdicts: list[Finding]


def calls(asked: list[Asked], judge: Judge, template: Template) -> list[Call]:
    """The criteria in calls of ``judge.criteria_per_call``.

    Raises:
        InvalidError: the levels of a scale cannot be told apart by their names.
    """
    for one in asked:
        _refuse_unclear(one)
    size = judge.criteria_per_call or len(asked)
    return [_call(tuple(asked[start : start + size]), template) for start in range(0, len(asked), size)]


def _call(asked: tuple[Asked, ...], template: Template) -> Call:
    criteria = [put(one, template, _levels(one.criterion.scale)) for one in asked]
    section = "criterion" if len(asked) == 1 else "criteria"
    ids = ", ".join(one.id for one in asked)
    tail = template.fill(section, {"criteria": "\n\n".join(text.text for text in criteria), "ids": ids})
    note = joined(*(text.note for text in criteria)) or ""
    return Call(asked, Question(tail, schema=_schema(asked)), note=note)


def _refuse_unclear(one: Asked) -> None:
    scale = one.criterion.scale
    if not isinstance(scale, Ordinal):
        return
    names = Counter(_name(level) for level in scale.levels)
    wrong = [name for name, count in names.items() if count > 1 or name in ("", CANNOT_TELL)]
    if wrong:
        raise InvalidError(
            f"criterion {one.criterion.key!r}: a level reads {wrong[0]!r} to the judge, which is another level's name,"
            " no name, or the word for not knowing",
            hint=f"give each level a visible name of its own, and none the name {CANNOT_TELL!r}; or judge by readout",
        )


def _name(level: Level) -> str:
    """As the judge sees it, and must write it."""
    return clean(level.label).text.strip()


def _worths(scale: Scale) -> dict[str, float]:
    """The words that a verdict may be, and their worth."""
    if isinstance(scale, Binary):
        return {"met": 1.0, "not_met": 0.0}
    if isinstance(scale, Numeric):
        return {}
    return {_name(level): level.value for level in scale.levels}


def _levels(scale: Scale) -> str:
    if isinstance(scale, Binary | Numeric):
        return ""
    labels = [json.dumps(label, ensure_ascii=False) for label in _worths(scale)]
    return "\n".join(
        f"- {label}: {level.text}" if level.text else f"- {label}"
        for label, level in zip(labels, scale.levels, strict=True)
    )


def _schema(asked: tuple[Asked, ...]) -> dict[str, Any]:
    findings = [_finding_schema(one) for one in asked]
    if len(findings) == 1:
        return findings[0]
    exactly = {"minItems": len(findings), "maxItems": len(findings)}
    return object_of({"verdicts": {"type": "array", "items": {"anyOf": findings}, **exactly}})


def _finding_schema(one: Asked) -> dict[str, Any]:
    scale = one.criterion.scale
    words: dict[str, Any] = {"enum": [*_worths(scale), CANNOT_TELL]}
    if isinstance(scale, Numeric):
        words = {"anyOf": [{"type": "number", "minimum": scale.low, "maximum": scale.high}, words]}
    return object_of(
        {
            "criterion": {"enum": [one.id]},
            "rationale": {"type": "string"},
            "evidence": {"type": "array", "items": {"type": "string"}},
            "verdict": words,
        }
    )


def object_of(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def read(call: Call, reply: Reply, judge: Judge, shown: Shown) -> list[Verdict]:
    """The verdicts that the judge wrote, one for each criterion of the call."""
    said = apart(reply, judge.thinking)
    try:
        by_id = _findings(call, said)
    except UnreadError as error:
        return call.failed(error.reason, str(error), said, shown)
    quoted = bool(judge.require_evidence)
    return [_verdict(call, one, by_id[one.id], said, shown, quoted=quoted) for one in call.asked]


class UnreadError(ValueError):
    """A reply holds no verdicts on the criteria that were asked."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def _findings(call: Call, said: Reply) -> dict[str, Finding]:
    """By criterion's id; ``said`` has its thinking set apart.

    Raises:
        UnreadError: truncated, unparseable or wrong_criteria.
    """
    findings = whole(said, parse)
    exactly(call, [finding.criterion for finding in findings])
    return {finding.criterion: finding for finding in findings}


def whole(said: Reply, parse: Callable[[str], T]) -> T:
    """A reply that came to its end, parsed.

    Raises:
        UnreadError: truncated or unparseable.
    """
    if said.error:
        raise UnreadError(Reason.TRUNCATED, said.error)
    try:
        return parse(said.text)
    except ValueError as error:
        raise UnreadError(Reason.UNPARSEABLE, str(error)) from None


def exactly(call: Call, ids: Sequence[str]) -> None:
    """See that the ids answered are those asked, each once.

    Raises:
        UnreadError: wrong_criteria.
    """
    asked, answered = Counter(one.id for one in call.asked), Counter(ids)
    if asked != answered:
        why = f"asked {', '.join(asked.elements())}; answered {', '.join(answered.elements()) or 'none'}"
        raise UnreadError(Reason.WRONG_CRITERIA, why)


_FAULT_CHARS = 500


def repair(call: Call, reply: Reply, judge: Judge, template: Template) -> Question | None:
    """The question that sends a reply back with its fault; None where it can be read, or no repair would help."""
    return sent_back(call, apart(reply, judge.thinking), template, _findings)


def sent_back(call: Call, said: Reply, template: Template, read: Callable[[Call, Reply], object]) -> Question | None:
    """The call's question, followed by its reply and what ``read`` finds wrong with that; None as of `repair`."""
    try:
        read(call, said)
    except UnreadError as error:
        if error.reason is Reason.TRUNCATED or "repair" not in template.texts or not said.text.strip():
            return None
        values = {"error": clean(str(error)[:_FAULT_CHARS]).text, "ids": ", ".join(one.id for one in call.asked)}
        return replace(call.question, turns=(clean(said.text).text, template.fill("repair", values)))
    return None


def _verdict(call: Call, one: Asked, finding: Finding, reply: Reply, shown: Shown, *, quoted: bool) -> Verdict:
    key = one.criterion.key
    said: dict[str, Any] = {
        "rationale": finding.rationale,
        "evidence": tuple(shown.passages.locate(quote) for quote in finding.evidence if quote.strip()),
        "thinking": reply.thinking or None,
        "detail": joined(reply.note, shown.note, call.note),
        **call.spent(reply),
    }
    try:
        value = worth(one.criterion.scale, finding.verdict)
    except ValueError as error:
        said |= {"detail": joined(str(error), said["detail"] or ""), "raw": raw(reply)}
        return Verdict.failed(key, Reason.OUT_OF_RANGE, **said)
    positive = value is not None and value > _lowest(one.criterion.scale)
    if quoted and value is not None and (why := _lack(said["evidence"], shown.completion, positive=positive)):
        said |= {"detail": joined(why, said["detail"] or ""), "raw": raw(reply)}
        return Verdict.failed(key, Reason.NO_EVIDENCE, **said)
    return Verdict.abstained(key, **said) if value is None else Verdict.scored(key, value, **said)


_LEAST_WORDS, _LEAST_CHARS = 3, 12


def _lack(evidence: Sequence[Evidence], completion: str, *, positive: bool) -> str:
    """What the quotes lack to be evidence; nothing where they do."""
    foreign = sum(quote.start is None for quote in evidence)
    if foreign:
        return f"{foreign} of {len(evidence)} quotes do not stand in the completion"
    if not positive or any(_tells(quote.quote.split(), completion.split()) for quote in evidence):
        return ""
    if evidence:
        return f"no quote has {_LEAST_WORDS} words or {_LEAST_CHARS} characters: words so common are no evidence"
    return "nothing is quoted from the completion"


def _tells(quote: list[str], completion: list[str]) -> bool:
    return len(quote) >= _LEAST_WORDS or len(" ".join(quote)) >= _LEAST_CHARS or quote == completion


def _lowest(scale: Scale) -> float:
    return min(_worths(scale).values(), default=0.0)


def worth(scale: Scale, verdict: str | float) -> float | None:
    """What a written verdict is worth in [0, 1]; None where the judge cannot tell.

    Raises:
        ValueError: it is not on the scale.
    """
    words = _worths(scale)
    if isinstance(verdict, str) and verdict.strip() in words:
        return words[verdict.strip()]
    if verdict == CANNOT_TELL:
        return None
    if isinstance(scale, Numeric) and not isinstance(verdict, str) and scale.low <= verdict <= scale.high:
        return (verdict - scale.low) / (scale.high - scale.low)
    raise ValueError(f"verdict {verdict!r} is not on the scale")


def parse(reply: str) -> list[Finding]:
    """The findings in the last JSON object of a reply.

    Raises:
        ValueError: there is none, it is broken, or it is not of the form that was asked for.
    """
    found = last_object(reply)
    return Findings.model_validate(found).verdicts if "verdicts" in found else [Finding.model_validate(found)]


_BRACE = re.compile(r"[{}]")
_BEGINS = re.compile(r'\{[ \t\n\r]*["}]')
_MOST_BROKEN = 100
"""Of the objects that begin and break off in one reply. Each is read to its break, and all must be cheap together."""


def last_object(reply: str) -> dict[str, Any]:
    """The JSON object that ends the judge's own text; fences and words may stand around it.

    An object inside a broken one does not count, and neither does one that braces follow: such a reply may be quoting
    a verdict that the completion wrote.

    Raises:
        ValueError: there is no such object, it has a key twice, or too many broken ones stand around it.
    """
    text = reply
    found: dict[str, Any] | None = None
    why, depth, position, broken = "no JSON object ends the reply", 0, 0, 0
    while (brace := _BRACE.search(text, position)) is not None:
        found, position = None, brace.end()
        if brace.group() == "}":
            depth -= 1
            continue
        if _BEGINS.match(text, brace.start()) is None:
            depth += 1
            continue
        if broken == _MOST_BROKEN:
            raise ValueError(f"more than {_MOST_BROKEN} broken JSON objects; {why}")
        try:
            whole, end = _DECODER.raw_decode(text, brace.start())
        except RecursionError:
            raise ValueError("JSON that is nested too deeply") from None
        except ValueError as error:
            why = f"broken JSON: {error}" if depth == 0 else why
            depth, broken = depth + 1, broken + 1
            continue
        position = end
        found = whole if depth == 0 else None
    if found is None:
        raise ValueError(why)
    return found


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
        raise ValueError(f"the key {repeated[0]!r} stands twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_refuse_duplicates)
