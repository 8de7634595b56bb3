"""`workers.authoring.merging`: rubrics as one."""

import pytest
from hypothesis import strategies as st

from rubricsvc.core.rubric import Binary, Check, Criterion, Group, Level, Ordinal, Rubric, Source
from workers.authoring.merging import UnmergeableError, groups_in, union

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
