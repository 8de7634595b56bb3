from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import numpy as np
import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason, Verdict
from tests.instant_engine import InstantEngine, agreeable
from workers.engines import make_engine
from workers.engines.base import EngineRequest, Failure, Question, Reply
from workers.reasoning import as_judged
from workers.scoring.completions import score
from workers.scoring.reward_changes import people_agreement, ranks

JUDGE = Judge(name="j", model="m", engine="instant")
WRITTEN = Judge(name="w", model="m", engine="instant", mode="written", criteria_per_call=0)
PROMPT = Prompt.of("Why?")
ANSWER = Completion(text="Because.")
SHORT = Check(name="words", args={"max": 9})
RUBRIC = Rubric(
    criteria=(
        Criterion(key="a", text="Says why."),
        Criterion(key="short", text="Is short.", check=SHORT),
        Criterion(key="b", text="Says how.", weight=2),
    )
)


def scored(engine: object, judge: Judge = JUDGE, rubric: Rubric = RUBRIC, **known: Verdict) -> list[Verdict]:
    return asyncio.run(score(engine, judge, rubric, PROMPT, ANSWER, known=known))  # type: ignore[arg-type]


def outcomes(verdicts: Sequence[Verdict]) -> list[tuple[str, Reason | None]]:
    return [(verdict.criterion, verdict.reason) for verdict in verdicts]


@pytest.mark.parametrize("judge", [JUDGE, WRITTEN, WRITTEN.model_copy(update={"criteria_per_call": 1})])
def test_score_returns_a_verdict_per_criterion_in_order(judge: Judge) -> None:
    verdicts = scored(make_engine(judge), judge)
    assert outcomes(verdicts) == [("a", None), ("short", None), ("b", None)]
    assert [verdict.value for verdict in verdicts] == [verdicts[0].value, 1.0, verdicts[0].value]


def test_score_shows_the_answer_after_the_reasoning() -> None:
    for text, answer in [
        ("<think>Paris?</think>\n\nLyon.", "Lyon."),
        ("Paris?\n</think>\nLyon.", "Lyon."),
        ("<think>`</think>` ends it, Paris?</think>Lyon.", "Lyon."),
        ("<think>Paris", ""),
        ("<think>Paris?</think><think>Nice?", ""),
        ("[THINK]Paris?[/THINK]Lyon.", "Lyon."),
        *(
            (f"{opens}Paris?<|end|><|start|>assistant<|channel|>final{rest}", "Lyon.")
            for opens in ("<|channel|>analysis<|message|>", "")
            for rest in ("<|message|>Lyon.", " json<|message|>Lyon.", " <|constrain|>json<|message|>Lyon.<|return|>")
        ),
        ("<|channel>thought\nParis?<channel|>Lyon.", "Lyon."),
        *((text, text) for text in ("`<think>`, `</think>`.", "A ``</think>``.", "\t</think>", "A <think>.", "Paris.")),
        *((f"{fence}\n</think>\n{fence}\nSo.",) * 2 for fence in ("```", "~~~~")),
        *(("```\n</think>So.\n```py", "So.\n```py"), ("\u200b<think>`</think>` So.", "` So.")),
    ]:
        messages = ({"role": "assistant", "content": text},)
        shown = as_judged(Completion.model_validate({"messages": messages}))
        assert (shown.text, shown.messages[0].content) == (answer, answer), text
    assert as_judged(Completion(text="<a>Paris?</a>Lyon."), (("<a>", "</a>"),)).text == "Lyon."
    assert as_judged(Completion(text="\u200d\f" * 10_000 + "</think>Lyon.")).text == "Lyon.", "in linear time"
    message = {"role": "assistant", "content": "Lyon.", "reasoning": "Paris?"}
    apart = Completion.model_validate({"messages": (message, {"role": "user", "content": "So?"}, message)})
    assert as_judged(apart) is apart
    whole = as_judged(apart, ())
    assert {whole.text, whole.messages[0].content, whole.messages[2].content} == {"<think>\nParis?\n</think>\n\nLyon."}
    marked = Completion(text="<think>Because of that, and more than nine words are in it.</think>Because.")
    for rubric, hidden in ((RUBRIC, True), (RUBRIC.model_copy(update={"reasoning_marks": ()}), False)):
        engine = InstantEngine(remember=5)
        verdicts = asyncio.run(score(engine, JUDGE, rubric, PROMPT, marked))
        assert [verdicts[1].value == 1.0, "nine words" not in engine.requests[0].shared] == [hidden, hidden]
        assert all(("characters of reasoning were not shown" in (one.detail or "")) is hidden for one in verdicts)

    class Quoting:
        async def ask(self, request: EngineRequest) -> list[Reply]:
            quotes = [quote for quote in ("Because.", "Hm, hm.") if quote in request.shared]
            found = {"rationale": "So.", "evidence": quotes, "verdict": "yes"}
            return [Reply(json.dumps({"verdicts": [{"criterion": key, **found} for key in ("C1", "C2")]}))]

    first, *_ = asyncio.run(score(Quoting(), WRITTEN, RUBRIC, PROMPT, marked))  # type: ignore[arg-type]
    assert [marked.text[quote.start : quote.end] for quote in first.evidence] == ["Because."], first
    message = {"role": "assistant", "content": "Because.", "reasoning": "Hm, hm."}
    rubric, thoughts = RUBRIC.model_copy(update={"reasoning_marks": ()}), Completion.model_validate(message)
    first, *_ = asyncio.run(score(Quoting(), WRITTEN, rubric, PROMPT, thoughts))  # type: ignore[arg-type]
    assert [(quote.quote, quote.start) for quote in first.evidence] == [("Because.", 0), ("Hm, hm.", None)], first
    assert "reasoning were shown too" in (first.detail or "")


