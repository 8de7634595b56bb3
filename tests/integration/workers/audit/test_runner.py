"""Whole audits of judges that answer by a rule: each rule is caught by the suites that are made for it."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from rubricsvc.core.audit import Audit
from rubricsvc.core.judge import Comparison, Judge
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError
from tests.instant_engine import InstantEngine
from workers.audit import cases, suites
from workers.audit.runner import asking_fingerprint, run
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


def test_audit_catches_a_judge_that_likes_length_by_verbosity() -> None:
    class Wordy(Ruled):
        def share(self, text: str) -> float:
            return 0.9 if len(text) > 600 else super().share(text)

    results = passed(audited(Wordy()))
    assert results["verbosity"] is False and results["praise"] and results["master_keys"] and results["trivial"]


def test_audit_fails_a_judge_that_rejects_everything() -> None:
    class Never(Ruled):
        def share(self, text: str) -> float:
            return 0.0

    audit = audited(Never())
    assert [name for name, ok in passed(audit).items() if ok is False] == ["missed"] and not audit.passed


def test_audit_passes_no_suite_of_a_judge_that_does_not_answer() -> None:
    class Silent(Ruled):
        def reply(self, text: str, question: Question) -> Reply | Failure:
            return Failure(Reason.TIMEOUT)

    audit = audited(Silent())
    assert not any(passed(audit).values())
    assert all(one.unscored and one.rate.n == 0 for one in audit.suites if one.passed is False)


class Deaf(InstantEngine):
    """Never answers."""

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        return [Failure(Reason.TIMEOUT) for _ in request.questions]


def test_audit_counts_failures_of_orders_and_rationales() -> None:
    groupwise = COMPARATIVE.model_copy(update={"comparison": Comparison(kind="groupwise")})
    pairs, groups = (
        next(one for one in audited(Deaf(), judge, ORDERS).suites if one.name == "completion_order")
        for judge in (COMPARATIVE, groupwise)
    )
    assert (pairs.passed, pairs.reason, pairs.unscored) == (False, "only 0 of 33 could be scored", {"timeout": 33})
    assert (groups.passed, groups.reason) == (None, "the judge sees all completions at once, in random order")
    plan = PLAN.only(["rationale"])
    written, read_out = (audited(Deaf(), judge, plan).suites[-1] for judge in (WRITTEN, READOUT))
    assert (written.passed, written.reason, written.unscored) == (
        False,
        "only 0 of 66 could be scored",
        {"timeout": 66},
    )
    assert (read_out.passed, read_out.reason) == (None, "the judge writes no rationale")


def test_audit_fails_a_rationale_suite_that_is_half_unscored() -> None:
    class Tired(Ruled):
        """Judges all good answers but one, no bad one, and agrees with itself."""

        def reply(self, text: str, question: Question) -> Reply | Failure:
            if text not in sorted(GOOD)[1:] and text != _REASON:
                return Failure(Reason.TIMEOUT)
            return Reply(text=json.dumps(_verdict(_id(question.schema), True)))

    result = audited(Tired(), WRITTEN, PLAN.only(["rationale"])).suites[-1]
    assert result.rate.hits == 0 and 33 < result.unscored["timeout"] == 66 - result.rate.n
    assert result.passed is False and str(result.reason).endswith("of 66 could be scored")


def test_audit_uses_given_limits() -> None:
    class Never(Ruled):
        def share(self, text: str) -> float:
            return 0.0

    assert audited(Never(), missed=1.0).passed


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


def test_audit_progress_ends_at_its_total() -> None:
    seen: list[tuple[int, int]] = []
    asyncio.run(run(Ruled(), READOUT, PLAN.only(["trivial"]), on_progress=lambda d, t, _: seen.append((d, t))))
    assert seen[-1][0] == seen[-1][1] == len(seen)


TRAJECTORY = Judge(name="t", model="m", mode="trajectory")
TRAJECTORIES = AuditPlan(cases.built_in("trajectory"), suites.built_in("trajectory"))
GOOD_STEPS = {case.messages[-1].content for case in cases.built_in("trajectory") if case.met}


class StepRuled(Ruled):
    """P(yes) is what ``share`` says of the last step, whose results are new or were seen before."""

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        texts = [text for _, _, text in re.findall(r"<(agent|result)-(\w+)>\n(.*?)\n</\1-\2>", request.shared, re.S)]
        *before, last = re.split(r"^Step \d+:$", request.shared, flags=re.M)
        share = self.step_share(last, any(texts[-1] in one for one in before))
        return [Reply(label_mass={"Yes": share, "No": 1 - share}) for _ in request.questions]

    def step_share(self, last: str, seen: bool) -> float:
        return 0.9 if not seen and any(result in last for result in GOOD_STEPS) else 0.1


def test_audit_of_a_trajectory_judge_passes_a_correct_one() -> None:
    audit = audited(StepRuled(), TRAJECTORY, TRAJECTORIES)
    assert audit.passed, [(one.name, one.reason) for one in audit.suites if not one.passed]
    assert {"loops", "claimed", "giving_up", "premature", "injection"} <= set(passed(audit))
    assert all(passed(audit).values()) and {one.rate.hits for one in audit.suites} == {0}
    assert audit.fingerprint == asking_fingerprint(TRAJECTORY)


@pytest.mark.parametrize(
    ("sign", "suite"),
    [
        ("[calls ", "loops"),
        ("I have checked this twice", "claimed"),
        ("about this, so I stop", "giving_up"),
        ("The task is complete", "premature"),
    ],
)
def test_audit_catches_a_trajectory_judge_that_believes_a_step(sign: str, suite: str) -> None:
    class Believing(StepRuled):
        def step_share(self, last: str, seen: bool) -> float:
            believed = sign in last and (suite != "loops" or seen)
            return 0.95 if believed else super().step_share(last, seen)

    plan = TRAJECTORIES.only(["loops", "claimed", "giving_up", "premature"])
    results = passed(audited(Believing(), TRAJECTORY, plan))
    assert [name for name, ok in results.items() if not ok] == [suite]


def test_audit_refuses_texts_for_a_trajectory_judge_and_a_panel_of_them() -> None:
    with pytest.raises(InvalidError, match="steps"):
        PLAN.adapted(TRAJECTORY)
    members = (TRAJECTORY, READOUT)
    with pytest.raises(InvalidError, match="trajectory"):
        audited(Ruled(), Judge(name="p", mode="panel", members=members))


def test_asking_fingerprint_ignores_the_name() -> None:
    assert (
        asking_fingerprint(READOUT)
        == asking_fingerprint(READOUT.model_copy(update={"name": "other"}))
        != asking_fingerprint(WRITTEN)
    )


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


def test_audit_of_a_comparative_judge_shows_a_good_completion_beside_each_attack() -> None:
    audit = audited(Reader(), COMPARATIVE)
    assert audit.passed, [(one.name, one.reason) for one in audit.suites]
    assert passed(audit)["completion_order"] is True and "missed" not in passed(audit)
    assert {one.measure for one in audit.suites if one.families} == {"preferred"}
    fooled = next(
        one
        for one in audited(Reader(fooled=True), COMPARATIVE, PLAN.only(["injection"])).suites
        if one.name == "injection"
    )
    assert fooled.passed is False and fooled.rate.hits and fooled.rate.hits < fooled.rate.n


def test_which_suites_tell_false_positive_suites_of_a_comparative_judge() -> None:
    results = PLAN.adapted(COMPARATIVE).false_positive_suites
    assert "completion_order" not in results and "criteria_order" not in results
    assert {"plain", "injection", "praise"} <= set(results), "there a bad answer is preferred to a good one"


def test_audit_catches_a_comparative_judge_that_takes_the_first() -> None:
    audit = audited(Reader(first=True), COMPARATIVE, ORDERS)
    result = next(one for one in audit.suites if one.name == "completion_order")
    assert (result.passed, result.rate.value, result.rate.n) == (False, 1.0, 33)


def test_audit_of_a_comparative_judge_needs_good_completions() -> None:
    with pytest.raises(InvalidError, match="comparative"):
        audited(Reader(), COMPARATIVE, AuditPlan(cases.built_in()[::2], PLAN.suites))
