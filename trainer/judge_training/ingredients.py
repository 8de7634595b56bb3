"""The ingredients of a mixture: each entry of the configuration's ``data`` as examples or preferences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from rubricsvc.collections.python_reference import python_reference
from rubricsvc.core.fingerprint import digest
from rubricsvc.errors import InvalidError
from rubricsvc.formats import load
from rubricsvc.services.training_data import TrainingData
from trainer.judge_training.config import ConstructedData, FileData, JudgeTrainConfig, LabelData, VerdictData
from trainer.judge_training.data.answers import document_answers
from trainer.judge_training.data.arithmetic import arithmetic
from trainer.judge_training.data.checks import checks_in_words
from trainer.judge_training.data.damaged import damaged
from trainer.judge_training.data.everyday import everyday_answers, everyday_criteria
from trainer.judge_training.data.files import examples_of_file
from trainer.judge_training.data.hard_negatives import hard_negatives
from trainer.judge_training.data.labels import examples_of_labels
from trainer.judge_training.data.scales import scales
from trainer.judge_training.data.statements.documents import standard_library_docstrings
from trainer.judge_training.data.statements.make import statement_preferences, statements
from trainer.judge_training.data.swapped import swapped
from trainer.judge_training.data.verdicts import examples_of_verdicts
from trainer.judge_training.examples import Example, PreferencePair, Target, merge
from trainer.judge_training.splits import side_of
from workers.authoring.alterations.frames import invented_documents

INVENTED_DOCUMENTS = 400

MAX_ANSWERS = 1500
"""Completions that questions by construction are made of, of each kind."""

OWN_LICENSE, DOCUMENTS_LICENSE = "Apache-2.0", "PSF-2.0"
"""Of this package's texts, and of CPython's language reference and docstrings."""

_OWN_TEXTS = ("everyday", "arithmetic")
_DOCUMENTS = ("statements", "statement_preferences")
"""Kinds that are made of this package's texts only, or of CPython's documents, too; the others of all texts."""

OpenStore = Callable[[], TrainingData]


@dataclass
class Dataset:
    """The data of one ingredient.

    Attributes:
        license: Its licence, as an SPDX identifier where there is one.
        examples: Its examples without duplicates; ``source`` is the ingredient's name.
        preferences: Its preferences.
        duplicates: Targets that repeated the question of another on the same completion.
        contradictions: Questions with different values, whose mean is the target.
        left_out: Labels or verdicts that are no target, by reason.
        absent: Why an optional file was left out.
    """

    license: str
    examples: list[Example] = field(default_factory=list)
    preferences: list[PreferencePair] = field(default_factory=list)
    duplicates: int = 0
    contradictions: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    absent: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that is learned from it."""
        targets = [
            [one.prompt.digest, one.completion.text, target.criterion.question, target.value, *_reasons(target)]
            for one in self.examples
            for target in one.targets
        ]
        pairs = [
            [one.prompt.digest, one.criterion.question, one.chosen.text, one.rejected.text] for one in self.preferences
        ]
        return digest("ingredient", targets, pairs)


def _excluded_texts(config: JudgeTrainConfig) -> list[str]:
    """Return the texts of the excluded rubrics' criteria, with their references and passages."""
    records = [record for path in config.exclude for record in load(path)]
    criteria = [one for record in records if record.rubric for one in record.rubric.criteria]
    texts = [text for one in criteria for text in (one.text, one.reference, *(one.passages or ()))]
    texts += [record.prompt.reference for record in records if record.prompt]
    return [text for text in texts if text]


def _reasons(target: Target) -> list[object]:
    """Return what a teacher gave beside the value, if it gave anything."""
    reasons: list[object] = [target.levels, target.rationale, target.evidence]
    return reasons if any(reasons) else []


def load_ingredients(config: JudgeTrainConfig, open_store: OpenStore) -> dict[str, Dataset]:
    """Return the ingredients by name; those by construction are made of the texts of the others, too.

    Args:
        config: The training.
        open_store: Returns the labels and verdicts of the database; called if an ingredient needs it.

    Raises:
        InvalidError: A name occurs twice, or an ingredient is empty or invalid.
        NotFoundError: A file, a judge, a rubric or a job does not exist.
    """
    names = Counter(entry.name for entry in config.data)
    if repeated := [name for name, count in names.items() if count > 1]:
        raise InvalidError(
            f"two ingredients are named {repeated[0]!r}", hint="give each a name of its own", path="data"
        )
    loaded = {e.name: _stored(e, open_store) for e in config.data if not isinstance(e, ConstructedData)}
    if constructed := [entry for entry in config.data if isinstance(entry, ConstructedData)]:
        absolute = [one for name, one in loaded.items() if name not in config.paired]  # labels of pairs only compare
        maker = _Maker(config, absolute, _excluded_texts(config))
        loaded |= {entry.name: maker.make(entry) for entry in constructed}
    return {entry.name: loaded[entry.name] for entry in config.data}


