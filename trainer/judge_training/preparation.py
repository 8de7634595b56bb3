"""From ingredients to what the loop draws: splits, their checks, encoded rows, the mixture of each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rubricsvc.core.fingerprint import digest
from rubricsvc.errors import InvalidError
from rubricsvc.stats import OnProgress
from trainer.judge_training.config import JudgeTrainConfig
from trainer.judge_training.data.files import listed
from trainer.judge_training.encoding import Encoder, LeftOutError, Row
from trainer.judge_training.examples import Example, PreferencePair, pairs_of, sample
from trainer.judge_training.ingredients import Dataset
from trainer.judge_training.mixture import mix
from trainer.judge_training.replies import learnable
from trainer.judge_training.splits import Part, Split, check_leakage, pairs_apart, require_enough, side_of, split
from trainer.judge_training.training import Batch, EncodedData

_FITS = "raise the judge's max_context, choose a shorter template, or add shorter completions"


@dataclass(frozen=True)
class Prepared:
    """Divided examples and the preferences to learn from.

    Attributes:
        ingredients: What was loaded, by name.
        split: The examples of all ingredients.
        preferences: By ingredient, those whose group is in the training part.
        validation_preferences: The same of the validation part.
    """

    ingredients: Mapping[str, Dataset]
    split: Split
    preferences: Mapping[str, Sequence[PreferencePair]]
    validation_preferences: Mapping[str, Sequence[PreferencePair]] = field(default_factory=dict)

    def pair_count(self, name: str) -> int:
        """Return the number of an ingredient's pairs; where they are made of labels, those of the training part."""
        return len(self.ingredients[name].preferences or self.preferences.get(name, ()))


def prepare(config: JudgeTrainConfig, ingredients: Mapping[str, Dataset]) -> Prepared:
    """Divide the ingredients into train, validation and test.

    For a written judge, targets without what its reply needs are left out of train and validation, and counted.

    Raises:
        InvalidError: A part has too few labels or one class only, two parts share something, or completions that are to
            be compared have no pair.
    """
    settings = config.split
    examples = [example for one in ingredients.values() for example in one.examples]
    shares = {"test": settings.test, "validation": settings.validation}
    parts = split(examples, settings.by, **shares, seed=config.seed, held_out=settings.held_out)
    if config.judge.mode == "written":
        parts.train, parts.validation = (
            [
                kept
                for example in part
                if (kept := learnable(config.judge, example, ingredients[example.source].left_out))
            ]
            for part in (parts.train, parts.validation)
        )
    check_leakage(parts)
    try:
        require_enough(parts, shares)
    except InvalidError as error:
        reasons = listed(sum((one.left_out for one in ingredients.values()), Counter[str]()))
        raise InvalidError(f"{error.message}{reasons}", hint=error.hint, path=error.path) from error
    train, validation = (_preferences(config, ingredients, parts, part) for part in ("train", "validation"))
    return Prepared(ingredients, parts, train, validation)


def _preferences(
    config: JudgeTrainConfig, ingredients: Mapping[str, Dataset], parts: Split, part: Part
) -> dict[str, list[PreferencePair]]:
    """Return the pairs of a part, by ingredient.

    Raises:
        InvalidError: Completions that are to be compared have no pair in the part.
    """
    settings = config.split
    shares = {"test": settings.test, "validation": settings.validation}
    preferences = {
        name: pairs_apart(
            (pair for pair in one.preferences if side_of(pair.split_group, **shares, seed=config.seed) == part),
            parts,
            part,
        )
        for name, one in ingredients.items()
        if one.preferences
    }
    for name in (name for name in config.paired if not ingredients[name].absent):
        preferences[name] = pairs_of(example for example in parts.part(part) if example.source == name)
        if not preferences[name]:
            message = f"{name!r} has no two completions of a prompt with different values on a criterion in {part}"
            hint = "add completions of the same prompts, raise split.validation, or leave pairs out"
            raise InvalidError(message, hint=hint, path=f"data.{name}")
    return preferences


