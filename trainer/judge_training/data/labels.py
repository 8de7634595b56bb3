"""Examples of people's labels in the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from rubricsvc.errors import InvalidError
from rubricsvc.services.training_data import TrainingData
from trainer.judge_training.data.files import example_of_record, listed
from trainer.judge_training.examples import Example


def examples_of_labels(
    data: TrainingData,
    *,
    rubric_refs: Collection[int | str] = (),
    annotators: Collection[str] = (),
    job_id: int | None = None,
    source: str = "labels",
    left_out: Counter[str] | None = None,
) -> Iterator[Example]:
    """Yield an example for each labelled completion and rubric version, with a target for each label.

    `merge` makes one example of those on one completion, and one target of several people's labels: their mean, counted
    as a contradiction where they differ.

    Args:
        data: The database.
        rubric_refs: Rubrics whose questions are asked, by id, name, name@version or digest; by default all.
        annotators: Names of people; by default all.
        job_id: Only completions of this job.
        source: The name of the data set.
        left_out: Counts the labels that are no target, by reason: those of `TrainingData.labels` and `targets_of`.

    Raises:
        NotFoundError: No such rubric or job.
        InvalidError: No labels are left.
    """
    left_out = Counter() if left_out is None else left_out
    empty = True
    for record in data.labels(rubric_refs=rubric_refs, annotators=annotators, job_id=job_id, left_out=left_out):
        example = example_of_record(record, source, left_out)
        if example is not None:
            empty = False
            yield example
    if empty:
        filters = {"rubric": rubric_refs, "annotator": annotators, "job": [job_id] if job_id is not None else []}
        given = ", ".join(f"{name} {value}" for name, values in filters.items() for value in values)
        message = f"no labels to train on{f' ({given})' if given else ''}{listed(left_out)}"
        hint = "import labels with `rubricsvc labels import`, and see them with `rubricsvc labels list`"
        raise InvalidError(message, hint=hint, path="labels")
