"""Examples of judge training: a completion and the verdicts that a judge should give on it; their split into parts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError, cut
from trainer.judge_training.config import SplitConfig

Part = Literal["train", "validation", "test"]
MIN_LABELS: dict[Part, int] = {"train": 100, "validation": 20, "test": 20}
"""Labels that a part needs."""
MIN_EACH_CLASS = 10
"""Labels of each class that a part needs."""
MAX_LISTED = 10
"""Names that an error lists."""


@dataclass(frozen=True)
class Target:
    """The verdict that a judge should give on one criterion.

    Attributes:
        criterion: The criterion as the judge is asked about it; with its reference or passages, if they are shown.
        value: Value in [0, 1] on the criterion's scale. Between two levels it is a soft target: a label on which
            people disagree, or another judge's probability.
        family: What may be held out together: by default the criterion's text. Criteria of one template
            (``Mentions "X"``) share a family.
        variant: How the case was made (``stated``, ``negated``, …), by which tables are broken down; may be empty.
        levels: Probability of each level of the scale, where a teacher gave them.
    """

    criterion: Criterion
    value: float
    family: str = ""
    variant: str = ""
    levels: Mapping[str, float] | None = field(default=None, hash=False)

    @property
    def family_name(self) -> str:
        """The name by which the criterion can be held out."""
        return self.family or self.criterion.text


@dataclass(frozen=True)
class Example:
    """One completion of a prompt with its targets, which are asked about together.

    Attributes:
        prompt: What was asked; its reference and documents are shown where the judge's template shows them.
        completion: The completion to judge.
        targets: One or more verdicts to learn.
        source: Name of the data set, for weights and tables.
        group: What must not be in two parts of a split (a prompt, a passage); by default the prompt's text and
            documents.
    """

    prompt: Prompt
    completion: Completion
    targets: tuple[Target, ...]
    source: str
    group: str = ""

    @property
    def split_group(self) -> str:
        """What must not be in two parts: the same for prompts that differ in case, white space or reference only."""
        return self.group or digest("group", " ".join(self.prompt.text.casefold().split()), self.prompt.documents)

    @property
    def content(self) -> str:
        """The SHA-256 of what may be shown of the prompt and the completion."""
        prompt = self.prompt
        return digest("example", prompt.text, prompt.reference, prompt.documents, self.completion.full_text)


Question = tuple[Example, Target]


def rubric_of(example: Example) -> Rubric:
    """Return the example's questions as a rubric with the keys ``c0``, ``c1``, … in their order."""
    criteria = (
        target.criterion.model_copy(update={"key": f"c{number}", "weight": 1.0})
        for number, target in enumerate(example.targets)
    )
    return Rubric(criteria=tuple(criteria))


def questions(examples: Iterable[Example]) -> Iterator[Question]:
    """Return every target with its example."""
    return ((example, target) for example in examples for target in example.targets)


def sample(examples: Sequence[Example], size: int) -> list[Example]:
    """Return about ``size`` examples: the same share of each source, and at least one, chosen by their content."""
    by_source: dict[str, list[Example]] = {}
    for example in sorted(examples, key=lambda one: one.content):
        by_source.setdefault(example.source, []).append(example)
    share = min(1.0, size / max(1, len(examples)))
    return [example for each in by_source.values() for example in each[: max(1, round(share * len(each)))]]


class Merged(NamedTuple):
    """Examples without duplicates.

    Attributes:
        examples: One example for each prompt, completion and source; one target for each question.
        duplicates: Targets that repeated the question of another on the same completion.
        contradictions: Questions on a completion with different values; their mean is the soft target.
    """

    examples: list[Example]
    duplicates: int
    contradictions: int


def merge(examples: Iterable[Example]) -> Merged:
    """Merge examples on the same completion, and targets on the same question; different values become their mean."""
    by_content: dict[tuple[str, str], Example] = {}
    targets: dict[tuple[str, str], dict[str, list[Target]]] = {}
    for example in examples:
        key = (example.source, example.content)
        by_content.setdefault(key, example)
        for target in example.targets:
            targets.setdefault(key, {}).setdefault(target.criterion.question, []).append(target)
    merged, duplicates, contradictions = [], 0, 0
    for key, example in by_content.items():
        kept = []
        for same in targets[key].values():
            values = [target.value for target in same]
            contradictions += len(set(values)) > 1
            duplicates += len(same) - 1
            levels = same[0].levels if all(one.levels == same[0].levels for one in same) else None
            kept.append(replace(same[0], value=sum(values) / len(values), levels=levels))
        merged.append(replace(example, targets=tuple(kept)))
    return Merged(merged, duplicates, contradictions)


