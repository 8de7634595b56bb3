"""Import files into the database."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rubricsvc import formats
from rubricsvc.core.rubric import check_min_coverage
from rubricsvc.core.states import APPROVED, RubricState
from rubricsvc.core.strict_json import MAX_VALUES
from rubricsvc.errors import ConflictError, InvalidError, NotApprovedError, NotFoundError
from rubricsvc.formats import lines
from rubricsvc.formats.errors import FileErrors, file_error
from rubricsvc.formats.input_file import InputFile
from rubricsvc.services import import_batches
from rubricsvc.services.editing import Edit, add_version
from rubricsvc.store import completions, labels, prompts, rubrics
from rubricsvc.store.base import added, batched

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.label import Label
    from rubricsvc.core.prompt import Completion, Prompt
    from rubricsvc.core.rubric import Rubric
    from rubricsvc.formats import Record, RubricCheck
    from rubricsvc.formats.errors import FieldError, Location
    from rubricsvc.formats.lines import CompletionLine, LabelLine
    from rubricsvc.formats.record import GivenLabel

MAX_CONTENT_RECORDS = 20_000
"""Records, or lines of JSONL, of a file that was sent to the service.

While they are imported, nothing else can be written to SQLite.
"""
MAX_CONTENT_ERRORS = 10_000
"""Errors of such a file, after which it is not read any further."""

RECORDS, COMPLETIONS, LABELS = "records", "completions", "labels"
_PLAIN_EDIT = Edit()


class ImportedCompletion(NamedTuple):
    """A completion of the file, with its id in the database."""

    id: int
    prompt_id: int
    policy: str
    rubric_id: int | None
    """The stored rubric that its record names."""


@dataclass
class ImportResult:
    """What a file added to the database. The ids are in the file's order, and include what existed before."""

    file: str
    new: dict[str, int] = field(default_factory=dict)
    """Rows that were added, by noun."""
    existing: dict[str, int] = field(default_factory=dict)
    """Rows that existed before, by noun."""
    rubric_ids: list[int] = field(default_factory=list)
    rubrics: list[str] = field(default_factory=list)
    """The rubrics of the file, as ``name@version``."""
    new_rubrics: list[str] = field(default_factory=list)
    """Rubrics that were added, as ``name@version``."""
    completions: list[ImportedCompletion] = field(default_factory=list)
    label_ids: list[int] = field(default_factory=list)
    skipped: list[FieldError] = field(default_factory=list)
    """Errors of the records that were skipped; the first ``formats.errors.MAX_KEPT``."""
    skipped_count: int = 0
    """All errors of the records that were skipped."""
    skipped_records: int = 0
    omitted_labels: int = 0
    """Labels that were not imported because their rubric or completion was not."""
    superseded: dict[str, int] = field(default_factory=dict)
    """Rubrics that existed as an earlier version (``name@version``), with the newest approved version of the name."""
    not_approved: dict[str, RubricState] = field(default_factory=dict)
    """Rubrics (``name@version``) that jobs do not use yet, or any more, with their states."""
    conflict: ConflictError | None = None
    """The rubric's parent has been edited by somebody else: commit, which keeps the rubric as a draft, and raise it."""


