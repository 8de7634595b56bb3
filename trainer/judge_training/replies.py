"""The reply that a perfect written judge gives, and which targets have what such a reply needs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rubricsvc.core.judge import Judge
from trainer.judge_training.examples import Example, Target
from workers.engines.base import Reply
from workers.judges import written
from workers.judges.calls import AskedCriterion, JudgeCall, parse_reply
from workers.judges.template import SharedPrompt, load


def reply_of(call: JudgeCall, targets: Sequence[Target]) -> str:
    """Return the JSON that answers a call: rationale, quotes and verdict of each of its criteria."""
    entries = [
        {
            "criterion": asked.id,
            "rationale": target.rationale.strip(),
            "evidence": list(target.evidence),
            "verdict": written.verdict_on_scale(target.criterion.scale, target.value),
        }
        for asked, target in zip(call.asked, targets, strict=True)
    ]
    return json.dumps(entries[0] if len(entries) == 1 else {"verdicts": entries}, ensure_ascii=False)


def learnable(judge: Judge, example: Example, left_out: Counter[str]) -> Example | None:
    """Return the example with the targets that a written judge can learn; None without any.

    The others are counted in ``left_out`` by reason: ``custom_prompt``, ``no_rationale``, ``undecided`` (a value
    halfway between two levels), ``quote_not_found``, or the reason for which a worker would fail the verdict.
    """
    shown = load(judge).shared(example.prompt, example.completion)
    kept = []
    for target in example.targets:
        if reason := _missing(judge, target, shown):
            left_out[reason] += 1
        else:
            kept.append(target)
    return replace(example, targets=tuple(kept)) if kept else None


def _missing(judge: Judge, target: Target, shown: SharedPrompt) -> str:
    """Return why no reply can be learned; empty if one can."""
    if target.criterion.custom_prompt is not None:
        return "custom_prompt"
    if not target.rationale.strip():
        return "no_rationale"
    if written.verdict_on_scale(target.criterion.scale, target.value) is None:
        return "undecided"
    call = written.build_call([AskedCriterion(target.criterion, "C1")], load(judge))
    parsed = parse_reply(Reply(reply_of(call, [target])), None, partial(written.parse, call))
    if parsed.error:
        return str(parsed.error.reason)
    (verdict,) = written.verdicts(call, parsed, judge, shown)
    if verdict.reason:
        return str(verdict.reason)
    return "quote_not_found" if any(quote.start is None for quote in verdict.evidence) else ""
