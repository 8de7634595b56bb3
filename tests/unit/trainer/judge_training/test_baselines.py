from __future__ import annotations

import numpy as np
import pytest

from tests.unit.trainer.judge_training.made import question
from trainer.judge_training.baselines import MIN_FAMILY, Question, baselines, overlap
from trainer.judge_training.metrics import rows

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


def test_overlap_ignores_stop_words_and_case() -> None:
    assert overlap("Says that the Sun is hot", "sun") == pytest.approx(1 / 3)
    assert overlap("It is", "it was") == 0.5
    assert overlap("", "x") == 0.0


def test_baselines_overlap_finds_repeated_words_and_one_sided_ones_do_not() -> None:
    test = statements(100, 1)
    found = {row.scorer: row["auroc"].value for row in rows(test, baselines(statements(200, 0), test))}
    assert found["overlap"] == 1.0
    assert found["majority"] == 0.5
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


def test_baselines_learn_from_soft_labels() -> None:
    train = [question(0.8 if number % 2 else 0.2, completion="yes" if number % 2 else "no") for number in range(400)]
    no, yes = baselines(train, [question(0.0, completion="no"), question(1.0, completion="yes")])["bag of words"]
    assert no == pytest.approx(0.2, abs=0.05) and yes == pytest.approx(0.8, abs=0.05)


def test_baselines_of_one_class_are_its_mean() -> None:
    found = baselines([question(1.0, completion="")], [question(0.0)])
    assert {value for values in found.values() for value in values} == {1.0}


def test_baselines_are_deterministic_under_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.judge_training.baselines.MAX_TRAIN", 50)
    train, test = statements(100, 0), statements(10, 1)
    assert baselines(train, test, seed=1) == baselines(train, test, seed=1) != baselines(train, test, seed=2)


def test_baselines_need_training_labels() -> None:
    with pytest.raises(ValueError, match="no training labels"):
        baselines([], statements(2, 0))
