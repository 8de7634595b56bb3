"""What a preview says of samples: signal, what the reward follows, and where gold turns."""

from __future__ import annotations

import numpy as np

from rubricsvc.stats.ranking import concordance, tau_b
from trainer.preflight import largest_by_chance, preview

N, PROMPTS = 8, 12


def made(seed: int = 0) -> tuple[list[list[float]], list[list[float]]]:
    """Return lengths, and rewards that rise with them."""
    draws = np.random.default_rng(seed)
    lengths = draws.integers(1, 100, (PROMPTS, N)).astype(float)
    return lengths.tolist(), (lengths / 100 + draws.normal(0, 0.05, lengths.shape)).tolist()


def test_preview_finds_what_the_reward_follows() -> None:
    lengths, rewards = made()
    lists = np.random.default_rng(1).integers(0, 2, (PROMPTS, N)).tolist()
    found = preview(rewards, {"length": lengths, "lists": lists, "same": [[1.0] * N] * PROMPTS}, {}, None, 0.0)
    length, other = found.features["length"], found.features["lists"]
    assert length.low is not None and length.low > 0.6
    assert other.low is not None and other.high is not None and other.low < 0.2 and other.high > -0.2
    assert "same" not in found.features
    assert found.gold_gain is None


def test_preview_sees_gold_fall_where_the_reward_rises() -> None:
    """Gold rises up to a length of 40, and falls beyond it: choosing longer samples helps at first."""
    lengths, rewards = made()
    gold = [[1 - abs(one - 40) / 60 for one in group] for group in lengths]
    found = preview(rewards, {}, {}, gold, 0.0)
    assert found.best_of == 8 and found.reward_gain > 0.2
    assert found.gold_gain is not None and found.gold_gain.high is not None and found.gold_gain.high < 0


def test_preview_counts_prompts_above_the_noise() -> None:
    for noise, with_signal in [(0.0, 2), (0.2, 1), (1.0, 0)]:
        found = preview([[0.0, 1.0], [0.4, 0.5], [0.3, 0.3]], {}, {}, None, noise)
        assert (found.groups, found.with_signal) == (3, with_signal)


def test_noise_alone_is_seldom_a_signal() -> None:
    noise = np.random.default_rng(0).normal(0.5, 0.1, (400, N)).tolist()
    assert preview(noise, {}, {}, None, 0.1).with_signal < 0.08 * 400


def test_largest_by_chance_is_exceeded_in_one_of_20_samples_by_any_of_the_features() -> None:
    """Rewards that have nothing to do with nine features, three of them rare."""
    draws = np.random.default_rng(0)
    raised = 0
    for _ in range(200):
        rewards = draws.random((4, N)).tolist()
        features = [(draws.random((4, N)) < 0.1 + 0.1 * at).astype(float).tolist() for at in range(9)]
        pairs = [[list(zip(*both, strict=True)) for both in zip(rewards, each, strict=True)] for each in features]
        raised += (
            max(abs(tau_b(map(concordance, each)) or 0.0) for each in pairs)
            > largest_by_chance(rewards, features) + 1e-9
        )
    assert 2 <= raised <= 20
