"""Examples of judge training, their split into parts, and where they come from.

An example is a completion with the verdicts that a judge should give on it. It comes from labels and verdicts of the
database, from files of labels, or from questions whose answers are known by construction.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from rubricsvc.client import Client
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import JudgedCompletion
from rubricsvc.core.passport import DataSource
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion
from rubricsvc.core.validation_messages import error_text
from rubricsvc.core.verdict import Label, Verdict
from rubricsvc.errors import InvalidError, NotFoundError, cut
from rubricsvc.formats import InputFile, detect, stream
from rubricsvc.services.local import LocalService
from trainer.judge_training.config import DataConfig, FileData, JudgeTrainConfig, LabelData, SplitConfig, VerdictData
from workers.reasoning import as_judged

OpenService = Callable[[], LocalService | Client]
PAGE = 200
"""Completions that are read in one request."""
Part = Literal["train", "validation", "test"]
MIN_LABELS: dict[Part, int] = {"train": 100, "validation": 20, "test": 20}
"""Labels that a part needs."""
MIN_EACH_CLASS = 10
"""Labels of each class that a part needs."""


@dataclass(frozen=True)
class Target:
    """The verdict that a judge should give on one criterion, as the judge is asked about it.

    Attributes:
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
        source: Name of the data set, for weights and tables.
        group: What must not be in two parts of a split, by default the prompt's text and documents.
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
Parts = dict[Part, list[Example]]
"""Examples to learn from, to stop by, and to report on."""


def questions(examples: Iterable[Example]) -> list[Question]:
    """Return every target with its example."""
    return [(example, target) for example in examples for target in example.targets]


def sample(examples: Sequence[Example], size: int) -> list[Example]:
    """Return about ``size`` examples: the same share of each source, and at least one, chosen by their content."""
    by_source: dict[str, list[Example]] = {}
    for example in sorted(examples, key=lambda one: one.content):
        by_source.setdefault(example.source, []).append(example)
    share = min(1.0, size / max(1, len(examples)))
    return [example for each in by_source.values() for example in each[: max(1, round(share * len(each)))]]


