"""Is a judge better than chance? What was measured of it decides, the most specific first. Needs ``judging``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

from rubricsvc.core.audit import Audit
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import JudgedLabel
from rubricsvc.core.passport import TRAINED, Passport
from rubricsvc.stats.agreement_report import CriterionAgreement, criterion_agreement

CHANCE = 0.5
MIN_LABELS = 30
"""Fewer labels, or findings of an audit, than this do not decide."""
_METRICS = ("pairwise_accuracy", "auroc", "ece")


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of a judge, of which 0.5 is chance; ``source`` says by what."""

    estimate: Estimate
    source: str

    @property
    def above_chance(self) -> bool:
        """Whether its interval excludes chance."""
        return self.estimate.low is not None and self.estimate.low > CHANCE


def agreement(judge: Judge, rows: Sequence[JudgedLabel]) -> CriterionAgreement | None:
    """Return the agreement with labels of all criteria, pooled; None where fewer than `MIN_LABELS` were judged."""
    rows = [row for row in rows if row.criterion is not None]
    if len(rows) < MIN_LABELS:
        return None
    found = criterion_agreement(judge, rows, _METRICS)
    return found if found.pairs >= MIN_LABELS else None


def of_labels(found: CriterionAgreement, where: str) -> Accuracy | None:
    """Return the share of pairs of completions of a prompt that are ordered as labelled, else the AUROC."""
    names = {"pairwise_accuracy": "pairs of a prompt in the right order", "auroc": "AUROC"}
    known = [name for name in names if found.metrics[name].low is not None]
    if not known:
        return None
    return Accuracy(found.metrics[known[0]], f"{names[known[0]]}, {found.pairs} labels {where}")


def of_audit(audit: Audit) -> Accuracy | None:
    """Return the balanced accuracy on completions that were not attacked: the suites ``plain`` and ``missed``.

    Its interval combines the Wilson intervals of both rates (MOVER; Newcombe, Stat. Med. 17, 1998).
    """
    suites = {suite.name: suite for suite in audit.suites}
    plain, missed = (suites.get(name) for name in ("plain", "missed"))
    if plain is None or missed is None or (plain.measure, missed.measure) != ("met", "missed"):
        return None
    rates = [suite.rate for suite in (plain, missed)]
    known = [(one.value, one.low, one.high) for one in rates]
    if sum(one.n for one in rates) < MIN_LABELS or any(None in one for one in known):
        return None
    (p, p_low, p_high), (m, m_low, m_high) = ([float(part or 0.0) for part in one] for one in known)
    value = 1 - (p + m) / 2
    low, high = value - hypot(p_high - p, m_high - m) / 2, value + hypot(p - p_low, m - m_low) / 2
    return Accuracy(Estimate(value, low, high), f"balanced accuracy, {rates[0].n + rates[1].n} findings of its audit")


def of_passport(passport: Passport, scorer: str = TRAINED) -> Accuracy | None:
    """Return the AUROC of the judge, or of its untrained base, on the main test set of a passport."""
    table = next((one for one in passport.tables if one.whole), None)
    row = next((one for one in table.whole if one.scorer == scorer), None) if table is not None else None
    if table is None or row is None or row["auroc"].low is None:
        return None
    figure = row["auroc"]
    return Accuracy(Estimate(figure.value, figure.low, figure.high), f"AUROC, {row.n} questions of {table.name!r}")
