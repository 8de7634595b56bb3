"""Samples, thinking, quotes and repairs of a written judge, asked over a socket."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError

from rubricsvc.core.judge import Endpoint, Judge, Sampling, Thinking, Voting
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Binary, Criterion, Level, Numeric, Ordinal, Rubric, Scale
from rubricsvc.core.verdict import Reason, Verdict
from tests.scripted_server import Script, ScriptedReply, ScriptedServer, error, scripted_server, text_reply
from workers.engines import make_engine
from workers.judges import written
from workers.judges.calls import JudgeCall
from workers.scoring.completions import score

PROMPT, ANSWER = Prompt.of("Why?"), Completion(text="Because the left operand is asked first.")
WARM = Sampling(temperature=0.7, seed=5)
ORDINAL = Ordinal(levels=(Level(label="poor", value=0.2), Level(label="good", value=0.8)))


def wrote(verdict: object = "met", *quotes: str, criterion: str = "C1") -> str:
    return json.dumps({"criterion": criterion, "rationale": "So.", "evidence": quotes, "verdict": verdict})


def ask(
    script: Script, scale: Scale | None = None, *, text: str = ANSWER.text, **judge: Any
) -> tuple[Verdict, ScriptedServer]:
    rubric = Rubric(criteria=(Criterion(key="k", text="Says why.", scale=scale or Binary()),))
    with scripted_server(script) as server:
        asked = Judge(
            name="w", model="m", mode="written", endpoint=Endpoint(base_url=server.url, max_retries=0), **judge
        )

        async def run() -> list[Verdict]:
            engine = make_engine(asked)
            try:
                return await score(engine, asked, rubric, PROMPT, Completion(text=text))
            finally:
                await engine.aclose()

        (verdict,) = asyncio.run(run())
    return verdict, server


def by_seed(*replies: ScriptedReply) -> Script:
    return lambda _number, body: replies[body["seed"] - 5]


def test_samples_have_their_own_seeds_and_are_aggregated() -> None:
    voting = Voting(samples=3, rule="majority")
    replies = by_seed(text_reply(wrote("not_met")), text_reply(wrote("met")), text_reply(wrote("met")))
    verdict, server = ask(replies, voting=voting, sampling=WARM)
    assert sorted(request["seed"] for request in server.requests) == [5, 6, 7]
    assert {request["temperature"] for request in server.requests} == {0.7}
    assert verdict.value == 1.0
    assert [(vote.by, vote.value) for vote in verdict.votes] == [
        ("sample 1", 0.0),
        ("sample 2", 1.0),
        ("sample 3", 1.0),
    ]
    assert verdict.spread == pytest.approx(0.4714, abs=1e-4)
    assert verdict.usage is not None
    assert verdict.usage.prompt == 30


def test_judge_rejects_options_of_other_modes() -> None:
    for fields in [
        {"mode": "written", "voting": Voting(samples=2)},
        {"mode": "readout", "voting": Voting(samples=2), "sampling": WARM},
        {"mode": "readout", "thinking": Thinking()},
        {"mode": "readout", "require_evidence": True},
    ]:
        with pytest.raises(ValidationError):
            Judge(name="w", model="m", **fields)


def test_verdicts_that_are_positive_need_evidence() -> None:
    for scale, said, quotes, reason in [
        (Binary(), "met", ["the left  operand"], None),
        (Binary(), "met", ["left operand", "the left operand"], None),
        (Binary(), "met", ["a right operand", "the left operand"], Reason.NO_EVIDENCE),
        (Binary(), "met", ["the"], Reason.NO_EVIDENCE),
        (Binary(), "met", ["the left"], Reason.NO_EVIDENCE),
        (Binary(), "not_met", ["a right operand"], Reason.NO_EVIDENCE),
        (Binary(), "not_met", ["the"], None),
        (Binary(), "cannot_tell", ["a right operand"], None),
        (Binary(), "met", ["a right operand"], Reason.NO_EVIDENCE),
        (Binary(), "met", [], Reason.NO_EVIDENCE),
        (Binary(), "not_met", [], None),
        (Binary(), "cannot_tell", [], None),
        (ORDINAL, "poor", [], None),
        (ORDINAL, "good", [], Reason.NO_EVIDENCE),
        (Numeric(), 0, [], None),
        (Numeric(), 3, [], Reason.NO_EVIDENCE),
    ]:
        verdict, _ = ask(text_reply(wrote(said, *quotes)), scale, require_evidence=True)
        assert verdict.reason == reason
        assert (verdict.raw is not None) == (reason is not None)
        assert [quote.quote for quote in verdict.evidence] == [" ".join(quote.split()) for quote in quotes]
        assert ask(text_reply(wrote(said, *quotes)), scale)[0].outcome != "failed"


def reasoned(field: str, thought: str, text: str | None, finish: str = "stop") -> ScriptedReply:
    message = {"role": "assistant", "content": text, field: thought}
    return ScriptedReply(extra={"choices": [{"index": 0, "message": message, "finish_reason": finish}]})


HARMONY = "<|channel|>analysis<|message|>"


def test_thinking_is_split_off_and_never_parsed() -> None:
    for thinking in [Thinking(budget_tokens=77), None]:
        for reply in [
            reasoned("reasoning_content", wrote("not_met"), wrote("met")),
            reasoned("reasoning", wrote("not_met"), wrote("met")),
            text_reply(f"<think>\n{wrote('not_met')}\n</think>\n{wrote('met')}"),
            text_reply(f"{wrote('not_met')}\n</think>\n{wrote('met')}"),
            text_reply(f"[THINK]{wrote('not_met')}[/THINK]{wrote('met')}"),
            text_reply(
                f"{HARMONY}{wrote('not_met')}<|end|><|start|>assistant<|channel|>final<|message|>{wrote('met')}"
            ),
        ]:
            verdict, server = ask(reply, thinking=thinking)
            assert (verdict.value, (verdict.thinking or "").split("<|end|>")[0]) == (1.0, wrote("not_met"))
            assert server.requests[0]["max_tokens"] == 1024 + (77 if thinking else 0)


def test_replies_that_are_truncated_are_not_repaired() -> None:
    for reply, where in [
        *((text_reply(f"{mark}{wrote('met')}"), "inside its thinking") for mark in ("<think>", "[THINK]", HARMONY)),
        (text_reply(f"<think>{wrote('met')}", finish_reason="length"), "inside its thinking"),
        (reasoned("reasoning", wrote("met"), None, "length"), "inside its thinking"),
        (text_reply(f"<think>a</think>{wrote('met')[:-9]}", finish_reason="length"), "before its verdict"),
    ]:
        verdict, server = ask(reply, thinking=Thinking())
        assert (verdict.reason, len(server.requests)) == (Reason.TRUNCATED, 1)
        assert where in (verdict.detail or "")


def test_thinking_over_its_budget_is_truncated() -> None:
    for tokens, reason in [(78, Reason.TRUNCATED), (77, None), ("many", None), (None, None)]:
        usage = {"prompt_tokens": 9, "completion_tokens": 99, "completion_tokens_details": {"reasoning_tokens": tokens}}
        verdict, server = ask(text_reply(wrote("met"), usage=usage), thinking=Thinking(budget_tokens=77))
        assert (verdict.reason, len(server.requests)) == (reason, 1)
        if reason:
            assert "budget of 77" in (verdict.detail or "")
            assert verdict.raw == wrote("met")
        assert ask(text_reply(wrote("met"), usage=usage))[0].value == 1.0


def test_replies_that_are_unparseable_are_repaired_once() -> None:
    for broken in ["I would say it is met.", wrote(criterion="C9")]:
        verdict, server = ask([text_reply(broken), text_reply(wrote("met"))])
        first, second = (request["messages"] for request in server.requests)
        assert second[: len(first)] == first
        assert [turn["role"] for turn in second[len(first) :]] == ["assistant", "user"]
        assert second[-2]["content"] == broken
        assert "C1" in second[-1]["content"]
        assert verdict.value == 1.0
        assert "repaired once" in (verdict.detail or "")
        assert verdict.usage is not None
        assert verdict.usage.prompt == 20


def test_repairs_that_fail_keep_both_replies() -> None:
    verdict, server = ask([text_reply("No."), text_reply("Still no.")])
    assert (verdict.reason, len(server.requests)) == (Reason.UNPARSEABLE, 2)
    assert verdict.raw == "No.\n\n(reply after one repair:)\n\nStill no."
    verdict, server = ask([text_reply("No."), error(401)])
    assert (verdict.reason, verdict.raw, len(server.requests)) == (Reason.UNPARSEABLE, "No.", 2)
    assert "repair failed: refused" in (verdict.detail or "")


def test_replies_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def remember(call: JudgeCall, text: str) -> dict[str, written.WrittenVerdict]:
        parsed.append(text)
        return parse(call, text)

    parse = written.parse
    monkeypatch.setattr(written, "parse", remember)
    assert ask([text_reply("No."), text_reply(wrote("met"))])[0].value == 1.0
    assert parsed == ["No.", wrote("met")]
