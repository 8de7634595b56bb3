"""Values and the messages of invalid ones; panels of judges."""

import json
import math
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from rubricsvc.core import strict_json
from rubricsvc.core.fingerprint import canonical_json, digest
from rubricsvc.core.judge import (
    Comparison,
    Endpoint,
    Judge,
    Sampling,
    Thinking,
    TrajectoryOptions,
    Voting,
    voting_summary,
)
from rubricsvc.core.passport import Passport
from rubricsvc.core.prompt import Completion, Message, Role, ToolCall, steps_of
from rubricsvc.core.rubric import Check, Criterion, Group, Level, Numeric, Ordinal, Rubric, Source
from rubricsvc.core.validation_messages import error_text, field_messages, first_error
from rubricsvc.core.verdict import Usage, Verdict, Vote
from rubricsvc.errors import InvalidError
from tests.made_passport import made_passport

A = Criterion(key="a", text="Says a.", weight=2)


def test_rubric_rejects_invalid_fields() -> None:
    for fields, path, code in [
        ({"criteria": []}, ("criteria",), "too_short"),
        ({"criteria": [A, A]}, (), "value_error"),
        ({"criteria": [{"key": "a", "text": "x", "weight": math.nan}]}, ("criteria", 0, "weight"), "finite_number"),
        ({"criteria": [{"key": "a", "text": "x", "weight": math.inf}]}, ("criteria", 0, "weight"), "finite_number"),
        ({"criteria": [{"key": "a", "text": "x", "weight": 0}]}, (), "value_error"),
        ({"criteria": [{"key": "a", "text": ""}]}, ("criteria", 0, "text"), "string_too_short"),
        ({"criteria": [{"key": "a", "text": "x", "colour": "red"}]}, ("criteria", 0, "colour"), "extra_forbidden"),
        ({"criteria": [A], "min_coverage": 1.5}, ("min_coverage",), "less_than_equal"),
        (
            {"criteria": [{**A.model_dump(), "group": ["x"]}], "groups": [Group(path=("y",), weight=1)]},
            (),
            "value_error",
        ),
    ]:
        with pytest.raises(ValidationError) as caught:
            Rubric.model_validate(fields)
        assert (path, code) in [(error["loc"], error["type"]) for error in caught.value.errors()]


def test_scales_reject_ambiguous_levels_and_infinite_ranges() -> None:
    with pytest.raises(ValidationError, match=r"value: 1\.0"):
        Ordinal(levels=(Level(label="good", value=1), Level(label="bad", value=1)))
    for label in ("good", "good ", " good\n", "Good", "GOOD"):
        with pytest.raises(ValidationError, match="label: 'good'"):
            Ordinal(levels=(Level(label="good", value=1), Level(label=label, value=0)))
    with pytest.raises(ValidationError, match="5"):
        Numeric(low=5, high=5)
    assert Numeric(high=1e308).high == 1e308
    with pytest.raises(ValidationError, match=r"1e\+308"):
        Numeric(low=-1e308, high=1e308)


def test_verdict_has_a_value_from_0_to_1_or_the_reason_of_its_failure() -> None:
    scored = [{"outcome": "scored", "value": value} for value in (-0.1, 1.1, math.nan, math.inf, None)]
    failed = [{}, {"reason": "timeout", "value": 0.0}, {"reason": "bad mood"}]
    for fields in (*scored, *({"outcome": "failed", **one} for one in failed)):
        with pytest.raises(ValidationError):
            Verdict.model_validate({"criterion": "a", **fields})
    assert Verdict.failed("a", reason="timeout").value is None


def test_verdict_replaces_lone_surrogates() -> None:
    verdict = Verdict.scored("a", 1.0, rationale="so \ud83d", raw="\ud83d")
    assert (verdict.rationale, verdict.raw) == ("so \ufffd", "\ufffd")


COUNTS = st.integers(0, 1000)


@given(COUNTS, st.none() | COUNTS, COUNTS, st.integers(1, 9))
def test_usage_split_has_whole_shares_with_the_same_sums(
    prompt: int, cached: int | None, completion: int, count: int
) -> None:
    cached = cached and min(cached, prompt)
    shares = Usage(prompt=prompt, cached=cached, completion=completion, cost=0.5).split(count)
    assert (sum(one.prompt for one in shares), sum(one.completion for one in shares)) == (prompt, completion)
    assert {one.cached is None for one in shares} == {cached is None}
    assert sum(one.cached or 0 for one in shares) == (cached or 0)
    assert all((one.cached or 0) <= one.prompt for one in shares)
    assert sum(one.cost for one in shares) == pytest.approx(0.5)