def import_file(
    session: Session,
    file: InputFile,
    format: str | None = None,
    *,
    mapping: Path | None = None,
    kinds: Container[str] = (RECORDS, COMPLETIONS, LABELS),
    with_rubrics: bool = True,
    rubric_name: str | None = None,
    min_coverage: float | None = None,
    replace_labels: bool = False,
    skip_invalid: bool = False,
    check: RubricCheck | None = None,
    edit: Edit = _PLAIN_EDIT,
) -> ImportResult:
    """Import a file into the session's transaction, whole or not at all. Importing it again changes nothing.

    Args:
        session: the session to write in.
        file: the file.
        format: a name in ``formats.FORMATS``, ``completions`` or ``labels``; detected by default.
        mapping: a mapping file, instead of a format.
        kinds: what may be detected: records of any format, completions or labels without records.
        with_rubrics: import the rubrics and labels of records, not only prompts and completions.
        rubric_name: name of the rubric, for a file with one.
        min_coverage: set it in all rubrics of the file.
        replace_labels: overwrite earlier labels of the same people.
        skip_invalid: skip invalid records instead of raising.
        check: checks each rubric, see `formats.stream`.
        edit: who adds the rubrics, and how; a parent is for a file with one rubric.

    Raises:
        InvalidFileError: the file is invalid, or refers to prompts, completions or rubrics that do not exist.
        InvalidError: the format is unknown, ``rubric_name`` or a parent is given for several rubrics, or
            ``min_coverage`` is not in [0, 1].
        ConflictError: a person's label in a record differs from an earlier one, and ``replace_labels`` is not set.
    """
    check_min_coverage(min_coverage)
    importer = _Importer(session, file, skip_invalid, replace_labels, min_coverage=min_coverage, edit=edit)
    kind = format if format in (COMPLETIONS, LABELS) else RECORDS
    if format is None and mapping is None and not file.is_folder:
        first = file.first()
        if lines.is_label(first):
            kind = LABELS if LABELS in kinds else RECORDS
        elif COMPLETIONS in kinds and lines.is_completion(first):
            kind = COMPLETIONS
    if kind == LABELS:
        importer.add_labels()
    elif kind == COMPLETIONS:
        importer.add_completions(importer.lines())
    else:
        options: dict[str, Any] = {"skip_invalid": skip_invalid, "check": check if with_rubrics else None}
        records = formats.stream(file, format, mapping=mapping, **options)
        importer.add_completions(importer.records(records, with_rubrics, rubric_name))
    return importer.finish(kind)


def import_content(session: Session, content: bytes, *, name: str, **options: Any) -> ImportResult:
    """Import a file called ``name`` with this content, within limits; for ``options`` see `import_file`."""
    errors = FileErrors(limit=MAX_CONTENT_ERRORS)
    file = InputFile(
        name,
        stream=BytesIO(content),
        errors=errors,
        max_values=MAX_VALUES,
        max_records=MAX_CONTENT_RECORDS,
    )
    return import_file(session, file, **options)


def import_prompts(session: Session, file: InputFile, format: str | None = None) -> list[int]:
    """Import the prompts of a file of records, and nothing else of it; return their ids in the file's order.

    Raises:
        InvalidFileError: the file is invalid, or has no prompt.
    """
    records = formats.stream(file, format)
    ids = [prompts.add(session, record.prompt, record.id).id for record in records if record.prompt is not None]
    if not ids:
        raise file_error(file.location, "no_records", "has no prompts")
    return list(dict.fromkeys(ids))


