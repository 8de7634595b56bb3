"""What a chat completion's body says, read without trust: whatever is wrong with it becomes a Failure."""

from __future__ import annotations

import json
import math
from typing import Any

from rubricsvc.core.verdict import RAW_CHARS, Reason, Usage
from rubricsvc.errors import cut
from workers.engines.base import THINKING_CHARS, Failure, Question, Reply, normalize_token

LARGEST_BODY = 8 * 2**20
"""Bytes that are read of a response of any status. A verdict has some thousand; no server may fill the memory."""

BROKEN = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)
"""What comes of reading a JSON text that is not what it should be."""

_MOST_TOKENS = 1e9


def read_reply(body: bytes, question: Question, max_context: int | None = None) -> Reply | Failure:
    """The reply to ``question`` in the body of a ``/v1/chat/completions`` response with status 200."""
    raw = body[: 4 * RAW_CHARS].decode("utf-8", "replace")[:RAW_CHARS]
    if len(body) > LARGEST_BODY:
        return Failure(Reason.UNPARSEABLE, f"the server's reply is over {LARGEST_BODY} bytes", raw)
    try:
        data = json.loads(body)
        choice, usage = _choice(data), usage_of(data)
        if max_context is not None and usage is not None and usage.prompt > max_context:
            detail = f"{usage.prompt:.0f} tokens are over this judge's max_context of {max_context}"
            return Failure(Reason.TOO_LONG, detail, raw)
        truncated = choice.get("finish_reason") == "length"
        message = choice["message"]
        text = message.get("content") or ""
        refusal = message.get("refusal") or (choice.get("finish_reason") == "content_filter" and "content_filter")
        if refusal and not text:
            return Failure(Reason.DECLINED, cut(str(refusal), RAW_CHARS), raw)
        if not question.labels:
            thinking = str(message.get("reasoning_content") or message.get("reasoning") or "")[:THINKING_CHARS]
            return Reply(
                str(text), truncated=truncated, usage=usage, thinking=thinking, thinking_tokens=_thinking_tokens(data)
            )
        first = ((choice.get("logprobs") or {}).get("content") or [{}])[0]
        mass = label_mass(first.get("top_logprobs"), question.labels)
    except BROKEN as error:
        return Failure(Reason.UNPARSEABLE, f"the server's reply is not a chat completion: {_say(error)}", raw)
    return Failure(mass.reason, mass.detail, raw) if isinstance(mass, Failure) else Reply(str(text), mass, usage=usage)


def _say(error: Exception) -> str:
    return f"no field {error}" if isinstance(error, KeyError) else str(error)


def _choice(data: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(data.get("id", ""), str):
        raise ValueError(f"its id is {data['id']!r}")
    if not data["choices"]:
        raise ValueError("it has no choices")
    choice: dict[str, Any] = data["choices"][0]
    if choice.get("index", 0) != 0:
        raise ValueError(f"its first choice has index {choice['index']!r}")
    return choice


def usage_of(data: dict[str, Any]) -> Usage | None:
    """The tokens that the server counted. Counts that cannot be (a prompt has some), or of which one is missing, are
    none: a verdict stands without them, and a budget books the worst, where a count of 0 would be free."""
    given = data.get("usage")
    if not isinstance(given, dict):
        return None
    details = given.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    counts: list[Any] = [given.get("prompt_tokens"), cached or 0, given.get("completion_tokens")]
    if not all(type(count) in (int, float) and 0 <= count <= _MOST_TOKENS for count in counts):
        return None
    prompt, cached, completion = map(float, counts)
    return Usage(prompt=prompt, cached=cached, completion=completion) if cached <= prompt and prompt else None


def _thinking_tokens(data: dict[str, Any]) -> float | None:
    """The tokens of its thinking; None where the server does not count them."""
    usage = data.get("usage")
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    count = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return float(count) if isinstance(count, int | float) else None


def label_mass(listed: list[dict[str, Any]] | None, labels: tuple[str, ...]) -> dict[str, float] | Failure:
    """Probability of each label as the first token, over all spellings among the tokens that the server lists.

    A label that is not listed counts as 0: it has less than the last one listed.
    """
    if not listed:
        advice = "let it send top_logprobs (vLLM: --max-logprobs 20), or give the judge mode `written`"
        return Failure(Reason.NO_LOGPROBS, f"the server sent no log-probabilities; {advice}")
    mass = dict.fromkeys(labels, 0.0)
    by_spelling = {normalize_token(label): label for label in labels}
    for entry in listed:
        logprob = entry["logprob"]
        if isinstance(logprob, bool) or not isinstance(logprob, int | float):
            raise TypeError(f"log-probability {cut(repr(logprob), 80)} is no number")
        if math.isnan(logprob) or logprob > 1e-3:  # a hair over 0 is rounding
            return Failure(Reason.OUT_OF_RANGE, f"log-probability {logprob} of token {entry['token']!r}")
        if (label := by_spelling.get(normalize_token(entry["token"]))) is not None:
            mass[label] = min(1.0, mass[label] + math.exp(logprob))
    return mass
