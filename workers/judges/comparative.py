"""Comparative: several completions of one prompt are set side by side, and a verdict is worth what it is beside them.

**Pairwise**: each two completions that meet are shown in both orders, and the judge says which of them a criterion fits
better, or neither. That is an ordinary question on the scale ``PAIR``, read as any readout or written verdict.

**Groupwise**: up to ``Comparison.group_size`` completions are shown at once, and the judge writes a score from 0 to 1
for each (RULER, OpenPipe/ART). Scores are joined by id. The reply must score exactly the answers shown, each on the
scale: one that is missing, foreign, twice there or off the scale fails them all, since scores are relative to each
other.

``workers.scoring.group_scoring`` chooses what is shown, and makes verdicts of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from string import ascii_uppercase
from typing import Any

from pydantic import BaseModel, ConfigDict

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Criterion, Level, Numeric, Ordinal, Rubric
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers.engines.base import Question, Reply
from workers.judges import readout, written
from workers.judges.requests import Asked, Call, joined, put
from workers.judges.template import Shown, Template, name_of
from workers.judges.thinking import apart
from workers.judges.written import UnreadError, exactly, last_object, object_of, sent_back, whole

VERSION = f"1, {readout.VERSION}, {written.VERSION}"
"""Part of the verdicts' fingerprint. Raise it when the same group would be shown in another way, or the same replies
made into other scores."""

LETTERS = ascii_uppercase
"""Ids of answers in one call; ``Comparison.group_size`` is never more."""

PAIR = Ordinal(
    levels=(
        Level(label="answer A", value=1.0),
        Level(label="answer B", value=0.0),
        Level(label="tie", value=0.5, text="it fits both equally well"),
    )
)
"""What a pair's verdict is worth to the answer shown first."""


class Score(BaseModel):
    """What the judge must write about one answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    answer: str
    rationale: str
    score: float


class Scores(BaseModel):
    """What it must write about a group."""

    model_config = ConfigDict(extra="forbid", strict=True)

    scores: list[Score]


def calls(asked: list[Asked], judge: Judge, template: Template) -> list[Call]:
    """Never any: one completion alone cannot be compared.

    Raises:
        InvalidError: always.
    """
    raise InvalidError(
        "a comparative judge needs two or more completions of a prompt side by side, and was given one",
        hint="submit a job with several completions of the prompt, or use a readout or a written judge",
    )


@lru_cache(maxsize=512)
def of_pairs(judge: Judge) -> Judge:
    """The judge that is asked about each pair."""
    mode = "written" if judge.effective_comparison.written else "readout"
    return judge.model_copy(update={"mode": mode, "template": judge.template or name_of(judge), "comparison": None})


@lru_cache(maxsize=512)
def on_pairs(rubric: Rubric) -> Rubric:
    """The rubric with each judged criterion put as a question on a pair."""
    criteria = tuple(c if c.check else c.model_copy(update={"scale": PAIR, "text": _told(c)}) for c in rubric.criteria)
    return rubric.model_copy(update={"criteria": criteria})


def _told(criterion: Criterion) -> str:
    """The criterion's text; what the levels of its scale mean is part of it, best first."""
    scale = criterion.scale
    if not isinstance(scale, Ordinal) or not any(level.text for level in scale.levels):
        return criterion.text
    levels = sorted(scale.levels, key=lambda level: -level.value)
    return "\n".join([criterion.text, *(f"- {level.label}: {level.text}" for level in levels)])


def on_group(criteria: Sequence[Criterion], size: int, template: Template) -> tuple[Call, ...]:
    """One call a criterion, on ``size`` answers under the first letters."""
    return tuple(_call(criterion, LETTERS[:size], template) for criterion in criteria)


def _call(criterion: Criterion, ids: str, template: Template) -> Call:
    asked = tuple(Asked(criterion, id_) for id_ in ids)
    plain = criterion.model_copy(update={"scale": Numeric(low=0.0, high=1.0), "text": _told(criterion)})
    text = put(Asked(plain, ""), template, "")
    tail = template.fill("criterion", {"criteria": text.text, "ids": ", ".join(ids)})
    return Call(asked, Question(tail, schema=_schema(ids)), note=text.note)


def _schema(ids: str) -> dict[str, Any]:
    score = object_of(
        {
            "answer": {"enum": list(ids)},
            "rationale": {"type": "string"},
            "score": {"type": "number", "minimum": 0, "maximum": 1},
        }
    )
    return object_of({"scores": {"type": "array", "items": score, "minItems": len(ids), "maxItems": len(ids)}})


def read(call: Call, reply: Reply, judge: Judge, shown: Shown) -> list[Verdict]:
    """One verdict for each answer of a group, in the order of their ids."""
    said = apart(reply, judge.thinking)
    try:
        by_id = _scores(call, said)
    except UnreadError as error:
        return call.failed(error.reason, str(error), said, shown)
    told = {
        "thinking": said.thinking or None,
        "detail": joined(said.note, shown.note, call.note),
        **call.spent(said),
    }
    return [
        Verdict.scored(
            one.criterion.key,
            by_id[one.id].score,
            rationale=by_id[one.id].rationale,
            **told,
        )
        for one in call.asked
    ]


def repair(call: Call, reply: Reply, judge: Judge, template: Template) -> Question | None:
    """The question that sends a reply back with its fault; None where it can be read, or no repair would help."""
    return sent_back(call, apart(reply, judge.thinking), template, _scores)


def _scores(call: Call, said: Reply) -> dict[str, Score]:
    """By answer's id.

    Raises:
        UnreadError: truncated, unparseable, wrong_criteria or out_of_range.
    """
    scores = whole(said, parse)
    exactly(call, [score.answer for score in scores])
    off = [f"{score.answer}: {score.score:g}" for score in scores if not 0.0 <= score.score <= 1.0]
    if off:
        raise UnreadError(Reason.OUT_OF_RANGE, f"scores that are not from 0 to 1: {', '.join(off)}")
    return {score.answer: score for score in scores}


def parse(reply: str) -> list[Score]:
    """The scores in the last JSON object of a reply.

    Raises:
        ValueError: there is none, it is broken, or it is not of the form that was asked for.
    """
    return Scores.model_validate(last_object(reply)).scores
