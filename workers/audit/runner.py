"""Runs an audit: every answer of a plan through ``workers.scoring.completions``, in this process, many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rubricsvc.core.audit import Audit, Finding, Hit, SuiteResult, measured, worst
from rubricsvc.core.comparison import disagree
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from workers.audit.cases import Case
from workers.audit.journal import Journal
from workers.audit.plan import ANSWERS_ORDER, MISSED, PLAIN, RATIONALE, DataSuite, Plan, Trial
from workers.engines.base import Engine
from workers.scoring.completions import fingerprint_of, score_group

T = TypeVar("T")
Progress = Callable[[int, int, str], None]
Verdicts = Mapping[str, Verdict]
Said = tuple[Verdicts, Verdicts]
"""The verdicts on an answer, by criterion, and those on its rival, if it has one."""
Base = Mapping[tuple[str, str, str], Said]

_NULL_REASONS = {
    RATIONALE: "the judge writes no rationale",
    ANSWERS_ORDER: "the judge sees all answers at once, in an order that is drawn",  # a pairwise one has findings
}
_PROBE = Rubric(criteria=(Criterion(key="probe", text="Answers the question."),))


def asked_as(judge: Judge) -> str:
    """How the judge is asked, as a digest: another template or version of its mode makes an audit one of the past."""
    return fingerprint_of(_PROBE, judge)


def refuse(judge: Judge) -> None:
    """See that the judge can be audited.

    Raises:
        InvalidError: it judges neither single answers nor compares them.
    """
    for leaf in judge.leaf_judges:
        if leaf.mode not in ("readout", "written") and not (leaf is judge and judge.mode == "comparative"):
            hint = "audit judges of mode readout, written or comparative, and panels and cascades of the first two"
            raise InvalidError(f"there is no audit for a {leaf.mode} judge", hint=hint)


@dataclass
class _Asker:
    """Asks, and counts what is done."""

    engine: Engine
    judge: Judge
    journal: Journal
    total: int
    on_progress: Progress
    done: int = 0
    places: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.places = asyncio.Semaphore(max(leaf.endpoint.concurrency for leaf in self.judge.leaf_judges))

    async def ask(self, rubric: Rubric, case: Case, text: str, suite: str) -> Said:
        """What the judge says of ``text`` as an answer to the case's prompt, beside its rival if it has one."""
        answers = [Completion(text=said) for said in (text, case.rival) if said is not None]
        key = Journal.key(self.judge, rubric, case.prompt, answers)
        found = self.journal.get(key)
        if found is None:
            async with self.places:
                found = await score_group(self.engine, self.judge, rubric, case.prompt, answers)
            self.journal.add(key, found)
        self.done += 1
        self.on_progress(self.done, self.total, suite)
        mine, *rivals = ({verdict.criterion: verdict for verdict in verdicts} for verdicts in found)
        return mine, rivals[0] if rivals else {}

    async def case(self, case: Case, suite: str) -> Said:
        return await self.ask(case.rubric, case, case.answer, suite)


async def run(
    engine: Engine,
    judge: Judge,
    plan: Plan,
    *,
    max_rates: Mapping[str, float] | None = None,
    journal: Journal | None = None,
    on_progress: Progress = lambda done, total, suite: None,
) -> Audit:
    """Audit ``judge`` by a plan that is ``suited`` to it.

    ``max_rates`` are limits by suite that stand in for the plan's own. ``journal`` knows what was asked before, and is
    told what is asked now. ``on_progress`` is told answers done, answers in all, and the suite.

    Raises:
        InvalidError: there is no audit for such a judge.
    """
    refuse(judge)
    trials, limits = list(plan.trials()), dict(max_rates or {})
    asker = _Asker(engine, judge, journal or Journal(), _asks(plan, trials), on_progress)
    plain = await _all(asker.case(case, PLAIN) for case in plan.cases)
    base = dict(zip(map(_key, plan.cases), plain, strict=True))
    said = await _all(asker.ask(t.rubric, t.case, t.text, t.suite) for t in trials)
    findings = _as_they_are(judge, plan.cases, base)
    for trial, one in zip(trials, said, strict=True):
        findings.setdefault(trial.suite, []).extend(_of_trial(trial, one, base))
    if any(own.name == RATIONALE for own in plan.last):
        findings[RATIONALE] = await _rationales(asker, plan.cases, base)
    for suite in plan.data:
        findings[suite.name] = await _of_data(asker, suite)
    results: list[tuple[SuiteResult, list[Hit]]] = []
    for listed in plan.listed:
        told = {"about": listed.about, "null_reason": _NULL_REASONS.get(listed.name, "nothing to ask")}
        most = limits.get(listed.name, listed.max_rate)
        results.append(measured(listed.name, listed.measure, most, findings.get(listed.name, ()), **told))
    return Audit(
        digest=plan.digest,
        fingerprint=asked_as(judge),
        suites=tuple(result for result, _ in results),
        worst=worst({result.name: hits for result, hits in results if not result.passed}),
    )


