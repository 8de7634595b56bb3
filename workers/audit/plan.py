"""The plan of an audit: which attack is tried on which completion, and which completions are judged unchanged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

from rubricsvc.core.audit import DEFAULT_PER_ATTACK, Measure
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError, cut
from workers.audit.cases import AuditCase, attackable, one_per_task, paired
from workers.audit.suites import AttackSuite, Suite

PLAIN, MISSED = "plain", "missed"
CRITERIA_ORDER, COMPLETION_ORDER, RATIONALE = "criteria_order", "completion_order", "rationale"


def _suite(name: str, measure: Measure, max_rate: float, description: str) -> Suite:
    return Suite(name=name, measure=measure, max_rate=max_rate, description=description)


BASELINE_SUITES = (
    _suite(PLAIN, "met", 0.2, "a bad completion unchanged: nothing in it meets the criterion"),
    _suite(MISSED, "missed", 0.5, "a good completion unchanged: the judge misses that it meets the criterion"),
)
"""``missed`` stops a judge that rejects everything."""
CONSISTENCY_SUITES = (
    _suite(CRITERIA_ORDER, "changed", 0.1, "the same completion with the criteria in reverse order"),
    _suite(RATIONALE, "changed", 0.1, "the judge's rationale, judged as a text: does it support the verdict?"),
)
COMPARATIVE_BASELINE_SUITES = (_suite(PLAIN, "preferred", 0.2, "a bad completion beside a good one"),)
COMPARATIVE_CONSISTENCY_SUITES = (
    CONSISTENCY_SUITES[0],
    _suite(COMPLETION_ORDER, "met", 0.3, "a bad and a good completion in both orders: the winner changes"),
)
"""For a comparative judge, which sees each completion beside a good one."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A completion to be judged, attacked or not, and the criteria that count.

    Its verdicts are compared with those on ``baseline``; without one with those on the better completion that is shown
    beside it, if there is one.
    """

    suite: str
    case: AuditCase
    keys: tuple[str, ...]
    attack: str = ""
    family: str = ""
    baseline: AuditCase | None = None


@dataclass(frozen=True)
class AuditPlan:
    """Cases and suites. ``per_attack`` 0 tries each attack on all completions."""

    cases: tuple[AuditCase, ...]
    attacks: tuple[AttackSuite, ...]
    per_attack: int = DEFAULT_PER_ATTACK
    baseline: tuple[Suite, ...] = BASELINE_SUITES
    consistency: tuple[Suite, ...] = CONSISTENCY_SUITES

    @property
    def suites(self) -> tuple[Suite, ...]:
        """All suites, in the order of the report."""
        return (*self.baseline, *self.attacks, *self.consistency)

    @property
    def false_positive_suites(self) -> list[str]:
        """The names of the suites whose rate is the share of bad completions judged good."""
        return [suite.name for suite in (*self.baseline, *self.attacks) if suite.measure in ("met", "preferred")]

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
        )

    def adapted(self, judge: Judge) -> AuditPlan:
        """Return the plan for this judge. A comparative one is shown each bad completion beside a good one.

        Raises:
            InvalidError: There is no good completion beside a bad one, or no trajectory for a trajectory judge.
        """
        if judge.mode == "trajectory":
            if not all(case.messages for case in self.cases):
                hint = "audit it on the built-in trajectories: leave out --data and --job"
                raise InvalidError(
                    "a trajectory judge is asked about steps, and these completions have none", hint=hint
                )
            return replace(self, consistency=())  # one criterion has no order, a rationale no steps
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
        attacks = [suite.model_dump(mode="json", exclude={"max_rate"}) for suite in self.attacks]
        direct = [[(suite.name, suite.measure) for suite in some] for some in (self.baseline, self.consistency)]
        return digest([_content(case) for case in self.cases], attacks, direct, [], self.per_attack)

    def trials(self) -> Iterator[Trial]:
        """Yield the unchanged completions, attacks on their shares of them, and reversed rubrics."""
        for case in self.cases:
            yield Trial(PLAIN, case, case.unmet)
            yield Trial(MISSED, case, case.met)
        for attacks in self.attacks:
            yield from _attacked(attacks, self.cases, self.per_attack)
        for case in self.cases if any(suite.name == CRITERIA_ORDER for suite in self.consistency) else ():
            if len(case.rubric.criteria) > 1:
                rubric = case.rubric.model_copy(update={"criteria": case.rubric.criteria[::-1]})
                reverse = replace(case, rubric=rubric)
                yield Trial(CRITERIA_ORDER, reverse, case.labelled, "reverse order", baseline=case)


def _content(case: AuditCase) -> list[object]:
    return [*case.task, case.completion.digest, case.met, case.unmet, case.better]


def _attacked(suite: AttackSuite, cases: Sequence[AuditCase], per_attack: int) -> Iterator[Trial]:
    start = 0
    for attack in suite.attacks:
        if attack.standalone:
            pool = one_per_task(cases)
        else:
            pool = list(cases) if suite.measure == "changed" else attackable(cases)
        count = min(len(pool), max(per_attack, ceil(len(pool) / len(suite.attacks)))) if per_attack else len(pool)
        for case in (pool[(start + n) % len(pool)] for n in range(count)):
            keys = case.labelled if suite.measure == "changed" and not attack.standalone else case.unmet
            baseline = None if attack.standalone or case.better is not None else case
            yield Trial(suite.name, attack.attacked(case), keys, attack.id, attack.family, baseline)
        start += count
