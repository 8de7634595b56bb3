"""Examples of a file of records with labels, of any format of docs/formats.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rubricsvc.core.label import Label
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats import InputFile, Record, detect, stream
from trainer.judge_training.examples import Example, Target


def examples_of_file(
    path: str | Path, format: str | None = None, source: str | None = None, *, left_out: Counter[str] | None = None
) -> Iterator[Example]:
    """Yield an example for each labelled completion of a file, with a target for each label.

    Several people's labels are several targets, and a completion that occurs twice is two examples: `merge` makes one
    of them, also across files of one ``source``.

    Args:
        path: The file, or the folder of a format that is one.
        format: A name in ``formats.FORMATS``; detected by default.
        source: The name of the data set; by default the format's name.
        left_out: Counts the labels that are no target, by reason: ``null`` (the person could not tell), ``checked``
            (a check decides the criterion), ``overall`` (a score of the whole completion, which is no criterion).

    Raises:
        InvalidFileError: The file is invalid.
        InvalidError: The format is unknown, the labels are of a stored rubric, or the file has none.
    """
    file = InputFile(path)
    format = format or detect(file)
    left_out = Counter() if left_out is None else left_out
    empty = True
    for record in stream(file, format):
        if record.given_labels:
            hint = (
                'import it with `rubricsvc labels import` and train with kind = "labels", or give each record criteria'
            )
            message = f"{record.location}: labels of a rubric by name ({record.rubric_ref}), without its criteria"
            raise InvalidError(message, hint=hint)
        example = example_of_record(record, source or format, left_out)
        if example is not None:
            empty = False
            yield example
    if empty:
        message = f"{path}: no labels to train on{listed(left_out)}"
        raise InvalidError(message, hint="name a file of labelled completions", path=str(path))


def example_of_record(record: Record, source: str, left_out: Counter[str]) -> Example | None:
    """Return the example of a record's one completion; None if it has no label that a judge can learn."""
    if record.prompt is None or record.rubric is None or not record.completions:
        return None
    targets = targets_of(record.labels, record.rubric, left_out)
    completion = record.completions[0]
    return Example(record.prompt, completion, targets, source) if targets else None


def targets_of(labels: tuple[Label, ...], rubric: Rubric, left_out: Counter[str]) -> tuple[Target, ...]:
    """Return a target for each label that a judge can learn, and count the others by reason."""
    targets = []
    for label in labels:
        criterion = rubric.by_key.get(label.criterion)
        if criterion is None:
            left_out["overall"] += 1
        elif criterion.check is not None:
            left_out["checked"] += 1
        elif criterion.each is not None:
            left_out["by_claim"] += 1
        elif label.value is None:
            left_out["null"] += 1
        else:
            targets.append(Target(criterion, label.value, rationale=label.note or ""))
    return tuple(targets)


def listed(left_out: Counter[str]) -> str:
    """Return the counts by reason, to end an error message; empty without any."""
    counts = reasons(left_out)
    return f" (left out: {counts})" if counts else ""


def reasons(left_out: Counter[str]) -> str:
    """Return the counts by reason, without those of 0."""
    return ", ".join(f"{count} {reason}" for reason, count in left_out.items() if count)
