"""The data sets of a training: labels and verdicts of the database, files of labels, questions by construction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.rubric import Criterion
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.formats import InputFile, Record, detect, stream
from rubricsvc.services.judges import Judges
from trainer.judge_training.config import DataConfig, FileData, JudgeTrainConfig, LabelData, QuestionData, VerdictData
from trainer.judge_training.examples import Example, Target, merge

OpenStore = Callable[[], Judges]
_EXAMPLE = TypeAdapter(Example)


@dataclass
class Dataset:
    """The data of one entry of the configuration.

    Attributes:
        license: Its licence, as an SPDX identifier where there is one.
        examples: Its examples without duplicates; ``source`` is the entry's name.
        duplicates: Targets that repeated the question of another on the same completion.
        contradictions: Questions with different values, whose mean is the target.
        left_out: Labels or verdicts that are no target, by reason.
        absent: Why an optional file was left out.
    """

    license: str
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


def load_datasets(config: JudgeTrainConfig, open_store: OpenStore) -> dict[str, Dataset]:
    """Return the data sets by name.

    Args:
        config: The training.
        open_store: Returns the labels and verdicts of the database; called if a data set needs it.
    """
    return {entry.name: load_dataset(entry, open_store) for entry in config.data}


def load_dataset(entry: DataConfig, open_store: OpenStore) -> Dataset:
    """Return the data of one entry; `merge` makes one target of several people's labels."""
    loaded = Dataset(entry.license)
    found: Iterator[Example]
    if isinstance(entry, LabelData):
        rubrics = [entry.rubric] if entry.rubric else []
        records = open_store().labels(
            rubric_refs=rubrics, annotators=entry.annotators, job_id=entry.job, left_out=loaded.left_out
        )
        found = (one for record in records for one in examples_of_record(record, entry.name, loaded.left_out))
        missing = "import labels with `rubricsvc labels import`, and see them with `rubricsvc labels list`"
    elif isinstance(entry, VerdictData):
        found = _verdicts(open_store(), entry, loaded.left_out)
        missing = f"score completions with it: `rubricsvc jobs submit FILE --judge {entry.judge}`"
    else:
        paths = [entry.path] if entry.path.exists() else sorted(entry.path.parent.glob(entry.path.name))
        if not paths and entry.optional:
            loaded.absent = f"no file {entry.path.name}"
            return loaded
        found = (one for path in paths or [entry.path] for one in _examples_of_file(path, entry, loaded.left_out))
        missing = "name a file of labelled completions"
    loaded.examples, loaded.duplicates, loaded.contradictions = merge(found)
    if not loaded.examples:
        counts = f" (left out: {loaded.reasons})" if loaded.reasons else ""
        raise InvalidError(
            f"{entry.name}: no {entry.kind} to train on{counts}", hint=missing, path=f"data.{entry.name}"
        )
    return loaded


def _examples_of_file(path: Path, entry: FileData | QuestionData, left_out: Counter[str]) -> Iterator[Example]:
    if isinstance(entry, FileData):
        return labelled_examples(path, entry.format, entry.name, left_out=left_out)
    return (replace(one, source=entry.name) for one in read_questions(path))


def read_questions(path: Path) -> Iterator[Example]:
    """Yield the examples of a file that has one as JSON in each line."""
    if not path.is_file():
        raise NotFoundError(f"no file {path}", hint="make the questions first, or set optional = true", path=str(path))
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield _EXAMPLE.validate_json(line)
            except (ValidationError, UnicodeDecodeError) as error:
                problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
                message = f"{path}:{number}: no example: {problem}"
                raise InvalidError(message, hint="each line is an example as JSON", path=str(path)) from error


def question_line(example: Example) -> str:
    """Return an example as a line that `read_questions` reads."""
    return _EXAMPLE.dump_json(example, exclude_none=True).decode() + "\n"


def labelled_examples(
    path: str | Path, format: str | None = None, source: str | None = None, *, left_out: Counter[str] | None = None
) -> Iterator[Example]:
    """Yield an example for each labelled completion of a file, with a target for each label.

    Args:
        path: The file, or the folder of a format that is one.
        format: A name in ``formats.FORMATS``; detected by default.
        source: The name of the data set; by default the format's name.
        left_out: Counts the labels that are no target, by reason.
    """
    file = InputFile(path)
    format = format or detect(file)
    left_out = Counter() if left_out is None else left_out
    for record in stream(file, format):
        if record.given_labels:
            hint = 'import it with `rubricsvc labels import`, train with kind = "labels", or give each record criteria'
            message = f"{record.location}: labels of a rubric by name ({record.rubric_ref}), without its criteria"
            raise InvalidError(message, hint=hint)
        yield from examples_of_record(record, source or format, left_out)


def examples_of_record(record: Record, source: str, left_out: Counter[str]) -> Iterator[Example]:
    """Yield the example of a record's one completion, if it has labels that a judge can learn.

    The others are counted by reason: ``overall`` (a score of the whole completion, which is no criterion), ``null``
    (the person could not tell), and those of `_unasked`.
    """
    if record.prompt is None or record.rubric is None or not record.completions:
        return
    targets = []
    for label in record.labels:
        criterion = record.rubric.by_key.get(label.criterion)
        if criterion is None:
            left_out["overall"] += 1
        elif reason := _unasked(criterion):
            left_out[reason] += 1
        elif label.value is None:
            left_out["null"] += 1
        else:
            targets.append(Target(criterion, label.value))
    if targets:
        yield Example(record.prompt, record.completions[0], tuple(targets), source)


def _unasked(criterion: Criterion) -> str:
    """Return why a judge is not asked about a criterion: a check decides it, or each claim is asked about; or empty."""
    if criterion.check is not None:
        return "checked"
    return "by_claim" if criterion.each is not None else ""


def _verdicts(data: Judges, entry: VerdictData, left_out: Counter[str]) -> Iterator[Example]:
    """Yield an example for each judged completion and rubric version, with a target for each scored verdict.

    A target's value is the verdict's probability, after calibration if the judge has one, or else its value.
    """
    teacher = data.value(entry.judge)
    if teacher.mode == "comparative":
        message = f"judge {teacher.name!r} compares completions: its verdicts are true of their group only"
        raise InvalidError(message, hint="name a judge that judges completions by themselves", path="judge")
    for judged in data.verdicts(entry.judge, job_id=entry.job):
        targets = []
        for verdict in judged.verdicts:
            criterion = judged.rubric.by_key[verdict.criterion]
            if reason := _unasked(criterion):
                left_out[reason] += 1
            elif verdict.value is None:
                left_out[verdict.outcome] += 1
            else:
                value = verdict.value if verdict.best_probability is None else verdict.best_probability
                levels = verdict.levels if verdict.calibrated is None else None
                targets.append(Target(criterion, value, levels=levels))
        if targets:
            yield Example(judged.prompt, judged.completion, tuple(targets), entry.name)
