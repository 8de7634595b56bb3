"""Demonstrations: completions of people, of a script or of another model, which a policy learns before it is rewarded.

A run with ``data.demonstrations`` takes the groups of a step from them in place of sampling: of each prompt's, the best
by its reward is learned (`trainer.algorithms.supervised`). A small policy learns the form of tool calls this way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import torch
from torch.nn.utils.rnn import pad_sequence

from rubricsvc.core.prompt import Completion
from rubricsvc.errors import InvalidError
from rubricsvc.formats.completions import CompletionLine
from trainer.data.tasks import Task, content_key
from trainer.policies.chat import transcript
from trainer.policies.policy import Policy, context_of
from trainer.policies.rollouts import Rollouts


def with_demonstrations(tasks: Sequence[Task], lines: Iterable[CompletionLine]) -> list[Task]:
    """Return the tasks that have demonstrations, with these; prompts are compared by their content.

    Raises:
        InvalidError: No task has one.
    """
    by_prompt: defaultdict[str, list[Completion]] = defaultdict(list)
    for line in lines:
        if line.prompt is not None:
            by_prompt[content_key(line.prompt)].append(line.completion)
    chosen = [
        replace(task, demonstrations=tuple(shown))
        for task in tasks
        if (shown := by_prompt.get(content_key(task.prompt)))
    ]
    if not chosen:
        hint = "give each line the prompt of the data, with the same text"
        raise InvalidError("no prompt of the data has a demonstration", hint=hint, path="data.demonstrations")
    return chosen


def demonstrated(policy: Policy, tasks: Sequence[Task], group_size: int, seed: int) -> Rollouts:
    """Return ``group_size`` demonstrations of each task as rollouts, in a random order; few are repeated.

    Raises:
        InvalidError: A demonstration is longer than the policy's context.
    """
    rng = Random(seed)
    ids_QP, mask_QP = policy.encode([task.prompt for task in tasks], 1)
    chosen = [one for task in tasks for one in _group(task.demonstrations, group_size, rng)]
    rows = [transcript(policy.tokenizer, one) for one in chosen]
    room = context_of(policy.model.config) - ids_QP.shape[1]
    for place, (ids, _) in enumerate(rows):
        if len(ids) > room:
            name = tasks[place // group_size].name or tasks[place // group_size].prompt.text[:60]
            message = f"a demonstration of prompt {name!r} has {len(ids)} tokens; the context has room for {room:.0f}"
            raise InvalidError(message, hint="shorten it, or leave it out", path="data.demonstrations")
    device = policy.device
    return Rollouts(
        prompt_ids_QP=ids_QP,
        prompt_mask_QP=mask_QP,
        prompt_of_B=torch.arange(len(tasks), device=device).repeat_interleave(group_size),
        ids_BT=pad_sequence([torch.tensor(ids, device=device) for ids, _ in rows], batch_first=True),
        mask_BT=pad_sequence(
            [torch.ones(len(ids), dtype=torch.bool, device=device) for ids, _ in rows], batch_first=True
        ),
        truncated_B=torch.zeros(len(rows), dtype=torch.bool, device=device),
        texts=tuple(one.text for one in chosen),
        from_environment_BT=pad_sequence([torch.tensor(given, device=device) for _, given in rows], batch_first=True),
        demonstrations=tuple(chosen),
    )


def _group(demonstrations: Sequence[Completion], size: int, rng: Random) -> list[Completion]:
    """Return a group in which each demonstration comes once before any comes again."""
    shuffled: list[Completion] = []
    while len(shuffled) < size:
        shuffled += rng.sample(demonstrations, len(demonstrations))
    return shuffled[:size]
