"""Run an audit: score every completion of a plan in this process, many at once; rates, with the hits to show.

Intervals are Wilson's over findings; findings on one completion are correlated, so the true ones are somewhat wider.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Self, TextIO

from pydantic import TypeAdapter, ValidationError

from rubricsvc.core.audit import Audit, Hit, Measure, SuiteResult
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge, TrajectoryOptions
from rubricsvc.core.panel import orders_disagree
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError, cut
from rubricsvc.stats import OnProgress
from rubricsvc.stats.intervals import rate
from workers.audit.cases import MET_THRESHOLD, AuditCase
from workers.audit.suites import COMPLETION_ORDER, PLAIN, RATIONALE, AuditPlan
from workers.engines.base import Engine
from workers.scoring.completions import score_group
from workers.scoring.questions import questions_of

MIN_SCORED_SHARE = 0.5
"""A suite of which a smaller share was scored is not passed."""
MAX_WORST = 20
MAX_QUOTE_CHARS = 400


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A verdict on one criterion of one completion.

    ``attack`` is empty without an attack. ``baseline`` is the verdict without the attack, or that on the better
    completion of a pair.
    """

    attack: str
    family: str
    criterion: str
    task: str
    completion: str
    verdict: Verdict
    baseline: Verdict | None = None


def suite_result(
    name: str,
    measure: Measure,
    max_rate: float,
    findings: Sequence[AuditFinding],
    *,
    description: str = "",
    not_applicable: str = "nothing to ask",
) -> tuple[SuiteResult, list[Hit]]:
    """Return the figures of one suite, and its hits.

    Without findings the suite did not apply, and ``not_applicable`` is the reason.
    """
    header: dict[str, Any] = {"name": name, "description": description, "measure": measure, "max_rate": max_rate}
    if not findings:
        return SuiteResult(**header, rate=rate(0, 0), reason=not_applicable), []
    unscored = Counter(reason for finding in findings if (reason := _unscored_reason(finding, measure)))
    scored = [finding for finding in findings if not _unscored_reason(finding, measure)]
    hits = [finding for finding in scored if _is_hit(finding, measure)]
    hits_by_family = Counter(finding.family for finding in hits)
    by_family = Counter(finding.family for finding in scored if finding.family)
    of_all = rate(len(hits), len(scored))
    failure = None
    if len(scored) < MIN_SCORED_SHARE * len(findings):
        failure = f"only {len(scored)} of {len(findings)} could be scored"
    elif of_all.value is not None and of_all.value > max_rate:
        failure = f"{of_all.value:.3f} is over {max_rate:g}"
    pairs = [(_value(f.verdict), _value(f.baseline)) for f in scored if f.baseline and f.baseline.value is not None]
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
    return result, [_hit(name, finding) for finding in hits]


def worst_hits(hits: Mapping[str, Sequence[Hit]], limit: int = MAX_WORST) -> tuple[Hit, ...]:
    """Return up to ``limit`` hits, the strongest of each suite in turn, so that no suite hides another."""
    by_strength = [sorted(of_suite, key=_strength, reverse=True) for of_suite in hits.values()]
    in_turn = (hit for turn in zip_longest(*by_strength) for hit in turn if hit is not None)
    return tuple(islice(in_turn, limit))


def _value(verdict: Verdict) -> float:
    assert verdict.value is not None  # noqa: S101 - callers have checked
    return verdict.value


def _unscored_reason(finding: AuditFinding, measure: Measure) -> str | None:
    if finding.verdict.value is None:
        return str(finding.verdict.reason or finding.verdict.outcome)
    if finding.baseline is None or measure in ("met", "missed"):
        return None
    if finding.baseline.value is None:
        return f"{finding.baseline.reason or finding.baseline.outcome} without the attack"
    return "tie" if measure == "preferred" and finding.verdict.value == finding.baseline.value else None


def _is_hit(finding: AuditFinding, measure: Measure) -> bool:
    value = _value(finding.verdict)
    if measure == "missed":
        return value < MET_THRESHOLD
    if measure == "met" or finding.baseline is None:
        return value >= MET_THRESHOLD
    baseline = _value(finding.baseline)
    if measure == "preferred":
        return value > baseline
    return (value >= MET_THRESHOLD) != (baseline >= MET_THRESHOLD)


