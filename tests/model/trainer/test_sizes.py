"""Sizes that cannot work are named before weights are loaded, with what would fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
from tests.model.trainer.tiny import RUBRIC, tiny_config
from tests.tiny_model import tiny_model
from trainer.data.tasks import Task
from trainer.policies.policy import Policy
from trainer.sizes import check_sizes

CONTEXT = 64


def check(folder: Path, texts: list[str], **fields: Any) -> list[str]:
    """Return the problems of a run, one a line."""
    model = folder / "model"
    if not model.is_dir():
        tiny_model(model, context=CONTEXT)
        (model / "model.safetensors").unlink()  # no weights are read
    config = tiny_config(policy={"model": str(model), "dtype": "float32"}, **fields)
    tasks = [Task(Prompt.of(text), RUBRIC, f"id-{place}") for place, text in enumerate(texts)]
    try:
        check_sizes(config, tasks)
    except InvalidError as error:
        return error.message.splitlines()
    return []


def test_check_sizes_returns_the_memory_of_weights_and_optimiser(tmp_path: Path) -> None:
    """16 bytes a weight for float32 masters, and 4 for each copy of a float32 policy: itself, and its start for KL."""
    model = tiny_model(tmp_path / "whole", context=CONTEXT)
    weights = sum(one.numel() for one in Policy.load(str(model)).model.parameters())
    for every, copies in ((5, 2), (0, 1)):
        config = tiny_config(policy={"model": str(model), "dtype": "float32"}, optim={"kl_every": every})
        memory = check_sizes(config, [])
        assert memory.needed == weights * (16 + 4 * copies) < memory.available


def test_check_sizes_names_all_long_prompts_and_the_tokens_that_fit(tmp_path: Path) -> None:
    texts = ["yes", "is " * 10, "is " * 14]
    (problem,) = check(tmp_path, texts, sampling={"max_new_tokens": 40})
    assert "sampling.max_new_tokens: 40 beside 2 of 3 prompts" in problem and "id-1, id-2" in problem
    fit = int(problem.partition("at most ")[2].split()[0])
    assert check(tmp_path, texts, sampling={"max_new_tokens": fit}) == []
    assert check(tmp_path, texts, sampling={"max_new_tokens": fit + 1}) != []
    (problem,) = check(tmp_path, texts, sampling={"max_new_tokens": CONTEXT})
    assert f"at most {CONTEXT - 1} fit" in problem


def test_check_sizes_agrees_with_the_policy(tmp_path: Path) -> None:
    """What passes is sampled, and what does not is refused by the policy as well."""
    policy = Policy.load(str(tiny_model(tmp_path / "whole", context=CONTEXT)), dtype="float32")
    prompt = Prompt.of("is the answer right")
    length = len(policy.token_ids(prompt))
    for new, fits in ((CONTEXT - length, True), (CONTEXT - length + 1, False)):
        assert (check(tmp_path, [prompt.text], sampling={"max_new_tokens": new}) == []) == fits
        if fits:
            policy.token_ids(prompt, new)
        else:
            with pytest.raises(InvalidError):
                policy.token_ids(prompt, new)
