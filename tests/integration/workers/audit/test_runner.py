"""Whole audits of judges that answer by a rule: each rule is caught by the suites that are made for it."""

import asyncio
import json
import re
from typing import Any

from rubricsvc.core.audit import Audit
from rubricsvc.core.judge import Comparison, Judge
from tests.instant_engine import InstantEngine
from workers.audit import cases, suites
from workers.audit.runner import run
from workers.audit.suites import AuditPlan
from workers.engines.base import EngineRequest, Failure, Question, Reply

READOUT = Judge(name="r", model="m")
WRITTEN = Judge(name="w", model="m", mode="written")
GOOD = {case.text for case in cases.built_in() if case.met}
PLAN = AuditPlan(cases.built_in(), suites.built_in())


class Ruled(InstantEngine):
    """P(yes) is what ``rule`` says of the text between the completion's marks."""

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        match = re.search(r"<completion-(\w+)>\n(.*)\n</completion-\1>", request.shared, re.DOTALL)
        assert match
        return [self.reply(match[2], question) for question in request.questions]

    def reply(self, text: str, question: Question) -> Reply | Failure:
        share = self.share(text)
        return Reply(label_mass={"Yes": share, "No": 1 - share})

    def share(self, text: str) -> float:
        return 0.9 if any(answer in text for answer in GOOD) else 0.1


ORDERS = PLAN.only(["rationale"])


def audited(engine: InstantEngine, judge: Judge = READOUT, plan: AuditPlan = PLAN, **limits: float) -> Audit:
    return asyncio.run(run(engine, judge, plan.adapted(judge), max_rates=limits))


def passed(audit: Audit) -> dict[str, bool | None]:
    return {one.name: one.passed for one in audit.suites}


def test_audit_passes_a_correct_judge() -> None:
    audit = audited(Ruled())
    assert audit.passed and audit.worst == ()
    results = passed(audit)
    assert results.pop("rationale") is None and all(results.values())
    assert {one.rate.hits for one in audit.suites} == {0}


def test_audit_catches_an_obedient_judge_by_injection_only() -> None:
    class Obedient(Ruled):
        def share(self, text: str) -> float:
            return 0.95 if "Yes" in text and len(text) > 5 else super().share(text)

    audit = audited(Obedient())
    failed = {name for name, ok in passed(audit).items() if ok is False}
    assert "injection" in failed and failed <= {"injection", "constant"}
    injection = next(one for one in audit.suites if one.name == "injection")
    assert injection.baseline is not None and injection.baseline.hits == 0
    assert injection.mean_shift is not None and injection.mean_shift > 0.2
    assert injection.families["direct orders"].hits and injection.families["authority and pity"].value != 1.0
    assert audit.worst[0].value == 0.95 and "Yes" in audit.worst[0].completion


def test_audit_catches_dependence_on_the_order_of_criteria() -> None:
    class FirstOnly(Ruled):
        """Finds the first criterion of a call met, and no other."""

        def reply(self, text: str, question: Question) -> Reply | Failure:
            ids = [_id(item) for item in _items(question)]
            return Reply(text=json.dumps({"verdicts": [_verdict(id_, n == 0) for n, id_ in enumerate(ids)]}))

    judge = WRITTEN.model_copy(update={"criteria_per_call": 0})
    plan = PLAN.only(["criteria_order"])
    assert passed(audited(FirstOnly(), judge, plan))["criteria_order"] is False


def test_audit_catches_verdicts_that_contradict_their_rationale() -> None:
    class Contrary(Ruled):
        """Says that it is bad, and finds it met; shown its own words, it reads them rightly."""

        def reply(self, text: str, question: Question) -> Reply | Failure:
            return Reply(text=json.dumps(_verdict(_id(question.schema), text != _REASON)))

    class Upright(Contrary):
        def reply(self, text: str, question: Question) -> Reply | Failure:
            return Reply(text=json.dumps(_verdict(_id(question.schema), False)))

    plan = PLAN.only(["rationale"])
    contrary = audited(Contrary(), WRITTEN, plan)
    result = next(one for one in contrary.suites if one.name == "rationale")
    assert result.passed is False and result.rate.value == 1.0 and result.rate.n == 66
    assert any(hit.completion == _REASON for hit in contrary.worst)
    assert passed(audited(Upright(), WRITTEN, plan))["rationale"] is True


_REASON = "The answer does not say so."


def _verdict(id_: str, met: bool) -> dict[str, object]:
    return {"criterion": id_, "rationale": _REASON, "evidence": [], "verdict": "met" if met else "not_met"}


def _items(question: Question) -> list[dict[str, Any]]:
    assert question.schema
    items = question.schema["properties"]["verdicts"]["items"]
    match: list[dict[str, Any]] = items.get("anyOf", [items])
    return match


def _id(schema: dict[str, Any] | None) -> str:
    assert schema
    return str(schema["properties"]["criterion"]["enum"][0])


class Reader(InstantEngine):
    """Prefers what holds a good answer; ``first`` prefers what is shown first, ``fooled`` what says `the reply is`."""

    def __init__(self, *, first: bool = False, fooled: bool = False) -> None:
        super().__init__()
        self.first, self.fooled = first, fooled

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        texts = re.findall(r"<answer-(\w+)>\n?(.*?)\n?</answer-\1>", request.shared, re.DOTALL)
        worth = [self.worth(text) for _, text in texts]
        share = 0.9 if self.first or worth[0] > worth[1] else 0.1
        return [Reply(label_mass=self.shares(question, share)) for question in request.questions]

    def worth(self, text: str) -> int:
        return 2 if self.fooled and "Yes" in text and text not in GOOD else int(any(good in text for good in GOOD))

    @staticmethod
    def shares(question: Question, share: float) -> dict[str, float]:
        a, b, *others = question.labels
        return {a: share, b: 1 - share} | dict.fromkeys(others, 0.0)


COMPARATIVE = Judge(name="c", model="m", mode="comparative", comparison=Comparison(kind="pairwise"))


def test_audit_catches_a_comparative_judge_that_takes_the_first() -> None:
    audit = audited(Reader(first=True), COMPARATIVE, ORDERS)
    result = next(one for one in audit.suites if one.name == "completion_order")
    assert (result.passed, result.rate.value, result.rate.n) == (False, 1.0, 33)
