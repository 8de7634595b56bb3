"""`Imports`: files of rubrics, prompts, completions and labels, added whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.orm import Session

from rubricsvc import formats
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric, check_min_coverage
from rubricsvc.core.states import APPROVED, IMPORTED, RubricState
from rubricsvc.core.strict_json import MAX_VALUES
from rubricsvc.errors import ConflictError, InvalidError, NotApprovedError, NotFoundError
from rubricsvc.formats import InputFile, Record, RubricCheck, documents
from rubricsvc.formats.documents import CompletionLine, LabelLine
from rubricsvc.formats.record import FieldError, FileErrors, GivenLabel, Location, file_error
from rubricsvc.queries import ImportQuery
from rubricsvc.schemas import ImportedFile
from rubricsvc.schemas.methods import takes
from rubricsvc.services.editing import Edit, add_version
from rubricsvc.store import completions, labels, prompts, rubrics
from rubricsvc.store.session import Database, added, batched

MAX_CONTENT_RECORDS = 20_000
"""Records, or lines of JSONL, of a file that was sent to the service: meanwhile SQLite takes no other writes."""
MAX_CONTENT_ERRORS = 10_000
"""Errors of such a file, after which it is not read any further."""
RECORDS, COMPLETIONS, LABELS = "records", "completions", "labels"
_PLAIN_EDIT = Edit()


class ImportedCompletion(NamedTuple):
    """A completion of the file, with its id in the database, and the stored rubric that its record names."""

    id: int
    prompt_id: int
    policy: str
    rubric_id: int | None


@dataclass
class ImportResult:
    """What a file added to the database. The ids are in the file's order, and include what existed before.

    Rubrics are named ``name@version``. ``omitted_labels`` are those whose rubric or completion was not imported,
    ``superseded`` rubrics that existed as an earlier version, with the newest one, ``not_approved`` those that jobs do
    not use, with their states. With a ``conflict`` the rubric's parent has been edited by somebody else: commit, which
    keeps the rubric as a draft, and raise it.
    """

    file: str
    new: dict[str, int] = field(default_factory=dict)
    existing: dict[str, int] = field(default_factory=dict)
    rubric_ids: list[int] = field(default_factory=list)
    rubrics: list[str] = field(default_factory=list)
    new_rubrics: list[str] = field(default_factory=list)
    completions: list[ImportedCompletion] = field(default_factory=list)
    label_ids: list[int] = field(default_factory=list)
    skipped: list[FieldError] = field(default_factory=list)
    skipped_count: int = 0
    skipped_records: int = 0
    notes: list[FieldError] = field(default_factory=list)
    omitted_labels: int = 0
    superseded: dict[str, int] = field(default_factory=dict)
    not_approved: dict[str, RubricState] = field(default_factory=dict)
    conflict: ConflictError | None = None

    @property
    def completion_ids(self) -> list[int]:
        """Ids of the completions."""
        return [completion.id for completion in self.completions]


def import_file(
    session: Session,
    file: InputFile,
    format: str | None = None,
    *,
    mapping: Path | None = None,
    kinds: Collection[str] = (RECORDS, COMPLETIONS, LABELS),
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
    """
    check_min_coverage(min_coverage)
    importer = _Importer(session, file, skip_invalid, replace_labels, min_coverage, rubric_name, edit)
    kind = format if format in (COMPLETIONS, LABELS) else RECORDS
    if format is None and mapping is None and not file.is_folder:
        found = documents.kind_of(file.first())
        kind = found if found is not None and found in kinds else RECORDS
    if kind == LABELS:
        importer.add_labels()
    elif kind == COMPLETIONS:
        importer.add_completions(importer.lines())
    else:
        checked = check if with_rubrics else None
        records = formats.stream(file, format, mapping=mapping, skip_invalid=skip_invalid, check=checked)
        importer.add_completions(importer.records(records, with_rubrics))
    return importer.finish(kind)


