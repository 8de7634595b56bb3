"""Demonstrations: completions of people, of a script or of another model, which a policy learns before it is rewarded.

The warm-up of a run (`trainer.loop.warm_up`) takes the groups of a step from them in place of sampling. A small policy
learns the form of tool calls this way.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import torch

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.errors import InvalidError, counted
from rubricsvc.formats.documents import read_all
from rubricsvc.formats.input_file import InputFile
from trainer.config import RunConfig
from trainer.data.tasks import Task, content_key
from trainer.policies.policy import Policy, context_of
from trainer.policies.rollouts import Rollouts, rollouts_of, transcript


def demonstrations_of(tasks: list[Task], config: RunConfig, say: Callable[[str], None]) -> list[Task]:
    """Return the prompts with demonstrations of a file, or with those that the script of `research` plays.

    The prompts of a file are compared with those of the data by their content.
    """
    from trainer.environments.scripted import demonstrate
    from trainer.environments.tools import Research, make_acting

    path = config.demonstrations.path if config.demonstrations is not None else None
    if path is not None:
        by_prompt: defaultdict[str, list[Completion]] = defaultdict(list)
        for line in read_all(InputFile(str(path))):
            if line.prompt is not None:
                by_prompt[content_key(line.prompt)].append(line.completion)
        shown = [(task, tuple(by_prompt.get(content_key(task.prompt), ()))) for task in tasks]
        chosen = [replace(task, demonstrations=each) for task, each in shown if each]
        if not chosen:
            hint = "give each line the prompt of the data, with the same text"
            raise InvalidError("no prompt of the data has a demonstration", hint=hint, path="demonstrations.path")
    else:
        acting = make_acting(config.environment, config.tools)
        research = acting.own_environment if acting is not None else None
        assert acting is not None and isinstance(research, Research)  # noqa: S101 - the configuration was checked
        brief, chosen = config.demonstrations.brief if config.demonstrations is not None else 0.0, []
        for number, task in enumerate(tasks):
            is_brief = int((number + 1) * brief) > int(number * brief)
            if (one := demonstrate(research, task.prompt, acting.limits, brief=is_brief)) is not None:
                chosen.append(replace(task, demonstrations=(one,)))
    if not chosen:
        hint = "raise environment.max_turns, or set demonstrations.path"
        raise InvalidError("the script answers no prompt of the data", hint=hint, path="demonstrations")
    count = sum(len(task.demonstrations) for task in chosen)
    say(f"{counted(count, 'demonstration')} of {len(chosen)} of {counted(len(tasks), 'prompt')}")
    return chosen


def demonstrated(policy: Policy, tasks: Sequence[Task], group_size: int, seed: int) -> Rollouts:
    """Return ``group_size`` demonstrations of each task as rollouts, in a random order; few are repeated.

    Raises:
        InvalidError: One has more tokens than the policy's context has room for.
    """
    rng = Random(seed)
    chosen: list[Completion] = []
    for task in tasks:  # each demonstration comes once before any comes again
        group: list[Completion] = []
        while len(group) < group_size:
            group += rng.sample(task.demonstrations, len(task.demonstrations))
        chosen += group[:group_size]
    return as_sampled([task.prompt for task in tasks], chosen, policy)


def as_sampled(prompts: Sequence[Prompt], completions: Sequence[Completion], policy: Policy) -> Rollouts:
    """Return completions as if the policy had sampled them: those of the first prompt, of the second, and so on."""
    group_size = len(completions) // len(prompts)
    ids_QP, mask_QP = policy.encode(prompts, 1)
    notes = policy.acting is not None and policy.acting.limits.notes
    options = policy.template_options
    rows = [transcript(policy.tokenizer, one, notes=notes, template_options=options) for one in completions]
    room = context_of(policy.model.config) - ids_QP.shape[1]
    for place, row in enumerate(rows):
        if (longest := max(Counter(row.contexts).values(), default=0)) > room:
            prompt = prompts[place // group_size].text[:60]
            message = f"a completion of prompt {prompt!r} has {longest} tokens; the context has room for {room:.0f}"
            raise InvalidError(message, hint="shorten it, or leave it out", path="demonstrations.path")
    prompt_of_B = torch.arange(len(prompts), device=policy.device).repeat_interleave(group_size)
    texts = [one.text for one in completions]
    rollouts = rollouts_of(policy, (ids_QP, mask_QP, prompt_of_B), rows, texts)
    return replace(rollouts, demonstrations=tuple(completions))
