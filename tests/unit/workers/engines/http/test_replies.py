from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricsvc.core.verdict import Reason, Usage
from tests.scripted_server import Say, labels
from workers.engines.base import Failure, Question, Reply
from workers.engines.http.replies import read_reply

YES_NO = Question("", ("Yes", "No"))


def test_spellings_of_a_label_are_summed() -> None:
    say = Say(logprobs={"Yes": math.log(0.4), " yes": math.log(0.2), "YES\n": math.log(0.1), "Yesterday": -1.0})
    reply = read_reply(say.payload(), YES_NO)
    assert isinstance(reply, Reply)
    assert reply.label_mass == {"Yes": pytest.approx(0.7), "No": 0.0}


def test_an_article_is_no_label() -> None:
    say = Say(logprobs={" a": math.log(0.9), " A": math.log(0.04), "b": math.log(0.03), "C\n": math.log(0.02)})
    reply = read_reply(say.payload(), Question("", ("A", "B", "C")))
    assert isinstance(reply, Reply)
    assert reply.label_mass == {"A": pytest.approx(0.04), "B": 0.0, "C": pytest.approx(0.02)}


def test_usage_counts_cached_tokens() -> None:
    usage = {"prompt_tokens": 120, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 96}}
    reply = read_reply(Say(usage=usage).payload(), Question(""))
    assert isinstance(reply, Reply)
    assert reply.usage == Usage(prompt=120, cached=96, completion=1)


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 3, "prompt_tokens_details": None}])
def test_usage_may_be_missing(usage: dict[str, Any] | None) -> None:
    assert isinstance(read_reply(Say("fine", usage=usage).payload(), Question("")), Reply)


@pytest.mark.parametrize(
    "usage",
    [
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
    ],
)
def test_usage_that_cannot_be_is_absent_and_the_reply_stands(usage: Any) -> None:
    reply = read_reply(Say("fine", usage=usage).payload(), Question(""), max_context=100)
    assert isinstance(reply, Reply)
    assert (reply.text, reply.usage) == ("fine", None)


@pytest.mark.parametrize(
    "choice",
    [
        {"finish_reason": "stop", "message": {"role": "assistant", "content": None, "refusal": "I cannot help."}},
        {"finish_reason": "content_filter", "message": {"role": "assistant", "content": ""}},
    ],
)
def test_a_model_that_would_not_say_has_declined(choice: dict[str, Any]) -> None:
    reply = read_reply(Say(more={"choices": [choice]}).payload(), Question(""))
    assert isinstance(reply, Failure)
    assert reply.reason is Reason.DECLINED and reply.detail in ("I cannot help.", "content_filter")


def test_a_cut_off_text_is_truncated_and_one_token_is_not() -> None:
    text = read_reply(Say("{", finish_reason="length").payload(), Question(""))
    assert isinstance(text, Reply)
    assert text.truncated
    label = read_reply(labels(Yes=0.9).payload(), YES_NO)
    assert isinstance(label, Reply)
    assert not label.truncated


def test_more_tokens_than_the_judge_allows_are_too_long() -> None:
    failure = read_reply(
        Say(usage={"prompt_tokens": 101, "completion_tokens": 1}).payload(), Question(""), max_context=100
    )
    assert isinstance(failure, Failure)
    assert failure.reason is Reason.TOO_LONG
    assert "101" in failure.detail
    assert "100" in failure.detail


@pytest.mark.parametrize(
    ("logprobs", "reason"),
    [
        (None, Reason.NO_LOGPROBS),
        ({"Yes": math.nan}, Reason.OUT_OF_RANGE),
        ({"No": -1.0, "x": 0.5}, Reason.OUT_OF_RANGE),
        ({"Yes": math.inf}, Reason.OUT_OF_RANGE),
        ({"Yes": False}, Reason.UNPARSEABLE),
        ({"Yes": "-1"}, Reason.UNPARSEABLE),
    ],
)
def test_bad_logprobs(logprobs: dict[str, float] | None, reason: Reason) -> None:
    failure = read_reply(Say(logprobs=logprobs).payload(), YES_NO)
    assert isinstance(failure, Failure)
    assert failure.reason is reason
    assert failure.raw


def test_minus_infinity_is_probability_zero() -> None:
    reply = read_reply(Say(logprobs={"Yes": -math.inf, "No": 0.0}).payload(), YES_NO)
    assert isinstance(reply, Reply)
    assert reply.label_mass == {"Yes": 0.0, "No": 1.0}


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
def test_no_body_raises(where: str, junk: Any, asks_labels: bool) -> None:
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
    reply = read_reply(json.dumps(body).encode(), YES_NO if asks_labels else Question(""))
    assert isinstance(reply, Reply | Failure)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_no_bytes_raise(body: bytes) -> None:
    reply = read_reply(body, YES_NO)
    assert isinstance(reply, Failure)
    assert reply.reason is Reason.UNPARSEABLE


def test_a_body_nested_without_end_is_unparseable() -> None:
    reply = read_reply(b"[" * 200_000, YES_NO)
    assert isinstance(reply, Failure)
    assert reply.reason is Reason.UNPARSEABLE


def test_a_number_beyond_all_floats_fails_its_own_question_only() -> None:
    body = b'{"id":"x","choices":[{"message":{"content":"Yes"},"logprobs":{"content":[{"top_logprobs":[{"token":"Yes",'
    body += b'"logprob":1' + b"0" * 400 + b"}]}]}}]}"
    answer = read_reply(body, Question("?", ("Yes", "No")))
    assert isinstance(answer, Failure)
