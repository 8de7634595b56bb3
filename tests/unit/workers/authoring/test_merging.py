"""`workers.authoring.merging`: rubrics as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.rubric import Binary, Check, Criterion, Group, Level, Ordinal, Rubric, Source
from rubricsvc.core.rubric_example import NumberRange, RubricExample
from workers.authoring.merging import UnmergeableError, described, groups_in, union

LEVELS = Ordinal(levels=(Level(label="no", value=0.0), Level(label="yes", value=1.0)))


def rubric(*criteria: tuple[str, float], **fields: object) -> Rubric:
    made = (Criterion(key=f"c{n}", text=text, weight=weight) for n, (text, weight) in enumerate(criteria, start=1))
    return Rubric.model_validate({"criteria": tuple(made), **fields})


criteria = st.builds(
    Criterion,
    key=st.just("k"),
    text=st.sampled_from(["Names the dose of aspirin for adults.", "Names the price.", "Does not name the price."]),
    weight=st.sampled_from([0.1, 3.0, 5.0, -2.0]),
    scale=st.sampled_from([Binary(), LEVELS]),
    required=st.booleans(),
    tags=st.sampled_from([(), ("a",), ("a", "a"), ("b", "a")]),
    sources=st.sampled_from([None, (), (Source(document="d", passage="p"),)]),
    check=st.sampled_from([None, Check(name="words", args={"max": 3})]),
)
rubrics = st.lists(criteria, min_size=1, max_size=8).map(
    lambda found: Rubric(
        criteria=tuple(one.model_copy(update={"key": f"c{n}"}) for n, one in enumerate(found)), min_coverage=0.5
    )
)


@given(rubrics, st.integers(2, 4))
def test_union_of_a_rubric_with_itself_is_the_rubric(a: Rubric, times: int) -> None:
    merged = union([a] * times)
    assert merged.rubric() == a and merged.rubric().model_dump() == a.model_dump()
    assert merged.undecided() == []


@given(rubrics, rubrics)
def test_union_asks_every_question_of_both(a: Rubric, b: Rubric) -> None:
    merged = union([a, b]).rubric()
    questions = {(one.question, one.weight < 0) for one in merged.criteria}
    assert questions <= {(one.question, one.weight < 0) for one in (*a.criteria, *b.criteria)}
    assert {(one.question, one.weight < 0) for one in a.criteria} <= questions
    assert max(len(a.criteria), len(b.criteria)) <= len(merged.criteria) <= len(a.criteria) + len(b.criteria)
    assert union([merged, merged]).rubric() == merged


def test_union_leaves_out_what_examples_say_of_criteria_that_are_gone() -> None:
    met = NumberRange(min=1, max=1)
    example = RubricExample(key="e", text="It costs 3 francs.", verdicts={"c1": met, "c2": met})
    judged = rubric(("Names the dose.", 4), ("Has at most ten words.", 2), examples=(example,))
    check = Check(name="words", args={"max": 10})
    checked = Rubric(criteria=(Criterion(key="short", text="Has at most ten words.", check=check),))
    both = union([judged, checked])
    merged = both.joined([[both.criteria[1], both.criteria[2]]]).rubric()
    assert [one.key for one in merged.criteria] == ["c1", "short"]
    assert [one.verdicts for one in Rubric.model_validate(merged.model_dump()).examples or ()] == [{"c1": met}]
    assert union([judged, judged]).rubric() == judged


def test_union_joins_criteria_of_one_check_whatever_their_texts() -> None:
    short = Criterion(key="short", text="Is short.", weight=4, check=Check(name="words", args={"max": 10}))
    brief = short.model_copy(update={"key": "brief", "text": "Has at most ten words.", "weight": 2.0})
    (merged,) = union([Rubric(criteria=(short,)), Rubric(criteria=(brief,))]).rubric().criteria
    assert merged == short.model_copy(update={"weight": 3.0})


def test_union_takes_the_mean_weight_and_counts_keys() -> None:
    merged = union([rubric(("Names the dose.", 4)), rubric(("Names the dose.", 7), ("Names the price.", 2))])
    assert [(one.key, one.text, one.weight) for one in merged.rubric().criteria] == [
        ("c1", "Names the dose.", 5.5),
        ("c2", "Names the price.", 2.0),
    ]
    assert merged.undecided() == []  # the second rubric has both, so that they are different
    other = union([rubric(("Names the dose.", 4)), rubric(("Names the price.", 2))])
    assert [one.key for one in other.rubric().criteria] == ["c1", "c1-2"]
    assert len(other.undecided()) == 2


def test_union_keeps_sources_and_requires_what_all_require() -> None:
    first, second = Source(document="one", passage="p"), Source(document="two", clause="3")
    one = Criterion(key="a", text="Names the dose.", required=True, sources=(first,), tags=("principle", "x"))
    other = Criterion(key="b", text="Names the dose.", sources=(second, first), tags=("hard-rule", "x"))
    (merged,) = union([Rubric(criteria=(one,)), Rubric(criteria=(other,))]).rubric().criteria
    assert merged.sources == (first, second) and merged.tags == ("x", "hard-rule") and not merged.required
    assert merged.key == "a"


def test_union_joins_near_duplicates_that_agree_in_negations() -> None:
    text = "Recommends boiling the collected rain water for three minutes before drinking"
    same = union([rubric((f"{text}.", 4)), rubric((f"The answer {text[0].lower()}{text[1:]} it.", 2))])
    assert [(one.text, one.weight) for one in same.rubric().criteria] == [(f"{text}.", 3.0)]
    negated = union([rubric((f"{text}.", 4)), rubric((f"Does not {text[0].lower()}{text[1:]}.", 2))])
    assert len(negated.rubric().criteria) == len(negated.undecided()) == 2


def test_union_refuses_rubrics_that_cannot_be_one() -> None:
    a, b = rubric(("Names the dose.", 4)), rubric(("Names the price.", 2))
    grouped = Rubric(
        criteria=(Criterion(key="a", text="Names it.", group=("g",)),), groups=(Group(path=("g",), weight=1),)
    )
    computed = {"formula": "calculate_output", "expression": "c1"}
    for others in (
        [a, rubric(("Names the price.", 2), formula="healthbench")],
        [a, rubric(("Names the price.", 2), min_coverage=0.5)],
        [a, grouped],
        [rubric(("Names the dose.", 4), **computed), rubric(("Names the price.", 4), **computed)],
    ):
        with pytest.raises(UnmergeableError):
            union(others)
    assert union([rubric(("Names the dose.", 4), **computed)] * 2).undecided() == []
    assert union([a, b]).rubric().formula == a.formula


def test_union_keeps_the_verdicts_of_examples_and_their_rewards_where_nothing_changes() -> None:
    both = RubricExample(key="both", text="10 mg.", verdicts={"c1": NumberRange(min=1)}, reward=NumberRange(min=1))
    reward = RubricExample(key="reward", text="", reward=NumberRange(max=0))
    first = rubric(("Names the dose.", 4), examples=(both, reward))
    assert union([first, rubric(("Names the dose.", 4))]).rubric() == first
    (kept,) = union([first, rubric(("Names the price.", 4))]).rubric().examples or ()
    assert (kept.key, kept.reward) == ("both", None) and kept.verdicts == both.verdicts


def test_joined_keeps_the_check_and_turns_the_weight_of_the_opposite() -> None:
    short = Criterion(key="short", text="Is short.", weight=1, check=Check(name="words", args={"max": 9}))
    a = Rubric(criteria=(Criterion(key="brief", text="Is at most nine words.", weight=3),))
    b = Rubric(criteria=(short, Criterion(key="long", text="Rambles on.", weight=-5)))
    merged = union([a, b])
    brief, checked, long = merged.criteria
    (one,) = merged.joined([[brief, checked, long]]).rubric().criteria
    assert one.check is not None and one.weight == 3.0
    assert [criterion.criterion.key for criterion in merged.criteria] == ["brief", "short", "long"]


def test_groups_in_reads_groups_and_refuses_others() -> None:
    assert groups_in('```json\n{"same": [[2, 1]]}\n```', 3) == [[2, 1]]
    assert groups_in('{"same": []}', 3) == []
    for reply in (
        "",
        "[]",
        '{"same": [[1]]}',
        '{"same": [[1, 4]]}',
        '{"same": [[1, 2], [2, 3]]}',
        '{"same": [[1, 1]]}',
    ):
        with pytest.raises(ValueError, match=r".+"):
            groups_in(reply, 3)


def test_described_names_what_decides_the_criterion() -> None:
    check = Check(name="words", args={"max": 9})
    texts = [
        described(Criterion(key="a", text="Is\nshort.", scale=LEVELS)),
        described(Criterion(key="a", text="B", check=check)),
    ]
    assert "Is short." in texts[0] and "no, yes" in texts[0] and "words" in texts[1]