class Imports:
    """Imports of files.

    Args:
        db: The database.
        edit: Who adds rubrics, and which of them are drafts.
        check: Checks each rubric.
    """

    def __init__(self, db: Database, edit: Edit, check: RubricCheck) -> None:
        self.db, self.edit, self.check = db, edit, check

    @takes(ImportQuery)
    def create(self, path: str | Path, query: ImportQuery) -> ImportedFile:
        """Import a file of any format of docs/formats.md, whole or not at all. Importing it again changes nothing."""
        return self.read(InputFile(path), query)

    def content(self, content: bytes, query: ImportQuery) -> ImportedFile:
        """Import a file with this content, within limits."""
        errors = FileErrors(limit=MAX_CONTENT_ERRORS)
        file = InputFile(
            query.name,
            stream=BytesIO(content),
            errors=errors,
            max_values=MAX_VALUES,
            max_records=MAX_CONTENT_RECORDS,
        )
        return self.read(file, query)

    def read(
        self,
        file: InputFile,
        query: ImportQuery,
        *,
        mapping: Path | None = None,
        kinds: Collection[str] = (RECORDS, COMPLETIONS, LABELS),
        with_rubrics: bool = True,
    ) -> ImportedFile:
        """Import an open file; see `import_file`.

        Raises:
            ConflictError: The parent has been edited already; the rubric is kept as a draft.
            InvalidError: Only labels may be in the file, and there are none that can be imported.
        """
        with self.db.write() as session:
            result = import_file(
                session,
                file,
                query.format,
                mapping=mapping,
                kinds=kinds,
                with_rubrics=with_rubrics,
                check=self.check,
                edit=replace(self.edit, parent=query.parent, force=query.force, draft=query.draft),
                **query.model_dump(include={"rubric_name", "min_coverage", "replace_labels", "skip_invalid"}),
            )
            if LABELS in kinds and COMPLETIONS not in kinds and not result.label_ids:
                hint = "docs/formats.md describes labels; import files without labels with `rubricsvc rubrics import`"
                what = "labels, but not the completions that they belong to" if result.omitted_labels else "no labels"
                raise InvalidError(f"{result.file} has {what}", hint=hint)
        if result.conflict is not None:
            raise result.conflict
        return ImportedFile.of(result)


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


