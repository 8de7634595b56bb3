"""Run an audit: score every completion of a plan in this process, many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from rubricsvc.core.audit import Audit, Hit, SuiteResult
from rubricsvc.core.comparison import orders_disagree
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.stats.audit import AuditFinding, suite_result, worst_hits
from workers.audit.cases import AuditCase
from workers.audit.journal import AuditJournal
from workers.audit.plan import COMPLETION_ORDER, MISSED, PLAIN, RATIONALE, AttackedCase, AuditPlan, DataSuite
from workers.engines.base import Engine
from workers.scoring.completions import score_group
from workers.scoring.questions import questions_of

T = TypeVar("T")
OnProgress = Callable[[int, int, str], None]
Verdicts = Mapping[str, Verdict]
"""By criterion."""


class CaseVerdicts(NamedTuple):
    """The verdicts on a completion, and those on the better one shown beside it, if there is one."""

    own: Verdicts
    better: Verdicts


CaseKey = tuple[str, str, str]
Unattacked = Mapping[CaseKey, CaseVerdicts]

_NOT_APPLICABLE = {
    RATIONALE: "the judge writes no rationale",
    COMPLETION_ORDER: "the judge sees all completions at once, in random order",
}
_PROBE = Rubric(criteria=(Criterion(key="probe", text="Answers the question."),))


def asking_fingerprint(judge: Judge) -> str:
    """Return a digest of how the judge is asked. With another template or mode version an audit is outdated."""
    return questions_of(_PROBE, judge).digest


def check_auditable(judge: Judge) -> None:
    """Check that the judge can be audited.

    Raises:
        InvalidError: It neither judges single completions nor compares them.
    """
    for leaf in judge.leaf_judges:
        if leaf.mode not in ("readout", "written") and not (leaf is judge and judge.mode == "comparative"):
            hint = "audit judges of mode readout, written or comparative, and panels and cascades of the first two"
            raise InvalidError(f"judge {judge.name!r}: a {leaf.mode} judge cannot be audited", hint=hint)


@dataclass
class _Session:
    """Asks the judge and counts progress."""

    engine: Engine
    judge: Judge
    journal: AuditJournal
    total: int
    on_progress: OnProgress
    done: int = 0
    slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(max(leaf.endpoint.concurrency for leaf in self.judge.leaf_judges))

    async def score(self, rubric: Rubric, case: AuditCase, text: str, suite: str) -> CaseVerdicts:
        """Score ``text`` as a completion of the case's prompt, beside the better one if there is one."""
        completions = [Completion(text=shown) for shown in (text, case.better) if shown is not None]
        key = AuditJournal.key(self.judge, rubric, case.prompt, completions)
        verdicts = self.journal.get(key)
        if verdicts is None:
            async with self.slots:
                verdicts = await score_group(self.engine, self.judge, rubric, case.prompt, completions)
            self.journal.add(key, verdicts)
        self.done += 1
        self.on_progress(self.done, self.total, suite)
        own, *others = ({verdict.criterion: verdict for verdict in each} for each in verdicts)
        return CaseVerdicts(own, others[0] if others else {})

    async def score_unattacked(self, case: AuditCase, suite: str) -> CaseVerdicts:
        return await self.score(case.rubric, case, case.text, suite)


async def run(
    engine: Engine,
    judge: Judge,
    plan: AuditPlan,
    *,
    max_rates: Mapping[str, float] | None = None,
    journal: AuditJournal | None = None,
    on_progress: OnProgress = lambda done, total, suite: None,
) -> Audit:
    """Audit ``judge`` by a plan that is ``adapted`` to it.

    Args:
        engine: The judge's engine.
        judge: The judge.
        plan: Cases and suites.
        max_rates: Limits by suite that replace the plan's own.
        journal: The verdicts of an interrupted audit; new ones are added.
        on_progress: Called with the completions done, the completions in all, and the suite.

    Raises:
        InvalidError: The judge cannot be audited.
    """
    check_auditable(judge)
    attacked, limits = list(plan.attacked_cases()), dict(max_rates or {})
    session = _Session(
        engine, judge, journal if journal is not None else AuditJournal(), _question_count(plan, attacked), on_progress
    )
    plain = await _gather(session.score_unattacked(case, PLAIN) for case in plan.cases)
    unattacked = dict(zip(map(_key, plan.cases), plain, strict=True))
    scored = await _gather(session.score(one.rubric, one.case, one.text, one.suite) for one in attacked)
    findings = _unattacked_findings(judge, plan.cases, unattacked)
    for one, verdicts in zip(attacked, scored, strict=True):
        findings.setdefault(one.suite, []).extend(_attack_findings(one, verdicts, unattacked))
    if any(suite.name == RATIONALE for suite in plan.consistency):
        findings[RATIONALE] = await _rationale_findings(session, plan.cases, unattacked)
    for data_suite in plan.data:
        findings[data_suite.name] = await _data_findings(session, data_suite)
    results: list[tuple[SuiteResult, list[Hit]]] = [
        suite_result(
            suite.name,
            suite.measure,
            limits.get(suite.name, suite.max_rate),
            findings.get(suite.name, ()),
            description=suite.description,
            not_applicable=_NOT_APPLICABLE.get(suite.name, "nothing to ask"),
        )
        for suite in plan.suites
    ]
    return Audit(
        digest=plan.digest,
        fingerprint=asking_fingerprint(judge),
        suites=tuple(result for result, _ in results),
        worst=worst_hits({result.name: hits for result, hits in results if not result.passed}),
    )