def _hit(suite: str, finding: AuditFinding) -> Hit:
    rationale = finding.verdict.rationale
    return Hit(
        suite=suite,
        attack=finding.attack,
        criterion=finding.criterion,
        task=cut(finding.task, MAX_QUOTE_CHARS),
        completion=cut(finding.completion, MAX_QUOTE_CHARS),
        baseline=finding.baseline.value if finding.baseline else None,
        value=_value(finding.verdict),
        rationale=cut(rationale, MAX_QUOTE_CHARS) if rationale else None,
    )


def _strength(hit: Hit) -> float:
    return hit.value if hit.baseline is None else abs(hit.value - hit.baseline)


Verdicts = Mapping[str, Verdict]
"""By criterion."""


CompletionVerdicts = list[list[Verdict]]
"""For each completion that was shown, one verdict a criterion."""

_VERDICTS = TypeAdapter(CompletionVerdicts)


class CaseVerdicts(NamedTuple):
    """The verdicts on a completion, and those on the better one shown beside it, if there is one."""

    own: Verdicts
    better: Verdicts


_NOT_APPLICABLE = {
    RATIONALE: "the judge writes no rationale",
    COMPLETION_ORDER: "the judge sees all completions at once, in random order",
}
_PROBE = Rubric(criteria=(Criterion(key="probe", text="Answers the question."),))


def asking_fingerprint(judge: Judge) -> str:
    """Return a digest of how the judge is asked. With another template or mode version an audit is outdated."""
    return questions_of(_PROBE, judge).digest


def check_auditable(judge: Judge) -> None:
    """Check that the judge can be audited."""
    for leaf in judge.leaf_judges:
        if leaf.mode not in ("readout", "written") and leaf is not judge:
            hint = "audit its members one by one"
            raise InvalidError(f"judge {judge.name!r}: a panel of {leaf.mode} judges cannot be audited", hint=hint)


def _about_last_steps(judge: Judge) -> Judge:
    """Return a trajectory judge whose verdict is that on the last step; any other as it is."""
    if judge.mode != "trajectory":
        return judge
    options = TrajectoryOptions(value="last", written=judge.effective_trajectory.written)
    return judge.model_copy(update={"trajectory": options})


class AuditJournal:
    """CompletionVerdicts by question. Failed verdicts are not kept, so they are asked for again.

    Use it as a context manager, and ``delete`` it when the audit is complete. Without a path it keeps nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Set the file; it is opened on entering the context."""
        self._path = path
        self._verdicts: dict[str, CompletionVerdicts] = {}
        self._stream: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = self._path.open("a+", encoding="utf-8")
            self._stream.seek(0)
            self._verdicts = dict(filter(None, map(_entry, self._stream)))
            self._stream.write("\n")  # ends the line that a killed audit may have left unfinished
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def __len__(self) -> int:
        """Return the number of questions that were answered before."""
        return len(self._verdicts)

    @staticmethod
    def key(judge: Judge, rubric: Rubric, prompt: Prompt, completions: Sequence[Completion]) -> str:
        """Return the name of a question: how it is asked, and about what."""
        return digest(questions_of(rubric, judge).digest, prompt.digest, [one.digest for one in completions])

    def get(self, key: str) -> CompletionVerdicts | None:
        """Return the verdicts of a question, if it was answered before."""
        return self._verdicts.get(key)

    def add(self, key: str, verdicts: CompletionVerdicts) -> None:
        """Keep the verdicts of a question unless one of them failed."""
        if self._stream is None or any(verdict.outcome == "failed" for each in verdicts for verdict in each):
            return
        data = _VERDICTS.dump_python(verdicts, mode="json", exclude_none=True)
        self._stream.write(json.dumps([key, data], ensure_ascii=False) + "\n")
        self._stream.flush()

    def delete(self) -> None:
        """Delete the file: the audit is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _entry(line: str) -> tuple[str, CompletionVerdicts] | None:
    try:
        key, data = json.loads(line)
        return str(key), _VERDICTS.validate_python(data)
    except (ValueError, TypeError, ValidationError):  # empty or incomplete
        return None


@dataclass
class _Session:
    """Asks the judge, each question once, and reports progress."""

    engine: Engine
    judge: Judge
    journal: AuditJournal
    on_progress: OnProgress
    asked: dict[str, asyncio.Task[CaseVerdicts]] = field(default_factory=dict)
    done: int = 0
    slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(max(leaf.endpoint.concurrency for leaf in self.judge.leaf_judges))

    def ask(self, case: AuditCase, suite: str) -> asyncio.Task[CaseVerdicts]:
        """Start to score the case's completion, beside the better one if there is one."""
        completions = [case.completion] + ([] if case.better is None else [Completion(text=case.better)])
        key = AuditJournal.key(self.judge, case.rubric, case.prompt, completions)
        if key not in self.asked:
            self.asked[key] = asyncio.create_task(self._score(key, case, completions, suite))
        return self.asked[key]

    async def _score(self, key: str, case: AuditCase, completions: list[Completion], suite: str) -> CaseVerdicts:
        verdicts = self.journal.get(key)
        if verdicts is None:
            async with self.slots:
                verdicts = await score_group(self.engine, self.judge, case.rubric, case.prompt, completions)
            self.journal.add(key, verdicts)
        self.done += 1
        self.on_progress(self.done, len(self.asked), suite)
        own, *others = ({verdict.criterion: verdict for verdict in each} for each in verdicts)
        return CaseVerdicts(own, others[0] if others else {})


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
    check_auditable(judge)
    limits = max_rates or {}
    session = _Session(engine, _about_last_steps(judge), AuditJournal() if journal is None else journal, on_progress)
    asked = [
        (trial, session.ask(trial.case, trial.suite), trial.baseline and session.ask(trial.baseline, trial.suite))
        for trial in plan.trials()
    ]
    await asyncio.gather(*session.asked.values())
    findings = defaultdict[str, list[AuditFinding]](list)
    for trial, answer, unattacked in asked:
        own, better = answer.result()
        baseline = unattacked.result().own if unattacked else better
        findings[trial.suite] += [
            _finding(trial.case, key, own[key], baseline.get(key), attack=trial.attack, family=trial.family)
            for key in trial.keys
        ]
    plain = [(case, session.ask(case, PLAIN).result().own) for case in plan.cases]
    if judge.pairwise:
        findings[COMPLETION_ORDER] = [finding for case, own in plain for finding in _order_findings(case, own)]
    if any(suite.name == RATIONALE for suite in plan.consistency):
        findings[RATIONALE] = await _rationale_findings(session, plain)
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