@dataclass
class Split:
    """Examples to learn from, to stop by, and to report on; ``left_out`` targets are in no part."""

    train: list[Example] = field(default_factory=list)
    validation: list[Example] = field(default_factory=list)
    test: list[Example] = field(default_factory=list)
    left_out: int = 0

    @property
    def parts(self) -> dict[Part, list[Example]]:
        """The examples of each part."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


def side_of(name: str, config: SplitConfig, seed: int) -> Part:
    """Return the part of a group: it depends on its name, so that examples can be added without moving others."""
    place = int(digest("split", seed, name)[:13], 16) / 16**13
    if place < config.test:
        return "test"
    return "validation" if place < config.test + config.validation else "train"


def split(examples: Iterable[Example], config: SplitConfig, seed: int = 0) -> Split:
    """Divide examples by their groups into train, validation and test; refuse too small parts.

    The same prompt with the same completion is in one part only, also where its groups differ; then the test keeps it,
    or else the validation part. Targets of held-out families are in the test only. What is in no part is counted.
    """
    if config.test + config.validation >= 1:
        message = f"test {config.test:g} and validation {config.validation:g} leave no examples to train on"
        raise InvalidError(message, hint="choose shares with a sum below 1", path="split.test")
    examples, result = list(examples), Split()
    known = {target.family_name for _, target in questions(examples)}
    if unknown := sorted({*config.held_out} - known):
        names = sorted(cut(repr(name), 60) for name in known)
        more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
        hint = f"known are {', '.join(names[:MAX_LISTED])}{more}"
        raise InvalidError(f"unknown criterion {unknown[0]!r}", hint=hint, path="split.held_out")
    by_part: dict[Part, list[Example]] = defaultdict(list)
    for example in examples:
        by_part[side_of(example.split_group, config, seed)].append(example)
    taken: set[str] = set()
    for name in ("test", "validation", "train"):
        part = [_without(one, config.held_out if name != "test" else ()) for one in by_part[name]]
        keys = [content_key(one) for one in part]
        result.parts[name].extend(one for one, key in zip(part, keys, strict=True) if one.targets and key not in taken)
        taken.update(key for one, key in zip(part, keys, strict=True) if one.targets)
    kept = sum(len(list(questions(part))) for part in result.parts.values())
    result.left_out = sum(len(one.targets) for one in examples) - kept
    _require_enough(result, config)
    return result


def content_key(example: Example) -> str:
    """Return the SHA-256 of the prompt's and the completion's words, without regard to case and line breaks."""
    texts = (example.prompt.text, example.completion.full_text)
    return digest("shown", *(" ".join(text.casefold().split()) for text in texts))


def _without(example: Example, held_out: Collection[str]) -> Example:
    return replace(example, targets=tuple(one for one in example.targets if one.family_name not in held_out))


def _require_enough(result: Split, config: SplitConfig) -> None:
    """Refuse a split with too few targets in a part, or too few of a class: values below 0.5, and the others."""
    numbers, small = [], []
    for name, part in result.parts.items():
        classes = Counter(target.value >= 0.5 for _, target in questions(part))
        missing = ""
        if classes.total() < MIN_LABELS[name]:
            missing = f", at least {MIN_LABELS[name]} are needed"
        elif min(classes[True], classes[False]) < MIN_EACH_CLASS:
            missing = f", at least {MIN_EACH_CLASS} of each are needed"
        numbers.append(f"{name} has {classes.total()} labels, {classes[True]} met and {classes[False]} unmet{missing}")
        small += [name] if missing else []
    if small:
        change = "lower" if "train" in small else "raise"
        shares = {"test": config.test, "validation": config.validation}
        fields = [f"split.{name} (now {share:g})" for name, share in shares.items() if {name, "train"} & {*small}]
        hint = f"add labels, or {change} {' and '.join(fields)}"
        raise InvalidError("; ".join(numbers), hint=hint, path="split")
