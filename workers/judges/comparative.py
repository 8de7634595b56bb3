"""Comparative: several completions of one prompt are judged side by side, and values are relative to the group.

**Pairwise**: each two paired completions are shown in both orders, and the judge names the one that a criterion fits
better, or a tie. That is a question on the scale ``PAIR``, asked as by a readout or a written judge.

**Groupwise**: up to ``Comparison.group_size`` completions are shown at once, and the judge writes a score from 0 to 1
for each (RULER, OpenPipe/ART). Scores are relative to each other, so a missing, unknown or repeated id, or a score out
of range, fails them all.

`workers.scoring.completions` chooses what is shown, and aggregates the verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import ceil
from statistics import fmean
from string import ascii_uppercase

from pydantic import TypeAdapter

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Criterion, Numeric, Ordinal, Scale
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import InvalidError
from workers.engines.base import Question
from workers.judges import readout, written
from workers.judges.calls import (
    PAIR,
    AskedCriterion,
    JudgeCall,
    JudgeTemplate,
    ParsedReply,
    ReplyError,
    ReplyModel,
    SharedPrompt,
    load,
    object_schema,
    parse_items,
    render_criterion,
)

VERSION = f"3, {readout.VERSION}, {written.VERSION}"
"""As in the other modes: raise it when a group would be shown, or its replies made into scores, in another way."""

LETTERS = ascii_uppercase  # ids of completions in one call; ``Comparison.group_size`` is never larger


class GroupScore(ReplyModel):
    """What the judge must write about one completion."""

    answer: str
    rationale: str
    score: float


_SCORES = TypeAdapter(list[GroupScore])


def build_call(_asked: Sequence[AskedCriterion], _template: JudgeTemplate) -> JudgeCall:
    """Raise an InvalidError: one completion alone cannot be compared."""
    raise InvalidError(
        "a comparative judge needs two or more completions of a prompt, found one",
        hint="submit a job with several completions of the prompt, or use a readout or a written judge",
    )


def on_scale(criterion: Criterion, scale: Scale = PAIR) -> Criterion:
    """Return the criterion on a scale; its text is followed by the descriptions of its own levels, best first."""
    text, own = criterion.text, criterion.scale
    if isinstance(own, Ordinal) and any(level.text for level in own.levels):
        levels = sorted(own.levels, key=lambda level: -level.value)
        text = "\n".join([text, *(f"- {level.label}: {level.text}" for level in levels)])
    return criterion.model_copy(update={"scale": scale, "text": text})


def group_calls(criteria: Sequence[Criterion], size: int, template: JudgeTemplate) -> tuple[JudgeCall, ...]:
    """Return one call for each criterion about ``size`` completions under the first letters."""
    ids, calls = LETTERS[:size], []
    fields = {
        "answer": {"enum": list(ids)},
        "rationale": {"type": "string"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
    }
    scores = {"type": "array", "items": object_schema(fields), "minItems": size, "maxItems": size}
    for criterion in criteria:
        rendered = render_criterion(AskedCriterion(on_scale(criterion, Numeric(low=0.0, high=1.0)), ""), template, "")
        text = template.fill("criterion", {"criteria": rendered.text, "ids": ", ".join(ids)})
        asked = tuple(AskedCriterion(criterion, id_) for id_ in ids)
        calls.append(JudgeCall(asked, Question(text, schema=object_schema({"scores": scores})), note=rendered.note))
    return tuple(calls)


def parse(call: JudgeCall, text: str) -> dict[str, GroupScore]:
    """Return the scores in the JSON object that ends a reply, by id: exactly those that were asked, each once."""
    given = parse_items(text, lambda value: _SCORES.validate_python(value.get("scores")), lambda s: (s.answer, s.score))
    asked, answered = [one.id for one in call.asked], [score.answer for score in given]
    if sorted(asked) != sorted(answered):
        raise ReplyError(Reason.WRONG_CRITERIA, f"asked {', '.join(asked)}; answered {', '.join(answered) or 'none'}")
    if invalid := [f"{score.answer}: {score.score:g}" for score in given if not 0.0 <= score.score <= 1.0]:
        raise ReplyError(Reason.OUT_OF_RANGE, f"scores must be from 0 to 1, found {', '.join(invalid)}")
    return {score.answer: score for score in given}


def verdicts(call: JudgeCall, parsed: ParsedReply, judge: Judge, shown: SharedPrompt) -> list[Verdict]:
    """Return one verdict for each completion of the group, in the order of their ids."""
    scores: dict[str, GroupScore] = parsed.content
    reply, common = parsed.reply, call.common_fields(parsed.reply, shown)
    if any(load(judge).words.repeated_by("rationale", score.rationale) for score in scores.values()):
        return call.failed(Reason.TEMPLATE_COPIED, "the reply repeats the words of the judge's template", reply, shown)
    return [
        Verdict.scored(one.criterion.key, scores[one.id].score, rationale=scores[one.id].rationale, **common)
        for one in call.asked
    ]


ANCHORS = 2  # members that all parts of a group share


def pairings(count: int, opponents: int | None = None) -> list[tuple[int, int]]:
    """Return the pairs of ``count`` members: all, or ``opponents`` for each (one more where that cannot be even).

    The design is a circulant graph: each member is paired with those at the same distances around a circle, so that
    all have equally many pairs and, from two opponents on, the graph is connected.
    """
    if opponents is None or opponents >= count - 1:
        return list(combinations(range(count), 2))
    distances = set(range(1, opponents // 2 + 1))
    if opponents % 2:
        distances.add(count // 2 if count % 2 == 0 else opponents // 2 + 1)
    pairs = {(member, (member + distance) % count) for member in range(count) for distance in distances}
    return sorted({(min(pair), max(pair)) for pair in pairs})


def overlapping_parts(count: int, size: int) -> list[tuple[int, ...]]:
    """Return ``count`` members in parts of at most ``size``; several parts share the first `ANCHORS` members."""
    if count <= size:
        return [tuple(range(count))]
    shared = min(ANCHORS, size - 1)
    number = ceil((count - shared) / (size - shared))
    return [(*range(shared), *range(shared + part, count, number)) for part in range(number)]


def align_scores(scores: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the scores of several parts, given by member, on one scale in [0, 1].

    A judge may be stricter in one part than in another: each part's scores are shifted so that the mean of the shared
    members equals its mean over the parts. A shared member gets the mean of its shifted scores.
    """
    if not scores:
        return {}
    shared = set.intersection(*(set(part) for part in scores))
    means = [fmean(part[member] for member in sorted(shared)) for part in scores]
    common = fmean(means)
    shifted: dict[int, list[float]] = {}
    for part, mean in zip(scores, means, strict=True):
        for member, score in part.items():
            shifted.setdefault(member, []).append(min(1.0, max(0.0, score + (common - mean))))
    return {member: fmean(values) for member, values in shifted.items()}


def win_rate(pairs: Sequence[tuple[float, int]], ties: int = 0) -> float | None:
    """Return a member's mean score over its pairs, None without any; ``ties`` is the number of completions equal to it.

    A pair is a score in [0, 1] and the number of completions that the opponent stands for.
    """
    weight = sum(count for _, count in pairs) + ties
    return (sum(score * count for score, count in pairs) + 0.5 * ties) / weight if weight else None


def top_n(scores: Mapping[int, float], n: int) -> dict[int, float]:
    """Return 1 for the ``n`` best, and for ties with the last of them, and 0 for the others (reward_hub, groupwise)."""
    least = min(sorted(scores.values(), reverse=True)[:n], default=0.0)
    return {member: float(score >= least) for member, score in scores.items()}