@dataclass
class Dataset:
    """The data of one entry of the configuration.

    Attributes:
        examples: One example for each prompt, completion and source, with one target for each question.
        duplicates: Targets that repeated the question of another on the same completion.
        contradictions: Questions on a completion with different values, whose mean is the soft target.
        left_out: Labels or verdicts that are no target, by reason.
        absent: Why an optional file was left out.
    """

    examples: list[Example] = field(default_factory=list)
    duplicates: int = 0
    contradictions: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    absent: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that is learned from it."""
        targets = [
            [one.prompt.digest, one.completion.text, target.criterion.question, target.value, target.levels]
            for one in self.examples
            for target in one.targets
        ]
        return digest("dataset", targets)

    @property
    def reasons(self) -> str:
        """The labels that were left out, by reason; empty without any."""
        return ", ".join(f"{count} {reason}" for reason, count in self.left_out.items() if count)


def merge(examples: Iterable[Example]) -> Dataset:
    """Merge examples on the same completion, and targets on the same question; different values become their mean."""
    by_content: dict[tuple[str, str], tuple[Example, dict[str, list[Target]]]] = {}
    for example in examples:
        _, asked = by_content.setdefault((example.source, example.content), (example, {}))
        for target in example.targets:
            asked.setdefault(target.criterion.question, []).append(target)
    merged = Dataset()
    for example, asked in by_content.values():
        kept = []
        for same in asked.values():
            values = [target.value for target in same]
            merged.contradictions += len(set(values)) > 1
            merged.duplicates += len(same) - 1
            levels = same[0].levels if all(one.levels == same[0].levels for one in same) else None
            kept.append(replace(same[0], value=sum(values) / len(values), levels=levels))
        merged.examples.append(replace(example, targets=tuple(kept)))
    return merged


def side_of(name: str, config: SplitConfig, seed: int) -> Part:
    """Return the part of a group: it depends on its name, so that examples can be added without moving others."""
    place = int(digest("split", seed, name)[:13], 16) / 16**13
    if place < config.test:
        return "test"
    return "validation" if place < config.test + config.validation else "train"


def split(examples: Iterable[Example], config: SplitConfig, seed: int = 0) -> tuple[Parts, int]:
    """Divide examples by their groups into train, validation and test; return these, and the targets in no part.

    The same prompt with the same completion is in one part only, also where its groups differ; then the test keeps it,
    or else the validation part. Targets of held-out families are in the test only.
    """
    if config.test + config.validation >= 1:
        message = f"test {config.test:g} and validation {config.validation:g} leave no examples to train on"
        raise InvalidError(message, hint="choose shares with a sum below 1", path="split.test")
    examples, result = list(examples), {name: list[Example]() for name in MIN_LABELS}
    known = {target.family_name for _, target in questions(examples)}
    if unknown := sorted({*config.held_out} - known):
        hint = f"known are {cut(', '.join(sorted(cut(repr(name), 60) for name in known)), 600)}"
        raise InvalidError(f"unknown criterion {unknown[0]!r}", hint=hint, path="split.held_out")
    by_part: dict[Part, list[Example]] = defaultdict(list)
    for example in examples:
        by_part[side_of(example.split_group, config, seed)].append(example)
    taken: set[str] = set()
    for name in ("test", "validation", "train"):
        held_out = config.held_out if name != "test" else ()
        part = [
            replace(one, targets=tuple(target for target in one.targets if target.family_name not in held_out))
            for one in by_part[name]
        ]
        texts = [(one.prompt.text, one.completion.full_text) for one in part]  # without regard to case and line breaks
        keys = [digest("shown", *(" ".join(text.casefold().split()) for text in each)) for each in texts]
        result[name] += [one for one, key in zip(part, keys, strict=True) if one.targets and key not in taken]
        taken.update(key for one, key in zip(part, keys, strict=True) if one.targets)
    for name, part in result.items():
        met, total = sum(target.value >= 0.5 for _, target in questions(part)), len(questions(part))
        if total < MIN_LABELS[name] or min(met, total - met) < MIN_EACH_CLASS:
            needed = f"at least {MIN_LABELS[name]} are needed, {MIN_EACH_CLASS} of each class"
            change = "lower split.test or split.validation" if name == "train" else f"raise split.{name}"
            message = f"{name} has {total} labels, {met} met and {total - met} unmet; {needed}"
            raise InvalidError(message, hint=f"add labels, or {change}", path="split")
    return result, len(questions(examples)) - sum(len(questions(part)) for part in result.values())


EXAMPLE = TypeAdapter(Example)
"""An example as JSON: a line of a file of questions."""


def load_dataset(entry: DataConfig, open_service: OpenService) -> Dataset:
    """Return the data of one entry; `merge` makes one target of several people's labels.

    ``open_service`` returns the labels and verdicts of the database; it is called if the data are there.
    """
    left_out = Counter[str]()
    found: Iterable[Example]
    if isinstance(entry, LabelData):
        listed = partial(
            open_service().labels.completions, rubric=entry.rubric, annotators=entry.annotators, job_id=entry.job
        )
        records = Client.iterate(listed, limit=PAGE)
        found = _examples(records, entry.name, left_out)
        missing = "import labels with `rubricsvc labels import`, and see them with `rubricsvc labels export`"
    elif isinstance(entry, VerdictData):
        if (teacher := (judges := open_service().judges).get(entry.judge).value).mode == "comparative":
            message = f"judge {teacher.name!r} compares completions: its verdicts are true of their group only"
            raise InvalidError(message, hint="name a judge that judges completions by themselves", path="judge")
        records = Client.iterate(judges.completions, entry.judge, job_id=entry.job, limit=PAGE)
        found = _examples(records, entry.name, left_out)
        missing = f"score completions with it: `rubricsvc jobs submit FILE --judge {entry.judge}`"
    else:
        paths = [entry.path] if entry.path.exists() else sorted(entry.path.parent.glob(entry.path.name))
        if not paths and entry.optional:
            return Dataset(absent=f"no file {entry.path.name}")
        files = [
            labelled_examples(path, entry.format, entry.name, left_out=left_out)
            if isinstance(entry, FileData)
            else read_questions(path, entry.name)
            for path in paths or [entry.path]
        ]
        found = chain.from_iterable(files)
        missing = "name a file of labelled completions"
    loaded = replace(merge(found), left_out=left_out)
    if not loaded.examples:
        counts = f" (left out: {loaded.reasons})" if loaded.reasons else ""
        raise InvalidError(
            f"{entry.name}: no {entry.kind} to train on{counts}", hint=missing, path=f"data.{entry.name}"
        )
    return loaded


@dataclass(frozen=True)
class Prepared:
    """The data of a training, and its examples divided into train, validation and test; some targets are in none."""

    datasets: Mapping[str, Dataset]
    parts: Parts
    left_out: int

    def sources(self, config: JudgeTrainConfig) -> list[DataSource]:
        """Return what each of the data has."""
        total = sum(entry.weight for entry in config.data if not self.datasets[entry.name].absent)
        return [
            DataSource(
                name=entry.name,
                digest=one.digest,
                license=entry.license,
                completions=len(one.examples),
                questions=len(questions(one.examples)),
                left_out=dict(one.left_out),
                duplicates=one.duplicates,
                contradictions=one.contradictions,
                absent=one.absent,
                share=0.0 if one.absent or not total else entry.weight / total,
            )
            for entry in config.data
            for one in [self.datasets[entry.name]]
        ]


def load_data(config: JudgeTrainConfig, open_service: OpenService) -> Prepared:
    """Return the data of a training, divided; ``open_service`` is called if an entry is of the database."""
    datasets = {entry.name: load_dataset(entry, open_service) for entry in config.data}
    examples = [example for one in datasets.values() for example in one.examples]
    return Prepared(datasets, *split(examples, config.split, config.seed))


def read_questions(path: Path, source: str | None = None) -> Iterator[Example]:
    """Yield the examples of a file that has one as JSON in each line, by default with the source that it names."""
    if not path.is_file():
        raise NotFoundError(f"no file {path}", hint="make the questions first, or set optional = true", path=str(path))
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                example = EXAMPLE.validate_json(line)
            except ValidationError as error:
                message = f"{path}:{number}: no example: {error_text(error)}"
                raise InvalidError(message, hint="each line is an example as JSON", path=str(path)) from error
            yield replace(example, source=example.source if source is None else source)


def labelled_examples(
    path: str | Path, format: str | None = None, source: str | None = None, *, left_out: Counter[str] | None = None
) -> Iterator[Example]:
    """Yield an example for each labelled completion of a file, with a target for each label.

    The format is by default detected, and the data set (``source``) named after it. ``left_out`` counts the labels that
    are no target, by reason.
    """
    file = InputFile(path)
    format, counts = format or detect(file), Counter[str]() if left_out is None else left_out
    for one in stream(file, format):
        if one.given_labels:
            hint = 'import it with `rubricsvc labels import`, train with kind = "labels", or give each record criteria'
            message = f"{one.location.file}:{one.location.line}: labels of rubric {one.rubric_ref!r} without criteria"
            raise InvalidError(message, hint=hint)
        if one.prompt and one.rubric and one.completions:
            judged = JudgedCompletion(
                id=0, prompt=one.prompt, completion=one.completions[0], rubric=one.rubric, labels=one.labels
            )
            yield from _examples([judged], source or format, counts)


def _examples(found: Iterable[JudgedCompletion], source: str, left_out: Counter[str]) -> Iterator[Example]:
    """Yield an example for each completion that has labels or verdicts to learn.

    A verdict's target is its probability, after calibration if the judge has one, or else its value. The others are
    counted by reason: ``overall`` (a score of the whole completion, which is no criterion), ``null`` (the person could
    not tell) or the verdict's outcome, ``checked`` (a check decides it) and ``by_claim`` (each claim is asked about).
    """
    for one in found:
        targets = []
        left_out.update(one.left_out)
        judged: tuple[Label | Verdict, ...] = (*one.labels, *one.verdicts)
        for given in judged:
            value, levels, reason = given.value, None, "null"
            if isinstance(given, Verdict):
                levels, reason = given.levels if given.calibrated is None else None, given.outcome
                if value is not None and given.best_probability is not None:
                    value = given.best_probability
            criterion = one.rubric.by_key.get(given.criterion)
            if criterion is None:
                left_out["overall"] += 1
            elif criterion.check is not None or criterion.each is not None:
                left_out["checked" if criterion.check is not None else "by_claim"] += 1
            elif value is None:
                left_out[reason] += 1
            else:
                targets.append(Target(criterion, value, levels=levels))
        if targets:
            yield Example(one.prompt, as_judged(one.completion, one.rubric.reasoning_marks), tuple(targets), source)
