"""Every formula against figures computed by hand from its source, and the laws that hold for all of them."""

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.reward import FORMULAS, FormulaError, UndefinedRewardError, check_formula, reward, reward_or_null
from rubricsvc.core.rubric import Binary, Criterion, Group, Level, Numeric, Ordinal, Rubric
from rubricsvc.core.verdict import Verdict
from tests.unit.rubricsvc.core.test_reward import rubric, verdicts

MET = (1.0, 0.0, 1.0)
"""Met, unmet, met: the verdicts on which systems are compared."""

NO_NEGATIVE = [
    *("verifiers", "finance_agent_v2", "tree", "paperbench", "race", "mean", "inspect", "tinker", "geometric_mean"),
    *("min", "max", *(f"multichallenge_{how}" for how in ("mean", "min", "max", "all", "any"))),
]
COMPLETE = ["ldc_raw", "verifiers_legacy", "dr_tulu", "gandalf", "finance_agent_v2"]
RATINGS = ["rar_implicit", "ldc_as_judge", "reward_hub", "prometheus", "skyrl", "art"]
TREES = ["tree", "paperbench", "race", "tree_pitfalls"]
UNWEIGHTED = [
    name for name in NO_NEGATIVE if name not in ("verifiers", "finance_agent_v2", "tree", "paperbench", "race")
]


def value(name: str, weights: tuple[float, ...], values: tuple[float, ...] = MET) -> float:
    found = reward(rubric(*weights), verdicts(*values), formula=name).value
    assert found is not None
    return found


def test_formulas_with_signed_weights_match_their_sources() -> None:
    for name, points, shares in [
        *((name, 2 / 15, 0.2 / 0.7) for name in ("weighted_mean", "ldc", "autorubric", "healthbench")),
        *((name, 2 / 15, 0.2 / 0.7) for name in ("researchrubrics", "tree_pitfalls")),
        ("ldc_raw", 2.0, 0.2),
        ("verifiers_legacy", 2.0, 0.2),
        ("dr_tulu", 2 / 15, 0.2),
        ("open_instruct", 2 / 23, 0.2 / 0.9),
        ("open_instruct_reward", 20 / 23, 2 / 0.9),
        *((name, 2 / 7, 0.4) for name in ("rar_explicit", "rlcf", "openjudge", "gandalf", "multichallenge_weighted")),
    ]:
        assert value(name, (10, 5, -8)) == pytest.approx(points, rel=1e-14)
        assert value(name, (0.4, 0.3, -0.2)) == pytest.approx(shares, rel=1e-14)


def test_formulas_without_negative_weights_reject_them() -> None:
    for name in NO_NEGATIVE:
        for weights in ((10, 5, -8), (0.4, 0.3, -0.2)):
            with pytest.raises(FormulaError, match="c2"):
                value(name, weights)
        assert (
            reward_or_null(rubric(1, 1, -1, formula=name, min_coverage=0.1), verdicts(1.0, 1.0, "timeout")).value
            is None
        )


def test_formulas_with_positive_weights_match_their_sources() -> None:
    for name, expected in [
        *((name, (1 * 0.5 + 2 * 0.25 + 5 * 1.0) / 8) for name in ("verifiers", "finance_agent_v2", "tree", "rlcf")),
        *((name, 1.75 / 3) for name in ("mean", "tinker", "inspect", "multichallenge_mean")),
        *((name, 0.25) for name in ("min", "multichallenge_min")),
        *((name, 1.0) for name in ("max", "multichallenge_max", "multichallenge_any")),
        ("multichallenge_all", 0.0),
        ("geometric_mean", (0.5 * 0.25) ** (1 / 3)),
    ]:
        assert value(name, (1, 2, 5), (0.5, 0.25, 1.0)) == pytest.approx(expected, rel=1e-14)


def test_formulas_of_weights_without_a_positive_sum_match_their_sources() -> None:
    for name in ("weighted_mean", "ldc", "autorubric", "tree_pitfalls"):
        assert value(name, (-1, -2, -3)) == pytest.approx(1 - 4 / 6)
        assert value(name, (-1, -2, -3), (0, 0, 0)) == 1.0
    assert value("ldc_raw", (-1, -2, -3)) == -4.0 and value("dr_tulu", (-1, -2, -3)) == -4.0
    assert value("open_instruct", (-1, -2, -3)) == pytest.approx(-4 / 6)
    for name in ("healthbench", "researchrubrics", "rar_explicit", "gandalf"):
        with pytest.raises(FormulaError):
            value(name, (-1, -2, -3))
    assert math.fsum((0.1, 0.2, -0.3)) > 0
    with pytest.raises(FormulaError):  # weights that cancel up to rounding
        value("rar_explicit", (0.1, 0.2, -0.3))


