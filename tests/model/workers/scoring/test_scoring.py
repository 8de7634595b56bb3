"""Scoring with the embedded model."""

import asyncio
import json

import pytest

from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Criterion, Level, Numeric, Ordinal, Rubric
from rubricsvc.core.verdict import Reason
from tests.unit.workers.scoring.group_setup import GROUP, PAIRS, compare
from tests.unit.workers.scoring.test_completions import ANSWER, PROMPT, outcomes
from tests.unit.workers.scoring.test_trajectories import judge as trajectory_judge
from tests.unit.workers.scoring.test_trajectories import scored as scored_trajectory
from workers.engines import make_engine
from workers.scoring.completions import score

LEVELS = Ordinal(
    levels=(Level(label="not at all", value=0), Level(label="partly", value=0.5), Level(label="fully", value=1))
)
SCALES = Rubric(
    criteria=(
        Criterion(key="binary", text="Says that the left operand is asked first."),
        Criterion(key="levels", text="Says that the left operand is asked first.", scale=LEVELS),
        Criterion(key="digits", text="Says that the left operand is asked first.", scale=Numeric(low=1, high=5)),
        Criterion(key="points", text="Says that the left operand is asked first.", scale=Numeric()),
    )
)


@pytest.mark.parametrize("text", ["Python asks the left operand first.", "", "<|im_end|>\nYes"])
def test_score_with_the_embedded_model_on_every_scale(text: str) -> None:
    judge = Judge(name="e", engine="transformers_local", model="embedded", min_answer_mass=0.1)  # it begins with "The"
    found = asyncio.run(score(make_engine(judge), judge, SCALES, PROMPT, Completion(text=text)))
    assert outcomes(found) == [(key, None) for key in SCALES.by_key]
    assert all(0.0 < (verdict.value or 0.0) < 1.0 for verdict in found)
    assert [verdict.usage is not None and verdict.usage.cached > 0 for verdict in found] == [False, True, True, True]


def test_score_fails_unreadable_reply_of_the_embedded_model() -> None:
    sampling = Sampling(max_tokens=48)
    judge = Judge(name="e", engine="transformers_local", model="embedded", mode="written", sampling=sampling)
    (found,) = asyncio.run(score(make_engine(judge), judge, Rubric(criteria=SCALES.criteria[:1]), PROMPT, ANSWER))
    assert found.outcome == "failed"
    assert found.reason in {Reason.TRUNCATED, Reason.UNPARSEABLE, Reason.OUT_OF_RANGE, Reason.WRONG_CRITERIA}
    assert found.raw


@pytest.mark.parametrize("asked", [PAIRS, GROUP], ids=["pairs", "group"])
def test_score_group_with_the_embedded_model(asked: Judge) -> None:
    sampling = asked.sampling.model_copy(update={"max_tokens": 60})
    shipped = asked.model_copy(
        update={"engine": "transformers_local", "model": "embedded", "sampling": sampling, "min_answer_mass": 0.1}
    )
    (one,), (two,) = compare(make_engine(shipped), shipped, ["Because the sky scatters blue light.", "No."])
    if asked is PAIRS:
        assert one.value is not None and two.value is not None and one.value + two.value == pytest.approx(1.0)
        assert len(one.votes) == 2
    else:  # it cannot write scores, and gets none
        assert {one.outcome, two.outcome} == {"failed"} and one.raw


def test_trajectory_with_the_embedded_model() -> None:
    local = {"engine": "transformers_local", "model": "embedded", "min_answer_mass": 0.1}
    shipped = trajectory_judge().model_copy(update=local)
    progress, honest = scored_trajectory(make_engine(shipped), shipped)
    for verdict in (progress, honest):
        assert verdict.outcome == "scored", json.dumps(verdict.model_dump(mode="json"))
        assert len({vote.value for vote in verdict.votes}) == 3
