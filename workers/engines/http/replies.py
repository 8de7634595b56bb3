"""Parsers of response bodies. Nothing in a body is trusted: whatever is wrong with it becomes a `Failure`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
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
        choice, counts = _choice(data), _dict(data.get("usage"))
        usage = _usage(counts)
        if max_context is not None and usage is not None and usage.prompt > max_context:
            detail = f"the prompt has {usage.prompt:.0f} tokens, max_context is {max_context}"
            return Failure(Reason.TOO_LONG, detail, raw)
        truncated = choice.get("finish_reason") == "length"
        message = choice["message"]
        text = message.get("content") or ""
        refusal = message.get("refusal") or (choice.get("finish_reason") == "content_filter" and "content_filter")
        if refusal and not text:
            return Failure(Reason.DECLINED, cut(str(refusal), RAW_CHARS), raw)
        if not question.labels:
            thinking = str(message.get("reasoning_content") or message.get("reasoning") or "")[:THINKING_CHARS]
            count = _dict(counts.get("completion_tokens_details")).get("reasoning_tokens")
            thought = float(count) if isinstance(count, int | float) else None
            return Reply(str(text), truncated=truncated, usage=usage, thinking=thinking, thinking_tokens=thought)
        first = ((choice.get("logprobs") or {}).get("content") or [{}])[0]
        mass = _label_mass(first.get("top_logprobs"), question.labels)
    except PARSE_ERRORS as error:
        return Failure(Reason.UNPARSEABLE, f"the response is not a chat completion: {_describe(error)}", raw)
    return Failure(mass.reason, mass.detail, raw) if isinstance(mass, Failure) else Reply(str(text), mass, usage=usage)


def read_completions(body: bytes, questions: Sequence[Question], *, usage_sums_cached: bool) -> list[Reply | Failure]:
    """Return the replies in the body of a ``/v1/completions`` response with status 200, in the order of ``questions``.

    Args:
        body: The body, with one choice for each question.
        questions: Questions with labels.
        usage_sums_cached: Whether the usage counts the cached tokens of all prompts, or of the last alone.
    """
    raw = raw_text(body)
    try:
        data = json.loads(body)
        choices = {choice["index"]: choice for choice in data["choices"]}
        if sorted(choices) != list(range(len(questions))):
            raise ValueError(f"{len(data['choices'])} choices for {len(questions)} prompts")
        usage = _share(_usage(_dict(data.get("usage"))), len(questions), usage_sums_cached)
    except PARSE_ERRORS as error:
        detail = f"the response is not a list of completions: {_describe(error)}"
        return [Failure(Reason.UNPARSEABLE, detail, raw)] * len(questions)
    return [_completion(choices[n], question, usage, raw) for n, question in enumerate(questions)]


def _completion(choice: dict[str, Any], question: Question, usage: Usage | None, raw: str) -> Reply | Failure:
    try:
        listed = ((choice.get("logprobs") or {}).get("top_logprobs") or [{}])[0] or {}
        entries = [{"token": token, "logprob": logprob} for token, logprob in listed.items()]
        mass = _label_mass(entries, question.labels)
        text = str(choice.get("text") or "")
    except PARSE_ERRORS as error:
        return Failure(Reason.UNPARSEABLE, f"the choice is not a completion: {_describe(error)}", raw)
    return Failure(mass.reason, mass.detail, raw) if isinstance(mass, Failure) else Reply(text, mass, usage=usage)


def _describe(error: Exception) -> str:
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


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _usage(usage: dict[str, Any]) -> Usage | None:
    """Return the tokens that the server counted; None where a count is missing or impossible.

    A verdict does not need them, and a budget charges the maximum, where a count of 0 would be free.
    """
    cached = _dict(usage.get("prompt_tokens_details")).get("cached_tokens")
    counts: list[Any] = [usage.get("prompt_tokens"), cached or 0, usage.get("completion_tokens")]
    if not all(type(count) in (int, float) and 0 <= count <= _MAX_TOKENS for count in counts):
        return None
    prompt, cached, completion = map(float, counts)
    return Usage(prompt=prompt, cached=cached, completion=completion) if cached <= prompt and prompt else None


def _share(usage: Usage | None, count: int, usage_sums_cached: bool) -> Usage | None:
    """Return one prompt's share.

    Where the cached tokens are the last prompt's alone, the prompts before it, except the first, had as many.
    """
    if usage is None:
        return None
    cached = usage.cached if usage_sums_cached else usage.cached * max(1, count - 1)
    cached = min(cached, usage.prompt)
    return Usage(prompt=usage.prompt / count, cached=cached / count, completion=usage.completion / count)


def _label_mass(listed: list[dict[str, Any]] | None, labels: tuple[str, ...]) -> dict[str, float] | Failure:
    """Return the probability of each label as the first token, summed over its spellings among the listed tokens.

    A label that is not listed counts as 0: its probability is less than that of the last token listed.
    """
    if not listed:
        advice = "enable top_logprobs (vLLM: --max-logprobs 20), or use a judge with mode `written`"
        return Failure(Reason.NO_LOGPROBS, f"the server sent no log-probabilities; {advice}")
    mass = dict.fromkeys(labels, 0.0)
    by_token = {normalize_token(label): label for label in labels}
    for entry in listed:
        logprob = entry["logprob"]
        if isinstance(logprob, bool) or not isinstance(logprob, int | float):
            raise TypeError(f"log-probability {cut(repr(logprob), 80)} is not a number")
        if math.isnan(logprob) or logprob > 1e-3:  # slightly over 0 is rounding
            return Failure(Reason.OUT_OF_RANGE, f"log-probability {logprob} of token {entry['token']!r}")
        if (label := by_token.get(normalize_token(entry["token"]))) is not None:
            mass[label] = min(1.0, mass[label] + math.exp(logprob))
    return mass