def test_rubric_digest_depends_on_content_only() -> None:
    same = Rubric.model_validate_json(Rubric(criteria=(A,)).model_dump_json())
    assert same == Rubric(criteria=(A,))
    assert same.digest == Rubric(criteria=(Criterion(text="Says a.", weight=2.0, key="a"),)).digest
    assert same.digest != Rubric(criteria=(A,), min_coverage=0.9).digest


JUDGE = Judge(name="j", model="m")


def test_judge_digest_ignores_name_and_endpoint() -> None:
    moved = JUDGE.model_copy(update={"name": "k", "endpoint": Endpoint(base_url="http://elsewhere", timeout_s=1)})
    warmer = JUDGE.model_copy(update={"sampling": Sampling(temperature=0.7)})
    assert Judge(**moved.model_dump()).digest == JUDGE.digest
    assert Judge(**warmer.model_dump()).digest != JUDGE.digest


def test_judge_digest_ignores_explicit_defaults() -> None:
    for mode, spelt, otherwise in [
        ("written", {"voting": Voting()}, {"voting": Voting(samples=2)}),
        ("written", {"require_evidence": False}, {"require_evidence": True}),
        ("written", {"thinking": None}, {"thinking": Thinking()}),
        ("comparative", {"comparison": Comparison()}, {"comparison": Comparison(kind="pairwise")}),
        ("trajectory", {"trajectory": TrajectoryOptions()}, {"trajectory": TrajectoryOptions(segment=2)}),
    ]:
        plain = Judge(name="j", model="m", mode=mode, sampling=Sampling(temperature=1.0))
        assert plain.model_copy(update=spelt).digest == plain.digest != plain.model_copy(update=otherwise).digest


def test_judge_digest_is_stable_across_releases() -> None:
    """Else what is stored would be asked for again."""
    written = Judge(name="w", model="m", mode="written")
    assert JUDGE.digest[:16] == "6e9f5c3a46a3f5e8"
    assert Judge(name="p", mode="panel", members=(JUDGE, written)).digest[:16] == "dbcca21b38abeff0"
    assert Judge(name="c", model="m", mode="comparative").digest[:16] == "6fb904d9b61d141d"
    assert Judge(name="e", engine="transformers_local", model="embedded").digest[:16] == "0434938fd875e3f6"


def test_judge_digest_names_an_adapter_by_its_weights() -> None:
    bare = Judge(name="e", engine="transformers_local", model="embedded")
    trained = bare.model_copy(update={"adapter": "a", "weights_sha256": "1" * 64})
    assert trained.digest == trained.model_copy(update={"adapter": "b"}).digest
    others = [{"weights_sha256": "2" * 64}, {"weights_sha256": None}, {"weights_sha256": None, "adapter": "b"}]
    digests = {trained.model_copy(update=fields).digest for fields in others}
    assert len(digests | {bare.digest, trained.digest}) == 5


@pytest.mark.parametrize("fields", [{"adapter": "a"}, {"weights_sha256": "0" * 64}])
def test_judge_with_own_weights_needs_a_local_engine(fields: dict[str, Any]) -> None:
    for engine in ("transformers_local", "vllm_local"):
        Judge(name="j", engine=engine, model="m", **fields)
    for engine in ("openai_http", "none", "custom"):
        with pytest.raises(ValidationError, match="engine: transformers_local or vllm_local"):
            Judge(name="j", engine=engine, model="m", **fields)


def test_judge_rejects_what_is_no_sha256() -> None:
    for digits in ["", "0" * 63, "0" * 65, "A" * 64, "0" * 63 + "\n", "0" * 64 + "\n"]:
        with pytest.raises(ValidationError) as caught:
            Judge(name="j", engine="vllm_local", model="m", weights_sha256=digits)
        assert caught.value.errors()[0]["loc"] == ("weights_sha256",)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_digest_leaves_out_unset_fields_and_keeps_null_in_data() -> None:
    def of(**args: JsonValue) -> str:
        return digest(Check(name="words", args=args))

    assert digest(Check(name="words")) == digest({"name": "words", "args": {}})
    assert len({of(), of(max=None), of(max=0.0), of(max=-0.0)}) == 4


@given(json_values)
def test_canonical_json_is_a_fixed_point(value: object) -> None:
    once = canonical_json(value)
    assert canonical_json(json.loads(once.decode("utf-8", "surrogatepass"))) == once
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"weight": math.nan})


_PART = {"type": "text", "text": "two"}
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q":  "x"}'}}