def test_multichallenge_counts_values_from_0_99_as_met() -> None:
    assert value("multichallenge_all", (1, 1), (0.99, 1.0)) == 1.0
    assert value("multichallenge_all", (1, 1), (0.98, 1.0)) == 0.0
    assert value("multichallenge_any", (1, 1), (0.98, 0.2)) == 0.0


def test_dr_tulu_blend_adds_its_tagged_terms() -> None:
    tagged = tuple(
        Criterion(key=tag, text="…", weight=9, tags=(tag,)) for tag in ("format", "citation", "search_turns")
    )
    task = Rubric(criteria=(*rubric(2, 3, -1).criteria, *tagged), formula="dr_tulu_blend")
    check_formula(task)
    rest = {"format": 0.8, "citation": 0.25, "search_turns": 1.0}
    found = reward(task, [*verdicts(1.0, 0.5, 1.0), *(Verdict.scored(key, value) for key, value in rest.items())])
    assert found.value == pytest.approx(0.5 * (2 + 1.5 - 1) / 5 + 0.2 * 0.25 + 0.2 * 0.8 + 0.1 * 1.0, rel=1e-15)
    assert list(found.contributions) == list(task.by_key)
    assert math.fsum(found.contributions.values()) == pytest.approx(found.value, rel=1e-15)
    failed = {key: Verdict.failed(key, "timeout") for key in rest}
    assert reward(task, [*verdicts(1.0, 0.5, 1.0), *failed.values()]).value is None
    both = tagged[0].model_copy(update={"tags": ("format", "citation")})
    fault = tagged[0].model_copy(update={"weight": -9.0})
    for criteria in (
        tagged, (*rubric(1).criteria, *tagged[1:]), (*task.criteria, both), (*task.criteria[:3], fault, *tagged[1:]),
    ):  # fmt: skip
        keyed = tuple(c.model_copy(update={"key": f"k{n}"}) for n, c in enumerate(criteria))
        with pytest.raises(FormulaError, match="'citation', 'format', 'search_turns'"):
            check_formula(Rubric(criteria=keyed, formula="dr_tulu_blend"))


def test_formulas_give_exactly_full_marks_where_all_is_met() -> None:
    for name in sorted(FORMULAS.keys() - {"calculate_output", "dr_tulu_blend", *RATINGS}):
        for count in (1, 3, 7, 49, 93):
            expected = {"ldc_raw": 0.1 * count, "verifiers_legacy": 0.1 * count, "dr_tulu": min(0.1 * count, 1.0)}
            expected |= {"open_instruct_reward": 10.0}
            assert value(name, (0.1,) * count, (1.0,) * count) == pytest.approx(expected.get(name, 1.0), rel=1e-15)


def test_calculate_output_evaluates_its_expression_on_the_criteria_s_scales() -> None:
    criteria = (Criterion(key="a", text="…"), Criterion(key="b", text="…", scale=Numeric(low=1, high=5)))
    task = Rubric(criteria=criteria, formula="calculate_output", expression="a / (b - 5) - 2 * b")
    check_formula(task)  # with all of them met it divides by 0, and may do
    found = reward(task, [Verdict.scored("a", 1.0), Verdict.scored("b", 0.5)])
    assert (found.value, found.contributions) == (-6.5, {"a": -3.25, "b": -3.25})
    with pytest.raises(UndefinedRewardError):
        reward(task, [Verdict.scored("a", 1.0), Verdict.scored("b", 1.0)])
    assert reward_or_null(task, [Verdict.scored("a", 1.0), Verdict.scored("b", 1.0)]).value is None
    with pytest.raises(FormulaError, match="expression"):
        check_formula(task.model_copy(update={"expression": None}))
    for wrong in ({"expression": "a + c"}, {"formula": "mean"}):
        with pytest.raises(ValueError, match=r"'c'|'mean'"):
            Rubric.model_validate({**task.model_dump(), **wrong})


# one judge, one number

FIVE = Ordinal(levels=tuple(Level(label=f"{n}", value=(n - 1) / 4) for n in range(1, 6)))