@pytest.mark.parametrize("judge", [JUDGE, WRITTEN])
def test_score_asks_all_criteria_in_one_request_criterion_last(judge: Judge) -> None:
    engine = InstantEngine(remember=5)
    scored(engine, judge)
    (request,) = engine.requests
    tails = "".join(question.text for question in request.questions)
    assert "Says why." in tails
    assert "Says how." in tails
    assert "Is short." not in tails + request.shared
    assert "Because." in request.shared
    assert "Because." not in tails
    assert request.sampling == judge.sampling


def test_score_keeps_known_verdicts() -> None:
    engine = InstantEngine(remember=1)
    known = {key: Verdict.scored(key, 0.25) for key in ("a", "short")}
    verdicts = scored(engine, **known)
    assert verdicts[:2] == list(known.values())
    assert [len(request.questions) for request in engine.requests] == [1]
    assert "Says how." in engine.requests[0].questions[0].text


@pytest.mark.parametrize("reason", [Reason.TIMEOUT, Reason.UNREACHABLE, Reason.RATE_LIMITED, Reason.TOO_LONG])
def test_score_turns_engine_failure_into_failed_verdict(reason: Reason) -> None:
    def answer(question: Question) -> Reply | Failure:
        return Failure(reason, "so it was", raw="503") if "why" in question.text else agreeable(question)

    verdicts = scored(InstantEngine(answer))
    assert outcomes(verdicts) == [("a", reason), ("short", None), ("b", None)]
    assert (verdicts[0].detail, verdicts[0].raw) == ("so it was", "503")


class Broken(InstantEngine):
    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        raise ZeroDivisionError("oops")


class Short(InstantEngine):
    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        return (await super().ask(request))[1:]


@pytest.mark.parametrize(
    ("engine", "detail"), [(Broken(), "ZeroDivisionError: oops"), (Short(), "ValueError: 1 replies to 2 questions")]
)
def test_score_keeps_checks_when_the_engine_raises(engine: InstantEngine, detail: str) -> None:
    verdicts = scored(engine)
    assert outcomes(verdicts) == [("a", Reason.ENGINE_ERROR), ("short", None), ("b", Reason.ENGINE_ERROR)]
    assert verdicts[0].detail == detail


def test_score_propagates_cancellation() -> None:
    class Slow(InstantEngine):
        async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
            await asyncio.sleep(60)
            return []

    async def go() -> None:
        task = asyncio.create_task(score(Slow(), JUDGE, RUBRIC, PROMPT, ANSWER))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(go())


def test_score_asks_a_repeated_question_once() -> None:
    engine = InstantEngine(remember=1)
    first, again, other = (Criterion(key=key, text=text) for key, text in (("x", "A."), ("y", "A."), ("z", "B.")))
    verdicts = scored(engine, rubric=Rubric(criteria=(first, again, other)))
    assert [verdict.criterion for verdict in verdicts] == ["x", "y", "z"]
    assert [len(request.questions) for request in engine.requests] == [2]
    scored(engine, rubric=Rubric(criteria=(first, again)), x=Verdict.scored("x", 0.25))
    assert len(engine.requests) == 1, "what is known of one is known of the other"


@pytest.mark.parametrize(("known", "calls"), [("a", 3), ("b", 3), ("e", 2)])
def test_score_asks_a_written_call_whole_and_keeps_what_is_known(known: str, calls: int) -> None:
    criteria = tuple(Criterion(key=key, text=f"Says {key}.") for key in "abcde")
    judge = WRITTEN.model_copy(update={"criteria_per_call": 2})
    engine = InstantEngine(remember=1)
    verdicts = scored(engine, judge, Rubric(criteria=criteria), **{known: Verdict.scored(known, 0.25)})
    assert {verdict.criterion: verdict.value for verdict in verdicts}[known] == 0.25
    assert len(engine.requests[0].questions) == calls


def sides(rows: int = 60) -> tuple[list[float], list[float], list[int], list[tuple[int, str, float]]]:
    """Old rewards are half noise, new ones nearly what the person says; three completions a prompt."""
    random = np.random.default_rng(0)
    scores = random.random(rows)
    old, new = 0.3 * scores + random.random(rows), scores + 0.05 * random.random(rows)
    return old.tolist(), new.tolist(), [row // 3 for row in range(rows)], [(n, "ann", v) for n, v in enumerate(scores)]


def test_people_agreement_pairs_the_difference_and_says_why_it_is_missing() -> None:
    old, new, prompts, labels = sides()
    found = people_agreement(old, new, prompts, labels)
    right = [(n, m) for n in range(60) for m in range(60) if n // 3 == m // 3 and labels[n][2] > labels[m][2]]
    assert found.n == len(right) == 60
    assert found.old.value == pytest.approx(sum(old[n] > old[m] for n, m in right) / 60)
    assert found.difference.value == pytest.approx((found.new.value or 0) - (found.old.value or 0))
    assert found.difference.low is not None and found.difference.low > 0
    same = people_agreement(old, old, prompts, labels).difference
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
    few = people_agreement(old, new, prompts, labels[:3])
    assert few.old.value is None and few.old.null_reason
    assert people_agreement([0.5] * 60, new, prompts, labels).old.value == 0.5


def test_ranks_share_ties_and_leave_out_none() -> None:
    assert ranks([0.5, None, 0.9, 0.5, 0.1]) == [2, None, 1, 2, 4]
