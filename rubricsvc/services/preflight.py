"""What was measured of a judge, as checks before a training run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rubricsvc.core.audit import Audit
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.core.preflight import PreflightCheck
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.store import labels, prompts

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.stats.agreement_report import CriterionAgreement
    from rubricsvc.stats.preflight import Accuracy

MAX_ECE = 0.1
ACCURACY = "accuracy"


@dataclass(frozen=True, slots=True)
class Measured:
    """What is stored of a judge.

    ``agreement`` is with labels, ``where`` says whose. Of an untrained base, ``scorer`` names its row in the passport.
    """

    judge: str
    audit: Audit | None = None
    repeatability: Repeatability | None = None
    passport: Passport | None = None
    scorer: str = "trained"
    agreement: CriterionAgreement | None = None
    where: str = ""


def agreement_on(
    session: Session, judge_id: int, judge: Judge, digests: Collection[str]
) -> tuple[CriterionAgreement | None, str]:
    """Return the agreement of a judge with stored labels on these prompts, else on all; and which labels these are."""
    from rubricsvc.stats.preflight import agreement

    rows = labels.judged_labels(session, judge_id)
    own = prompts.ids_of(session, digests) if rows else set[int]()
    found = agreement(judge, [row for row in rows if row.prompt_id in own])
    return (found, "on these prompts") if found is not None else (agreement(judge, rows), "on all prompts")


def judge_checks(measured: Measured) -> list[PreflightCheck]:
    """Return a check for each property of a judge."""
    return [_accuracy(measured), _attacks(measured), _calibration(measured), _repeatability(measured)]


def _accuracies(measured: Measured) -> Iterator[Accuracy | None]:
    from rubricsvc.stats import preflight

    if measured.agreement is not None:
        yield preflight.of_labels(measured.agreement, measured.where)
    if measured.audit is not None:
        yield preflight.of_audit(measured.audit)
    if measured.passport is not None:
        yield preflight.of_passport(measured.passport, measured.scorer)


def _accuracy(measured: Measured) -> PreflightCheck:
    """Check that the judge is better than chance by its most specific measurement."""
    found = next(filter(None, _accuracies(measured)), None)
    name = measured.judge
    if found is None:
        passed, value = None, "not measured"
        advice = f"import labels and run `rubricsvc judges agreement {name}`, or `rubricsvc judges audit {name}`"
    else:
        passed, one = found.above_chance, found.estimate
        value = f"{one.value:.3f} [{one.low:.2f}, {one.high:.2f}] ({found.source})"
        advice = "" if passed else "train the judge (`rubricsvc judges train`), or choose another"
    return PreflightCheck(
        name=ACCURACY, value=value, limit="interval above 0.5", passed=passed, refuses=True, advice=advice
    )


def _attacks(measured: Measured) -> PreflightCheck:
    audit, limit = measured.audit, "every suite within its limit"
    if audit is None:
        advice = f"run `rubricsvc judges audit {measured.judge}`"
        return PreflightCheck(name="attacks", value="no audit", limit=limit, passed=None, advice=advice)
    failed = ", ".join(f"{suite.name} {suite.rate.value or 0.0:.2f}" for suite in audit.failed_suites)
    value = f"over the limit: {failed}" if failed else "no suite over its limit"
    advice = "watch for these in the samples of the run: it will find them" if failed else ""
    return PreflightCheck(name="attacks", value=value, limit=limit, passed=audit.passed, advice=advice)


def _calibration(measured: Measured) -> PreflightCheck:
    found, limit = measured.agreement, f"ECE of at most {MAX_ECE:g}"
    error = found.metrics["ece"].value if found is not None else None
    if error is None:
        return PreflightCheck(
            name="calibration", value="no labels", limit=limit, passed=None, advice="import labels of these prompts"
        )
    passed = error <= MAX_ECE
    advice = "" if passed else f"calibrate it on labels: `rubricsvc judges calibrate {measured.judge}`"
    value = f"ECE {error:.3f} on labels {measured.where}"
    return PreflightCheck(name="calibration", value=value, limit=limit, passed=passed, advice=advice)


def _repeatability(measured: Measured) -> PreflightCheck:
    found = measured.repeatability
    deviation = found.reward.value if found is not None else None
    known = deviation is not None
    return PreflightCheck(
        name="repeatability",
        value=f"rewards deviate by {deviation:.4f}" if known else "not measured",
        limit="measured: it is the floor of the standard deviation",
        passed=True if known else None,
        advice="" if known else f"run `rubricsvc judges repeatability {measured.judge}`",
    )