class _Importer:
    """The import of one file."""

    def __init__(
        self,
        session: Session,
        file: InputFile,
        skip_invalid: bool,
        replace_labels: bool,
        *,
        min_coverage: float | None,
        edit: Edit,
    ) -> None:
        self.session = session
        self.file = file
        self.skip_invalid = skip_invalid
        self.replace_labels = replace_labels
        self.min_coverage = min_coverage
        self.edit = edit
        self.result = ImportResult(file.name)
        self._before = added(session).copy()
        self._batch = import_batches.Batch()
        self._used_prompts: set[int] = set()
        self._prompt_refs: dict[int | str, int] = {}
        self._completion_refs: dict[tuple[int | str, str], list[tuple[int, int]]] = {}
        self._labels: list[tuple[int, int, Label]] = []  # (index of the completion, rubric id, label)
        self._hints: list[str] = []  # at most one, in place of the usual one
        self._named_rubrics: dict[int, int] = {}  # rubric id by index of the completion

    def records(
        self, records: Iterable[Record], with_rubrics: bool, rubric_name: str | None
    ) -> Iterator[tuple[int, Completion]]:
        """Add prompts and rubrics; yield the completions with their prompt ids."""
        count = 0
        plain = with_rubrics and rubric_name is None and self.min_coverage is None
        for given in self._in_batches(records, with_rubrics=plain):
            record, rubric_id = self._with_named_rubric(given) if with_rubrics else (given, None)
            if record is None:
                continue
            prompt_id = self._add_prompt(record.prompt, record.id) if record.prompt else None
            if with_rubrics and record.rubric is not None:
                rubric_id = self._add_rubric(record.rubric, rubric_name, record.name, prompt_id)
            if rubric_id is None or prompt_id is None or not record.completions:
                self.result.omitted_labels += len(record.labels) + len(record.given_labels)
            else:
                self._labels += ((count, rubric_id, label) for label in record.labels)
            if prompt_id is not None:
                yield from ((prompt_id, completion) for completion in record.completions)
                if record.rubric_ref is not None and rubric_id is not None:
                    self._named_rubrics |= dict.fromkeys(range(count, count + len(record.completions)), rubric_id)
                count += len(record.completions)

    def _in_batches(self, records: Iterable[Record], *, with_rubrics: bool) -> Iterator[Record]:
        """Yield the records, after adding the new prompts and, ``with_rubrics``, rubrics of a batch."""
        for batch in batched(import_batches.with_stored_prompt(self.session, one) for one in records):
            self._batch = import_batches.add_prompts(self.session, batch)
            if with_rubrics:
                import_batches.add_rubrics(self.session, batch, self._batch, self.edit)
            yield from batch

    def lines(self) -> Iterator[tuple[int, Completion]]:
        """Yield the completions of a file of completions, with their prompt ids."""
        for line, location in self.file.parse(lines.read_completion):
            prompt_id = self._prompt_of(line, location)
            if prompt_id is not None and (self.skip_invalid or not self.file.errors.count):
                yield prompt_id, line.completion

    def add_completions(self, pairs: Iterator[tuple[int, Completion]]) -> None:
        """Add completions, and then the labels that `records` has collected."""
        owners: list[tuple[int, str]] = []

        def remember() -> Iterator[tuple[int, Completion]]:
            for prompt_id, completion in pairs:
                owners.append((prompt_id, completion.policy))
                yield prompt_id, completion

        ids = completions.add_many(self.session, remember())
        self.result.completions = [
            ImportedCompletion(id_, *owners[index], self._named_rubrics.get(index)) for index, id_ in enumerate(ids)
        ]
        rows = ((ids[index], rubric_id, label) for index, rubric_id, label in self._labels)
        self.result.label_ids = labels.add_many(self.session, rows, replace=self.replace_labels)

    def add_labels(self) -> None:
        """Add the labels of a file of labels."""
        known: dict[int | str, tuple[int, Rubric]] = {}
        for line, location in self.file.parse(lines.read_label):
            try:
                if line.rubric not in known:
                    row = rubrics.get(self.session, line.rubric)
                    known[line.rubric] = row.id, row.value
                rubric_id, rubric = known[line.rubric]
                if line.rubric_digest not in (None, rubric.digest):
                    message = f"rubric {line.rubric!r} of this database has other content than the labelled one"
                    raise InvalidError(f"{message}: name it by its digest, as rubric", path="rubric_digest")
                label = (self._completion_of(line), rubric_id, _resolve(line, rubric))
                self.result.label_ids += labels.add_many(self.session, [label], replace=self.replace_labels)
            except (NotFoundError, InvalidError, ConflictError) as error:
                path = (error.path,) if error.path else ()
                if isinstance(error, ConflictError):
                    self._hints = [error.hint]
                self.file.errors.add(location.error(error.code, str(error), path))

    def finish(self, kind: str) -> ImportResult:
        """Return the result, with what is new and what existed.

        Raises:
            InvalidFileError: there are errors and ``skip_invalid`` is not set, or nothing was valid.
        """
        result = self.result
        if not self.skip_invalid:
            self.file.errors.raise_if_any(*self._hints)
        errors = self.file.errors
        result.skipped, result.skipped_count, result.skipped_records = errors.errors, errors.count, errors.invalid
        if (kind == COMPLETIONS and not result.completions) or (kind == LABELS and not result.label_ids):
            self.file.errors.raise_if_any("correct them: no line is valid")
            raise file_error(self.file.location, "no_records", f"has no valid {kind}")
        used = {
            "prompts": {*self._used_prompts, *self._prompt_refs.values()},
            "rubrics": {*result.rubric_ids},
            "completions": {completion.id for completion in result.completions},
            "labels": {*result.label_ids},
        }
        for noun, ids in used.items():
            if ids or noun != "labels":
                result.new[noun] = added(self.session)[noun] - self._before[noun]
                result.existing[noun] = len(ids) - result.new[noun]
        return result

    def _with_named_rubric(self, record: Record) -> tuple[Record | None, int | None]:
        """Return the record with labels on the stored rubric that it names, and the id; None if they do not fit."""
        if record.rubric_ref is None:
            return record, None
        try:
            row = rubrics.get(self.session, record.rubric_ref)
            owner = prompts.get(self.session, row.prompt_id).digest if row.prompt_id is not None else None
            if record.prompt is not None and owner not in (None, record.prompt.digest):
                raise InvalidError(f"rubric {record.rubric_ref!r} was written for another prompt", path="rubric")
            labels = tuple(_resolve(one, row.value) for one in record.given_labels)
        except (NotFoundError, NotApprovedError, InvalidError) as error:
            self.file.errors.add(record.location.error(error.code, str(error), (error.path or "rubric",)))
            return None, None
        return replace(record, labels=labels, given_labels=()), row.id

    def _completion_of(self, line: LabelLine) -> int:
        """Return the id of the labelled completion.

        Raises:
            NotFoundError: there is none with these digests, or these ids of the file.
            InvalidError: there are several.
        """
        if line.prompt_digest is not None and line.completion_digest is not None:
            id_ = completions.id_of_digests(self.session, line.prompt_digest, line.completion_digest)
            if id_ is None:
                message = "no completion with these digests of prompt and completion in this database; import it first"
                raise NotFoundError(message, path="completion_digest")
            return id_
        if isinstance(line.completion_id, int):
            return line.completion_id
        ref = line.prompt_id or "", line.completion_id
        if ref not in self._completion_refs:
            prompt_ids = prompts.ids_in_files(self.session, ref[0])
            if not prompt_ids:
                raise NotFoundError(f"no prompt {ref[0]!r} in the database", path="prompt_id")
            self._completion_refs[ref] = completions.ids_in_files(self.session, prompt_ids, ref[1])
        found = self._completion_refs[ref]
        what = f"completion {ref[1]!r} of prompt {ref[0]!r}"
        if not found:
            raise NotFoundError(f"no {what} in the database", path="completion_id")
        if len(found) > 1:
            each = ", ".join(f"{id_} (of prompt {prompt_id})" for id_, prompt_id in found[:8])
            message = f"{len(found)} are {what}: name one by its id in the database: {each}"
            raise InvalidError(message, path="completion_id")
        return found[0][0]

    def _prompt_of(self, line: CompletionLine, location: Location) -> int | None:
        if line.prompt is not None:
            return self._add_prompt(line.prompt, None)
        ref = line.prompt_id or ""
        if ref not in self._prompt_refs:
            try:
                self._prompt_refs[ref] = prompts.get_as_in_file(self.session, ref).id
            except NotFoundError:
                message = f"no prompt {ref!r} in the database"
                self.file.errors.add(location.error("not_found", message, ("prompt_id",)))
                return None
        return self._prompt_refs[ref]

    def _add_prompt(self, prompt: Prompt, external_id: str | None) -> int:
        id_ = self._batch.prompt_id(self.session, prompt, external_id)
        self._used_prompts.add(id_)
        return id_

    def _add_rubric(self, rubric: Rubric, given_name: str | None, own_name: str, prompt_id: int | None) -> int:
        for option, value in (("name", given_name), ("parent", self.edit.parent)):
            if value is not None and self.result.rubric_ids:
                raise InvalidError(f"the file has several rubrics, and --{option} is for a file with one", path=option)
        if self.min_coverage is not None:
            rubric = rubric.model_copy(update={"min_coverage": self.min_coverage})
        name = given_name or own_name
        if (id_ := self._batch.rubric_ids.pop((name, rubric.digest), None)) is not None:
            self.result.new_rubrics.append(f"{name}@1")
            self.result.rubrics.append(self.result.new_rubrics[-1])
            self.result.rubric_ids.append(id_)
            return id_
        new = add_version(self.session, rubric, self.edit, name=name, prompt_id=prompt_id)
        row, self.result.conflict = new.row, new.conflict
        if new.is_new:
            self.result.new_rubrics.append(row.ref)
        self.result.rubrics.append(row.ref)
        self.result.rubric_ids.append(row.id)
        if row.state != APPROVED:
            self.result.not_approved[row.ref] = row.state
        elif not new.is_new and (newest := rubrics.get(self.session, row.name).version) > row.version:
            self.result.superseded[row.ref] = newest
        return row.id


def _resolve(given: GivenLabel, rubric: Rubric) -> Label:
    """Return the label under the rubric.

    Raises:
        InvalidError: the rubric has no such criterion, or its scale no such level.
    """
    key = given.label.criterion
    labels.check_criterion(rubric, key)
    return given.resolve(rubric.by_key.get(key))
