"""Properties of a run's judge: whether it is calibrated, and how well it repeats a reward."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from rubricsvc.core.repeatability import Repeatability

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JudgeInfo:
    """Properties of the judge behind a reward source. ``calibrated`` is `Judge.calibrated`."""

    name: str
    calibrated: bool | None = None
    repeatability: Repeatability | None = None


def std_floor(setting: float | Literal["judge"], judge: JudgeInfo | None) -> tuple[float, str]:
    """Return the floor that ``optim.std_floor`` stands for, and its origin, with a warning where none was measured.

    The floor is in units of the reward. The origin is ``config`` (a number in the configuration), ``judge`` (its
    measured repeatability), ``unmeasured`` (it was never measured: 0) or ``no_judge`` (rewards without a judge: 0).
    """
    if setting != "judge":
        return setting, "config"
    if judge is None:
        return 0.0, "no_judge"
    if judge.repeatability and judge.repeatability.reward.value is not None:
        return judge.repeatability.reward.value, "judge"
    log.warning(
        "the repeatability of judge %s was not measured: advantages have no floor for the standard deviation, and a "
        "group whose rewards differ only by the judge's noise counts in full; run `rubricsvc judges repeatability %s` "
        "or set optim.std_floor",
        judge.name,
        judge.name,
    )
    return 0.0, "unmeasured"


def calibration_metrics(judge: JudgeInfo | None) -> dict[str, bool]:
    """Return the metric ``judge_calibrated`` where the rewards come from a readout's probabilities, and log it."""
    if judge is None or judge.calibrated is None:
        return {}
    if judge.calibrated:
        log.warning("the rewards are probabilities of a readout calibrated on people's labels")
    else:
        log.warning(
            "the rewards are probabilities of an uncalibrated readout; compare judge %s with people's labels "
            "(`rubricsvc judges agreement`) and calibrate it (`rubricsvc judges calibrate`)",
            judge.name,
        )
    return {"judge_calibrated": judge.calibrated}
