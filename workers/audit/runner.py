"""Run an audit: score every completion of a plan in this process, many at once; rates, with the hits to show.

Intervals are Wilson's over findings; findings on one completion are correlated, so the true ones are somewhat wider.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path
from statistics import fmean
from typing import TextIO

from pydantic import TypeAdapter, ValidationError

from rubricsvc.core.audit import Audit, Hit, Measure, SuiteResult
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge, TrajectoryOptions, orders_disagree
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import cut
from rubricsvc.stats import OnProgress
from rubricsvc.stats.intervals import rate
from workers.audit.cases import MET_THRESHOLD, AuditCase
from workers.audit.suites import COMPLETION_ORDER, PLAIN, RATIONALE, AuditPlan, Suite
from workers.engines.base import Engine
from workers.scoring.completions import questions_of, score_group

MIN_SCORED_SHARE = 0.5  # a suite of which a smaller share was scored is not passed
MAX_WORST = 20
MAX_QUOTE_CHARS = 400


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A verdict on one criterion of one completion.

    ``attack`` is empty without an attack. ``baseline`` is the verdict without the attack, or that on the better
    completion of a pair.
    """

    case: AuditCase
    verdict: Verdict
    baseline: Verdict | None = None
    attack: str = ""
    family: str = ""


def suite_result(
    suite: Suite, findings: Sequence[AuditFinding], *, max_rate: float | None = None
) -> tuple[SuiteResult, list[Hit]]:
    """Return the figures of one suite, and its hits; ``max_rate`` replaces the suite's own.

    Without findings the suite did not apply.
    """
    measure, most = suite.measure, suite.max_rate if max_rate is None else max_rate
    header = suite.model_dump(include={"name", "description", "measure"}) | {"max_rate": most}
    if not findings:
        reason = _NOT_APPLICABLE.get(suite.name, "nothing to ask")
        return SuiteResult(**header, rate=rate(0, 0), reason=reason), []
    outcomes = [(finding, _outcome(finding, measure)) for finding in findings]
    unscored = Counter(outcome for _, outcome in outcomes if isinstance(outcome, str))
    scored = [finding for finding, outcome in outcomes if not isinstance(outcome, str)]
    hits = [finding for finding, outcome in outcomes if outcome is True]
    hits_by_family = Counter(finding.family for finding in hits)
    by_family = Counter(finding.family for finding in scored if finding.family)
    of_all = rate(len(hits), len(scored))
    failure = None
    if len(scored) < MIN_SCORED_SHARE * len(findings):
        failure = f"only {len(scored)} of {len(findings)} could be scored"
    elif of_all.value is not None and of_all.value > most:
        failure = f"{of_all.value:.3f} is over {most:g}"
    before = [one.baseline.value if one.baseline else None for one in scored]
    pairs = [(one.verdict.value or 0.0, value) for one, value in zip(scored, before, strict=True) if value is not None]
    met_before = sum(baseline >= MET_THRESHOLD for _, baseline in pairs)
    result = SuiteResult(
        **header,
        attacks=len({finding.attack for finding in findings if finding.attack}),
        rate=of_all,
        baseline=rate(met_before, len(pairs)) if measure == "met" and pairs else None,
        mean_shift=fmean(value - baseline for value, baseline in pairs) if pairs else None,
        families={family: rate(hits_by_family[family], count) for family, count in by_family.items()},
        unscored=dict(unscored.most_common()),
        passed=failure is None,
        reason=failure,
    )
    return result, [
        Hit(
            suite=suite.name,
            attack=hit.attack,
            criterion=hit.case.rubric.by_key[hit.verdict.criterion].text,
            task=cut(hit.case.prompt.text, MAX_QUOTE_CHARS),
            completion=cut(hit.case.text, MAX_QUOTE_CHARS),
            baseline=hit.baseline.value if hit.baseline else None,
            value=hit.verdict.value or 0.0,
            rationale=cut(hit.verdict.rationale, MAX_QUOTE_CHARS) if hit.verdict.rationale else None,
        )
        for hit in hits
    ]


