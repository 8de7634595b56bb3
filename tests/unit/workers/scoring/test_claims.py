"""Criteria that are asked about each claim: which sentences are claims, what the judge sees, and the verdict."""

import asyncio
import re

import pytest
from pydantic import ValidationError

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Document, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason, Verdict
from tests.instant_engine import InstantEngine
from workers.engines.base import EngineRequest, Failure, Reply
from workers.scoring.completions import claims, score, score_group

GROUNDED = Criterion(key="grounded", text="Says what the evidence says.", each="claim")
WHOLE = Criterion(key="whole", text="Answers the question.")
RUBRIC = Rubric(criteria=(WHOLE, GROUNDED))
DOCUMENT = Document(id="tides", text="The moon raises the tides of the sea. The sun adds a smaller part to them.")
PROMPT = Prompt.of("What raises the tides?").model_copy(update={"documents": (DOCUMENT,)})
JUDGE = Judge(name="j", model="m", engine="instant")
TRUE = "The moon raises the tides of the sea [tides]."
FALSE = "The wind raises every one of the tides [tides]."
INVENTED = "Whales push the water up each night [whales]."


class Reader(InstantEngine):
    """Sure of a text whose words all stand in the evidence; fails on texts with ``lost``."""

    def __init__(self, lost: str = "\0") -> None:
        super().__init__(remember=99)
        self.lost = lost

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        await super().ask(request)
        if self.lost in request.shared:
            return [Failure(Reason.TIMEOUT, "no answer") for _ in request.questions]
        sure = 0.9 if "wind" not in request.shared else 0.2
        return [Reply(label_mass={"Yes": sure, "No": 1 - sure}) for _ in request.questions]


def verdict_on(text: str, engine: Reader | None = None, judge: Judge = JUDGE) -> Verdict:
    scored = asyncio.run(score(engine or Reader(), judge, RUBRIC, PROMPT, Completion(text=text)))
    return next(verdict for verdict in scored if verdict.criterion == "grounded")


def test_claims_are_sentences_that_cite() -> None:
    found = claims(PROMPT, Completion(text=f"I looked it up for you today. {TRUE} Yes [tides]. {INVENTED}"))
    expected = [("The moon raises the tides of the sea .", ()), ("Whales push the water up each night .", ("whales",))]
    assert [(one.text, one.unknown) for one in found] == expected and found[0].passages == (DOCUMENT.text,)


def test_judge_sees_one_claim_with_its_passage() -> None:
    engine = Reader()
    verdict_on(f"{TRUE} {FALSE}", engine)
    whole, first, second = engine.requests
    assert "moon" in whole.shared and "wind" in whole.shared
    assert ("moon" in first.shared, "wind" in first.shared) == (True, False)
    assert ("moon raises" in second.shared, "wind" in second.shared) == (False, True)  # not even as a document
    assert all("The sun adds a smaller part" in one.questions[0].text for one in (first, second))


def test_small_judge_is_asked_whether_the_nearest_sentences_state_the_claim() -> None:
    engine, long = Reader(), "Fish swim in it. Ships cross it. The moon raises the tides. Gulls fly. Sand is wet."
    prompt = PROMPT.model_copy(update={"documents": (DOCUMENT.model_copy(update={"text": long}),)})
    text, judge = 'The moon raises """ the tides of it [tides].', JUDGE.model_copy(update={"template": "readout_short"})
    asyncio.run(score(engine, judge, Rubric(criteria=(GROUNDED,)), prompt, Completion(text=text)))
    [request] = engine.requests
    assert re.search("Fish swim in it. Ships cross it. The moon raises the tides.\n", request.shared)
    assert (
        'Says what the evidence says. Claim: """"The moon raises """ the tides of it.""""' in request.questions[0].text
    )


def test_value_is_mean_over_claims() -> None:
    verdict = verdict_on(f"{TRUE} {FALSE}")
    assert verdict.value == pytest.approx((0.9 + 0.2) / 2)
    assert [(one.by, one.value) for one in verdict.votes] == [("claim 1", 0.9), ("claim 2", 0.2)]


def test_citation_of_what_was_not_opened_is_worth_nothing_and_not_asked() -> None:
    engine = Reader()
    verdict = verdict_on(f"{TRUE} {INVENTED}", engine)
    assert verdict.value == pytest.approx(0.45) and "whales" in (verdict.detail or "")
    assert len(engine.requests) == 2


def test_no_claim_is_worth_nothing() -> None:
    for text in ["", "The moon raises the tides of the sea.", "Yes [tides]."]:
        verdict = verdict_on(text)
        assert (verdict.outcome, verdict.value) == ("scored", 0.0)


def test_one_failed_claim_is_no_score() -> None:
    verdict = verdict_on(f"{TRUE} {TRUE.replace('raises', 'makes')} {FALSE}", Reader(lost="wind"))
    assert (verdict.outcome, verdict.reason, len(verdict.votes)) == ("failed", Reason.TIMEOUT, 3)


def test_comparison_refuses_claims() -> None:
    judge = JUDGE.model_copy(update={"mode": "comparative"})
    group = [Completion(text=TRUE), Completion(text=FALSE)]
    scored = asyncio.run(score_group(Reader(), judge, Rubric(criteria=(GROUNDED,)), PROMPT, group))
    assert [(one.outcome, "each: claim" in (one.detail or "")) for (one,) in scored] == [("failed", True)] * 2


def test_each_needs_a_judge_and_no_passages() -> None:
    for also in [{"check": Check(name="cites")}, {"passages": ("p",)}]:
        with pytest.raises(ValidationError, match="each: claim"):
            Criterion.model_validate({**GROUNDED.model_dump(exclude_none=True), **also})
