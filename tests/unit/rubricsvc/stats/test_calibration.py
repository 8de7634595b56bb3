"""Curves that find a distortion that is known, on labels drawn from the truth."""

from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.special import expit, logit

from rubricsvc.core.judge import Calibration, Curve, Judge, family
from rubricsvc.core.rubric import Criterion, Numeric
from rubricsvc.core.verdict import JudgedLabel, Label, Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.stats.calibration_fit import calibrate, fit_curve, split

RANDOM = np.random.default_rng(0)


def sample(n: int, slope: float, offset: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, and outcomes whose true chance is sigmoid(slope · logit(p) + offset)."""
    probability = RANDOM.uniform(0.02, 0.98, n)
    chance = expit(slope * logit(probability) + offset)
    return probability, (RANDOM.random(n) < chance).astype(float)


def test_fit_recovers_temperature_and_platt() -> None:
    temperature = fit_curve("temperature", *sample(6000, 0.4, 0.0))
    assert temperature.slope == pytest.approx(0.4, abs=0.05) and temperature.offset == 0.0
    platt = fit_curve("platt", *sample(6000, 0.5, -1.0))
    assert (platt.slope, platt.offset) == pytest.approx((0.5, -1.0), abs=0.12)


def test_fit_isotonic_is_monotone_bounded_and_close() -> None:
    curve = fit_curve("isotonic", *sample(6000, 0.5, -1.0))
    truth = Curve(method="platt", slope=0.5, offset=-1.0)
    grid = np.linspace(0, 1, 101)
    values = [curve(p) for p in grid]
    assert all(a <= b for a, b in pairwise(values)) and values[0] > 0 and values[-1] < 1
    assert max(abs(curve(p) - truth(p)) for p in grid[5:-5]) < 0.12


def test_fit_never_inverts_a_judge() -> None:
    probability, outcome = sample(3000, -0.5, -0.5)
    for method in ("platt", "isotonic"):
        curve = fit_curve(method, probability, outcome)  # type: ignore[arg-type]
        assert curve(0.9) == pytest.approx(curve(0.1), abs=0.05) == pytest.approx(outcome.mean(), abs=0.05)


def test_split_keeps_prompts_together() -> None:
    prompts = RANDOM.integers(0, 40, 500).tolist()
    outside, inside = ({prompts[row] for row in rows} for rows in split(prompts, 0.3, seed=1))
    assert inside and outside and not inside & outside
    with pytest.raises(InvalidError, match=r"10.*9"):
        split(list(range(9)) * 10, 0.3, seed=1)


def rows(n: int, slope: float, offset: float, criterion: Criterion) -> list[JudgedLabel]:
    probability, outcome = sample(n, slope, offset)
    return [
        JudgedLabel(
            i, i // 3, 1, Label(criterion=criterion.key, annotator="ann", value=float(y)), criterion,
            {criterion.key: Verdict.scored(criterion.key, float(p), probability=float(p))},
        )
        for i, (p, y) in enumerate(zip(probability, outcome, strict=True))
    ]  # fmt: skip


def test_fit_improves_each_family_on_held_out_prompts() -> None:
    facts, style = Criterion(key="f", text="F.", tags=("facts", "x")), Criterion(key="s", text="S.")
    tiny = Criterion(key="t", text="T.", scale=Numeric())
    failed = [
        JudgedLabel(
            0, 0, 1, Label(criterion="f", annotator="a", value=1.0), facts, {"f": Verdict.failed("f", "timeout")}
        )
    ]
    given = rows(900, 0.3, 1.0, facts) + rows(900, 1.0, 0.0, style) + rows(6, 1.0, 0.0, tiny) + failed
    fitted = {one.family: one for one in calibrate(given)}
    assert set(fitted) == {"facts", "binary", "numeric"} and fitted["facts"].labels == 900
    one = fitted["facts"]
    assert one.curve and one.before and one.after and one.curve.method != "none"
    assert one.after.brier < one.before.brier - 0.02 and one.after.ece < one.before.ece / 2
    assert min(one.cv_log_loss, key=lambda m: one.cv_log_loss[m]) == one.curve.method and len(one.cv_log_loss) == 4
    same = fitted["binary"]
    assert same.before and same.after and abs(same.after.brier - same.before.brier) < 0.01
    assert fitted["numeric"].curve is None and fitted["numeric"].null_reason


def test_judge_digest_covers_its_calibration() -> None:
    judge = Judge(name="j", model="m")
    curves = Calibration(families={"binary": Curve(method="platt", slope=0.5, offset=1.0)})
    calibrated = judge.model_copy(update={"calibration": curves})
    assert calibrated.digest != judge.digest and Judge.model_validate(calibrated.model_dump()) == calibrated
    assert (judge.calibrated, calibrated.calibrated) == (False, True)
    assert Judge(name="w", model="m", mode="written").calibrated is None
    panel = {"mode": "panel", "members": (judge.model_dump(), calibrated.model_dump() | {"name": "k"})}
    assert Judge.model_validate({"name": "p", **panel}).calibrated is False
    with pytest.raises(ValidationError, match="written"):
        Judge(name="w", model="m", mode="written", calibration=curves)
    known, other = Criterion(key="k", text="K."), Criterion(key="o", text="O.", tags=("odd",))
    assert (family(known), family(other)) == ("binary", "odd")
    assert curves.value(known, 0.5) == pytest.approx(1 / (1 + np.exp(-1))) and curves.value(other, 0.3) == 0.3


def test_curve_rejects_falling_knots() -> None:
    with pytest.raises(ValidationError):
        Curve(method="isotonic", knots=((0.0, 0.5), (1.0, 0.2)))
    with pytest.raises(ValidationError):
        Curve(method="platt", knots=((0.0, 0.5),))
