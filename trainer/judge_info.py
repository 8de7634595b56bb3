"""Properties of a run's judge: whether it is calibrated, and how well it repeats a reward."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

from rubricsvc.core.repeatability import Repeatability

log = logging.getLogger(__name__)

FloorOrigin = Literal["config", "judge", "unmeasured", "no_judge"]


@dataclass(frozen=True, slots=True)
class JudgeInfo:
    """Properties of the judge behind a reward source. ``calibrated`` is `Judge.calibrated`."""

    name: str
    calibrated: bool | None = None
    repeatability: Repeatability | None = None

    @property
    def reward_std(self) -> float | None:
        """Standard deviation of a reward when the same completion is judged again; None if it was not measured."""
        return self.repeatability.reward.value if self.repeatability else None

    def record(self) -> dict[str, Any]:
        """Return ``judge_repeatability`` for the run's ``config.json``: the measurement, or null."""
        return {"judge_repeatability": self.repeatability.model_dump(mode="json") if self.repeatability else None}


@dataclass(frozen=True, slots=True)
class StdFloor:
    """The smallest standard deviation that GRPO divides by, in units of the reward, and where it comes from.

    ``origin`` is ``config`` (a number in the configuration), ``judge`` (its measured repeatability), ``unmeasured`` (a
    judge whose repeatability was never measured: 0) or ``no_judge`` (rewards without a judge: 0).
    """

    value: float
    origin: FloorOrigin

    def record(self) -> dict[str, Any]:
        """Return the metrics ``std_floor`` and ``std_floor_origin``."""
        return {"std_floor": self.value, "std_floor_origin": self.origin}


def std_floor(setting: float | Literal["judge"], judge: JudgeInfo | None) -> StdFloor:
    """Return the floor that the setting ``optim.std_floor`` stands for, with a warning where none was measured."""
    if setting != "judge":
        return StdFloor(setting, "config")
    if judge is None:
        return StdFloor(0.0, "no_judge")
    if judge.reward_std is not None:
        return StdFloor(judge.reward_std, "judge")
    log.warning(
        "the repeatability of judge %s was not measured: advantages have no floor for the standard deviation, and a "
        "group whose rewards differ only by the judge's noise counts in full; run `rubricsvc judges repeatability %s` "
        "or set optim.std_floor",
        judge.name,
        judge.name,
    )
    return StdFloor(0.0, "unmeasured")


def calibration_metrics(judge: JudgeInfo | None) -> dict[str, Any]:
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