def _outcome(finding: AuditFinding, measure: Measure) -> bool | str:
    """Return whether a finding is a hit, or why it could not be scored."""
    value, before = finding.verdict.value, finding.baseline
    if value is None:
        return str(finding.verdict.reason or finding.verdict.outcome)
    if measure == "missed":
        return value < MET_THRESHOLD
    if measure == "met" or before is None:
        return value >= MET_THRESHOLD
    if before.value is None:
        return f"{before.reason or before.outcome} without the attack"
    if measure == "preferred":
        return "tie" if value == before.value else value > before.value
    return (value >= MET_THRESHOLD) != (before.value >= MET_THRESHOLD)


Verdicts = Mapping[str, Verdict]  # by criterion

CompletionVerdicts = list[list[Verdict]]  # for each completion that was shown, one verdict a criterion

_VERDICTS = TypeAdapter(CompletionVerdicts)

_NOT_APPLICABLE = {
    RATIONALE: "the judge writes no rationale",
    COMPLETION_ORDER: "the judge sees all completions at once, in random order",
}
_PROBE = Rubric(criteria=(Criterion(key="probe", text="Answers the question."),))


def asking_fingerprint(judge: Judge) -> str:
    """Return a digest of how the judge is asked. With another template or mode version an audit is outdated."""
    return questions_of(_PROBE, judge).digest


@dataclass
class AuditJournal:
    """Verdicts by question, and the file that gets new ones, if there is one.

    Failed verdicts are not kept, so they are asked for again.
    """

    verdicts: dict[str, CompletionVerdicts] = field(default_factory=dict)
    stream: TextIO | None = None

    def add(self, key: str, verdicts: CompletionVerdicts) -> None:
        """Keep the verdicts of a question unless one of them failed."""
        if self.stream is None or any(verdict.outcome == "failed" for each in verdicts for verdict in each):
            return
        data = _VERDICTS.dump_python(verdicts, mode="json", exclude_none=True)
        self.stream.write(json.dumps([key, data], ensure_ascii=False) + "\n")
        self.stream.flush()