def test_ratings_are_the_criterion_s_number() -> None:
    for name, scale, value, expected in [
        ("rar_implicit", Numeric(low=1, high=10), (7 - 1) / 9, 6 / 9),
        ("rar_implicit", Numeric(low=1, high=10), 0.0, 0.0), ("ldc_as_judge", Numeric(low=0, high=100), 0.85, 0.85),
        ("reward_hub", Numeric(low=0, high=10), 0.7, 7.0), ("reward_hub", Binary(), 1.0, 1.0),
        ("prometheus", Numeric(low=1, high=5), 0.75, 4.0), ("prometheus", FIVE, 0.25, 2.0),
        ("prometheus", FIVE, 1.0, 5.0), ("prometheus", Binary(), 0.0, 0.0), ("skyrl", Binary(), 1.0, 1.0),
        ("skyrl", Numeric(low=0, high=1), 0.0, 0.0), ("art", Binary(), 0.35, 0.35),
    ]:  # fmt: skip
        task = Rubric(criteria=(Criterion(key="all", text="…", weight=3, scale=scale),), formula=name)
        check_formula(task)
        assert reward(task, [Verdict.scored("all", value)]).value == pytest.approx(expected, rel=1e-15)
        assert reward(task, [Verdict.failed("all", "timeout")]).value is None


def test_ratings_reject_other_scales_and_several_criteria() -> None:
    for name in RATINGS:
        odd = Criterion(key="all", text="…", scale=Numeric(low=0, high=7))
        for criteria in ((odd,), rubric(1, 1).criteria):
            with pytest.raises(FormulaError, match=f"{name} takes one criterion"):
                check_formula(Rubric(criteria=criteria, formula=name))
        with pytest.raises(FormulaError, match="'c0'"):
            check_formula(rubric(-1, formula=name))


# what was not judged


def test_complete_formulas_need_all_criteria() -> None:
    for name in COMPLETE:
        found = reward(rubric(1, 1, 0, min_coverage=0.0), verdicts(1.0, 1.0, "timeout"), formula=name)
        assert found.value is None and name in str(found.null_reason) and "'c2'" in str(found.null_reason)


def test_coverage_ignores_weights_that_the_formula_ignores() -> None:
    for name in UNWEIGHTED:
        found = reward(rubric(0, 9, 1, min_coverage=0.5), verdicts("timeout", "timeout", 1.0), formula=name)
        assert found.value is None and found.coverage == pytest.approx(1 / 3)


judgements = st.lists(
    st.tuples(st.integers(1, 20), st.one_of(st.floats(0, 1), st.none(), st.just("timeout"))), min_size=1, max_size=8
)


@given(judgements, st.lists(st.booleans(), min_size=8, max_size=8), st.sampled_from(sorted(FORMULAS)))
def test_formulas_keep_their_laws(pairs: list[tuple[int, float | str | None]], negative: list[bool], name: str) -> None:
    weights = [-w if name not in NO_NEGATIVE and fault else w for (w, _), fault in zip(pairs, negative, strict=False)]
    whole = rubric(*weights, formula=name, min_coverage=0.0)
    found = reward_or_null(whole, verdicts(*(v for _, v in pairs)))
    judged = [n for n, (_, v) in enumerate(pairs) if isinstance(v, float)]
    if found.value is None:
        assert found.null_reason
        return
    assert list(found.contributions) == [f"c{n}" for n in judged]
    total = math.fsum(found.contributions.values())
    clip = FORMULAS[name].clip or (-math.inf, math.inf)
    assert found.value == pytest.approx(min(max(total, clip[0]), clip[1]), rel=1e-12, abs=1e-12)
    if min(weights) > 0 and name not in ("ldc_raw", "verifiers_legacy", "open_instruct_reward"):
        assert 0.0 <= found.value <= 1.0
    # a failed criterion counts as never asked, and not as 0
    without = Rubric(criteria=tuple(whole.criteria[n] for n in judged), formula=name)
    if name != "weighted_mean" or any(c.weight > 0 for c in without.criteria):
        assert (
            reward(without, [v for v in verdicts(*(v for _, v in pairs)) if v.value is not None]).value == found.value
        )


# trees


def nested(leaves: dict[str, tuple[float, str]], groups: dict[str, float], formula: str = "tree") -> Rubric:
    return Rubric(
        criteria=tuple(
            Criterion(key=key, text="…", weight=weight, group=tuple(path.split("/")) if path else ())
            for key, (weight, path) in leaves.items()
        ),
        groups=tuple(Group(path=tuple(path.split("/")), weight=weight) for path, weight in groups.items()),
        formula=formula,
        min_coverage=0.0,
    )


def scored(**values: float | None) -> list[Verdict]:
    return [Verdict.failed(key, "timeout") if v is None else Verdict.scored(key, v) for key, v in values.items()]


