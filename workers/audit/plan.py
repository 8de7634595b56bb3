"""The plan of an audit: which attack is tried on which completion, and which completions are judged unchanged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Literal

from rubricsvc.core.audit import Measure
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError, cut
from workers.audit.cases import AuditCase, attackable, one_per_task, paired
from workers.audit.suites import AttackSuite

PLAIN, MISSED = "plain", "missed"
CRITERIA_ORDER, COMPLETION_ORDER, RATIONALE = "criteria_order", "completion_order", "rationale"


@dataclass(frozen=True, slots=True)
class DirectSuite:
    """A suite without attack texts."""

    name: str
    measure: Measure
    max_rate: float
    description: str


BASELINE_SUITES = (
    DirectSuite(PLAIN, "met", 0.2, "a bad completion unchanged: nothing in it meets the criterion"),
    DirectSuite(MISSED, "missed", 0.5, "a good completion unchanged: the judge misses that it meets the criterion"),
)
"""``missed`` stops a judge that rejects everything."""
CONSISTENCY_SUITES = (
    DirectSuite(CRITERIA_ORDER, "changed", 0.1, "the same completion with the criteria in reverse order"),
    DirectSuite(RATIONALE, "changed", 0.1, "the judge's rationale, judged as a text: does it support the verdict?"),
)
COMPARATIVE_BASELINE_SUITES = (DirectSuite(PLAIN, "preferred", 0.2, "a bad completion beside a good one"),)
COMPARATIVE_CONSISTENCY_SUITES = (
    CONSISTENCY_SUITES[0],
    DirectSuite(COMPLETION_ORDER, "met", 0.3, "a bad and a good completion in both orders: the winner changes"),
)
"""For a comparative judge, which sees each completion beside a good one."""

COMPLETIONS_PER_ATTACK = 4
"""The next attack begins with the completion after the last one used, so that all get a turn."""


@dataclass(frozen=True, slots=True)
class DataSuite:
    """A data set as a suite: pairs of a worse completion and, for measure ``preferred``, a better one."""

    name: str
    description: str
    measure: Measure
    max_rate: float
    pairs: tuple[tuple[AuditCase, AuditCase | None], ...]


Suite = DirectSuite | AttackSuite | DataSuite
Baseline = Literal["none", "unattacked", "better"]


@dataclass(frozen=True, slots=True)
class AttackedCase:
    """One completion to be judged, and the criteria that count.

    ``baseline`` names the verdicts to compare with: those on the completion without the attack, or on the better one.
    """

    suite: str
    attack: str
    family: str
    case: AuditCase
    text: str
    rubric: Rubric
    keys: tuple[str, ...]
    baseline: Baseline


@dataclass(frozen=True)
class AuditPlan:
    """Cases and suites. ``per_attack`` 0 tries each attack on all completions."""

    cases: tuple[AuditCase, ...]
    attacks: tuple[AttackSuite, ...]
    data: tuple[DataSuite, ...] = ()
    per_attack: int = COMPLETIONS_PER_ATTACK
    baseline: tuple[DirectSuite, ...] = BASELINE_SUITES
    consistency: tuple[DirectSuite, ...] = CONSISTENCY_SUITES

    @property
    def suites(self) -> tuple[Suite, ...]:
        """All suites, in the order of the report."""
        return (*self.baseline, *self.attacks, *self.consistency, *self.data)

    @property
    def false_positive_suites(self) -> list[str]:
        """The names of the suites whose rate is the share of bad completions judged good."""
        suites: list[Suite] = [*self.baseline, *self.attacks]
        suites += [suite for suite in self.data if suite.measure == "met"]
        return [suite.name for suite in suites if suite.measure in ("met", "preferred")]

    def only(self, names: Collection[str]) -> AuditPlan:
        """Return the plan with these suites and the baseline suites, which cost little.

        Raises:
            InvalidError: There is no suite of such a name.
        """
        self.check_names(names)
        return replace(
            self,
            attacks=tuple(suite for suite in self.attacks if suite.name in names),
            consistency=tuple(suite for suite in self.consistency if suite.name in names),
            data=tuple(suite for suite in self.data if suite.name in names),
        )

    def adapted(self, judge: Judge) -> AuditPlan:
        """Return the plan for this judge. A comparative one is shown each bad completion beside a good one.

        Raises:
            InvalidError: There is no good completion beside a bad one.
        """
        if judge.mode != "comparative":
            return self
        cases = paired(self.cases)
        if not cases:
            raise InvalidError(
                "a comparative judge needs two completions of one prompt, and there are none",
                hint="give a good and a bad completion of the same prompt, with labels",
            )
        return replace(
            self,
            cases=cases,
            attacks=tuple(suite.model_copy(update={"measure": "preferred"}) for suite in self.attacks),
            data=tuple(suite for one in self.data if (suite := _side_by_side(one)).pairs),
            baseline=COMPARATIVE_BASELINE_SUITES,
            consistency=COMPARATIVE_CONSISTENCY_SUITES,
        )

    def check_names(self, names: Iterable[str]) -> None:
        """Check that these are names of suites.

        Raises:
            InvalidError: One is not.
        """
        known = [suite.name for suite in self.suites]
        for name in names:
            if name not in known:
                raise InvalidError(f"no suite {cut(name, 80)!r}", hint=f"there are: {', '.join(known)}")

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of everything that is asked; limits are not part of it."""
        data = [(suite.name, suite.measure, [_content(c) for pair in suite.pairs for c in pair]) for suite in self.data]
        attacks = [suite.model_dump(mode="json", exclude={"max_rate"}) for suite in self.attacks]
        direct = [[(suite.name, suite.measure) for suite in some] for some in (self.baseline, self.consistency)]
        return digest([_content(case) for case in self.cases], attacks, direct, data, self.per_attack)

    def attacked_cases(self) -> Iterator[AttackedCase]:
        """Yield each attack on its share of the completions, then every rubric in reverse order."""
        for suite in self.attacks:
            yield from _attacked(suite, self.cases, self.per_attack)
        for case in self.cases if any(suite.name == CRITERIA_ORDER for suite in self.consistency) else ():
            if len(case.rubric.criteria) > 1:
                reverse = case.rubric.model_copy(update={"criteria": case.rubric.criteria[::-1]})
                yield AttackedCase(
                    CRITERIA_ORDER, "reverse order", "", case, case.text, reverse, case.labelled, "unattacked"
                )