def _stored(entry: FileData | LabelData | VerdictData, open_store: OpenStore) -> Dataset:
    loaded = Dataset(entry.license or "not stated")
    if isinstance(entry, FileData):
        paths = [entry.path] if entry.path.exists() else sorted(entry.path.parent.glob(entry.path.name))
        if not paths and entry.optional:
            loaded.absent = f"no file {entry.path.name}"
            return loaded
        found: Iterable[Example] = (
            one
            for path in paths or [entry.path]
            for one in examples_of_file(path, entry.format, entry.name, left_out=loaded.left_out)
        )
    elif isinstance(entry, LabelData):
        found = examples_of_labels(
            open_store(),
            rubric_refs=[entry.rubric] if entry.rubric else (),
            annotators=entry.annotators,
            job_id=entry.job,
            source=entry.name,
            left_out=loaded.left_out,
        )
    else:
        found = examples_of_verdicts(
            open_store(),
            entry.judge,
            job_id=entry.job,
            member=entry.member,
            source=entry.name,
            left_out=loaded.left_out,
        )
    loaded.examples, loaded.duplicates, loaded.contradictions = merge(found)
    return loaded


class _Maker:
    """Makes the ingredients by construction, of CPython's documents, everyday answers and good labelled ones."""

    def __init__(self, config: JudgeTrainConfig, stored: Sequence[Dataset], exclude: list[str]) -> None:
        labelled = [example for one in stored for example in one.examples]
        self._licenses = sorted({one.license for one in stored if one.examples})
        self._seed, self._exclude, self._split = config.seed, exclude, config.split
        seed = self._seed
        invented = invented_documents(seed, INVENTED_DOCUMENTS)
        self._documents = [*python_reference(), *standard_library_docstrings(), *invented]
        good = [one for one in labelled if all(target.value >= 0.5 for target in one.targets)]
        own = sorted(good, key=lambda one: one.content)[:MAX_ANSWERS]
        self._direct = [*everyday_answers(), *own]  # each answers its question and hardly another
        self._answers = [*self._direct, *document_answers(seed, MAX_ANSWERS)]
        self._labelled = sorted(labelled, key=lambda one: one.content)[:MAX_ANSWERS]

    def make(self, entry: ConstructedData) -> Dataset:
        loaded = Dataset(entry.license or self._license(entry.kind))
        if entry.kind == "statement_preferences":
            pairs = statement_preferences(self._documents, self._seed, entry.count, exclude=self._exclude)
            loaded.preferences = [replace(pair, source=entry.name) for pair in pairs]
            return loaded
        examples = (replace(example, source=entry.name) for example in self._examples(entry))
        loaded.examples, loaded.duplicates, loaded.contradictions = merge(examples)
        return loaded

    def _license(self, kind: str) -> str:
        """Return the licences of the texts that a kind is made of, as an SPDX expression."""
        documents = [DOCUMENTS_LICENSE] * (kind not in _OWN_TEXTS)
        labelled = [] if kind in (*_OWN_TEXTS, *_DOCUMENTS) else self._licenses
        return " AND ".join(dict.fromkeys([OWN_LICENSE, *documents, *labelled]))

    def _examples(self, entry: ConstructedData) -> Iterator[Example]:
        seed, negated = self._seed, entry.negated

        def stated(seed: int, count: int) -> Iterator[Example]:
            return statements(self._documents, seed, count, negated=negated, exclude=self._exclude)

        def checked(seed: int, count: int) -> Iterator[Example]:
            return checks_in_words(self._answers, seed, count, negated=negated)

        def on_topic(seed: int, count: int) -> Iterator[Example]:
            for pool in self._sides():  # a completion of a test prompt is no foreign one in training
                yield from swapped(pool, seed, round(count * len(pool) / len(self._direct)), negated=negated)

        def levels(seed: int, count: int) -> Iterator[Example]:
            made = [*stated(seed + 2, MAX_ANSWERS), *checked(seed + 2, MAX_ANSWERS)]
            return scales([self._without_held_out(one) for one in made], seed, count)

        def worthless(seed: int, count: int) -> Iterator[Example]:
            makers = (stated, on_topic, everyday_criteria)
            made = [one for maker in makers for one in maker(seed + 1, MAX_ANSWERS)]
            return hard_negatives([*self._labelled, *made], seed, count)

        makers: dict[str, Callable[[int, int], Iterator[Example]]] = {
            "statements": stated,
            "checks": checked,
            "swapped": on_topic,
            "damaged": lambda seed, count: damaged(self._answers, seed, count, negated=negated),
            "everyday": everyday_criteria,
            "arithmetic": lambda seed, count: arithmetic(seed, count, negated=negated),
            "hard_negatives": worthless,
            "scales": levels,
        }
        return makers[entry.kind](seed, entry.count)

    def _sides(self) -> list[list[Example]]:
        """Return the direct answers of each part of the split, where they answer two questions or more."""
        sides: dict[str, list[Example]] = defaultdict(list)
        for one in self._direct:
            side = side_of(one.split_group, test=self._split.test, validation=self._split.validation, seed=self._seed)
            sides[side].append(one)
        return [pool for pool in sides.values() if len({one.split_group for one in pool}) > 1]

    def _without_held_out(self, example: Example) -> Example:
        """Return the example without criteria of kinds that are held out: they would be quoted in others."""
        kept = tuple(target for target in example.targets if target.family_name not in self._split.held_out)
        return replace(example, targets=kept)
