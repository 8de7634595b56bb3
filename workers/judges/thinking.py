"""Thinking: reasoning before the reply, split off so that it is never parsed as a verdict."""

from __future__ import annotations

from dataclasses import replace

from rubricsvc.core.judge import Thinking
from workers.engines.base import THINKING_CHARS, Reply

_DEFAULT = Thinking()


def split_thinking(reply: Reply, thinking: Thinking | None) -> Reply:
    """Return the reply with its thinking in a field of its own.

    Thinking ends at the last closing mark: what it quotes before that is part of it. The opening mark may be missing,
    since many chat templates write it themselves. A judge without thinking options has the default marks. The result
    has an ``error`` if the reply was cut off, or if the server counted more thinking than the budget.
    """
    marks = thinking or _DEFAULT
    before, closed, after = reply.text.rpartition(marks.closes)
    unclosed = marks.opens in (after if closed else reply.text).split("{", 1)[0]
    if unclosed or not closed:
        before, after = (reply.text, "") if unclosed else ("", reply.text)
    text = "\n".join(filter(None, (reply.thinking, before.strip().removeprefix(marks.opens).strip())))
    error = ""
    if reply.truncated or unclosed:
        where = "inside its thinking" if text and not after else "before its verdict"
        error = f"the reply was cut off {where}; raise the judge's max_tokens"
    elif thinking and (reply.thinking_tokens or 0) > thinking.budget_tokens:
        error = (
            f"the reply has {reply.thinking_tokens:.0f} thinking tokens, over the budget of {thinking.budget_tokens}"
        )
    return replace(reply, text=after, thinking=text[:THINKING_CHARS], error=error)
