"""Examples of judge training: a completion, and the verdicts that a judge should give on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple, TypeVar

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric


@dataclass(frozen=True)
class Target:
    """The verdict that a judge should give on one criterion.

    Attributes:
        criterion: The criterion as the judge is asked about it; with its reference or passages, if they are shown.
        value: Value in [0, 1] on the criterion's scale. Between two levels it is a soft target: a label on which
            people disagree, or another judge's probability.
        family: What is held out together in a split by criterion: by default the criterion's text. Criteria of one
            template (``Mentions "X"``) share a family.
        variant: How the case was made (``stated``, ``negated``, …), by which tables are broken down; may be empty.
        levels: Probability of each level of the scale, where a teacher gave them.
        rationale: Reason of a written verdict; of a person's label, their note.
        evidence: Quotes from the completion for a written verdict.
    """

    criterion: Criterion
    value: float
    family: str = ""
    variant: str = ""
    levels: Mapping[str, float] | None = field(default=None, hash=False)
    rationale: str = ""
    evidence: tuple[str, ...] = ()

    @property
    def family_name(self) -> str:
        """The name of what a split by criterion keeps on one side."""
        return self.family or self.criterion.text


@dataclass(frozen=True)
class Example:
    """One completion of a prompt with its targets, which are asked about together.

    Attributes:
        prompt: What was asked; its reference and documents are shown where the judge's template shows them.
        completion: The completion to judge.
        targets: One or more verdicts to learn.
        source: Name of the data set or of the construction, for weights, splits by data set and tables.
        group: What must not be on two sides of a split (a prompt, a passage); by default the prompt's text and
            documents.
    """

    prompt: Prompt
    completion: Completion
    targets: tuple[Target, ...]
    source: str
    group: str = ""

    @property
    def split_group(self) -> str:
        """What must not be on two sides of a split."""
        return self.group or _prompt_group(self.prompt)

    @property
    def content(self) -> str:
        """The SHA-256 of what may be shown of the prompt and the completion."""
        prompt = self.prompt
        return digest("example", prompt.text, prompt.reference, prompt.documents, self.completion.full_text)


@dataclass(frozen=True)
class PreferencePair:
    """Two completions of one prompt, of which ``chosen`` is better on ``criterion`` (Bradley and Terry, 1952)."""

    prompt: Prompt
    criterion: Criterion
    chosen: Completion
    rejected: Completion
    source: str
    group: str = ""
    variant: str = ""
    family: str = ""

    @property
    def split_group(self) -> str:
        """What must not be on two sides of a split."""
        return self.group or _prompt_group(self.prompt)

    @property
    def family_name(self) -> str:
        """The name of what a split by criterion keeps on one side."""
        return self.family or self.criterion.text

    @property
    def sides(self) -> tuple[Example, Example]:
        """The chosen and the rejected completion as examples; their values are not learned."""
        chosen, rejected = (
            Example(self.prompt, completion, (Target(self.criterion, value, self.family),), self.source, self.group)
            for completion, value in ((self.chosen, 1.0), (self.rejected, 0.0))
        )
        return chosen, rejected

    @property
    def content(self) -> str:
        """The SHA-256 of what may be shown of the prompt, the criterion and both completions."""
        texts = self.chosen.full_text, self.rejected.full_text
        return digest("pair", self.prompt.digest, self.criterion.question, *texts)


Sampled = TypeVar("Sampled", Example, PreferencePair)


def _prompt_group(prompt: Prompt) -> str:
    """Return the same text for prompts that differ in case, white space, tags or reference only."""
    return digest("group", " ".join(prompt.text.casefold().split()), prompt.documents)


def rubric_of(example: Example) -> Rubric:
    """Return the example's questions as a rubric with the keys ``c0``, ``c1``, … in their order."""
    criteria = (
        target.criterion.model_copy(update={"key": f"c{number}", "weight": 1.0})
        for number, target in enumerate(example.targets)
    )
    return Rubric(criteria=tuple(criteria))


def questions(examples: Iterable[Example]) -> Iterator[tuple[Example, Target]]:
    """Return every target with its example."""
    return ((example, target) for example in examples for target in example.targets)


def sample(examples: Sequence[Sampled], size: int) -> list[Sampled]:
    """Return about ``size`` examples: the same share of each source, and at least one, chosen by their content."""
    by_source: dict[str, list[Sampled]] = {}
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
            kept.append(_mean(same, sum(values) / len(values)))
        merged.append(replace(example, targets=tuple(kept)))
    return Merged(merged, duplicates, contradictions)


def pairs_of(examples: Iterable[Example]) -> list[PreferencePair]:
    """Return each two completions of a prompt whose values on a question differ, the better one first."""
    by_question: dict[tuple[str, str], list[tuple[Example, Target]]] = {}
    for example, target in questions(examples):
        by_question.setdefault((example.prompt.digest, target.criterion.question), []).append((example, target))
    pairs = []
    for same in by_question.values():
        for one, other in combinations(same, 2):
            (first, better), (second, worse) = sorted((one, other), key=lambda each: -each[1].value)
            if better.value > worse.value:
                pairs.append(
                    PreferencePair(
                        first.prompt, better.criterion, first.completion, second.completion, first.source, first.group
                    )
                )
    return pairs


def _mean(same: list[Target], value: float) -> Target:
    """Return the target nearest to the mean ``value`` with it, levels only where all agree."""
    nearest = min(same, key=lambda one: (abs(one.value - value), not one.rationale))
    agree = all(one.levels == nearest.levels for one in same)
    return replace(nearest, value=value, levels=nearest.levels if agree else None)
