"""One call to a judge: which criteria it asks about, and what all ways of asking share when they read the reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rubricsvc.core.rubric import Criterion, Numeric
from rubricsvc.core.verdict import RAW_CHARS, Reason, Usage, Verdict
from rubricsvc.errors import cut
from workers.engines.base import Failure, Question, Reply
from workers.judges.template import Shown, Template
from workers.judges.untrusted import Clean, clean, fence


@dataclass(frozen=True, slots=True)
class Asked:
    """A criterion in a call. ``id`` is its number in the call, short enough for a judge to repeat."""

    criterion: Criterion
    id: str


@dataclass(frozen=True, slots=True)
class Call:
    """A question and the criteria that its reply must answer. ``values``: what each of its labels is worth; ``levels``:
    what it is called in the rubric. ``shares``: among how many verdicts its cost is divided (0: all that it asks)."""

    asked: tuple[Asked, ...]
    question: Question
    values: tuple[float, ...] = ()
    note: str = ""
    levels: tuple[str, ...] = ()
    shares: int = 0

    def failed(self, reason: Reason, detail: str, reply: Reply | Failure, shown: Shown, **more: Any) -> list[Verdict]:
        """No finding on any criterion of this call. ``more`` are fields of the verdicts."""
        note, thinking = (reply.note, reply.thinking) if isinstance(reply, Reply) else ("", "")
        told = {"detail": joined(detail, note, shown.note, self.note), "raw": raw(reply), "thinking": thinking or None}
        common = {**self.spent(reply), **told, **more}
        return [Verdict.failed(asked.criterion.key, reason, **common) for asked in self.asked]

    def spent(self, reply: Reply | Failure) -> dict[str, Any]:
        """Return one verdict's share of what the call used, and how long the call took."""
        if isinstance(reply, Failure):
            return {}
        return {"usage": share(reply.usage, self.shares or len(self.asked)), "latency_s": reply.latency_s}


def raw(reply: Reply | Failure) -> str | None:
    """What came, as it came; where it was sent back once, the first reply before it."""
    if isinstance(reply, Failure):
        return reply.raw
    return (
        f"{cut(reply.first_text, RAW_CHARS)}\n\n(sent back once, and then:)\n\n{reply.text}"
        if reply.first_text
        else reply.text
    )


def share(usage: Usage | None, among: int) -> Usage | None:
    """One of ``among`` equal shares of what was used."""
    if usage is None or among == 1:
        return usage
    return usage.share(among)


def joined(*notes: str | None) -> str | None:
    """What there is to say, or nothing."""
    return "; ".join(filter(None, notes)) or None


def put(one: Asked, template: Template, levels: str) -> Clean:
    """The criterion in the words of its scale's section. It is cleaned too: rubrics are imported and generated."""
    scale = one.criterion.scale
    text, shown = clean(one.criterion.text), clean(levels)
    low, high = (f"{scale.low:g}", f"{scale.high:g}") if isinstance(scale, Numeric) else ("", "")
    values = {"id": one.id, "criterion": text.text, "levels": shown.text, "low": low, "high": high}
    note = joined(text.note, shown.note)
    grounds, said = _grounds(one, template)
    note = joined(f"criterion {one.id}: {note}" if note else "", said) or ""
    return Clean(grounds + template.fill(scale.kind, values), note)


def _grounds(one: Asked, template: Template) -> tuple[str, str]:
    """The criterion's own reference and passages, each fenced; and what was cleaned out of them.

    They stand with the criterion, in what differs from question to question, so that the completion stays shared.
    """
    passages = "\n\n".join(f"[{n}] {text}" for n, text in enumerate(one.criterion.passages or (), start=1))
    given = {"reference": clean(one.criterion.reference or ""), "passages": clean(passages)}
    shown = [
        template.fill(name, {"id": one.id, name: fence(name, text.text)}) for name, text in given.items() if text.text
    ]
    notes = [f"{name} of {one.id}: {text.note}" for name, text in given.items() if text.note]
    return "".join(f"{text}\n\n" for text in shown), "; ".join(notes)
