"""A reply's thinking, set apart from what it says. Thinking is never read as a verdict."""

from __future__ import annotations

from dataclasses import replace

from rubricsvc.core.judge import Thinking
from workers.engines.base import THINKING_CHARS, Reply

_USUAL = Thinking()


def apart(reply: Reply, thinking: Thinking | None) -> Reply:
    """The reply with its thinking in a field of its own; with an ``error`` where it was cut off, or thought for longer
    than its budget by the server's count.

    Thinking ends at the last closing mark: what it quotes before that is part of it. The opening mark may be missing,
    since many chat templates write it themselves. A judge that was not told to think has the usual marks.
    """
    marks = thinking or _USUAL
    before, closed, after = reply.text.rpartition(marks.closes)
    inside = marks.opens in (after if closed else reply.text).split("{", 1)[0]
    if inside or not closed:
        before, after = (reply.text, "") if inside else ("", reply.text)
    thought = "\n".join(filter(None, (reply.thinking, before.strip().removeprefix(marks.opens).strip())))
    fault = ""
    if reply.truncated or inside:
        where = "inside its thinking" if thought and not after else "before its verdict"
        fault = f"the reply was cut off {where}; the judge may need more max_tokens"
    elif thinking and (reply.thinking_tokens or 0) > thinking.budget_tokens:
        fault = f"it thought for {reply.thinking_tokens:.0f} tokens, over its budget of {thinking.budget_tokens}"
    return replace(reply, text=after, thinking=thought[:THINKING_CHARS], error=fault)