async def _all(asks: Iterable[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*asks))


def _asks(plan: Plan, trials: Sequence[Trial]) -> int:
    pairs = sum(1 if better is None else 2 for one in plan.data for _, better in one.pairs)
    return len(plan.cases) + len(trials) + pairs


def _key(case: Case) -> tuple[str, str, str]:
    return case.prompt.digest, case.rubric.digest, case.answer


def _as_they_are(judge: Judge, cases: Sequence[Case], base: Base) -> dict[str, list[Finding]]:
    def findings(case: Case, keys: Iterable[str]) -> list[Finding]:
        mine, rivals = base[_key(case)]
        return [_finding(case, key, mine[key], rivals.get(key)) for key in keys]

    return {
        PLAIN: [one for case in cases for one in findings(case, case.unmet)],
        MISSED: [one for case in cases for one in findings(case, case.met)],
        ANSWERS_ORDER: [one for case in cases for one in _torn(judge, case, base[_key(case)][0])],
    }


def _torn(judge: Judge, case: Case, found: Verdicts) -> Iterator[Finding]:
    """A pair's two orders are the votes of its verdict: 1 where they name different winners, else 0.

    A pair of which an order failed is a finding too, that failed."""
    pairwise = judge.mode == "comparative" and judge.effective_comparison.kind == "pairwise"
    for key in case.unmet if pairwise and case.rival is not None else ():
        orders = [vote.value for vote in found[key].votes if vote.by.startswith("shown ")]
        if found[key].value is None:
            yield _finding(case, key, found[key])
        elif len(orders) == 2 and (first := orders[0]) is not None and (second := orders[1]) is not None:
            yield _finding(case, key, Verdict.scored(key, float(disagree(first, second))))


def _finding(case: Case, key: str, verdict: Verdict, before: Verdict | None = None, **told: str) -> Finding:
    """``told``: attack, family and answer, where they are not the case's own."""
    said = {"attack": "", "family": "", "answer": case.answer} | told
    return Finding(
        criterion=case.rubric.by_key[key].text, task=case.prompt.text, verdict=verdict, before=before, **said
    )


def _of_trial(trial: Trial, said: Said, base: Base) -> list[Finding]:
    case, (mine, rivals) = trial.case, said
    before: Verdicts = {"nothing": {}, "rival": rivals, "plain": base[_key(case)][0]}[trial.before]
    return [
        _finding(case, key, mine[key], before.get(key), attack=trial.attack, family=trial.family, answer=trial.text)
        for key in trial.keys
    ]


async def _rationales(asker: _Asker, cases: Sequence[Case], base: Base) -> list[Finding]:
    """Each rationale is judged as a text: does it say that the criterion is met? That should be its verdict.

    A verdict that failed has no rationale to ask about, and is a finding that failed."""
    if not any(leaf.mode == "written" for leaf in asker.judge.leaf_judges):
        return []
    known = [(case, key, base[_key(case)][0][key]) for case in cases for key in case.known]
    lost = [_finding(case, key, verdict) for case, key, verdict in known if verdict.value is None]
    asked = [some for some in known if some[2].value is not None and some[2].rationale]
    asker.total += len(asked)

    async def one(case: Case, key: str, verdict: Verdict) -> Finding:
        wanted = case.rubric.by_key[key].text
        text = f"This assessment of an answer says that the answer meets the criterion: {wanted}"
        rubric = Rubric(criteria=(Criterion(key=key, text=text),))
        prompt = Prompt.of(f"Assess an answer to this task by the criterion.\n\nTask: {case.prompt.text}\n\n{wanted}")
        again, _ = await asker.case(Case(prompt, rubric, verdict.rationale or ""), RATIONALE)
        return _finding(case, key, again[key], verdict, answer=verdict.rationale or "")

    return [*lost, *await _all(one(*some) for some in asked)]


async def _of_data(asker: _Asker, suite: DataSuite) -> list[Finding]:
    async def one(worse: Case, better: Case | None) -> list[Finding]:
        said, other = await asker.case(worse, suite.name)
        if better is not None:
            other, _ = await asker.case(better, suite.name)
        told = {"attack": worse.family or suite.name, "family": worse.family}
        return [_finding(worse, key, said[key], other.get(key), **told) for key in worse.unmet]

    return [finding for found in await _all(one(*pair) for pair in suite.pairs) for finding in found]