@dataclass
class _Importer:
    """The import of one file."""

    session: Session
    file: InputFile
    skip_invalid: bool
    replace_labels: bool
    min_coverage: float | None
    rubric_name: str | None
    edit: Edit

    def __post_init__(self) -> None:
        self.result = ImportResult(self.file.name)
        self._before = added(self.session).copy()
        self._prompt_ids: dict[prompts.PromptKey, int] = {}  # of the batch, as the rubrics are
        self._rubric_ids: dict[tuple[str, str], int] = {}
        self._used_prompts: set[int] = set()
        self._prompt_refs: dict[int | str, int] = {}
        self._completion_refs: dict[tuple[int | str, str], list[tuple[int, int]]] = {}
        self._labels: list[tuple[int, int, Label]] = []  # (index of the completion, rubric id, label)
        self._hints: list[str] = []  # at most one, in place of the usual one
        self._named_rubrics: dict[int, int] = {}  # rubric id by index of the completion

    def records(self, records: Iterable[Record], with_rubrics: bool) -> Iterator[tuple[int, Completion]]:
        """Add prompts and rubrics; yield the completions with their prompt ids."""
        count = 0
        for given in self._in_batches(records, with_rubrics):
            record, rubric_id = self._with_named_rubric(given) if with_rubrics else (given, None)
            if record is None:
                continue
            prompt_id = self._add_prompt(record.prompt, record.id) if record.prompt else None
            if with_rubrics and record.rubric is not None:
                rubric_id = self._add_rubric(record.rubric, record.name, prompt_id)
            if rubric_id is None or prompt_id is None or not record.completions:
                self.result.omitted_labels += len(record.labels) + len(record.given_labels)
            else:
                self._labels += ((count, rubric_id, label) for label in record.labels)
            if prompt_id is not None:
                yield from ((prompt_id, completion) for completion in record.completions)
                if record.rubric_ref is not None and rubric_id is not None:
                    self._named_rubrics |= dict.fromkeys(range(count, count + len(record.completions)), rubric_id)
                count += len(record.completions)

    def _in_batches(self, records: Iterable[Record], with_rubrics: bool) -> Iterator[Record]:
        """Yield the records, after adding the new prompts and rubrics of a batch in a few statements."""
        plain = with_rubrics and self.rubric_name is None and self.min_coverage is None
        for batch in batched(map(self._with_stored_prompt, records)):
            given = ((record.prompt, record.id) for record in batch if record.prompt is not None)
            self._prompt_ids, self._rubric_ids = prompts.add_many(self.session, given), {}
            if plain and self.edit.parent is None and self.edit.state(IMPORTED) == APPROVED:
                self._add_new_rubrics(batch)
            yield from batch

    def _add_new_rubrics(self, batch: Sequence[Record]) -> None:
        """Add the rubrics with new names that are approved at once; what needs a decision is left to `add_version`."""
        given = [(record.rubric, record) for record in batch if record.rubric is not None]
        drafts: set[str] = set()
        if self.edit.policy != "none":
            drafts = {row.digest for row in rubrics.only_drafts(self.session, [rubric.digest for rubric, _ in given])}
        new = [
            (rubric, record.name, self._prompt_id(record.prompt, record.id) if record.prompt else None)
            for rubric, record in given
            if rubric.digest not in drafts and not rubric.examples  # which may fail its own tests
        ]
        self._rubric_ids = rubrics.add_many(self.session, new, origin=IMPORTED, added_by=self.edit.by)

    def _with_stored_prompt(self, record: Record) -> Record:
        """Return the record with the stored prompt of its id, if its format has only the text, and that is the same."""
        if not record.text_only or record.prompt is None or record.id is None:
            return record
        stored = prompts.many(self.session, prompts.ids_in_files(self.session, record.id)).values()
        same = next((one for one in stored if one.messages == record.prompt.messages), record.prompt)
        return replace(record, prompt=same)

    def lines(self) -> Iterator[tuple[int, Completion]]:
        """Yield the completions of a file of completions, with their prompt ids."""
        for line, location in self.file.parse(documents.read_completion):
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
        for line, location in self.file.parse(documents.read_label):
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
                if isinstance(error, ConflictError):
                    self._hints = [error.hint]
                self.file.errors.add(location.error(error.code, str(error), (error.path,) if error.path else ()))

    def finish(self, kind: str) -> ImportResult:
        """Return the result, with what is new and what existed.

        Raises:
            InvalidFileError: there are errors and ``skip_invalid`` is not set, or nothing was valid.
        """
        result, errors = self.result, self.file.errors
        if not self.skip_invalid:
            errors.raise_if_any(*self._hints)
        result.skipped, result.skipped_count, result.skipped_records = errors.errors, errors.count, errors.invalid
        result.notes = errors.notes
        if (kind == COMPLETIONS and not result.completions) or (kind == LABELS and not result.label_ids):
            errors.raise_if_any("correct them: no line is valid")
            raise file_error(self.file.location, "no_records", f"has no valid {kind}")
        used = {
            "prompts": {*self._used_prompts, *self._prompt_refs.values()},
            "rubrics": {*result.rubric_ids},
            "completions": {*result.completion_ids},
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
            resolved = tuple(_resolve(one, row.value) for one in record.given_labels)
        except (NotFoundError, NotApprovedError, InvalidError) as error:
            self.file.errors.add(record.location.error(error.code, str(error), (error.path or "rubric",)))
            return None, None
        return replace(record, labels=resolved, given_labels=()), row.id

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
        found, what = self._completion_refs[ref], f"completion {ref[1]!r} of prompt {ref[0]!r}"
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

    def _prompt_id(self, prompt: Prompt, external_id: str | None) -> int:
        key = (prompt.digest, external_id)
        if key not in self._prompt_ids:
            self._prompt_ids[key] = prompts.add(self.session, prompt, external_id).id
        return self._prompt_ids[key]

    def _add_prompt(self, prompt: Prompt, external_id: str | None) -> int:
        id_ = self._prompt_id(prompt, external_id)
        self._used_prompts.add(id_)
        return id_

    def _add_rubric(self, rubric: Rubric, own_name: str, prompt_id: int | None) -> int:
        result = self.result
        for option, value in (("name", self.rubric_name), ("parent", self.edit.parent)):
            if value is not None and result.rubric_ids:
                raise InvalidError(f"the file has several rubrics, and --{option} is for a file with one", path=option)
        if self.min_coverage is not None:
            rubric = rubric.model_copy(update={"min_coverage": self.min_coverage})
        name = self.rubric_name or own_name
        if (id_ := self._rubric_ids.pop((name, rubric.digest), None)) is not None:
            result.new_rubrics.append(f"{name}@1")
            result.rubrics.append(f"{name}@1")
            result.rubric_ids.append(id_)
            return id_
        new = add_version(self.session, rubric, self.edit, name=name, prompt_id=prompt_id)
        row, result.conflict = new.row, new.conflict
        if new.is_new:
            result.new_rubrics.append(row.ref)
        result.rubrics.append(row.ref)
        result.rubric_ids.append(row.id)
        if row.state != APPROVED:
            result.not_approved[row.ref] = row.state
        elif not new.is_new and (newest := rubrics.get(self.session, row.name).version) > row.version:
            result.superseded[row.ref] = newest
        return row.id


def _resolve(given: GivenLabel, rubric: Rubric) -> Label:
    """Return the label under the rubric.

    Raises:
        InvalidError: the rubric has no such criterion, or its scale no such level.
    """
    labels.check_criterion(rubric, given.label.criterion)
    return given.resolve(rubric.by_key.get(given.label.criterion))
