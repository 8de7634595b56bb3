"""What measurements of a judge return; without numpy, since clients read it, too."""

from pydantic import Field

from rubricsvc.core.base import Value
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Curve, Method


class CriterionAgreement(Value):
    """The metrics of one criterion, of all pooled, or of the reward.

    ``excluded`` counts labels by reason. ``confusion`` counts
    [people's level, judge's level]; ``between_levels`` the labels that are not at a level of the scale and count there
    as the closest one. ``text`` is the criterion's.
    """

    name: str
    pairs: int
    excluded: dict[str, int]
    metrics: dict[str, Estimate]
    levels: tuple[float, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    between_levels: int = 0
    annotator_pairs: int = 0
    inter_annotator: dict[str, Estimate] = Field({})
    text: str | None = None


class MeanAgreement(Value):
    """The mean of each metric over the criteria with an estimate of it; ``criteria_with_value`` has their number."""

    metrics: dict[str, Estimate]
    criteria_with_value: dict[str, int]
    inter_annotator: dict[str, Estimate]


class Disagreement(Value):
    """A label whose level is not that of the judge's verdict."""

    completion_id: int
    completion_external_id: str | None
    criterion: str
    annotator: str
    label: float
    judge: float
    note: str | None
    rationale: str | None


class Dispute(Value):
    """A completion on which labels ``differ``, of how many criteria with several; ``distance`` is their mean."""

    completion_id: int
    completion_external_id: str | None
    differ: int
    of: int
    distance: float
    labels: dict[str, str]


class AgreementReport(Value):
    """The agreement of a judge with people; without a ``judge``, of people with each other.

    ``mean`` is over criteria, ``pooled`` over the pairs of all criteria, and ``reward`` the agreement of its rewards
    with ``overall`` labels, if there are any. ``disputed`` are the completions on which people differ most.
    """

    judge: str | None
    calibrated: bool | None
    labels: int
    annotators: int
    mean: MeanAgreement
    pooled: CriterionAgreement
    criteria: tuple[CriterionAgreement, ...]
    worst: tuple[Disagreement, ...]
    disputed: tuple[Dispute, ...] = ()
    reward: CriterionAgreement | None = None


class CalibrationLoss(Value):
    """How far probabilities are from labels. ``log_loss`` is in nats."""

    n: int
    ece: float
    brier: float
    log_loss: float


class FittedFamily(Value):
    """The result for one family of criteria.

    ``before`` and ``after`` are measured on held-out prompts; ``cv_log_loss`` has each method's cross-validated log
    loss on the others. Without a curve ``null_reason`` says why.
    """

    family: str
    labels: int
    curve: Curve | None = None
    before: CalibrationLoss | None = None
    after: CalibrationLoss | None = None
    cv_log_loss: dict[Method, float] = Field({})
    null_reason: str | None = None


class CalibratedJudge(Value):
    """The name of the judge that a calibration stored, None if no family has a curve, and the results by family."""

    judge: str | None
    families: tuple[FittedFamily, ...]
