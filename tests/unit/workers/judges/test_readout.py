import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Binary, Criterion, Level, Numeric, Ordinal, Scale
from rubricsvc.core.verdict import Reason, Usage, Verdict
from rubricsvc.errors import InvalidError
from workers.engines.base import Reply
from workers.judges import readout
from workers.judges.calls import AskedCriterion, JudgeCall, ParsedReply, SharedPrompt, load

JUDGE = Judge(name="j", model="m", min_answer_mass=0.2)
ORDINAL = Ordinal(
    levels=(
        Level(label="poor", value=0.0, text="wrong"),
        Level(label="fair", value=0.4),
        Level(label="poorly sourced, but right", value=1.0),
    )
)


def call(scale: Scale | None = None, text: str = "Says why.") -> JudgeCall:
    criterion = Criterion(key="why", text=text, scale=scale or Binary())
    return readout.build_call([AskedCriterion(criterion, "C1")], load(JUDGE))


def verdict(mass: dict[str, float] | None, scale: Scale | None = None, judge: Judge = JUDGE, note: str = "") -> Verdict:
    reply = Reply(text="x", label_mass=mass, usage=Usage(prompt=7), latency_s=0.5)
    return read(call(scale), reply, judge, note)


def read(made: JudgeCall, reply: Reply, judge: Judge = JUDGE, note: str = "") -> Verdict:
    (found,) = readout.verdicts(made, ParsedReply(reply), judge, SharedPrompt("", note, "", ""))
    return found


def test_build_call_of_a_binary_criterion_asks_yes_or_no() -> None:
    question = call().question
    assert question.labels == ("Yes", "No")
    assert "Criterion: Says why." in question.text
    assert question.text.endswith("Yes or No.")


def test_verdicts_divide_by_the_labels_mass() -> None:
    found = verdict({"Yes": 0.6, "No": 0.2})
    assert found.value == pytest.approx(0.75)
    assert found.probability == found.value
    assert (found.criterion, found.latency_s) == ("why", 0.5)
    assert found.usage == Usage(prompt=7)


def test_verdicts_apply_the_threshold_to_the_value() -> None:
    for yes, value in [(0.7, 1.0), (0.69, 0.0)]:
        found = verdict({"Yes": yes, "No": 1 - yes}, judge=JUDGE.model_copy(update={"threshold": 0.7}))
        assert (found.value, found.probability) == (value, pytest.approx(yes))


def test_verdicts_name_the_distribution_over_levels() -> None:
    mass = {"A": 0.2, "B": 0.2, "C": 0.4}
    found = verdict(mass, ORDINAL)
    assert found.levels == pytest.approx({"poor": 0.25, "fair": 0.25, "poorly sourced, but right": 0.5})
    assert Verdict(**found.model_dump(mode="json", exclude_defaults=True)) == found, "as the database keeps it"
    assert verdict({"4": 0.3, "5": 0.1}, Numeric(low=1, high=5)).levels == pytest.approx(
        {"1": 0.0, "2": 0.0, "3": 0.0, "4": 0.75, "5": 0.25}
    )
    assert verdict({"F": 1.0}, Numeric(low=-1, high=1)).levels == {f"{n / 5:g}": float(n == 0) for n in range(-5, 6)}
    assert verdict({"Yes": 0.6, "No": 0.4}).levels is None, "of two levels the probability says all"


def test_build_call_uses_eleven_letters_for_other_scales() -> None:
    for scale in [Numeric(), Numeric(low=-1, high=1), Numeric(low=0.5, high=9), Numeric(high=1e308)]:
        question = call(scale).question
        assert question.labels == tuple("ABCDEFGHJKL")
        assert f"A: {scale.low:g}\n" in question.text
        assert f"L: {scale.high:g}\n" in question.text
        assert verdict({"L": 1.0}, scale).value == 1.0
        assert verdict({"F": 1.0}, scale).value == pytest.approx(0.5)


def test_build_call_rejects_more_levels_than_letters() -> None:
    levels = tuple(Level(label=str(n), value=n / 30) for n in range(30))
    with pytest.raises(InvalidError, match="30"):
        call(Ordinal(levels=levels))


def test_verdicts_fail_without_an_answer() -> None:
    for mass, reason in [
        (None, Reason.NO_LOGPROBS),
        ({}, Reason.NO_ANSWER),
        ({"Yes": 0.06, "No": 0.03}, Reason.NO_ANSWER),
        ({"Maybe": 1.0}, Reason.NO_ANSWER),
        ({"Yes": math.nan, "No": 0.5}, Reason.OUT_OF_RANGE),
        ({"Yes": math.inf}, Reason.OUT_OF_RANGE),
        ({"Yes": 1e308, "No": 1e308}, Reason.OUT_OF_RANGE),
        ({"Yes": 1.2}, Reason.OUT_OF_RANGE),
        ({"Yes": 0.9999, "No": 0.9999}, Reason.OUT_OF_RANGE),
        ({"Yes": -0.5, "No": 1.0}, Reason.OUT_OF_RANGE),
    ]:
        found = verdict(mass)
        assert (found.outcome, found.reason, found.value, found.raw) == ("failed", reason, None, "x")


def test_verdicts_fail_without_any_mass() -> None:
    found = verdict({"Yes": 0.0, "No": 0.0}, judge=JUDGE.model_copy(update={"min_answer_mass": 0.0}))
    assert found.reason == Reason.NO_ANSWER


@given(
    st.dictionaries(st.sampled_from(["Yes", "No", "A", "B", "C", "3"]), st.floats(0, 0.5) | st.floats()),
    st.sampled_from([Binary(), ORDINAL, Numeric(low=0, high=9)]),
)
def test_verdicts_are_the_expected_value_or_a_failure(mass: dict[str, float], scale: Scale) -> None:
    found = verdict(mass, scale)
    weights = [(mass.get(label, 0.0), value) for label, value, *_ in readout.options(scale)]
    total = sum(weight for weight, _ in weights)
    if all(0 <= weight <= 1 for weight, _ in weights) and JUDGE.min_answer_mass <= total <= 1:
        assert found.value == pytest.approx(sum(weight * value for weight, value in weights) / total)
        assert (found.value, found.answer_mass) == (found.probability, pytest.approx(total))
    elif not all(0 <= weight <= 1.001 for weight, _ in weights) or total > 1.0011:
        assert found.reason is Reason.OUT_OF_RANGE
    elif total < JUDGE.min_answer_mass:
        assert found.reason is Reason.NO_ANSWER
