"""Splits of examples into train, validation and test, and the refusal of leaking or too small ones.

A group's side depends on its name, the seed and the shares only, so that examples can be added without moving others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Literal

from rubricsvc.core.fingerprint import digest
from rubricsvc.errors import InvalidError, cut
from trainer.judge_training.examples import Example, PreferencePair, Target, questions

SplitBy = Literal["prompt", "completion", "criterion", "source"]
Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
MIN_LABELS: dict[Part, int] = {"train": 100, "validation": 20, "test": 20}
"""Labels that a part needs."""
MIN_EACH_CLASS = 10
"""Labels of each class that a part needs."""
MAX_LISTED = 10
"""Names that an error lists."""


@dataclass
class Split:
    """Examples to learn from, to stop by, and to report on.

    Attributes:
        train: Examples to learn from.
        validation: Examples for early stopping.
        test: Examples for the report.
        by: What is not on two sides: ``prompt``; ``completion`` (seen prompts, new completions); ``criterion`` or
            ``source``, of which some are held out for the test, in addition to the prompts.
        held_out: Families of criteria, or sources, that are in the test only.
        left_out: Targets in no part, because their group or completion is on another side, or (by completion) because
            their prompt is not in train.
    """

    train: list[Example] = field(default_factory=list)
    validation: list[Example] = field(default_factory=list)
    test: list[Example] = field(default_factory=list)
    by: SplitBy = "prompt"
    held_out: tuple[str, ...] = ()
    left_out: int = 0

    def part(self, name: Part) -> list[Example]:
        """Return the examples of a part."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]


def split(
    examples: Iterable[Example],
    by: SplitBy,
    *,
    test: float,
    validation: float,
    seed: int = 0,
    held_out: Collection[str] = (),
) -> Split:
    """Divide examples into train, validation and test.

    By ``criterion``, a group that has targets of held-out families and others goes to the test with the share ``test``,
    else to another part, and its other targets are left out. Groups with one kind of targets lose none.

    Args:
        examples: The examples, without duplicates (`merge`).
        by: What is not on two sides, see `Split`.
        test: Share of the groups (by completion: of the completions) in the test.
        validation: Share of them in the validation part.
        seed: Another seed gives another split.
        held_out: Families (`Target.family_name`) that only the test has, by criterion by default a share ``test`` of
            them; by source, names of sources.

    Raises:
        InvalidError: A share is not in [0, 1], or a held-out name is unknown or missing.
    """
    if not (test >= 0 and validation >= 0 and test + validation < 1):
        message = f"test {test:g} and validation {validation:g} leave no examples to train on"
        raise InvalidError(message, hint="choose shares of at least 0, with a sum below 1", path="test")
    examples = list(examples)

    def side(name: str) -> Part:
        return side_of(name, test=test, validation=validation, seed=seed)

    parts = Split(by=by)
    if by == "criterion":
        families = {target.family_name for _, target in questions(examples)}
        _check_names(held_out, families, "criterion")
        parts.held_out = tuple(sorted(held_out or (name for name in families if side(name) == "test")))
        _divide_by_criterion(examples, parts, side)
    elif by == "source":
        _check_names(held_out, {example.source for example in examples}, "source")
        if not held_out:
            raise InvalidError("no data set to hold out", hint="name one or more in held_out", path="held_out")
        parts.held_out = tuple(sorted(held_out))
        for example in examples:
            place = _not_test(side(example.split_group))
            parts.part("test" if example.source in parts.held_out else place).append(example)
    else:
        _check_names(held_out, {target.family_name for _, target in questions(examples)}, "criterion")
        parts.held_out = tuple(sorted(held_out))
        for example in examples:
            place = side(content_key(example) if by == "completion" else example.split_group)
            kept = example.targets if place == "test" else _without(example.targets, parts.held_out)
            parts.left_out += len(example.targets) - len(kept)
            if kept:
                parts.part(place).append(replace(example, targets=kept))
    return _without_overlap(parts)


def _without(targets: tuple[Target, ...], held_out: Collection[str]) -> tuple[Target, ...]:
    return tuple(target for target in targets if target.family_name not in held_out)


def side_of(name: str, *, test: float, validation: float, seed: int) -> Part:
    """Return the part of a group: a share ``test`` of all names is in the test, ``validation`` in the validation."""
    place = int(digest("split", seed, name)[:13], 16) / 16**13
    if place < test:
        return "test"
    return "validation" if place < test + validation else "train"


def content_key(example: Example) -> str:
    """Return the SHA-256 of the prompt's and the completion's words, without regard to case and line breaks."""
    texts = (example.prompt.text, example.completion.full_text)
    return digest("shown", *(" ".join(text.casefold().split()) for text in texts))


