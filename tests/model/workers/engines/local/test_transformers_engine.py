"""The local engine on the embedded model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from workers.engines.base import EngineRequest, Question, Reply
from workers.engines.local.transformers_engine import TransformersEngine


def test_label_mass_is_independent_of_the_batch(embedded: Path) -> None:
    engine = TransformersEngine(str(embedded), dtype=torch.float32, device="cpu")
    questions = tuple(Question(f"\n\nDoes the answer name finding {n}? Yes or No.", ("Yes", "No")) for n in range(3))
    texts = [f"Answer {n}: the bridge is safe, " * (6 + n) for n in range(4)]

    async def run() -> list[tuple[list[Reply], list[Reply]]]:
        requests = [EngineRequest("You grade answers.", text, questions) for text in texts]
        together = await asyncio.gather(*(engine.ask(request) for request in requests))
        pairs = []
        for request, replies in zip(requests, together, strict=True):
            singles = [EngineRequest(request.system, request.shared, (question,)) for question in questions]
            alone = [(await engine.ask(single))[0] for single in singles]
            assert all(isinstance(reply, Reply) for reply in [*replies, *alone])
            pairs.append((replies, alone))
        return pairs  # type: ignore[return-value]

    for together, alone in asyncio.run(run()):
        for reply, single in zip(together, alone, strict=True):
            assert reply.label_mass == pytest.approx(single.label_mass, abs=1e-4)
