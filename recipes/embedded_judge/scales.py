"""Ordinal and numeric questions by construction: how many of several binary criteria a completion meets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from rubricsvc.core.rubric import Criterion, Level, Numeric, Ordinal
from rubricsvc.errors import InvalidError
from trainer.judge_training.data import Example, Target

SOURCE = "scales"

_LEVELS: dict[int, tuple[tuple[str, ...], ...]] = {
    2: (("neither", "one", "both"), ("none", "half", "all"), ("poor", "fair", "good")),
    3: (("none", "one", "two", "three"), ("not at all", "a little", "mostly", "fully"), ("0", "1", "2", "3")),
}
_LISTS = (
    "How many of these hold? {items}",
    "Meets the following: {items}",
    "To what extent does the answer do what is listed? {items}",
    "Coverage of these points: {items}",
)


def scales(examples: Sequence[Example], seed: int, count: int) -> Iterator[Example]:
    """Yield ``count`` examples whose binary targets became an ordinal or a numeric one, and whose others stay.

    The value of the new target is the share of its criteria that are met. Half of the ordinal scales are written from
    the best level to the worst.

    Raises:
        InvalidError: No example has two binary targets without a reference of their own.
    """
    rng = Random(f"scales {seed}")
    usable = [one for one in examples if len(_joinable(one)) >= 2]
    if not usable:
        raise InvalidError("no completion has two binary criteria", hint="pass examples with several targets")
    for _ in range(count):
        example = rng.choice(usable)
        joinable = _joinable(example)
        joined = rng.sample(joinable, min(rng.choice((2, 2, 3)), len(joinable)))
        kept = tuple(target for target in example.targets if target not in joined)
        yield Example(example.prompt, example.completion, (_joined(joined, rng), *kept), SOURCE, example.group)


def _joinable(example: Example) -> list[Target]:
    return [
        target
        for target in example.targets
        if target.value in (0.0, 1.0)
        and target.criterion.scale.kind == "binary"
        and not (target.criterion.reference or target.criterion.passages)
    ]


def _joined(targets: Sequence[Target], rng: Random) -> Target:
    """Return one target on how many of the criteria are met."""
    met, size = sum(target.value for target in targets), len(targets)
    items = "; ".join(f"({number}) {target.criterion.text.rstrip('.')}" for number, target in enumerate(targets, 1))
    text = rng.choice(_LISTS).format(items=items)
    scale: Numeric | Ordinal
    if rng.random() < 0.4:
        low, high = rng.choice(((0.0, float(size)), (1.0, size + 1.0), (0.0, 10.0), (1.0, 5.0)))
        scale, family = Numeric(low=low, high=high), "scale_numeric"
    else:
        names = rng.choice(_LEVELS[size])
        levels = [Level(label=name, value=number / size) for number, name in enumerate(names)]
        scale, family = Ordinal(levels=tuple(levels if rng.random() < 0.5 else levels[::-1])), "scale_ordinal"
    return Target(Criterion(key="scale", text=text, scale=scale), met / size, family, f"{met:g} of {size}")