def check_leakage(split: Split) -> None:
    """Refuse a split with a group, or the same prompt and completion, in two of its parts.

    By ``completion`` the groups may be in several parts; the completions may not.

    Raises:
        InvalidError: Names the overlap; at most 10 of a pair of parts, with their number.
    """
    overlaps = []
    for i, first in enumerate(PARTS):
        for second in PARTS[i + 1 :]:
            for what, key_of in _keys(split.by):
                keys = {key_of(example) for example in split.part(first)}
                names = {
                    key: _name(example, what) for example in split.part(second) if (key := key_of(example)) in keys
                }
                if names:
                    overlaps.append(f"{len(names)} {what}s in {first} and {second}: {_first(names.values())}")
    if overlaps:
        hint = "remove them from one side, or let one split divide all examples"
        raise InvalidError(f"leakage between splits: {'; '.join(overlaps)}", hint=hint, path="split")


def require_enough(split: Split, shares: Mapping[str, float]) -> None:
    """Refuse a split with too few targets in a part, or too few of one class.

    The classes are the values below 0.5, and the others.

    Args:
        split: The split.
        shares: Those of ``test`` and ``validation``, for the hint.

    Raises:
        InvalidError: Has the numbers of all parts, and what is missing.
    """
    numbers, small = [], []
    for name, minimum in MIN_LABELS.items():
        values = [target.value for _, target in questions(split.part(name))]
        met = sum(value >= 0.5 for value in values)
        unmet = len(values) - met
        missing = ""
        if len(values) < minimum:
            missing = f", at least {minimum} are needed"
        elif min(met, unmet) < MIN_EACH_CLASS:
            missing = f", {'' if met and unmet else 'one class: '}at least {MIN_EACH_CLASS} of each are needed"
        numbers.append(f"{name} has {len(values)} labels, {met} met and {unmet} unmet{missing}")
        small += [name] if missing else []
    if small:
        change = "lower" if "train" in small else "raise"
        fields = [f"split.{name} (now {share:g})" for name, share in shares.items() if {name, "train"} & {*small}]
        hint = f"add labels, or {change} {' and '.join(fields)}"
        raise InvalidError("; ".join(numbers), hint=hint, path="split")


def pairs_apart(pairs: Iterable[PreferencePair], split: Split, part: Part) -> list[PreferencePair]:
    """Return the pairs of no held-out criterion that share nothing with the parts other than ``part``."""
    keys_of = [key_of for _, key_of in _keys(split.by)]
    others = [example for name in PARTS if name != part for example in split.part(name)]
    taken = {key_of(example) for example in others for key_of in keys_of}
    return [
        pair
        for pair in pairs
        if pair.family_name not in split.held_out
        and taken.isdisjoint(key_of(side) for side in pair.sides for key_of in keys_of)
    ]


def _check_names(names: Collection[str], known: set[str], what: str) -> None:
    unknown = sorted(set(names) - known)
    if unknown:
        hint = f"known are {_first(cut(repr(name), 60) for name in known)}"
        raise InvalidError(f"unknown {what} {unknown[0]!r}", hint=hint, path="held_out")


def _first(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - MAX_LISTED} more" if len(ordered) > MAX_LISTED else ""
    return ", ".join(ordered[:MAX_LISTED]) + more


def _divide_by_criterion(examples: Sequence[Example], parts: Split, side: Callable[[str], Part]) -> None:
    held_out = frozenset(parts.held_out)
    kinds: dict[str, set[bool]] = defaultdict(set)
    for example, target in questions(examples):
        kinds[example.split_group].add(target.family_name in held_out)
    for example in examples:
        place = side(example.split_group)
        if kinds[example.split_group] == {True}:
            place = "test"
        elif kinds[example.split_group] == {False}:
            place = _not_test(place)
        kept = tuple(one for one in example.targets if (one.family_name in held_out) == (place == "test"))
        parts.left_out += len(example.targets) - len(kept)
        if kept:
            parts.part(place).append(replace(example, targets=kept))


def _not_test(place: Part) -> Part:
    return "train" if place == "test" else place


def _keys(by: SplitBy) -> list[tuple[str, Callable[[Example], str]]]:
    keys: list[tuple[str, Callable[[Example], str]]] = [("completion", content_key)]
    return keys if by == "completion" else [("group", lambda example: example.split_group), *keys]


def _name(example: Example, what: str) -> str:
    if what == "group" and example.group:
        return example.group
    return f"{example.source} {example.completion.id or content_key(example)[:12]} ({cut(example.prompt.text, 40)!r})"


def _without_overlap(parts: Split) -> Split:
    """Remove from validation what the test has, and from train what either has."""
    keys_of, taken = _keys(parts.by), set[str]()
    for part in (parts.test, parts.validation, parts.train):
        keys = [[key_of(example) for _, key_of in keys_of] for example in part]
        free = [taken.isdisjoint(one) for one in keys]
        taken.update(*keys)
        _keep(parts, part, free)
    if parts.by == "completion":
        seen = {example.split_group for example in parts.train}
        for part in (parts.validation, parts.test):
            _keep(parts, part, [example.split_group in seen for example in part])
    return parts


def _keep(parts: Split, part: list[Example], kept: Iterable[bool]) -> None:
    before = sum(len(example.targets) for example in part)
    part[:] = compress(part, kept)
    parts.left_out += before - sum(len(example.targets) for example in part)
