"""Written: the judge writes a JSON object for each criterion: id, rationale, evidence quotes and then the verdict.

One criterion is answered by one object, several of a call by ``{"verdicts": [...]}``. Missing, unknown and repeated ids
fail the whole call as ``wrong_criteria``. A verdict off its scale fails that criterion alone, as ``out_of_range``. A
reply that cannot be parsed is sent back once with its error (see `calls`). A verdict with the template's own words as
rationale or quote fails as ``template_copied``.

With ``Judge.require_evidence``, a verdict with a quote that is not in the completion fails as ``no_evidence``, and so
does one above the lowest level of its scale without a quote of three words, twelve characters, or all of a shorter
completion. The lowest level needs no quote: what is absent cannot be quoted. Of a pair, either answer needs one and a
tie does not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Binary, Numeric, Ordinal, Scale
from rubricsvc.core.untrusted import clean
from rubricsvc.core.verdict import Evidence, Reason, Verdict
from rubricsvc.errors import InvalidError
from workers.engines.base import Question
from workers.judges.calls import (
    PAIR,
    AskedCriterion,
    JudgeCall,
    JudgeTemplate,
    ParsedReply,
    ReplyModel,
    SharedPrompt,
    items_by_id,
    join_notes,
    load,
    object_schema,
    render_criterion,
)

VERSION = "6"
"""Part of the questions' fingerprint. Raise it when the same rubric would be asked in other words, or the same reply
parsed in another way: by a change of the level names, the schema, the cleaning in ``untrusted``, or the parsing."""

CANNOT_TELL = "cannot_tell"

_MIN_QUOTE_WORDS, _MIN_QUOTE_CHARS = 3, 12


class WrittenVerdict(ReplyModel):
    """What the judge must write about one criterion, in this order: the reasons come before the verdict."""

    criterion: str
    rationale: str
    evidence: list[str] = Field(default_factory=list)
    verdict: str | int | float


class WrittenVerdicts(ReplyModel):
    """What it must write about several."""

    verdicts: list[WrittenVerdict]


def build_call(asked: Sequence[AskedCriterion], template: JudgeTemplate) -> JudgeCall:
    """Return one call about these criteria."""
    criteria, schemas = [], []
    for one in asked:
        scale, levels = one.criterion.scale, ""
        if isinstance(scale, Ordinal):
            names = [clean(level.label).text.strip() for level in scale.levels]  # as it must write them
            if bad := [name for name in names if names.count(name) > 1 or name in ("", CANNOT_TELL)]:
                raise InvalidError(
                    f"criterion {one.criterion.key!r}: a level reads {bad[0]!r} to the judge, which is another level's"
                    f" name, blank, or reserved",
                    hint=f"give each level a visible name of its own other than {CANNOT_TELL!r}, or use mode: readout",
                )
            labels = (f"- {json.dumps(name, ensure_ascii=False)}" for name in names)
            described = zip(labels, scale.levels, strict=True)
            levels = "\n".join(f"{label}: {level.text}" if level.text else label for label, level in described)
        criteria.append(render_criterion(one, template, levels))
        verdict: dict[str, Any] = {"enum": [*_level_values(scale), CANNOT_TELL]}
        if isinstance(scale, Numeric):
            verdict = {"anyOf": [{"type": "number", "minimum": scale.low, "maximum": scale.high}, verdict]}
        fields = {
            "criterion": {"enum": [one.id]},
            "rationale": {"type": "string"},
            "evidence": {"type": "array", "items": {"type": "string"}},
            "verdict": verdict,
        }
        schemas.append(object_schema(fields))
    section, schema = "criterion", schemas[0]
    if len(asked) > 1:
        length = {"minItems": len(schemas), "maxItems": len(schemas)}
        section = "criteria"
        schema = object_schema({"verdicts": {"type": "array", "items": {"anyOf": schemas}, **length}})
    ids = ", ".join(one.id for one in asked)
    text = template.fill(section, {"criteria": "\n\n".join(text.text for text in criteria), "ids": ids})
    note = join_notes(*(text.note for text in criteria)) or ""
    return JudgeCall(tuple(asked), Question(text, schema=schema), note=note)


def _level_values(scale: Scale) -> dict[str, float]:
    """Return the verdicts in words, as the judge sees and must write them, with their values in [0, 1]."""
    if isinstance(scale, Binary):
        return {"met": 1.0, "not_met": 0.0}
    if isinstance(scale, Numeric):
        return {}
    return {clean(level.label).text.strip(): level.value for level in scale.levels}


def parse(call: JudgeCall, text: str) -> dict[str, WrittenVerdict]:
    """Return the verdicts in the JSON object that ends a reply, by id; see `items_by_id`."""
    one, several = WrittenVerdict.model_validate, WrittenVerdicts.model_validate
    return items_by_id(
        call,
        text,
        lambda value: several(value).verdicts if "verdicts" in value else [one(value)],
        lambda written: (written.criterion, written.verdict),
    )


def verdicts(call: JudgeCall, parsed: ParsedReply, judge: Judge, shown: SharedPrompt) -> list[Verdict]:
    """Return one verdict for each criterion of the call; one without the words or quotes that it needs is failed."""
    repeated, found = load(judge).words.repeated_by, []
    for one in call.asked:
        scale, written = one.criterion.scale, parsed.content[one.id]
        quotes = tuple(shown.quotes.locate(quote) for quote in written.evidence if quote.strip())
        value, reason, fault = None, Reason.TEMPLATE_COPIED, ""
        if repeated("rationale", written.rationale) or any(
            repeated("evidence", quote.quote) for quote in quotes if quote.start is None
        ):
            fault = "the reply repeats the words of the judge's template"
        else:
            try:
                value = value_on_scale(scale, written.verdict)
            except ValueError as error:
                reason, fault = Reason.OUT_OF_RANGE, str(error)
        if value is not None and judge.require_evidence:
            positive = value != 0.5 if scale == PAIR else value > min(_level_values(scale).values(), default=0.0)
            reason, fault = Reason.NO_EVIDENCE, _missing_evidence(quotes, shown.completion, positive=positive)
        fields = {"rationale": written.rationale, "evidence": quotes}
        if fault:
            found += call.failed(reason, fault, parsed.reply, shown, only=one, **fields)
        else:
            fields |= call.common_fields(parsed.reply, shown)
            key = one.criterion.key
            found.append(Verdict.abstained(key, **fields) if value is None else Verdict.scored(key, value, **fields))
    return found


def _missing_evidence(evidence: Sequence[Evidence], completion: str, *, positive: bool) -> str:
    """Return what the quotes lack to be evidence, or an empty text."""
    unknown = sum(quote.start is None for quote in evidence)
    if unknown:
        return f"{unknown} of {len(evidence)} quotes are not in the completion"
    words, whole = [quote.quote.split() for quote in evidence], completion.split()
    if not positive or any(
        len(one) >= _MIN_QUOTE_WORDS or len(" ".join(one)) >= _MIN_QUOTE_CHARS or one == whole for one in words
    ):
        return ""
    if evidence:
        return f"no quote has {_MIN_QUOTE_WORDS} words or {_MIN_QUOTE_CHARS} characters"
    return "no quote from the completion"


def value_on_scale(scale: Scale, verdict: str | float) -> float | None:
    """Return the value in [0, 1] of a written verdict; None where the judge cannot tell.

    Raises:
        ValueError: The verdict is not on the scale.
    """
    levels = _level_values(scale)
    if isinstance(verdict, str) and verdict.strip() in levels:
        return levels[verdict.strip()]
    if verdict == CANNOT_TELL:
        return None
    if isinstance(scale, Numeric) and not isinstance(verdict, str) and scale.low <= verdict <= scale.high:
        return (verdict - scale.low) / (scale.high - scale.low)
    raise ValueError(f"verdict {verdict!r} is not on the scale")
