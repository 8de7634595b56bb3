"""The prompts of a run: to train on, in which order, and held out."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError, cut
from rubricsvc.formats.record import Record
from trainer.config import PromptsConfig, TrainConfig

MAX_LISTED = 20
"""Prompts that an error names."""


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt, and the rubric that its completions are scored by.

    ``name`` is the prompt's id where it comes from, ``rubric_name`` the rubric's, and ``domain`` its part of a mixture.
    ``demonstrations`` are completions to learn from (`trainer.data.demonstrations`).
    """

    prompt: Prompt
    rubric: Rubric
    name: str = field(default="", compare=False)
    domain: str = ""
    demonstrations: tuple[Completion, ...] = field(default=(), compare=False)
    rubric_name: str = field(default="", compare=False)

    @property
    def digests(self) -> list[str]:
        """What a resumed run must share of the task."""
        domain = [self.domain] * bool(self.domain)
        return [self.prompt.digest, self.rubric.digest, *domain, *(one.digest for one in self.demonstrations)]

    @property
    def recorded(self) -> dict[str, Any]:
        """The prompt and the rubric with their names, as records of rollouts and evaluations have them."""
        named = {"prompt_name": self.name, "rubric_name": self.rubric_name}
        return {"prompt": self.prompt, "rubric": self.rubric, **named}


def tasks_of(records: Iterable[Record]) -> list[Task]:
    """Return the tasks of the records that have a prompt and a rubric."""
    return [
        Task(one.prompt, one.rubric, one.id or one.name, rubric_name=one.name)
        for one in records
        if one.prompt is not None and one.rubric is not None
    ]


def content_key(prompt: Prompt) -> str:
    """Return the SHA-256 of the words of a prompt and its documents, without regard to case and line breaks."""
    texts = (prompt.text, *(document.text for document in prompt.documents))
    return digest(*(" ".join(text.casefold().split()) for text in texts))


def page_key(prompt: Prompt) -> str:
    """Return what a prompt was made of: a page of a collection (`rubricsvc prompts synthesize`), or else its content.

    That is the page that it shows, or the first page that answers it.
    """
    item = prompt.item or {}
    pages = item.get("pages")
    first = pages[0] if isinstance(pages, list) and pages else None
    page = item.get("source") or (first[0] if isinstance(first, list) and first else None)
    return digest("page", item["digest"], page) if page and "digest" in item else content_key(prompt)


def check_apart(train: Iterable[Task], held_out: Sequence[Task]) -> None:
    """Check that no prompt is both trained on and held out.

    Raises:
        InvalidError: Some are, by their words, whatever their case and line breaks. The message names them.
    """
    trained = {content_key(task.prompt) for task in train}
    overlap = [task for task in held_out if content_key(task.prompt) in trained]
    if overlap:
        message = f"{len(overlap)} of {len(held_out)} held-out prompts are trained on: {names_of(overlap)}"
        hint = "remove them from one of the two, or hold out a part of the data with eval.share"
        raise InvalidError(message, hint=hint, path="eval")


def hold_out(tasks: Sequence[Task], share: float, seed: int) -> tuple[list[Task], list[Task]]:
    """Divide tasks into those to train on and the share that is held out.

    Equal prompts, and those that were made of one page of a collection, are on one side.

    The sides depend on the prompts and the seed, not on the order of the data.
    """
    groups: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        groups[page_key(task.prompt)].append(task)
    count = round(share * len(groups))
    if not 0 < count < len(groups):
        side = "hold out none" if count == 0 else "leave none to train on"
        fits = f"{1 / len(groups):.2g} to {1 - 1 / len(groups):.2g} would fit" if len(groups) > 1 else "add prompts"
        message = f"eval.share = {share:g} of {len(groups)} prompts would {side}; {fits}"
        raise InvalidError(
            message, hint="change eval.share, or name held-out prompts with eval.path", path="eval.share"
        )
    ordered = sorted(groups, key=lambda key: digest("held out", seed, key))
    held_out = {id(task) for key in ordered[:count] for task in groups[key]}
    return [task for task in tasks if id(task) not in held_out], [task for task in tasks if id(task) in held_out]


