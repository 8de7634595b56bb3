"""Questions for tests of judge training."""

from __future__ import annotations

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Binary, Criterion, Scale
from trainer.judge_training.data import Example, Question, Target


def question(
    value: float,
    *,
    prompt: str = "Why?",
    completion: str = "Because.",
    criterion: str = "Gives a reason.",
    group: str = "",
    source: str = "made",
    family: str = "",
    variant: str = "",
    scale: Scale | None = None,
) -> Question:
    target = Target(Criterion(key="c", text=criterion, scale=scale or Binary()), value, family=family, variant=variant)
    example = Example(Prompt.of(prompt), Completion(text=completion), (target,), source=source, group=group)
    return example, target
