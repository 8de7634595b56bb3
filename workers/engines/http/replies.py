"""Parsers of response bodies. Nothing in a body is trusted: whatever is wrong with it becomes a `Failure`."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

from rubricsvc.core.verdict import RAW_CHARS, Reason, Usage
from rubricsvc.errors import cut
from workers.engines.base import THINKING_CHARS, Failure, Question, Reply, normalize_token
from workers.engines.http.client import MAX_BODY_BYTES, raw_text

PARSE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)
"""The exceptions of reading a JSON text that is not what it should be."""

_MAX_TOKENS = 1e9


def read_chat_completion(body: bytes, question: Question, max_context: int | None = None) -> Reply | Failure:
    """Return the reply to ``question`` in the body of a ``/v1/chat/completions`` response with status 200."""
    raw = raw_text(body)
    if len(body) > MAX_BODY_BYTES:
        return Failure(Reason.UNPARSEABLE, f"the response is larger than {MAX_BODY_BYTES} bytes", raw)
    try:
        data = json.loads(body)
        choice, counts = data["choices"][0], _dict(data.get("usage"))
        usage = _usage(counts)
        if max_context is not None and usage is not None and usage.prompt > max_context:
            detail = f"the prompt has {usage.prompt:.0f} tokens, max_context is {max_context}"
            return Failure(Reason.TOO_LONG, detail, raw)
        truncated = choice.get("finish_reason") == "length"
        message = choice["message"]
        text, refusal = _text(message.get("content")), message.get("refusal")
        filtered = choice.get("finish_reason") == "content_filter"  # what text there is was cut off
        if filtered or (refusal and not text):
            return Failure(Reason.DECLINED, cut(str(refusal or "content_filter"), RAW_CHARS), raw)
        if not question.labels:
            thinking = str(message.get("reasoning_content") or message.get("reasoning") or "")[:THINKING_CHARS]
            count = _dict(counts.get("completion_tokens_details")).get("reasoning_tokens")
            thought = float(count) if isinstance(count, int | float) else None
            return Reply(text, truncated=truncated, usage=usage, thinking=thinking, thinking_tokens=thought)
        first = ((choice.get("logprobs") or {}).get("content") or [{}])[0]
        listed = [(entry["token"], entry["logprob"]) for entry in first.get("top_logprobs") or ()]
        return _readout(listed, question.labels, raw, text, usage)
    except PARSE_ERRORS as error:
        detail = f"the response is not a chat completion: {_describe(error, raw)}"
        return Failure(Reason.UNPARSEABLE, detail, raw)


def read_completions(body: bytes, questions: Sequence[Question], *, usage_sums_cached: bool) -> list[Reply | Failure]:
    """Return the replies to ``questions`` with labels in the body of a ``/v1/completions`` response with status 200.

    With ``usage_sums_cached`` its usage counts the cached tokens of all prompts, else of the last alone.
    """
    raw, count = raw_text(body), len(questions)
    try:
        data = json.loads(body)
        choices = sorted(data["choices"], key=itemgetter("index"))
        if len(choices) != count:
            raise ValueError(f"{len(choices)} choices for {count} prompts")
        total = _usage(_dict(data.get("usage")), count, sums_cached=usage_sums_cached)
        usages = total.split(count) if total else [None] * count
        return [
            _readout(_first_tokens(choice), question.labels, raw, _text(choice.get("text")), usage)
            for choice, question, usage in zip(choices, questions, usages, strict=True)
        ]
    except PARSE_ERRORS as error:
        detail = f"the response is not a list of completions: {_describe(error, raw)}"
        return [Failure(Reason.UNPARSEABLE, detail, raw)] * count


def _first_tokens(choice: dict[str, Any]) -> Collection[tuple[str, float]]:
    listed = (choice.get("logprobs") or {}).get("top_logprobs") or [None]
    return (listed[0] or {}).items()


def _describe(error: Exception, raw: str) -> str:
    if raw.lstrip().startswith("<"):
        return "it is HTML or XML; is the URL that of an API, such as http://HOST:8000/v1?"
    if isinstance(error, IndexError):
        return "it has no choices"
    return f"no field {error}" if isinstance(error, KeyError) else str(error)


def _text(content: Any) -> str:
    """Return the text of a message: its content, or the text parts of a list of parts; null is empty."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part["type"] == "text")
    if not isinstance(content, str | None):
        raise TypeError(f"content {cut(repr(content), 80)} is not text")
    return content or ""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _usage(usage: dict[str, Any], prompts: int = 1, *, sums_cached: bool = True) -> Usage | None:
    """Return the tokens that the server counted; None where a count is missing or impossible.

    A verdict does not need them, and a budget charges the maximum, where a count of 0 would be free. Cached tokens may
    be missing. Where they are the last prompt's alone, the prompts before it, except the first, had as many.
    """
    reported = _dict(usage.get("prompt_tokens_details")).get("cached_tokens")
    counts: list[Any] = [usage.get("prompt_tokens"), reported or 0, usage.get("completion_tokens")]
    if not all(type(count) in (int, float) and 0 <= count <= _MAX_TOKENS for count in counts):
        return None
    prompt, cached, completion = (math.ceil(count) for count in counts)
    if not 0 < prompt >= cached:
        return None
    if not sums_cached:
        cached = min(cached * max(1, prompts - 1), prompt)
    return Usage(prompt=prompt, cached=None if reported is None else cached, completion=completion)


def _readout(
    listed: Collection[tuple[str, float]], labels: tuple[str, ...], raw: str, text: str, usage: Usage | None
) -> Reply | Failure:
    """Return a reply with the probability of each label as the first token, summed over its spellings in ``listed``.

    A label that is not listed counts as 0: its probability is less than that of the last token listed.
    """
    if not listed:
        advice = "enable top_logprobs (vLLM: --max-logprobs 20), or use a judge with mode `written`"
        return Failure(Reason.NO_LOGPROBS, f"the server sent no log-probabilities; {advice}", raw)
    mass = dict.fromkeys(labels, 0.0)
    by_token = {normalize_token(label): label for label in labels}
    for token, logprob in listed:
        if isinstance(logprob, bool) or not isinstance(logprob, int | float):
            raise TypeError(f"log-probability {cut(repr(logprob), 80)} is not a number")
        if math.isnan(logprob) or logprob > 1e-3:  # slightly over 0 is rounding
            return Failure(Reason.OUT_OF_RANGE, f"log-probability {logprob} of token {token!r}", raw)
        if (label := by_token.get(normalize_token(token))) is not None:
            mass[label] = min(1.0, mass[label] + math.exp(logprob))
    return Reply(text, mass, usage=usage)
