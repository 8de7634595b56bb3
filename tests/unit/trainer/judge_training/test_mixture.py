"""Mixtures of sources by weight."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from rubricsvc.errors import InvalidError
from trainer.judge_training.mixture import mix

SOURCES = {"a": [f"a{n}" for n in range(5)], "b": [f"b{n}" for n in range(7)], "c": ["c0"]}
WEIGHTS = {"a": 5, "b": 3, "c": 2}


def drawn(count: int, *, seed: int = 0, start: int = 0) -> list[str]:
    return list(islice(mix(SOURCES, WEIGHTS, seed, start=start), count))


def test_mix_draws_in_proportion_to_the_weights() -> None:
    names = [one[0] for one in drawn(200)]
    assert all(Counter(names[i : i + 10]) == {"a": 5, "b": 3, "c": 2} for i in range(0, 200, 10))


def test_mix_draws_all_of_a_source_in_each_epoch_in_another_order() -> None:
    of_a = [one for one in drawn(200) if one[0] == "a"]
    epochs = [of_a[i : i + 5] for i in range(0, len(of_a), 5)]
    assert all(set(epoch) == set(SOURCES["a"]) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 10


@pytest.mark.parametrize("start", [0, 1, 13, 150])
def test_mix_continues_where_it_stopped(start: int) -> None:
    assert drawn(200)[start:] == drawn(200 - start, start=start)


def test_mix_depends_on_the_seed_and_not_on_the_order_of_names() -> None:
    assert drawn(50) != drawn(50, seed=1)
    turned = mix(dict(reversed(SOURCES.items())), dict(reversed(WEIGHTS.items())), 0)
    assert drawn(50) == list(islice(turned, 50))


@pytest.mark.parametrize(
    ("weights", "path"),
    [
        ({"a": 1.0}, "weights"),
        ({"a": 1.0, "b": 1.0, "x": 1.0}, "weights"),
        ({"a": -1.0, "b": 1.0}, "weights.a"),
        ({"a": float("nan"), "b": 1.0}, "weights.a"),
        ({"a": 0.0, "b": 0.0}, "weights"),
        ({"a": 1.0, "b": 1.0}, "weights.b"),
    ],
)
def test_mix_rejects_weights_that_do_not_fit_the_sources(weights: dict[str, float], path: str) -> None:
    with pytest.raises(InvalidError) as caught:
        mix({"a": ["x"], "b": []}, weights, 0)
    assert caught.value.path == path


def test_mix_leaves_out_sources_of_weight_0() -> None:
    assert set(islice(mix({"a": ["x"], "b": []}, {"a": 1, "b": 0}, 0), 5)) == {"x"}