@given(
    st.recursive(
        st.tuples(st.integers(0, 5), st.floats(0, 1)),
        lambda below: st.tuples(st.integers(1, 5), st.lists(below, min_size=1, max_size=4)),
        max_leaves=25,
    )
)
def test_tree_equals_the_recursive_definition_bit_for_bit(root: tuple[int, object]) -> None:
    leaves: dict[str, tuple[float, str]] = {}
    groups: dict[str, float] = {}
    values: dict[str, float] = {}

    def score(node: tuple[int, object], path: str) -> float:
        weight, inner = node
        if not isinstance(inner, list):
            key = f"leaf{len(leaves)}"
            leaves[key], values[key] = (weight, path), inner  # type: ignore[assignment]
            return values[key]
        below = path
        if node is not root:
            below = f"{path}/{len(groups)}" if path else str(len(groups))
            groups[below] = weight
        total = weighted = 0.0
        for child in inner:
            weighted += score(child, below) * child[0]
            total += child[0]
        return weighted / total if total else 0.0

    expected = score(root, "")
    if not isinstance(root[1], list):
        expected, leaves = values["leaf0"], {"leaf0": (1, "")}
    if not any(weight for weight, _ in leaves.values()):
        return
    try:
        found = reward(nested(leaves, groups), scored(**values))
    except FormulaError:
        assert expected == 0.0
        return
    assert found.value == expected
    assert reward(nested(leaves, groups, "tree_pitfalls"), scored(**values)).value == min(expected, 1.0)
    assert math.fsum(found.contributions.values()) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_tree_scores_nodes_of_zero_weights_0_and_skips_unjudged_nodes() -> None:
    task = nested({"a": (0, "x"), "b": (0, "x"), "c": (1, "y")}, {"x": 1, "y": 1})
    assert reward(task, scored(a=1, b=1, c=1)).value == 0.5
    lost = nested({"a": (0, "x"), "b": (3, "x"), "c": (1, "y")}, {"x": 1, "y": 1})
    found = reward(lost, scored(a=1, b=None, c=1))
    assert (found.value, found.coverage, found.contributions) == (1.0, 0.5, {"a": 0.0, "c": 1.0})
    with pytest.raises(FormulaError):  # nothing counts
        check_formula(nested({"a": (1, "x")}, {"x": 0}))


def test_tree_grades_very_deep_trees() -> None:
    path = "/".join(["x"] * 2000)
    deep = nested({"a": (1, path), "b": (1, "")}, {})
    assert reward(deep, scored(a=1, b=0)).value == 0.5


def test_tree_pitfalls_subtract_in_their_node_and_no_further() -> None:
    leaves: dict[str, tuple[float, str]] = {
        "good": (2, "facts"), "wrong": (-3, "facts"), "style": (1, ""), "rude": (-0.5, ""), "toxic": (-1, "harm")
    }  # fmt: skip
    task = nested(leaves, {"facts": 3, "harm": 1}, "tree_pitfalls")
    check_formula(task)
    found = reward(task, scored(good=1, wrong=0.5, style=1, rude=1, toxic=0))
    assert found.value == pytest.approx((3 * (2 - 1.5) / 2 + 1 - 0.5 + 1) / 5)
    expected = {"good": 0.6, "wrong": -0.45, "style": 0.2, "rude": -0.1, "toxic": 0.2}
    assert found.contributions == pytest.approx(expected)
    floored = reward(task, scored(good=1, wrong=1, style=1, rude=0, toxic=1))
    assert (floored.value, floored.contributions["wrong"]) == (pytest.approx(1 / 5), 0.0)
    assert reward(task, scored(good=0, wrong=1, style=0, rude=1, toxic=1)).value == 0.0


def test_declared_groups_are_used_or_rejected() -> None:
    for name in sorted(FORMULAS):
        task = nested({"a": (1, "x"), "b": (1, "x"), "c": (1, "y")}, {"x": 1, "y": 3}, name)
        if name in TREES:
            assert reward(task, scored(a=0, b=0, c=1)).value == 0.75
            continue
        with pytest.raises(FormulaError, match="'x'"):
            check_formula(task)
        with pytest.raises(FormulaError, match="'x'"):
            reward(task.model_copy(update={"formula": "tree"}), scored(a=0, b=0, c=1), formula=name)
        assert reward_or_null(task, scored(a=0, b=0, c=1)).value is None


# documentation


def test_docs_list_exactly_the_registered_formulas() -> None:
    text = (Path(__file__).resolve().parents[4] / "docs" / "formulas.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.*?) \|", text.partition("## Rules for all")[0], flags=re.MULTILINE)
    named = re.findall(r"\w+", " ".join(cells))
    assert len(named) == len(set(named)) and set(named) == set(FORMULAS)
