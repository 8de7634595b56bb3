"""Fixtures of tests that sample from a tiny policy."""

import pytest
import torch


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every turn end within its tokens."""
    from trainer.policies import policy as decoding

    draw = decoding.sample_tokens

    def ended(*args: object) -> tuple[torch.Tensor, torch.Tensor | None]:
        tokens, nucleus = draw(*args)  # type: ignore[arg-type]
        calls["drawn"] += 1
        return (torch.zeros_like(tokens) if calls["drawn"] % 3 == 0 else tokens), nucleus

    calls = {"drawn": 0}
    monkeypatch.setattr(decoding, "sample_tokens", ended)