async def _gather(questions: Iterable[Awaitable[T]]) -> list[T]:
    return list(await asyncio.gather(*questions))


def _question_count(plan: AuditPlan, attacked: Sequence[AttackedCase]) -> int:
    pairs = sum(1 if better is None else 2 for suite in plan.data for _, better in suite.pairs)
    return len(plan.cases) + len(attacked) + pairs


def _key(case: AuditCase) -> CaseKey:
    return (*case.task, case.text)


def _unattacked_findings(
    judge: Judge, cases: Sequence[AuditCase], unattacked: Unattacked
) -> dict[str, list[AuditFinding]]:
    def findings(case: AuditCase, keys: Iterable[str]) -> list[AuditFinding]:
        own, better = unattacked[_key(case)]
        return [_finding(case, key, own[key], better.get(key)) for key in keys]

    return {
        PLAIN: [finding for case in cases for finding in findings(case, case.unmet)],
        MISSED: [finding for case in cases for finding in findings(case, case.met)],
        COMPLETION_ORDER: [
            finding for case in cases for finding in _order_findings(judge, case, unattacked[_key(case)].own)
        ],
    }


def _order_findings(judge: Judge, case: AuditCase, verdicts: Verdicts) -> Iterator[AuditFinding]:
    """Yield 1 for each pair whose two orders, the votes of its verdict, name different winners, else 0.

    A pair of which one order failed is a failed finding.
    """
    for key in case.unmet if judge.pairwise and case.better is not None else ():
        orders = [vote.value for vote in verdicts[key].votes if vote.by.startswith("shown ")]
        if verdicts[key].value is None:
            yield _finding(case, key, verdicts[key])
        elif len(orders) == 2 and (first := orders[0]) is not None and (second := orders[1]) is not None:
            yield _finding(case, key, Verdict.scored(key, float(orders_disagree(first, second))))


def _finding(
    case: AuditCase, key: str, verdict: Verdict, baseline: Verdict | None = None, **fields: str
) -> AuditFinding:
    """Return a finding; ``fields`` are attack, family and completion if they differ from the case's own."""
    defaults = {"attack": "", "family": "", "completion": case.text}
    return AuditFinding(
        criterion=case.rubric.by_key[key].text,
        task=case.prompt.text,
        verdict=verdict,
        baseline=baseline,
        **defaults | fields,
    )


def _attack_findings(one: AttackedCase, verdicts: CaseVerdicts, unattacked: Unattacked) -> list[AuditFinding]:
    baselines: dict[str, Verdicts] = {
        "none": {},
        "better": verdicts.better,
        "unattacked": unattacked[_key(one.case)].own,
    }
    baseline = baselines[one.baseline]
    fields = {"attack": one.attack, "family": one.family, "completion": one.text}
    return [_finding(one.case, key, verdicts.own[key], baseline.get(key), **fields) for key in one.keys]


async def _rationale_findings(
    session: _Session, cases: Sequence[AuditCase], unattacked: Unattacked
) -> list[AuditFinding]:
    """Judge each rationale as a text: does it say that the criterion is met, as the verdict does?

    A verdict that failed has no rationale to ask about and is a failed finding.
    """
    if not any(leaf.mode == "written" for leaf in session.judge.leaf_judges):
        return []
    verdicts = [(case, key, unattacked[_key(case)].own[key]) for case in cases for key in case.labelled]
    failed = [_finding(case, key, verdict) for case, key, verdict in verdicts if verdict.value is None]
    explained = [one for one in verdicts if one[2].value is not None and one[2].rationale]
    session.total += len(explained)

    async def ask(case: AuditCase, key: str, verdict: Verdict) -> AuditFinding:
        criterion = case.rubric.by_key[key].text
        text = f"This assessment of an answer says that the answer meets the criterion: {criterion}"
        rubric = Rubric(criteria=(Criterion(key=key, text=text),))
        task = f"Assess an answer to this task by the criterion.\n\nTask: {case.prompt.text}\n\n{criterion}"
        rationale = verdict.rationale or ""
        again, _ = await session.score_unattacked(AuditCase(Prompt.of(task), rubric, rationale), RATIONALE)
        return _finding(case, key, again[key], verdict, completion=rationale)

    return [*failed, *await _gather(ask(*one) for one in explained)]


async def _data_findings(session: _Session, suite: DataSuite) -> list[AuditFinding]:
    async def ask(worse: AuditCase, better: AuditCase | None) -> list[AuditFinding]:
        verdicts, baseline = await session.score_unattacked(worse, suite.name)
        if better is not None:
            baseline, _ = await session.score_unattacked(better, suite.name)
        fields = {"attack": worse.family or suite.name, "family": worse.family}
        return [_finding(worse, key, verdicts[key], baseline.get(key), **fields) for key in worse.unmet]

    return [finding for each in await _gather(ask(*pair) for pair in suite.pairs) for finding in each]
