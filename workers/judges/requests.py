"""Calls to a judge: which criteria they ask about, and what the verdicts of all modes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rubricsvc.core.rubric import Criterion, Level, Numeric, Ordinal
from rubricsvc.core.untrusted import CleanText, clean
from rubricsvc.core.verdict import RAW_CHARS, Reason, Verdict
from rubricsvc.errors import cut
from workers.engines.base import Question, Reply
from workers.judges.template import JudgeTemplate, SharedPrompt

PAIR = Ordinal(
    levels=(
        Level(label="answer A", value=1.0),
        Level(label="answer B", value=0.0),
        Level(label="tie", value=0.5, text="it fits both equally well"),
    )
)
"""The scale of a pair in `comparative`; values are those of the completion shown first."""


@dataclass(frozen=True, slots=True)
class AskedCriterion:
    """A criterion in a call. ``id`` is its number in the call, short enough for a judge to repeat."""

    criterion: Criterion
    id: str


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """A question and the criteria that its reply must answer.

    Attributes:
        asked: The criteria, in the order of their ids.
        question: What the engine is asked.
        values: Value of each of the question's labels, in [0, 1].
        note: What was cleaned out of the criteria.
        levels: Name of each label in the rubric.
    """

    asked: tuple[AskedCriterion, ...]
    question: Question
    values: tuple[float, ...] = ()
    note: str = ""
    levels: tuple[str, ...] = ()

    def failed(self, reason: Reason, detail: str, reply: Reply, shown: SharedPrompt, **fields: Any) -> list[Verdict]:
        """Return a failed verdict, with ``fields`` set, on each criterion of this call."""
        common = {**self.common_fields(reply, shown, detail), "raw": raw_text(reply), **fields}
        return [Verdict.failed(asked.criterion.key, reason, **common) for asked in self.asked]

    def common_fields(self, reply: Reply, shown: SharedPrompt, detail: str = "") -> dict[str, Any]:
        """Return what a verdict of any mode keeps of a reply: the notes, its thinking, and the usage."""
        return {
            "detail": join_notes(detail, reply.note, shown.note, self.note),
            "thinking": reply.thinking or None,
            "usage": reply.usage,
            "latency_s": reply.latency_s,
        }


def raw_text(reply: Reply) -> str:
    """Return the reply as it came; after a repair, with the first reply before it."""
    first = f"{cut(reply.first_text, RAW_CHARS)}\n\n(reply after one repair:)\n\n" if reply.first_text else ""
    return first + reply.text


def join_notes(*notes: str | None) -> str | None:
    """Return the notes that are not empty as one, or None."""
    return "; ".join(filter(None, notes)) or None


def render_criterion(asked: AskedCriterion, template: JudgeTemplate, levels: str) -> CleanText:
    """Return the criterion in the template's section for its scale, after its reference and passages.

    Rubrics may be imported or generated, so their text is cleaned too.
    """
    scale = asked.criterion.scale
    text, clean_levels = clean(asked.criterion.text), clean(levels)
    low, high = (f"{scale.low:g}", f"{scale.high:g}") if isinstance(scale, Numeric) else ("", "")
    values = {"id": asked.id, "criterion": text.text, "levels": clean_levels.text, "low": low, "high": high}
    note = join_notes(text.note, clean_levels.note)
    grounds = _render_grounds(asked, template)
    note = join_notes(f"criterion {asked.id}: {note}" if note else "", grounds.note) or ""
    return CleanText(grounds.text + template.fill(scale.kind, values), note)


def _render_grounds(asked: AskedCriterion, template: JudgeTemplate) -> CleanText:
    """Return the criterion's own reference and passages, each fenced.

    They belong to the question, not to the shared part of the prompt, so that all questions share the completion.
    """
    passages = "\n\n".join(f"[{n}] {text}" for n, text in enumerate(asked.criterion.passages or (), start=1))
    grounds = {"reference": clean(asked.criterion.reference or ""), "passages": clean(passages)}
    rendered = [
        template.fill(name, {"id": asked.id, name: template.fenced(name, text.text)}) + "\n\n"
        for name, text in grounds.items()
        if text.text
    ]
    notes = [f"{name} of {asked.id}: {text.note}" for name, text in grounds.items() if text.note]
    return CleanText("".join(rendered), "; ".join(notes))