def test_message_reads_openai_tool_calls() -> None:
    said = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "one "}, _PART]}
    for read in (Message.model_validate, lambda m: Message.model_validate_json(json.dumps(m), strict=True)):
        call, answer = read(said), read(result)
        assert call.tool_calls == (ToolCall(name="search", arguments='{"q":  "x"}', id="c1"),)
        assert (call.content, call.text) == ("", '[calls search({"q": "x"})]')
        assert (answer.content, answer.tool_call_id) == ("one two", "c1")
        assert read(call.model_dump(mode="json")) == call


PLAIN_CALL = {"name": "f", "arguments": "{}"}


def test_message_reads_the_shapes_of_openai_and_trl() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,1"}}
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    for fields, content, reasoning, ignored in [
        ({"content": "a", "reasoning_content": "Hm.", "reasoning": "Hm."}, "a", "Hm.", set()),
        ({"content": None, "thinking": "cut of"}, "", "cut of", set()),
        ({"content": "a", "reasoning": {"effort": "low"}, "annotations": [], "audio": None}, "a", None, set()),
        ({"content": None, "refusal": "I can't."}, "I can't.", None, set()),
        ({"content": [thought, {"type": "refusal", "refusal": "No."}, "a"]}, "No.a", "Hm.", set()),
        (
            {"content": [image, _PART], "logprobs": 1},
            "[image_url 702ef8ff]two",
            None,
            {"image_url in content", "logprobs"},
        ),
        ({"role": "tool", "content": {"temp": 3}}, '{"temp": 3}', None, set()),
        ({"role": "function", "name": "s", "content": [{"temp": 3}]}, '[{"temp": 3}]', None, set()),
    ]:
        seen, end = set[str](), {"role": "assistant", "content": ""}
        message = {"role": "assistant", **fields}
        read = Message.model_validate_json(json.dumps(message), strict=True, context=seen)
        assert (read.content, read.reasoning, seen) == (content, reasoning, ignored), fields
        assert Message.model_validate(read.openai) == read
        assert Completion.model_validate_json(json.dumps([message, end]), strict=True).messages[0] == read
    named = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    custom = {"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "f", "input": "{}"}}]}
    for message in (named, custom):
        assert Message.model_validate(message).tool_calls == (ToolCall(name="f", arguments="{}"),)


def test_message_needs_a_text_or_calls() -> None:
    for fields, accepted in [
        ({"content": "a"}, True),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "annotations": []}]}, True),
        ({"content": [{"type": "text", "text": 1}]}, False),
        ({"content": [{"type": "text"}]}, False),
        ({"content": [{"text": "a"}]}, False),
        ({"content": None}, False),
        ({"content": 1}, False),
        ({}, False),
        ({"tool_calls": []}, False),
        ({"tool_calls": [PLAIN_CALL]}, True),
        ({"content": None, "tool_calls": [PLAIN_CALL], "refusal": None, "audio": None}, True),
        ({"content": 1, "tool_calls": [PLAIN_CALL]}, False),
        ({"content": "a", "tool_calls": None}, True),
        ({"content": "a", "tool_calls": [{"name": "f"}, {"name": "f", "id": None}]}, True),
        ({"content": "a", "tool_calls": [{"name": "f", "arguments": {"x": [1, None]}}]}, True),
        ({"content": "a", "tool_calls": [{"name": "f", "arguments": [1], "id": 7}]}, True),
        ({"content": "a", "tool_calls": [{"name": "f", "arguments": None}]}, True),
        ({"content": None, "audio": {"id": "a", "transcript": "Lyon."}}, True),
        ({"content": "a", "tool_calls": [{"arguments": "{}"}]}, False),
        ({"content": "a", "tool_calls": [{"function": PLAIN_CALL, "type": "function", "id": "1", "index": 0}]}, True),
        ({"content": "a", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}, True),
        ({"content": "a", "tool_calls": [{"function": {"arguments": "{}"}}]}, False),
        ({"content": "a", "tool_calls": [{**PLAIN_CALL, "type": "function"}]}, True),
        ({"content": "a", "tool_calls": ["f"]}, False),
    ]:
        message = json.dumps({"role": "assistant", **fields})
        if accepted:
            Message.model_validate_json(message, strict=True)
        else:
            with pytest.raises(ValidationError):
                Message.model_validate_json(message, strict=True)


def test_completion_text_defaults_to_the_last_answer_of_its_messages() -> None:
    turns = [{"role": role, "content": role} for role in ("assistant", "tool")]
    turns += [{"role": "assistant", "content": "last"}, {"role": "tool", "content": "result"}]
    assert Completion().text == ""
    for fields, text in (({}, "last"), ({"text": "own"}, "own"), ({"text": ""}, "")):
        assert Completion.model_validate_json(json.dumps({"messages": turns, **fields}), strict=True).text == text


