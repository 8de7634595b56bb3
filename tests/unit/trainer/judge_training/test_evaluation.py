import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion
from trainer.judge_training.data import Example, Question, Target
from trainer.judge_training.run import MIN_FAMILY, baselines, rows


def question(
    value: float, *, prompt: str = "Why?", completion: str = "Because.", criterion: str = "Is right.", family: str = ""
) -> Question:
    target = Target(Criterion(key="c", text=criterion), value, family=family)
    return Example(Prompt.of(prompt), Completion(text=completion), (target,), source="made"), target


def judged(n: int, seed: int = 0) -> tuple[list[Question], list[float]]:
    """Return questions in groups of four, and scores in tenths that agree with their labels somewhat."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, n)
    scores = np.clip(np.round(0.3 * labels + 0.7 * random.random(n), 1), 0, 1)
    return [question(float(x), prompt=f"{i // 4}", completion=f"{i}") for i, x in enumerate(labels)], scores.tolist()


def test_rows_auroc_equals_that_of_scikit_learn_with_ties() -> None:
    test, scores = judged(200)
    (row,) = rows(test, {"judge": scores})
    auroc = row["auroc"]
    assert auroc.value == pytest.approx(roc_auc_score([target.value for _, target in test], scores))
    assert auroc.low is not None and auroc.high is not None and auroc.value is not None
    assert 0.5 < auroc.low < auroc.value < auroc.high < 1


def test_rows_macro_auroc_is_the_mean_over_families_with_both_classes() -> None:
    test = [question(float(i % 2), family="right", prompt=f"{i}") for i in range(10)]
    test += [question(float(i % 2), family="reversed", prompt=f"{i}") for i in range(10)]
    test += [question(1.0, family="one class", prompt=f"{i}") for i in range(30)]
    scores = [float(i % 2) for i in range(10)] + [float(1 - i % 2) for i in range(10)] + [0.0] * 30
    (row,) = rows(test, {"judge": scores})
    assert row["macro_auroc"].value == 0.5


WORDS = ["apple", "bridge", "candle", "desert", "engine", "forest", "garden", "harbour", "island", "jacket"]


def statements(n: int, seed: int) -> list[Question]:
    """Return questions whether a completion has two words, half of which it has."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(n):
        one, two, *others = (WORDS[i] for i in random.permutation(len(WORDS)))
        says = number % 2
        completion = f"The {one} and the {two}." if says else f"The {others[0]} and the {others[1]}."
        made.append(
            question(float(says), prompt=f"{seed}.{number}", completion=completion, criterion=f'Says "{one} {two}".')
        )
    return made


def test_baselines_overlap_finds_repeated_words_and_one_sided_ones_do_not() -> None:
    test = statements(100, 1)
    found = {row.scorer: row["auroc"].value for row in rows(test, baselines(statements(200, 0), test))}
    assert found["overlap"] == 1.0 and found["majority"] == 0.5
    assert all(0.3 < (found[name] or 0) < 0.7 for name in ("length", "completion only", "criterion only"))


def test_baselines_learn_each_frequent_family_by_itself() -> None:
    """The same words are good for one criterion and bad for the other."""

    def two(n: int) -> list[Question]:
        made = []
        for number in range(n):
            text = "short and clear" if number % 2 else "long and dull"
            made += [
                question(float(number % 2), prompt=f"{number}", completion=text, family="clear"),
                question(float(1 - number % 2), prompt=f"{number}", completion=text, family="dull"),
            ]
        return made

    probabilities = baselines(two(MIN_FAMILY), two(4))["completion only"]
    assert [p > 0.5 for p in probabilities] == [False, True, True, False] * 2
