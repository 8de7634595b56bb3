"""Metrics of two raters, on plain arrays: fast enough for thousands of bootstrap draws.

``counts`` is the confusion [levels of one rater, levels of the other]; the levels are ascending and include those that
neither used. Tests compare each with scikit-learn, SciPy or krippendorff.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from rubricsvc.stats.intervals import Floats, Ints
from rubricsvc.stats.ranking import concordance

BINS = 10


def accuracy(counts: Ints) -> float:
    """Return the share of equal classes."""
    return float(np.trace(counts) / counts.sum())


def balanced_accuracy(counts: Ints) -> float:
    """Return the mean recall of the classes that the first rater used."""
    used = counts.sum(1) > 0
    return float((np.diag(counts)[used] / counts.sum(1)[used]).mean())


def macro_f1(counts: Ints) -> float:
    """Return the mean F1 of the classes that the first rater used."""
    used = counts.sum(1) > 0
    return float((2 * np.diag(counts) / np.maximum(counts.sum(0) + counts.sum(1), 1))[used].mean())


def kappa(counts: Ints, *, quadratic: bool = False) -> float:
    """Return Cohen's kappa; with ``quadratic``, weighted by the squared distance of the levels."""
    levels = np.arange(len(counts))
    weights = np.subtract.outer(levels, levels) ** 2 if quadratic else 1 - np.eye(len(counts))
    expected = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
    return float(1 - (weights * counts).sum() / (weights * expected).sum())


def alpha(counts: Ints) -> float:
    """Return Krippendorff's alpha of two raters without missing ratings: nominal for two levels, else ordinal."""
    coincidences = counts + counts.T
    totals = coincidences.sum(0)
    if len(counts) == 2:
        distances = 1 - np.eye(2)
    else:
        ranks = np.cumsum(totals) - totals / 2
        distances = np.subtract.outer(ranks, ranks) ** 2
    expected = (np.outer(totals, totals) * distances).sum()
    return float(1 - (totals.sum() - 1) * (coincidences * distances).sum() / expected)


def auroc(scores: Floats, labels: Floats) -> float:
    """Return the share of the pairs with different labels that the scores order in the same way; ties count half.

    For labels of two values it is the area under the ROC curve.
    """
    low, high = labels.min(), labels.max()
    upper = labels == high
    if not (upper | (labels == low)).all():
        net_concordant, _, different = concordance(list(zip(scores.tolist(), labels.tolist(), strict=True)))
        return (1 + net_concordant / different) / 2
    positives, negatives = int(upper.sum()), int((~upper).sum())
    rank_sum = float(stats.rankdata(scores)[upper].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def expected_calibration_error(probability: Floats, outcome: Floats) -> float:
    """Return Σ share of the bin · |mean outcome - mean probability| over bins of equal width (arXiv 1706.04599).

    It is biased upwards if bins hold few values.
    """
    which = np.minimum((probability * BINS).astype(int), BINS - 1)
    gap = np.bincount(which, outcome - probability)
    return float(np.abs(gap).sum() / len(probability))


def brier(probability: Floats, outcome: Floats) -> float:
    """Return the mean squared difference; outcomes may lie between 0 and 1."""
    return float(np.mean((probability - outcome) ** 2))
