"""Coverage, vetoes, clips and null rewards, and the laws that hold for them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.reward import FORMULAS, Formula, FormulaError, reward, reward_or_null
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict


def rubric(*weights: float, required: int | None = None, **fields: object) -> Rubric:
    criteria = [
        {"key": f"c{n}", "text": "…", "weight": weight, "required": n == required} for n, weight in enumerate(weights)
    ]
    return Rubric.model_validate({"criteria": criteria, **fields})


def verdicts(*values: float | str | None) -> list[Verdict]:
    """Return verdicts on c0, c1, …: scored by a number, abstained by None, failed by a reason."""
    made = []
    for n, value in enumerate(values):
        if value is None:
            made.append(Verdict.abstained(f"c{n}"))
        elif isinstance(value, str):
            made.append(Verdict.failed(f"c{n}", value))
        else:
            made.append(Verdict.scored(f"c{n}", value))
    return made


@pytest.mark.parametrize(("name", "expected"), [("healthbench", -3 / 15), ("weighted_mean", 0.0)])
def test_reward_is_clipped_where_the_formula_says_so(name: str, expected: float) -> None:
    result = reward(rubric(5, 10, -8), verdicts(1.0, 0.0, 1.0), formula=name)
    assert (result.value, result.formula, result.coverage) == (pytest.approx(expected), name, 1.0)


@pytest.mark.parametrize("value", [None, "timeout"])
@pytest.mark.parametrize("place", [0, 2])
def test_reward_is_null_where_a_criterion_was_not_judged(value: str | None, place: int) -> None:
    """A failed pitfall counts against coverage like any other criterion."""
    found: list[float | str | None] = [1.0, 1.0, 1.0]
    found[place] = value
    result = reward(rubric(10, 5, -8), verdicts(*found))
    assert result.value is None and result.coverage == pytest.approx((23 - (10, 5, 8)[place]) / 23)
    assert result.null_reason


def test_reward_is_null_where_too_little_that_counts_was_judged() -> None:
    assert reward(rubric(1, 1), verdicts(1.0)).value is None  # a verdict is missing
    assert reward(rubric(0, 1, min_coverage=0.0), verdicts(1.0, "timeout")).value is None  # only weights of 0
    assert reward(rubric(1, 9, required=0, min_coverage=0.5), verdicts("timeout", 1.0)).value is None  # a required one
    for pitfalls, covered in ((rubric(6, -4, min_coverage=0.4), 0.4), (rubric(1, -1, min_coverage=0.5), 0.5)):
        with pytest.raises(FormulaError):
            reward(pitfalls, verdicts("timeout", 0.0), formula="healthbench")
        spoilt = reward_or_null(pitfalls.model_copy(update={"formula": "healthbench"}), verdicts("timeout", 0.0))
        assert (spoilt.value, spoilt.coverage) == (None, covered)
    with pytest.raises(FormulaError):
        reward(rubric(6, -4, min_coverage=0.4), verdicts("timeout", 0.0))


def test_reward_of_a_tree_without_declared_groups_counts_shares() -> None:
    leaves = [("p", ("a",), 1.0), ("q", ("b",), 10.0)]
    tree = Rubric(
        criteria=tuple(Criterion(key=key, text="…", weight=weight, group=group) for key, group, weight in leaves),
        formula="tree",
        min_coverage=0.9,
    )
    result = reward(tree, [Verdict.failed("p", "timeout"), Verdict.scored("q", 1.0)])
    assert (result.value, result.coverage) == (None, 0.5)


def test_reward_renormalises_above_min_coverage_or_another_one() -> None:
    result = reward(rubric(6, 2, 2, min_coverage=0.75), verdicts(1.0, 0.0, "timeout"))
    assert result.value == pytest.approx(6 / 8)
    assert reward(rubric(6, 2, 2, min_coverage=0.85), verdicts(1.0, 0.0, "timeout")).value is None
    found = verdicts(1.0, "no_answer")
    assert reward(rubric(3, 1), found, min_coverage=0.75).value == 1.0
    assert reward(rubric(3, 1, min_coverage=0.5), found, min_coverage=0.8).value is None
    assert reward_or_null(rubric(3, 1), found, min_coverage=0.75).value == 1.0


def test_reward_is_vetoed_by_an_unmet_required_criterion_or_a_met_required_pitfall() -> None:
    for whole, values, expected in [
        (rubric(1, 9, required=0), (1.0, 1.0), (1.0, None)),
        (rubric(1, 9, required=0), (0.0, 1.0), (0.0, "c0")),
        (rubric(9, -1, required=1), (1.0, 1.0), (0.0, "c1")),
        (rubric(9, -1, required=1), (1.0, 0.0), (1.0, None)),
        (rubric(1, -8, required=0, formula="healthbench"), (0.0, 1.0), (-8.0, "c0")),  # it is not raised
    ]:
        found = reward(whole, verdicts(*values))
        assert (found.value, found.vetoed_by) == (pytest.approx(expected[0]), expected[1])


@pytest.mark.parametrize(("weights", "name"), [((-1, -2), "healthbench"), ((1, -2), "tree"), ((1,), "nonsense")])
def test_reward_rejects_formulas_that_do_not_fit(weights: tuple[float, ...], name: str) -> None:
    with pytest.raises(FormulaError, match=name):
        reward(rubric(*weights), verdicts(*[1.0] * len(weights)), formula=name)


def test_reward_rejects_foreign_and_repeated_verdicts() -> None:
    with pytest.raises(ValueError, match="'elsewhere'"):
        reward(rubric(1), [Verdict.scored("elsewhere", 1.0)])
    with pytest.raises(ValueError, match="'c0'"):
        reward(rubric(1), [*verdicts(1.0), *verdicts(0.0)])


def test_reward_uses_a_formula_that_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMULAS, "least", Formula("least", lambda rubric, values: {"c0": min(values.values())}))
    assert reward(rubric(1, 1), verdicts(0.25, 1.0), formula="least").value == 0.25


weights_and_values = st.lists(
    st.tuples(
        st.floats(-10, 10).filter(lambda w: abs(w) > 1e-3),
        st.one_of(st.floats(0, 1), st.none(), st.sampled_from(["timeout", "unparseable"])),
    ),
    min_size=1,
    max_size=8,
)


@given(weights_and_values, st.floats(0, 1), st.sampled_from(["weighted_mean", "healthbench"]))
def test_reward_keeps_its_laws(pairs: list[tuple[float, float | str | None]], least: float, name: str) -> None:
    weights, values = zip(*pairs, strict=True)
    judged = [abs(w) for w, v in pairs if isinstance(v, float)]
    try:
        result = reward(rubric(*weights, min_coverage=least), verdicts(*values), formula=name)
    except FormulaError:
        assert not any(w > 0 for w, v in pairs if isinstance(v, float))
        assert name == "healthbench" or any(w > 0 for w in weights)
        return
    assert result.coverage == pytest.approx(sum(judged) / sum(abs(w) for w in weights))
    if result.value is None:
        assert not judged or result.coverage < least
        return
    assert result.coverage >= least - 1e-9
    total = math.fsum(result.contributions.values())
    clip = FORMULAS[name].clip
    assert result.value == pytest.approx(total if clip is None else min(max(total, clip[0]), clip[1]))
    assert set(result.contributions) == {f"c{n}" for n, (_, v) in enumerate(pairs) if isinstance(v, float)}


@given(weights_and_values, st.data())
def test_reward_never_falls_with_a_better_verdict(
    pairs: list[tuple[float, float | str | None]], data: st.DataObject
) -> None:
    weights = [w for w, _ in pairs]
    before = [v if isinstance(v, float) else 0.5 for _, v in pairs]
    place = data.draw(st.integers(0, len(pairs) - 1))
    after = list(before)
    after[place] = (
        data.draw(st.floats(before[place], 1)) if weights[place] > 0 else data.draw(st.floats(0, before[place]))
    )
    worse, better = (reward(rubric(*weights), verdicts(*values)).value for values in (before, after))
    assert worse is not None
    assert better is not None and better >= worse - 1e-9