def test_tool_call_text_normalises_arguments() -> None:
    for arguments in ('{"b": 1, "a": 2}', '{"a":2,"b":1}', {"a": 2, "b": 1}):
        assert ToolCall.model_validate({"name": "f", "arguments": arguments}).text == 'f({"a": 2, "b": 1})'
    assert ToolCall(name="f", arguments="{oops").text == "f({oops)" and ToolCall(name="f").text == "f({})"


def test_steps_pair_assistant_messages_with_tool_results() -> None:
    roles: tuple[Role, ...] = ("user", "assistant", "tool", "assistant", "tool", "assistant")
    messages = tuple(Message(role=role, content=f"{role} {n}") for n, role in enumerate(roles))
    steps = [[message.role for message in step] for step in steps_of(Completion(messages=messages))]
    assert steps == [["user", "assistant", "tool"], ["assistant", "tool"], ["assistant"]]
    assert [message for step in steps_of(Completion(messages=messages)) for message in step] == [*messages]
    answer = Message(role="assistant", content="An answer.")
    assert steps_of(Completion(text="An answer.")) == [(answer,)]
    assert steps_of(Completion(text="", messages=messages[:1])) == [messages[:1]]
    with pytest.raises(ValueError, match="no message of the assistant"):
        Completion.model_validate({"messages": []})


LEAKS_A_KEY = [
    "http://api.openai.com/v1",
    "http://API.openai.com./v1",
    "http://evil\\@api.openai.com/v1",
    "https://user:secret@api.openai.com",
]
NO_HOST = ["256.1.1.1", "0177.1.1.1", "1.2.3", "①", "☃☃", "٣", "é.example", "a..b", "x" * 64, "a-", "h/\x7f"]
NO_HOST += ["[v1.x]", "[::1]x", "[::1%é]"]


def test_endpoint_takes_usual_hosts_and_rejects_unsafe_or_invalid_addresses() -> None:
    for url in [*LEAKS_A_KEY, "ftp://x", "x", *(f"http://{host}/v1" for host in NO_HOST)]:
        with pytest.raises(ValidationError) as caught:
            Endpoint(base_url=url)
        assert caught.value.errors()[0]["loc"] == ("base_url",)
    for host in ["127.0.0.1:8000", "[::1]:8000", "judge_1", "Xn--9ca.example.", "10gpus.local/é"]:
        assert Endpoint(base_url=f"http://{host}/v1").base_url == f"http://{host}/v1"


@pytest.mark.parametrize(
    "path",
    ["name", "engine", "model", "revision", "template", "thinking.opens", "endpoint.api_key_env", "endpoint.base_url"],
)
def test_judge_rejects_text_that_cannot_be_stored(path: str) -> None:
    for text in ["a\udcff", "a\0"]:
        outer, _, inner = path.partition(".")
        value = {inner: f"http://h/{text}" if inner == "base_url" else text} if inner else text
        with pytest.raises(ValidationError) as caught:
            Judge.model_validate({"name": "j", "model": "m", "mode": "written", outer: value})
        assert caught.value.errors()[0]["loc"] == tuple(path.split("."))


def test_sources_are_no_part_of_the_question() -> None:
    bare = Criterion(key="a", text="Names the date.")
    source = Source(document="minutes", passage="on 3 May", as_of="2024-05-03", expires="2025-01-01", clause="2.1")
    sourced = bare.model_copy(update={"sources": (source,)})
    assert sourced.question == bare.question
    assert Rubric(criteria=(sourced,)).digest != Rubric(criteria=(bare,)).digest
    assert Rubric.model_validate(Rubric(criteria=(sourced,)).model_dump(mode="json")).criteria == (sourced,)


def test_dump_writes_text_as_it_is_on_one_line_and_rejects_what_json_lacks() -> None:
    data = {"a": ["é\n\u2028", None, 0.1]}
    line = strict_json.dump(data)
    assert "é" in line and "\n" not in line and strict_json.parse(line) == data
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError):
            strict_json.dump([value])


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(default=9, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]


