"""Splits of examples, and the refusal of leaking and too small ones."""

from __future__ import annotations

import pytest

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion
from rubricsvc.errors import InvalidError
from trainer.judge_training.examples import Example, Target, questions
from trainer.judge_training.splits import PARTS, Split, SplitBy, check_leakage, content_key, require_enough, split


def example(prompt: str, completion: str, *criteria: str, source: str = "s", value: float = 1.0) -> Example:
    targets = tuple(Target(Criterion(key=text, text=text), value) for text in criteria or ("a",))
    return Example(Prompt.of(prompt), Completion(text=completion), targets, source)


def answers(prompts: int, each: int = 5, source: str = "s") -> list[Example]:
    return [example(f"question {p}", f"answer {p}.{c}", source=source) for p in range(prompts) for c in range(each)]


def groups(examples: list[Example]) -> set[str]:
    return {one.split_group for one in examples}


def families(examples: list[Example]) -> set[str]:
    return {target.family_name for _, target in questions(examples)}


def test_split_by_prompt_keeps_the_answers_of_a_prompt_together() -> None:
    parts = split(answers(200), "prompt", test=0.2, validation=0.1, seed=1)
    assert [len(groups(parts.part(name))) for name in PARTS] == pytest.approx([140, 20, 40], abs=18)
    assert sum(len(groups(parts.part(name))) for name in PARTS) == 200 and parts.left_out == 0
    check_leakage(parts)


def test_split_is_stable_when_examples_are_added() -> None:
    few, many = (split(answers(n), "prompt", test=0.2, validation=0.2, seed=1) for n in (50, 100))
    for name in PARTS:
        assert {content_key(one) for one in few.part(name)} <= {content_key(one) for one in many.part(name)}
    other = split(answers(50), "prompt", test=0.2, validation=0.2, seed=2)
    assert groups(other.test) != groups(few.test)


def test_split_by_completion_has_seen_prompts_and_new_completions() -> None:
    parts = split(answers(40, 20), "completion", test=0.2, validation=0.1, seed=1)
    assert groups(parts.test) <= groups(parts.train) and len(parts.test) == pytest.approx(160, abs=40)
    check_leakage(parts)


def test_split_by_completion_leaves_out_prompts_that_are_not_in_train() -> None:
    parts = split(answers(300, 1), "completion", test=0.3, validation=0.1, seed=1)
    assert parts.test == [] and parts.validation == [] and parts.left_out == 300 - len(parts.train) > 0


def test_split_by_criterion_holds_families_out_of_train() -> None:
    both = [example(f"q{n}", "x", "old", "new") for n in range(100)]
    one = [example(f"old{n}", "x", "old") for n in range(50)] + [example(f"new{n}", "x", "new") for n in range(50)]
    parts = split(both + one, "criterion", test=0.3, validation=0.1, seed=1, held_out=["new"])
    assert families(parts.test) == {"new"} and families(parts.train) == families(parts.validation) == {"old"}
    assert {f"new{n}" for n in range(50)} <= {found.prompt.text for found in parts.test}
    assert sum(len(parts.part(name)) for name in PARTS) == 200 and parts.left_out == 100
    check_leakage(parts)


def test_split_by_prompt_may_hold_families_out_too() -> None:
    examples = [example(f"question {n}", "answer", "a", "b") for n in range(100)]
    parts = split(examples, "prompt", test=0.2, validation=0.1, held_out=["b"])
    assert families(parts.train) == families(parts.validation) == {"a"}
    assert families(parts.test) == {"a", "b"}
    assert parts.left_out == len(parts.train) + len(parts.validation)
    check_leakage(parts)


def test_split_by_criterion_chooses_families_by_share() -> None:
    made = [example(f"q{n}", "x", f"kind {n % 20}") for n in range(200)]
    parts = split(made, "criterion", test=0.3, validation=0.0, seed=1)
    assert set(parts.held_out) == families(parts.test) and 1 < len(parts.held_out) < 12
    assert not families(parts.test) & families(parts.train)


def test_split_by_source_drops_prompts_of_the_held_out_source() -> None:
    parts = split(
        [*answers(20, source="old"), *answers(2, source="new")], "source", test=0.5, validation=0.2, held_out=["new"]
    )
    assert {one.source for one in parts.test} == {"new"} and parts.left_out == 10
    assert {one.source for one in parts.train + parts.validation} == {"old"}
    assert len(parts.train + parts.validation) == 90
    check_leakage(parts)


@pytest.mark.parametrize(
    ("by", "options", "path"),
    [
        ("prompt", {"test": 0.6, "validation": 0.4}, "test"),
        ("criterion", {"held_out": ["b"]}, "held_out"),
        ("source", {"held_out": ["b"]}, "held_out"),
        ("source", {}, "held_out"),
    ],
)
def test_split_rejects_unknown_names_and_shares(by: SplitBy, options: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidError) as caught:
        split(answers(3), by, **{"test": 0.1, "validation": 0.1, **options})  # type: ignore[arg-type]
    assert caught.value.path == path


def test_check_leakage_lists_ten_completions_with_their_number() -> None:
    train, test = answers(3), [example(" QUESTION  0", "Answer 0.1"), *answers(3)]
    with pytest.raises(InvalidError) as caught:
        check_leakage(Split(train=train, test=test))
    error = caught.value
    assert error.path == "split" and "3 groups in train and test" in error.message
    assert "15 completions in train and test" in error.message and "and 5 more" in error.message


def test_check_leakage_allows_shared_prompts_by_completion() -> None:
    train, test = answers(1), [example("question 0", "another answer")]
    check_leakage(Split(train=train, test=test, by="completion"))
    with pytest.raises(InvalidError):
        check_leakage(Split(train=train, test=test))


def test_require_enough_names_every_part_and_class() -> None:
    unmet = [example(f"q{n}", "x", value=0.0) for n in range(30)]
    parts = Split(train=answers(40), validation=answers(3) + unmet, test=unmet)
    with pytest.raises(InvalidError) as caught:
        require_enough(parts, {"test": 0.2, "validation": 0.1})
    assert caught.value.path == "split"
    train, validation, test = caught.value.message.split("; ")
    assert "200 labels, 200 met and 0 unmet, one class" in train
    assert validation == "validation has 45 labels, 15 met and 30 unmet"
    assert "30 labels, 0 met and 30 unmet, one class" in test


def test_require_enough_names_the_shares_of_small_parts() -> None:
    both = [example(f"q{n}", "x", value=n % 2) for n in range(200)]
    with pytest.raises(InvalidError) as caught:
        require_enough(Split(train=both, validation=both[:8], test=both), {"test": 0.2, "validation": 0.1})
    assert "validation has 8 labels, 4 met and 4 unmet, at least 20" in caught.value.message
    assert "split.validation (now 0.1)" in caught.value.hint and "split.test" not in caught.value.hint
