"""Written: the judge writes a JSON object for each criterion: id, rationale, evidence quotes and then the verdict.

One criterion is answered by one object, several of a call by ``{"verdicts": [...]}``. Valid verdicts are kept; those
that are missing (``wrong_criteria``) or off their scale (``out_of_range``) are asked again once, alone, and so is a
reply that cannot be parsed (see `calls`). An unknown id beside a missing one fails the whole call: its numbers may be
shifted. A verdict with the template's own words as rationale or quote fails as ``template_copied``.

With ``Judge.require_evidence``, a verdict with a quote that is not in the completion fails as ``no_evidence``, and so
does one above the lowest level of its scale without a quote of three words, twelve characters, or all of a shorter
completion. The lowest level needs no quote: what is absent cannot be quoted. Of a pair, either answer needs one and a
tie does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Numeric, Ordinal
from rubricsvc.core.scale_values import CANNOT_TELL, level_values, value_on_scale
from rubricsvc.core.untrusted import clean
from rubricsvc.core.validation_messages import error_text
from rubricsvc.core.verdict import Evidence, Reason, Verdict
from rubricsvc.errors import InvalidError
from workers.engines.base import Question
from workers.judges import calls

VERSION = "12"
"""Part of the questions' fingerprint. Raise it when the same rubric would be asked in other words, or the same reply
parsed in another way: by a change of the level names, the schema, the cleaning in ``untrusted``, or the parsing."""

_MIN_QUOTE_WORDS, _MIN_QUOTE_CHARS = 3, 12
_LIST = re.compile(r"\s*(?:```\w*\s*)?(\[\s*\{.*\}\s*\])\s*(?:```\s*)?", re.DOTALL)
_STATED = re.compile(r"""verdict(?=\W*[:=])[^\w-]*+([^\n,;{}"'*`\\]+)""", re.IGNORECASE)  # in an object or in words

_QuoteList = BeforeValidator(lambda quotes: [quotes] if isinstance(quotes, str) else [] if quotes is None else quotes)


class WrittenVerdict(calls.ReplyModel):
    """What the judge must write about one criterion, in this order: the reasons come before the verdict."""

    criterion: str = ""
    rationale: Annotated[str, BeforeValidator(lambda text: "" if text is None else text)]
    evidence: Annotated[list[str], _QuoteList] = Field(default_factory=list)
    verdict: bool | str | int | float


def build_call(asked: Sequence[calls.AskedCriterion], template: calls.JudgeTemplate) -> calls.JudgeCall:
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
        criteria.append(calls.render_criterion(one, template, levels))
        verdict: dict[str, Any] = {"enum": [*level_values(scale), CANNOT_TELL]}
        if isinstance(scale, Numeric):
            verdict = {"anyOf": [{"type": "number", "minimum": scale.low, "maximum": scale.high}, verdict]}
        fields = {
            "criterion": {"enum": [one.id]},
            "rationale": {"type": "string"},
            "evidence": {"type": "array", "items": {"type": "string"}},
            "verdict": verdict,
        }
        schemas.append(calls.object_schema(fields))
    section, schema = "criterion", schemas[0]
    if len(asked) > 1:
        length = {"minItems": len(schemas), "maxItems": len(schemas)}
        section = "criteria"
        schema = calls.object_schema({"verdicts": {"type": "array", "items": {"anyOf": schemas}, **length}})
    ids = ", ".join(one.id for one in asked)
    text = template.fill(section, {"criteria": "\n\n".join(text.text for text in criteria), "ids": ids})
    note = calls.join_notes(*(text.note for text in criteria)) or ""
    return calls.JudgeCall(tuple(asked), Question(text, schema=schema), note=note)


def parse(call: calls.JudgeCall, text: str) -> dict[str, WrittenVerdict]:
    """Return the verdicts in the JSON object that ends a reply, by id; one without an id is that of the only criterion.

    A reply that is nothing but the list, or an object of verdicts by id, says the same. Where some are missing or
    invalid, the others are the ``content`` of the ReplyError.
    """
    scales = {one.id: one.criterion.scale for one in call.asked}
    only = call.asked[0].id if len(scales) == 1 else ""
    if not only and (listing := _LIST.fullmatch(text)):
        text = f'{{"verdicts": {listing[1]}}}'

    def entries(value: dict[str, Any]) -> list[dict[str, Any]]:
        listed = value.get("verdicts", [value])
        if value and value.keys() <= scales.keys() and all(isinstance(one, dict) for one in value.values()):
            listed = [{**one, "criterion": id_} for id_, one in value.items() if one.get("criterion", id_) == id_]
        elif {"verdict", "verdicts"} <= value.keys():
            raise ValueError("the JSON object holds both a verdict and a list of them")
        if not isinstance(listed, list) or not all(
            isinstance(one, dict) and "verdict" in one and isinstance(one.get("criterion", ""), str) for one in listed
        ):
            raise ValueError("the JSON object holds no verdict, or an id that is not a text")
        return [{**entry, "criterion": entry.get("criterion", "").strip() or only} for entry in listed]

    def claim(entry: dict[str, Any]) -> tuple[str, object]:
        try:
            return entry["criterion"], value_on_scale(scales[entry["criterion"]], entry["verdict"])
        except (KeyError, ValueError):
            return entry["criterion"], entry["verdict"]

    given: dict[str, dict[str, Any]] = {}
    for entry in calls.parse_items(text, entries, claim):
        id_ = entry["criterion"]
        if claim(given.setdefault(id_, entry)) != claim(entry):
            raise calls.ReplyError(Reason.CONTRADICTORY, f"the reply has two verdicts on {id_}")
    own, decided = text.replace(calls.json_objects(text)[-1][1], ""), [claim(entry)[1] for entry in given.values()]
    for stated in _STATED.finditer(own):  # an object of another form, or words; not those of a rationale
        word = stated[1].split(". ")[0]
        values = [value for id_ in given if (value := claim({"criterion": id_, "verdict": word})[1]) != word]
        if values and not any(value in decided for value in values) and stated[0] not in call.question.text:
            raise calls.ReplyError(Reason.CONTRADICTORY, f"the reply has another verdict, {word!r}, besides its last")
    missing = [id_ for id_ in scales if id_ not in given]
    content: dict[str, WrittenVerdict] = {}
    reason, wrong = Reason.WRONG_CRITERIA, f"asked {', '.join(scales)}; answered {', '.join(given) or 'none'}"
    errors = [wrong] if missing else []
    if missing and given.keys() - scales.keys():
        raise calls.ReplyError(reason, wrong)
    for id_ in [id_ for id_ in scales if id_ in given]:
        try:
            content[id_] = WrittenVerdict.model_validate(given[id_])
            value_on_scale(scales[id_], content[id_].verdict)
        except ValueError as error:
            content.pop(id_, None)
            if not missing:
                reason = Reason.UNPARSEABLE if isinstance(error, ValidationError) else Reason.OUT_OF_RANGE
            errors.append(f"{id_}: {error_text(error)}")
    if errors:
        raise calls.ReplyError(reason, "; ".join(errors), content, tuple(id_ for id_ in scales if id_ not in content))
    return content


def verdicts(
    call: calls.JudgeCall, parsed: calls.ParsedReply, judge: Judge, shown: calls.SharedPrompt
) -> list[Verdict]:
    """Return one verdict for each criterion of the call; one without the words or quotes that it needs is failed."""
    repeated, found = calls.load(judge).words.repeated_by, []
    for one in call.asked:
        scale, written = one.criterion.scale, parsed.content[one.id]
        quotes = tuple(shown.quotes.locate(quote) for quote in written.evidence if quote.strip())
        value, reason, fault = value_on_scale(scale, written.verdict), Reason.TEMPLATE_COPIED, ""
        if repeated("rationale", written.rationale) or any(
            repeated("evidence", quote.quote) for quote in quotes if quote.start is None
        ):
            fault = "the reply repeats the words of the judge's template"
        elif value is not None and judge.require_evidence:
            positive = value != 0.5 if scale == calls.PAIR else value > min(level_values(scale).values(), default=0.0)
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