class Home(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = Field(default=[], min_length=1)
    secret: str = ""

    @field_validator("secret")
    @classmethod
    def _check(cls, value: str) -> str:
        if value == "bad":
            raise ValueError("must be good")
        return value


def errors_of(data: dict[str, object]) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Home.model_validate(data)
    return caught.value


def test_field_messages_give_path_code_and_value() -> None:
    for data, path, code, quoted in [
        ({}, ("name",), "missing", ""),
        ({"name": 5}, ("name",), "string_type", "5"),
        ({"name": "a", "pets": []}, ("pets",), "too_short", "1"),
        ({"name": "a", "nme": "b"}, ("nme",), "extra_forbidden", "'name'"),
        ({"name": "a", "secret": "bad"}, ("secret",), "value_error", "'bad'"),
        ({"name": "a", "pets": [{"kind": "cow"}]}, ("pets", 0, "kind"), "union_tag_invalid", "'cat', 'dog'"),
        ({"name": "a", "pets": [{"lives": 1}]}, ("pets", 0, "kind"), "union_tag_not_found", ""),
        # without the name of the union's member
        ({"name": "a", "pets": [{"kind": "cat", "lives": 10}]}, ("pets", 0, "lives"), "less_than_equal", "10"),
    ]:
        (one,) = field_messages(errors_of(data), model=Home, data=data)
        assert (one.path, one.code) == (path, code) and quoted in one.message


def test_first_error_prefers_unknown_fields_and_does_not_quote_secrets() -> None:
    assert first_error(errors_of({"nmae": "a"}), model=Home)[0] == "nmae"
    path, message = first_error(errors_of({"name": "a", "secret": "bad"}), quoted=False)
    assert path == "secret" and "bad" not in message


def test_field_messages_are_not_those_of_pydantic() -> None:
    class Fields(BaseModel):
        number: int = Field(1, ge=0, lt=9)
        text: str = Field("ab", min_length=2, max_length=3, pattern="^a")
        items: tuple[float, ...] = Field((1.0,), min_length=1, max_length=1)
        inner: Home | None = None
        flag: bool = False
        kind: Literal["a", "b"] = "a"

    wrong = (
        ("number", ("x", 1.5, None, -1, 9)),
        ("text", (1, "a", "aaaa", "ba")),
        ("items", (1, (), (1.0, 2.0), ("x",), (math.nan, 1))),
        ("inner", (3, "x")),
        ("flag", ("perhaps", 7)),
        ("kind", ("c",)),
    )
    for name, values in wrong:
        for value in values:
            with pytest.raises(ValidationError) as caught:
                Fields.model_validate({name: value})
            (message,) = (one.message for one in field_messages(caught.value))
            words = ("should", "valid", "instance", "Input", "parse", "dictionary")
            assert message.startswith("expected ") and not any(word in message for word in words), message
            assert error_text(caught.value).startswith(f"{name}")


READOUT: dict[str, Any] = {"name": "j", "engine": "transformers_local", "model": "m"}


def test_passport_survives_json() -> None:
    passport = made_passport()
    assert Passport.model_validate_json(passport.model_dump_json()) == passport


def test_passport_rejects_other_fields() -> None:
    for change, path in [
        ({"version": 2}, ("version",)),
        ({"weights_sha256": "ad"}, ("weights_sha256",)),
        ({"judge": "j"}, ("judge",)),
        ({"description": "\0"}, ("description",)),
    ]:
        data = json.loads(made_passport().model_dump_json()) | change
        with pytest.raises(ValidationError) as caught:
            Passport.model_validate_json(json.dumps(data))
        assert [error["loc"] for error in caught.value.errors()] == [path]


@pytest.mark.parametrize(
    "judge",
    [
        Judge(**READOUT, weights_sha256="0" * 64),
        Judge(**READOUT, template="readout_short"),
        Judge(**READOUT | {"mode": "written"}),
        Judge(name="p", mode="panel", members=(Judge(name="a", model="m"), Judge(name="b", model="m"))),
    ],
    ids=["weights", "template", "mode", "panel"],
)
def test_check_judge_rejects_another_judge(judge: Judge) -> None:
    with pytest.raises(InvalidError) as caught:
        made_passport().check_judge(judge)
    assert caught.value.path == "passport"


def cast(**values: float | None) -> list[Vote]:
    return [Vote(by=by, outcome="failed" if v is None else "scored", value=v) for by, v in values.items()]


def test_voting_summary_is_that_of_the_mode() -> None:
    members = tuple(Judge(name=name, model="m") for name in "ab")
    votes = [cast(a=0), cast(a=0, b=1), cast(a=1, b=None), []]
    cascade = Judge(name="c", mode="cascade", members=members, band=(0.3, 0.7))
    assert voting_summary(cascade, votes) == {"resolved_early": 0.3333}
    assert voting_summary(Judge(name="p", mode="panel", members=members), votes) == {"mean_spread": 0.5}
    assert voting_summary(Judge(name="p", mode="panel", members=members), []) == {}