def encode(
    prepared: Prepared,
    encoder: Encoder,
    config: JudgeTrainConfig,
    on_progress: OnProgress = lambda done, total, note: None,
) -> EncodedData:
    """Return the rows of each step, and those of the validation part: pairs where pairs are learned.

    Examples that are longer than the judge's context are left out and counted in the ingredient's ``left_out``.

    Raises:
        InvalidError: An ingredient with a weight has no example to train on, or the validation part none to stop by.
    """
    train = [example for example in prepared.split.train if example.source not in config.paired]
    weights = {entry.name: entry.weight for entry in config.data if not prepared.ingredients[entry.name].absent}
    labelled = [example for example in prepared.split.validation if example.source not in config.paired]
    validation = sample(labelled, config.validation.max_examples)
    compared = [pair for name, pairs in prepared.validation_preferences.items() if weights[name] for pair in pairs]
    compared = sample(compared, config.validation.max_examples)
    total = len(train) + len(validation) + 2 * (len(compared) + sum(map(len, prepared.preferences.values())))
    rows = _Rows(encoder, prepared.ingredients, total, on_progress)
    sources: dict[str, list[Row | tuple[Row, Row]]] = {name: [] for name in prepared.ingredients}
    for example in train:
        if row := rows.encode(example):
            sources[example.source].append(row)
    for name, pairs in prepared.preferences.items():
        sources[name] += rows.encode_pairs(pairs)
    valid, valid_pairs = [row for example in validation if (row := rows.encode(example))], rows.encode_pairs(compared)
    if not valid and not valid_pairs:
        raise InvalidError("no example of the validation part can be encoded", hint=_FITS, path="judge.max_context")
    for name, weight in weights.items():
        if weight and not sources[name]:
            message = f"{name!r} has no example to train on{listed(prepared.ingredients[name].left_out)}"
            raise InvalidError(message, hint=f"{_FITS}, or set its weight to 0", path=f"data.{name}")
    digests = {name: one.digest for name, one in prepared.ingredients.items()}
    return EncodedData(
        _batches({name: sources[name] for name in weights}, weights, config),
        valid,
        digest("judge training", list(digests.values())),
        valid_pairs,
        {
            name: {"completions": len(one.examples) + 2 * len(one.preferences), "digest": digests[name]}
            for name, one in prepared.ingredients.items()
        },
    )


def _batches(
    sources: Mapping[str, Sequence[Row | tuple[Row, Row]]], weights: Mapping[str, float], config: JudgeTrainConfig
) -> Callable[[int], Batch]:
    size = config.optim.batch_examples
    mixture, at = mix(sources, weights, config.seed), 0

    def batch(step: int) -> Batch:
        nonlocal mixture, at
        if step != at:  # a resumed training continues where it was
            mixture, at = mix(sources, weights, config.seed, start=step * size), step
        at += 1
        drawn = list(islice(mixture, size))
        return [one for one in drawn if isinstance(one, Row)], [one for one in drawn if not isinstance(one, Row)]

    return batch


@dataclass
class _Rows:
    """Encodes examples; counts those that cannot be learned."""

    encoder: Encoder
    ingredients: Mapping[str, Dataset]
    total: int
    on_progress: OnProgress
    done: int = 0
    sides: dict[tuple[str, str], Row | None] = field(default_factory=dict)

    def encode(self, example: Example) -> Row | None:
        self._count()
        return self._encode(example)

    def encode_side(self, side: Example) -> Row | None:
        """Encode one completion of a pair; it is in many pairs, and its value is not learned."""
        self._count()
        key = (side.content, side.targets[0].criterion.question)
        if key not in self.sides:
            self.sides[key] = self._encode(side)
        return self.sides[key]

    def _count(self) -> None:
        self.done += 1
        self.on_progress(self.done, self.total, "")

    def _encode(self, example: Example) -> Row | None:
        try:
            return self.encoder.row(example)
        except LeftOutError as error:
            self.ingredients[example.source].left_out[error.reason] += 1
            return None

    def encode_pairs(self, pairs: Iterable[PreferencePair]) -> list[tuple[Row, Row]]:
        sides = ([self.encode_side(one) for one in pair.sides] for pair in pairs)
        return [(chosen, rejected) for chosen, rejected in sides if chosen and rejected]