def _finding(
    case: AuditCase, key: str, verdict: Verdict, baseline: Verdict | None = None, *, attack: str = "", family: str = ""
) -> AuditFinding:
    return AuditFinding(attack, family, case.rubric.by_key[key].text, case.prompt.text, case.text, verdict, baseline)


def _order_findings(case: AuditCase, verdicts: Verdicts) -> Iterator[AuditFinding]:
    """Yield 1 for each pair whose two orders, the votes of its verdict, name different winners, else 0.

    A pair of which one order failed is a failed finding.
    """
    for key in case.unmet:
        orders = [vote.value for vote in verdicts[key].votes if vote.by.startswith("shown ")]
        if verdicts[key].value is None:
            yield _finding(case, key, verdicts[key])
        elif len(orders) == 2 and (first := orders[0]) is not None and (second := orders[1]) is not None:
            yield _finding(case, key, Verdict.scored(key, float(orders_disagree(first, second))))


async def _rationale_findings(session: _Session, plain: Iterable[tuple[AuditCase, Verdicts]]) -> list[AuditFinding]:
    """Judge each rationale as a text: does it say that the criterion is met, as the verdict does?

    A verdict that failed has no rationale to ask about and is a failed finding.
    """
    if not any(leaf.mode == "written" for leaf in session.judge.leaf_judges):
        return []
    failed, explained = [], []
    for case, verdicts in plain:
        for key in case.labelled:
            if verdicts[key].value is None:
                failed.append(_finding(case, key, verdicts[key]))
            elif rationale := verdicts[key].rationale:
                explained.append((replace(case, text=rationale), key, verdicts[key]))
    answers = await asyncio.gather(*(session.ask(_on_rationale(case, key), RATIONALE) for case, key, _ in explained))
    again = zip(explained, answers, strict=True)
    return failed + [_finding(case, key, answer.own[key], verdict) for (case, key, verdict), answer in again]


def _on_rationale(case: AuditCase, key: str) -> AuditCase:
    """Return the question whether the case's text, a rationale, says that the criterion is met."""
    criterion = case.rubric.by_key[key].text
    text = f"This assessment of an answer says that the answer meets the criterion: {criterion}"
    task = f"Assess an answer to this task by the criterion.\n\nTask: {case.prompt.text}\n\n{criterion}"
    return AuditCase(Prompt.of(task), Rubric(criteria=(Criterion(key=key, text=text),)), case.text)