def names_of(tasks: Sequence[Task]) -> str:
    """Return the names of tasks for a message: the id of each prompt, or its beginning."""
    named = ", ".join(task.name or cut(repr(task.prompt.text), 60) for task in tasks[:MAX_LISTED])
    return named + (f" and {len(tasks) - MAX_LISTED} more" if len(tasks) > MAX_LISTED else "")


DEFAULT = PromptsConfig()


def tasks_of_step(tasks: Sequence[Task], step: int, config: TrainConfig) -> list[Task]:
    """Return the step's tasks: every task comes once, in a random order, before any comes again.

    In a mixture that holds for the tasks of each domain, and the step has as many tasks of each as its weight says, to
    within rounding over the steps so far.
    """
    settings, size = config.prompts or DEFAULT, config.sampling.prompts_per_step
    pools = pools_of(tasks, settings)
    weights = {domain: settings.weights[domain] for domain in pools} if settings.weights else {"": 1.0}
    chosen: list[Task] = []
    before, after = (allocated(weights, (step + n) * size) for n in (0, 1))
    for domain in weights:
        pool = pools[domain]
        name = f"order/{domain}" if domain else "order"
        for slot in range(before[domain], after[domain]):
            epoch, at = divmod(slot, len(pool))
            chosen.append(pool[_order(len(pool), config.seed, name, epoch)[at]])
    return chosen


def other_tasks(
    tasks: Sequence[Task], step: int, attempt: int, used: Sequence[Task], config: TrainConfig
) -> list[Task]:
    """Return the tasks that take the place of those in a step whose groups have no signal, in the order of trying.

    Empty where the step has all of them.
    """
    settings = config.prompts or DEFAULT
    pools = pools_of(tasks, settings)
    taken = {id(task) for task in used}
    left = [task for pool in pools.values() for task in pool if id(task) not in taken]
    return [left[at] for at in _order(len(left), config.seed, f"resample/{step}", attempt)]


def pools_of(tasks: Sequence[Task], settings: PromptsConfig) -> dict[str, list[Task]]:
    """Return the tasks by domain, where domains have weights."""
    pools: dict[str, list[Task]] = {}
    for task in tasks:
        if not settings.weights or task.domain in settings.weights:
            pools.setdefault(task.domain if settings.weights else "", []).append(task)
    return pools


def allocated(weights: Mapping[str, float], slots: int) -> Counter[str]:
    """Return how many of the first slots each domain has (Webster's method: more slots never take one away)."""
    counts = Counter(dict.fromkeys(weights, 0))
    total = sum(weights.values())
    for domain, weight in weights.items():  # what each has at least, so that few slots are left to divide one by one
        counts[domain] = max(0, int(slots * weight / total) - len(weights))
    for _ in range(slots - counts.total()):
        counts[max(weights, key=lambda domain: weights[domain] / (2 * counts[domain] + 1))] += 1
    return counts


def stream_seed(seed: int, purpose: str, number: int) -> int:
    """Return the seed of a stream, 56 bits: neighbouring seeds, purposes and numbers share nothing."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}/{number}".encode()).digest()[:7])


@lru_cache(maxsize=16)
def _order(count: int, seed: int, name: str, epoch: int) -> list[int]:
    generator = torch.Generator().manual_seed(stream_seed(seed, name, epoch))
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    return order


@dataclass(frozen=True, slots=True)
class RunTasks:
    """The prompts to train on, and those that are held out.

    ``demonstrated`` are those to train on that have demonstrations, with these; ``other`` are of another collection.
    """

    train: list[Task]
    held_out: list[Task]
    demonstrated: list[Task] = field(default_factory=list)
    other: list[Task] = field(default_factory=list)