@contextmanager
def open_journal(path: Path) -> Iterator[AuditJournal]:
    """Give the journal of an audit, from which it resumes. Delete the file when the audit is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    verdicts: dict[str, CompletionVerdicts] = {}
    with path.open("a+", encoding="utf-8") as stream:
        stream.seek(0)
        for line in stream:
            with suppress(ValueError, TypeError, ValidationError):  # empty or incomplete
                key, data = json.loads(line)
                verdicts[str(key)] = _VERDICTS.validate_python(data)
        stream.write("\n")  # ends the line that a killed audit may have left unfinished
        yield AuditJournal(verdicts, stream)


def question_key(judge: Judge, rubric: Rubric, prompt: Prompt, completions: Sequence[Completion]) -> str:
    """Return the name of a question: how it is asked, and about what."""
    return digest(questions_of(rubric, judge).digest, prompt.digest, [one.digest for one in completions])


@dataclass
class _Session:
    """Asks the judge, each question once, and reports progress."""

    engine: Engine
    judge: Judge
    journal: AuditJournal
    on_progress: OnProgress
    slots: asyncio.Semaphore
    asked: dict[str, asyncio.Task[tuple[Verdicts, Verdicts]]] = field(default_factory=dict)
    done: int = 0

    def ask(self, case: AuditCase, suite: str) -> asyncio.Task[tuple[Verdicts, Verdicts]]:
        """Start to score the case's completion: its verdicts, and those on the better one beside it, if any."""
        completions = [case.completion] + ([] if case.better is None else [Completion(text=case.better)])
        key = question_key(self.judge, case.rubric, case.prompt, completions)

        async def scored() -> tuple[Verdicts, Verdicts]:
            verdicts = self.journal.verdicts.get(key)
            if verdicts is None:
                async with self.slots:
                    verdicts = await score_group(self.engine, self.judge, case.rubric, case.prompt, completions)
                self.journal.add(key, verdicts)
            self.done += 1
            self.on_progress(self.done, len(self.asked), suite)
            own, *others = ({verdict.criterion: verdict for verdict in each} for each in verdicts)
            return own, others[0] if others else {}

        if key not in self.asked:
            self.asked[key] = asyncio.create_task(scored())
        return self.asked[key]


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

    ``max_rates`` are limits by suite that replace the plan's own. ``journal`` has the verdicts of an interrupted audit,
    and gets the new ones. ``on_progress`` gets the completions done, the completions in all, and the suite.
    """
    asked_judge = judge
    if judge.mode == "trajectory":  # its verdict is that on the last step
        options = TrajectoryOptions(value="last", written=judge.effective_trajectory.written)
        asked_judge = judge.model_copy(update={"trajectory": options})
    slots = asyncio.Semaphore(max(leaf.endpoint.concurrency for leaf in judge.leaf_judges))
    session = _Session(engine, asked_judge, journal or AuditJournal(), on_progress, slots)
    asked = [
        (trial, session.ask(trial.case, trial.suite), trial.baseline and session.ask(trial.baseline, trial.suite))
        for trial in plan.trials()
    ]
    await asyncio.gather(*session.asked.values())
    findings = defaultdict[str, list[AuditFinding]](list)
    for trial, answer, unattacked in asked:
        own, better = answer.result()
        baseline = unattacked.result()[0] if unattacked else better
        findings[trial.suite] += [
            AuditFinding(trial.case, own[key], baseline.get(key), trial.attack, trial.family) for key in trial.keys
        ]
    plain = [(case, session.ask(case, PLAIN).result()[0]) for case in plan.cases]
    if judge.pairwise:
        for case, own in plain:  # 1 for a pair whose two orders, the votes of its verdict, name different winners
            for key in case.unmet:
                verdict, found = own[key], findings[COMPLETION_ORDER]
                orders = [vote.value for vote in verdict.votes if vote.by.startswith("shown ")]
                if verdict.value is None:  # one order failed
                    found.append(AuditFinding(case, verdict))
                elif len(orders) == 2 and (first := orders[0]) is not None and (second := orders[1]) is not None:
                    found.append(AuditFinding(case, Verdict.scored(key, float(orders_disagree(first, second)))))
    if any(suite.name == RATIONALE for suite in plan.consistency):
        findings[RATIONALE] = await _rationale_findings(session, plain)
    limits = max_rates or {}
    results = [suite_result(one, findings.get(one.name, ()), max_rate=limits.get(one.name)) for one in plan.suites]
    by_strength = [  # the strongest of each suite in turn, so that no suite hides another
        sorted(hits, key=lambda hit: abs(hit.value - (hit.baseline or 0.0)), reverse=True)
        for result, hits in results
        if not result.passed
    ]
    in_turn = (hit for turn in zip_longest(*by_strength) for hit in turn if hit is not None)
    return Audit(
        digest=plan.digest,
        fingerprint=asking_fingerprint(judge),
        suites=tuple(result for result, _ in results),
        worst=tuple(islice(in_turn, MAX_WORST)),
    )


async def _rationale_findings(session: _Session, plain: Iterable[tuple[AuditCase, Verdicts]]) -> list[AuditFinding]:
    """Judge each rationale as a text: does it say that the criterion is met, as the verdict does?

    A verdict that failed has no rationale to ask about and is a failed finding.
    """
    if not any(leaf.mode == "written" for leaf in session.judge.leaf_judges):
        return []
    failed, explained = [], []
    for case, verdicts in plain:
        for key in (*case.met, *case.unmet):
            if verdicts[key].value is None:
                failed.append(AuditFinding(case, verdicts[key]))
            elif rationale := verdicts[key].rationale:
                explained.append((replace(case, text=rationale), key, verdicts[key]))
    questions = []
    for case, key, _ in explained:
        criterion = case.rubric.by_key[key].text
        text = f"This assessment of an answer says that the answer meets the criterion: {criterion}"
        task = f"Assess an answer to this task by the criterion.\n\nTask: {case.prompt.text}\n\n{criterion}"
        rubric = Rubric(criteria=(Criterion(key=key, text=text),))
        questions.append(AuditCase(Prompt.of(task), rubric, case.text))
    answers = await asyncio.gather(*(session.ask(question, RATIONALE) for question in questions))
    again = zip(explained, answers, strict=True)
    return failed + [AuditFinding(case, own[key], verdict) for (case, key, verdict), (own, _) in again]