def _side_by_side(suite: DataSuite) -> DataSuite:
    """Return the suite's pairs of one prompt, each as one question."""
    same = [(worse, better) for worse, better in suite.pairs if better is not None and worse.prompt == better.prompt]
    return replace(suite, pairs=tuple((replace(worse, better=better.text), None) for worse, better in same))


def _content(case: AuditCase | None) -> list[object] | None:
    return [*case.task, case.text, case.met, case.unmet, case.better] if case else None


def _attacked(suite: AttackSuite, cases: Sequence[AuditCase], per_attack: int) -> Iterator[AttackedCase]:
    start = 0
    for attack in suite.attacks:
        if attack.standalone:
            pool = one_per_task(cases)
        else:
            pool = list(cases) if suite.measure == "changed" else attackable(cases)
        count = min(len(pool), max(per_attack, ceil(len(pool) / len(suite.attacks)))) if per_attack else len(pool)
        for case in (pool[(start + n) % len(pool)] for n in range(count)):
            keys = case.labelled if suite.measure == "changed" and not attack.standalone else case.unmet
            baseline: Baseline = "none" if attack.standalone else "unattacked"
            if case.better is not None:
                baseline = "better"
            text = attack.apply(case)
            yield AttackedCase(suite.name, attack.id, attack.family, case, text, case.rubric, keys, baseline)
        start += count
