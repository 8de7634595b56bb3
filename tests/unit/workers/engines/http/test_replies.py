import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricsvc.core.verdict import Reason, Usage
from tests.scripted_server import ScriptedReply, labels
from workers.engines.base import Failure, Question, Reply
from workers.engines.http.client import read_chat_completion, read_completions

YES_NO, WRITTEN = Question("", ("Yes", "No")), Question("")


def reply_of(body: bytes, question: Question = WRITTEN) -> Reply:
    reply = read_chat_completion(body, question, max_context=1000)
    assert isinstance(reply, Reply)
    return reply


def failure_of(body: bytes, question: Question = WRITTEN, max_context: int | None = None) -> Failure:
    failure = read_chat_completion(body, question, max_context)
    assert isinstance(failure, Failure) and "' object " not in (failure.detail or "")
    return failure


def test_label_mass_sums_spellings() -> None:
    spellings = (" yes", "YES\n", "**Yes", '"Yes', "▁Yes", "ĠYes")
    say = ScriptedReply(logprobs={"Yesterday": -1.0} | dict.fromkeys(spellings, -3.0))
    assert reply_of(say.payload(), YES_NO).label_mass == {"Yes": pytest.approx(6 * math.exp(-3)), "No": 0.0}


def test_usage_counts_cached_tokens() -> None:
    usage = {"prompt_tokens": 120, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 96}}
    assert reply_of(ScriptedReply(usage=usage).payload()).usage == Usage(prompt=120, cached=96, completion=1)


@pytest.mark.parametrize("details", [{}, {"prompt_tokens_details": None}, {"prompt_tokens_details": {}}])
def test_usage_without_cached_tokens_is_uncounted(details: dict[str, Any]) -> None:
    usage = {"prompt_tokens": 121, "completion_tokens": 2} | details
    assert reply_of(ScriptedReply(usage=usage).payload()).usage == Usage(prompt=121, cached=None, completion=2)
    choices = [{"index": n, "logprobs": {"top_logprobs": [{"Yes": -0.1}]}} for n in range(2)]
    body = json.dumps({"choices": choices, "usage": usage}).encode()
    replies = read_completions(body, [YES_NO] * 2, usage_sums_cached=True)
    assert [one.usage for one in replies if isinstance(one, Reply)] == [
        Usage(prompt=61, cached=None, completion=1),
        Usage(prompt=60, cached=None, completion=1),
    ]


def test_usage_that_is_impossible_is_dropped() -> None:
    for usage in [
        {},
        {"total_tokens": 5000},
        {"input_tokens": 10, "output_tokens": 5},
        {"prompt_tokens": 10},
        {"prompt_tokens": None, "completion_tokens": 5},
        {"prompt_tokens": True, "completion_tokens": 5},
        {"prompt_tokens": -1, "completion_tokens": 5},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": 10, "completion_tokens": -5},
        {"prompt_tokens": 10**15, "completion_tokens": 5},
        {"prompt_tokens": math.nan, "completion_tokens": 5},
        {"prompt_tokens": "ten", "completion_tokens": 5},
        {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 11}},
        {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": [1]}},
        [7],
    ]:
        reply = reply_of(ScriptedReply("fine", usage=usage).payload())
        assert (reply.text, reply.usage) == ("fine", None)


def test_refusal_is_declined() -> None:
    for choice in [
        {"finish_reason": "stop", "message": {"role": "assistant", "content": "met", "refusal": "I cannot help."}},
        *({"finish_reason": one, "message": {"content": "met"}} for one in ("SAFETY", "RECITATION", "refusal")),
        {"finish_reason": "content_filter", "message": {"role": "assistant", "content": "cut off in the mid"}},
    ]:
        reply = failure_of(ScriptedReply(extra={"choices": [choice]}).payload())
        assert reply.reason is Reason.DECLINED and reply.detail in ("I cannot help.", "content_filter")


def content(value: Any) -> bytes:
    """Return the body of a chat completion with this content."""
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": value}}
    return ScriptedReply(extra={"choices": [choice]}).payload()


OTHERS = [(b"\n<!DOCTYPE html><p>Login</p>", "HTML"), (b'{"choices": []}', "choices"), (b"{}", "'choices'")]


def test_response_of_another_kind_names_what_it_is() -> None:
    for body, part in [*OTHERS, (b"null", "null"), (b"[" * 100_000, "deeply"), (b"", "empty"), (b"\xff", "UTF-8")]:
        failure = failure_of(body)
        assert failure.reason is Reason.UNPARSEABLE and part in (failure.detail or "")


def test_content_of_another_type_is_unparseable() -> None:
    for value in [5, 0, True, False, {}, {"a": 1}, [5], ["hi"], [{"type": "text", "text": 5}]]:
        for question in (Question(""), YES_NO):
            assert failure_of(content(value), question).reason is Reason.UNPARSEABLE


def test_finish_reason_length_truncates_texts_only() -> None:
    assert reply_of(ScriptedReply("{", finish_reason="length").payload()).truncated
    assert not reply_of(labels(Yes=0.9).payload(), YES_NO).truncated


def test_usage_over_max_context_is_too_long() -> None:
    body = ScriptedReply(usage={"prompt_tokens": 101, "completion_tokens": 1}).payload()
    assert failure_of(body, max_context=100).reason is Reason.TOO_LONG


def test_logprobs_that_are_invalid_fail() -> None:
    for logprobs, reason in [
        (None, Reason.NO_LOGPROBS),
        ({"Yes": math.nan}, Reason.OUT_OF_RANGE),
        ({"No": -1.0, "x": 0.5}, Reason.OUT_OF_RANGE),
        ({"Yes": math.inf}, Reason.OUT_OF_RANGE),
        ({"Yes": False}, Reason.UNPARSEABLE),
        ({"Yes": "-1"}, Reason.UNPARSEABLE),
    ]:
        failure = failure_of(ScriptedReply(logprobs=logprobs).payload(), YES_NO)
        assert failure.reason is reason and failure.raw


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    st.sampled_from(["id", "choices", "usage", "choice", "message", "logprobs", "content", "top_logprobs", "token"]),
    json_values,
    st.booleans(),
)
def test_parse_never_raises_on_invalid_values(where: str, junk: Any, asks_labels: bool) -> None:
    body = json.loads(labels(Yes=0.5).payload())
    choice = body["choices"][0]
    first = choice["logprobs"]["content"][0]
    holder, key = {
        "choice": (body["choices"], 0),
        "message": (choice, "message"),
        "logprobs": (choice, "logprobs"),
        "content": (choice["logprobs"], "content"),
        "top_logprobs": (first, "top_logprobs"),
        "token": (first["top_logprobs"][0], "token"),
    }.get(where, (body, where))
    holder[key] = junk
    reply = read_chat_completion(json.dumps(body).encode(), YES_NO if asks_labels else Question(""))
    assert isinstance(reply, Reply | Failure)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_body_of_random_bytes_is_unparseable(body: bytes) -> None:
    assert failure_of(body, YES_NO).reason is Reason.UNPARSEABLE


def test_number_over_the_float_range_fails() -> None:
    body = b'{"id":"x","choices":[{"message":{"content":"Yes"},"logprobs":{"content":[{"top_logprobs":[{"token":"Yes",'
    body += b'"logprob":1' + b"0" * 400 + b"}]}]}}]}"
    failure_of(body, YES_NO)
