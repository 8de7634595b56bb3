"""`Imports`: files of rubrics, prompts, completions and labels, added whole or not at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy.orm import Session

from rubricsvc import formats
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import APPROVED
from rubricsvc.core.strict_json import MAX_VALUES
from rubricsvc.core.verdict import OVERALL, Label
from rubricsvc.errors import ConflictError, InvalidError, NotApprovedError, NotFoundError
from rubricsvc.formats import InputFile, Record
from rubricsvc.formats import record as files
from rubricsvc.formats.documents import with_criteria
from rubricsvc.queries import ImportQuery
from rubricsvc.schemas.base import ImportedFile, takes
from rubricsvc.services import lazy
from rubricsvc.services.versions import Addition, Edit, add_version, add_versions
from rubricsvc.store import completions, labels, rubrics
from rubricsvc.store.session import Database, added, batched, by_id
from rubricsvc.store.tables import PromptRow

MAX_CONTENT_RECORDS = 20_000
"""Records, or lines of JSONL, of a file that was sent to the service: meanwhile SQLite takes no other writes."""
MAX_CONTENT_ERRORS = 10_000  # errors of such a file, after which it is not read any further
COMPLETIONS, LABELS = "completions", "labels"


@dataclass(eq=False)
class Imports:
    """Imports of files; ``edit`` says who adds rubrics, and which of them are drafts."""

    db: Database
    edit: Edit = field(default_factory=Edit)

    @takes(ImportQuery)
    def create(self, source: str | Path | BinaryIO | InputFile, query: ImportQuery) -> ImportedFile:
        """Import a file of any format of docs/formats.md, whole or not at all. Importing it again changes nothing.

        Raises:
            ConflictError: The parent has been edited already; the rubric is kept as a draft.
            InvalidError: The file is invalid, or has nothing of the noun that is wanted.
        """
        if isinstance(source, str | Path):
            source = InputFile(source)
        elif not isinstance(source, InputFile):
            source = InputFile(query.name, stream=source)
        edit = replace(self.edit, parent=query.parent, force=query.force, draft=query.draft)
        kind = query.format if query.format in (COMPLETIONS, LABELS) else None  # else records of any format
        first = source.first()  # before the transaction: a document is read whole, and others wait to write
        if query.format is None and source.mapping is None:
            kind = found if query.noun in (None, found := files.kind_of(first)) else None
        with self.db.write() as session:
            importer = _Importer(session, source, query, edit, ImportedFile(file=source.name))
            if kind == LABELS:
                importer.add_labels()
            elif kind == COMPLETIONS:
                importer.add_completions()
            else:
                with_rubrics = query.noun not in ("prompts", COMPLETIONS)
                check = lazy.check_rubric if with_rubrics else None
                records = formats.stream(source, query.format, skip_invalid=query.skip_invalid, check=check)
                if query.noun == "prompts":
                    kind = query.noun
                    records = (Record(one.prompt, None, id=one.id) for one in records if one.prompt is not None)
                importer.add_records(records, with_rubrics=with_rubrics)
            result = importer.finish(kind)
        if importer.conflict is not None:  # after the commit, which keeps the rubric as a draft
            raise importer.conflict
        return result

    def content(self, content: bytes, query: ImportQuery) -> ImportedFile:
        """Import a file with this content, within limits."""
        limits: dict[str, Any] = {"max_values": MAX_VALUES, "max_records": MAX_CONTENT_RECORDS}
        errors = files.FileErrors(limit=MAX_CONTENT_ERRORS)
        return self.create(InputFile(query.name, stream=BytesIO(content), errors=errors, **limits), query)


@dataclass
class _Importer:
    """The import of one file."""

    session: Session
    file: InputFile
    query: ImportQuery
    edit: Edit

    result: ImportedFile
    conflict: ConflictError | None = None
    """The parent of the rubric has been edited by somebody else."""
    _prompt_ids: dict[completions.PromptKey, int] = field(default_factory=dict)  # of records: those of the batch
    _at_once: dict[tuple[str, str], Addition] = field(default_factory=dict)  # new ones of the batch, by name and digest
    _used_prompts: dict[int, None] = field(default_factory=dict)
    _prompt_refs: dict[int | str, int] = field(default_factory=dict)
    _completion_refs: dict[tuple[int | str, str], list[tuple[int, int]]] = field(default_factory=dict)
    _hints: list[str] = field(default_factory=list)  # at most one, in place of the usual one

    def add_records(self, records: Iterable[Record], *, with_rubrics: bool) -> None:
        """Add prompts, rubrics, completions and labels: new prompts and rubrics of a batch in a few statements."""
        as_they_are = (self.query.rubric_name, self.query.min_coverage, self.edit.parent) == (None, None, None)
        for batch in batched(records):
            for place, record in enumerate(batch):
                if record.text_only and record.prompt is not None and record.id is not None:
                    # the stored prompt, if it is the same text
                    ids = completions.prompts_in_files(self.session, record.id)
                    known = [row.value for row in by_id(self.session, PromptRow, ids).values()]
                    same = [one for one in known if one.messages == record.prompt.messages]
                    batch[place] = replace(record, prompt=next(iter(same), record.prompt))
            given = ((record.prompt, record.id) for record in batch if record.prompt is not None)
            self._prompt_ids = completions.add_prompts(self.session, given)
            at_once = [
                (one.rubric, one.name, self._prompt_id(one.prompt, one.id) if one.prompt else None)
                for one in batch
                if one.rubric is not None and one.state == APPROVED and with_rubrics and as_they_are
            ]
            new_rows = add_versions(self.session, at_once, self.edit)
            self._at_once = {(row.name, row.digest): Addition(row, is_new=True) for row in new_rows}
            new: list[tuple[int, Completion, int | None]] = []
            marked: list[tuple[int, int, Label]] = []  # index of the completion, rubric id, label
            for record in batch:
                rubric_id = None
                if with_rubrics and record.rubric_ref is not None:
                    if (labelled := self._with_named_rubric(record)) is None:
                        continue
                    record, rubric_id = labelled  # noqa: PLW2901 - its labels are resolved
                named = rubric_id
                prompt_id = self._prompt_id(record.prompt, record.id) if record.prompt else None
                if with_rubrics and record.rubric is not None:
                    rubric_id = self._add_rubric(record.rubric, record, prompt_id)
                if rubric_id is None or prompt_id is None or not record.completions:
                    self.result.omitted_labels += len(record.labels) + len(record.given_labels)
                else:
                    marked += ((len(new), rubric_id, label) for label in record.labels)
                if prompt_id is not None:
                    new += ((prompt_id, completion, named) for completion in record.completions)
            self._store(new, marked)

    def _with_named_rubric(self, record: Record) -> tuple[Record, int] | None:
        """Return the record with labels on the stored rubric that it names, and the id; None if they do not fit."""
        try:
            row = rubrics.get(self.session, record.rubric_ref or "")
            owner = completions.get_prompt(self.session, row.prompt_id).digest if row.prompt_id is not None else None
            if record.prompt is not None and owner not in (None, record.prompt.digest):
                raise InvalidError(f"rubric {record.rubric_ref!r} was written for another prompt", path="rubric")
            for one in record.given_labels:
                labels.check_criterion(row.value, one.label.criterion)
            resolved = tuple(one.resolve(row.value.by_key.get(one.label.criterion)) for one in record.given_labels)
        except (NotFoundError, NotApprovedError, InvalidError) as error:
            self.file.errors.add(record.location.error(error.code, str(error), (error.path or "rubric",)))
            return None
        return replace(record, labels=resolved, given_labels=()), row.id

    def _prompt_id(self, prompt: Prompt, external_id: str | None) -> int:
        key = (prompt.digest, external_id)
        if key not in self._prompt_ids:
            row = completions.add_prompt(self.session, prompt, external_id)
            self._prompt_ids[key] = row.id
            if external_id not in (None, row.external_id):
                self._note("existing", f"prompt {external_id!r} is stored as {row.external_id!r}, which exports name")
        self._used_prompts[self._prompt_ids[key]] = None
        return self._prompt_ids[key]

    def _add_rubric(self, rubric: Rubric, record: Record, prompt_id: int | None) -> int:
        for option, value in (("name", self.query.rubric_name), ("parent", self.edit.parent)):
            if value is not None and self.result.rubric_ids:
                raise InvalidError(f"the file has several rubrics, and --{option} is for a file with one", path=option)
        if self.query.min_coverage is not None:
            rubric = rubric.model_copy(update={"min_coverage": self.query.min_coverage})
        name = self.query.rubric_name or record.name
        new, edit = self._at_once.pop((name, rubric.digest), None), self.edit
        edit = replace(edit, draft=edit.draft or record.state != APPROVED)
        new = new or add_version(self.session, rubric, edit, name=name, prompt_id=prompt_id)
        row, self.conflict = new.row, new.conflict
        if row.state != APPROVED:
            self.result.not_approved[row.ref] = row.state
        elif not new.is_new and (newest := rubrics.get(self.session, row.name).version) > row.version:
            self.result.superseded[row.ref] = newest
        self.result.new_rubrics += [row.ref] * new.is_new
        self.result.rubrics.append(row.ref)
        self.result.rubric_ids.append(row.id)
        return row.id

    def _note(self, code: str, message: str) -> None:
        self.file.errors.add(notes=[self.file.location.error(code, message)])

    def add_completions(self) -> None:
        """Add the completions of a file of completions."""
        digests, empty = dict[tuple[int, str | None], str](), 0
        rows = self.file.filled_down(self.file.entries, ("prompt", "prompt_id"), Prompt.model_fields)
        for batch in batched(self.file.parse(files.read_completion, rows)):
            new: list[tuple[int, Completion, int | None]] = []
            for line, location in batch:
                ref = line.prompt_id or ""
                if line.prompt is not None:
                    prompt_id = self._prompt_id(line.prompt, None)
                else:
                    if ref not in self._prompt_refs:
                        try:
                            self._prompt_refs[ref] = completions.get_prompt(self.session, ref, as_in_file=True).id
                        except (NotFoundError, InvalidError) as error:
                            self.file.errors.add(location.error(error.code, f"{error}; {error.hint}", ("prompt_id",)))
                            continue
                    prompt_id = self._prompt_refs[ref]
                first = digests.setdefault((prompt_id, id_ := line.completion.id), line.completion.digest)
                if id_ is not None and first != line.completion.digest:
                    self._note("repeated", f"several completions of a prompt have the id {id_!r}; labels need another")
                empty += not line.completion.text.strip()
                if self.query.skip_invalid or not self.file.errors.count:
                    new.append((prompt_id, line.completion, None))
            self._store(new, [])
        if empty:
            self._note("empty", f"completions without an answer, which are scored as an empty text: {empty}")

    def _store(
        self, new: Sequence[tuple[int, Completion, int | None]], marked: Sequence[tuple[int, int, Label]]
    ) -> None:
        """Add completions (with prompt id, and the id of the rubric that their record names), then their labels."""
        if not new:
            return
        ids = completions.add_many(self.session, [(prompt_id, completion) for prompt_id, completion, _ in new])
        self.result.completion_ids += ids
        self.result.completion_rubric_ids += [named for *_, named in new]
        if marked:
            rows = ((ids[index], rubric_id, label) for index, rubric_id, label in marked)
            self.result.label_ids += labels.add_many(self.session, rows, replace=self.query.replace_labels)

    def add_labels(self) -> None:
        """Add the labels of a file of labels."""

        @cache
        def labelled(ref: int | str) -> tuple[int, Rubric, dict[str, str]]:
            row = rubrics.get(self.session, ref)
            names = {name.strip().casefold(): one.key for one in row.value.criteria for name in (one.text, one.key)}
            return row.id, row.value, names

        for line, location in self.file.parse(files.read_label, with_criteria(self.file, lambda ref: labelled(ref)[2])):
            try:
                rubric_id, rubric, names = labelled(line.rubric)
                if line.rubric_digest not in (None, rubric.digest):
                    message = f"rubric {line.rubric!r} of this database has other content than the labelled one"
                    raise InvalidError(f"{message}: name it by its digest, as rubric", path="rubric_digest")
                given = line
                if (note := line.note_column) is not None:
                    key = {OVERALL: OVERALL, **names}.get(line.label.criterion.strip().casefold())
                    if key is None:
                        if (column := line.label.criterion) not in (note, *files.SHEET):
                            self._note("ignored", f"column {column!r} is not read: no criterion of {line.rubric!r}")
                        continue
                    update = {"criterion": key, "note": None if note in names else line.label.note}
                    given = line.model_copy(update={"label": line.label.model_copy(update=update)})
                labels.check_criterion(rubric, given.label.criterion)
                label = (self._completion_of(line), rubric_id, given.resolve(rubric.by_key.get(given.label.criterion)))
                self.result.label_ids += labels.add_many(self.session, [label], replace=self.query.replace_labels)
            except (NotFoundError, InvalidError, ConflictError) as error:
                self._hints = [error.hint] if isinstance(error, ConflictError) else self._hints
                path = line.label.criterion if line.note_column is not None else error.path  # of a sheet: its column
                self.file.errors.add(location.error(error.code, str(error), (path,) if path else ()))

    def _completion_of(self, line: files.LabelLine) -> int:
        """Return the id of the labelled completion."""
        if line.prompt_digest is not None and line.completion_digest is not None:
            if (id_ := completions.id_of_digests(self.session, line.prompt_digest, line.completion_digest)) is None:
                message = "no completion with these digests of prompt and completion in this database; import it first"
                raise NotFoundError(message, path="completion_digest")
            return id_
        if isinstance(line.completion_id, int):
            return line.completion_id
        ref = line.prompt_id or "", line.completion_id
        if ref not in self._completion_refs:
            prompt_ids = completions.prompts_in_files(self.session, ref[0])
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

    def finish(self, kind: str | None) -> ImportedFile:
        """Return the result, with what is new and what existed.

        Raises:
            InvalidFileError: there are errors and invalid records are not skipped, or nothing was valid.
            InvalidError: labels are wanted, and none can be imported.
        """
        result, counts, errors = self.result, added(self.session), self.file.errors
        if not self.query.skip_invalid:
            errors.raise_if_any(*self._hints)
        if result.not_approved:
            refs = dict(zip(result.rubric_ids, result.rubrics, strict=True))
            notes = rubrics.notes(self.session, sorted(refs))
            result.draft_notes = {refs[id_]: note for id_, note in notes.items() if refs[id_] in result.not_approved}
        result.prompt_ids = list(dict.fromkeys([*self._used_prompts, *self._prompt_refs.values()]))
        ids = {"prompts": result.prompt_ids, "rubrics": result.rubric_ids}
        ids |= {COMPLETIONS: result.completion_ids, LABELS: result.label_ids}
        if kind is not None and not ids[kind]:
            errors.raise_if_any("correct them: no line is valid")
            raise files.file_error(self.file.location, "no_records", f"has no valid {kind}")
        if self.query.noun == LABELS and not result.label_ids:
            hint = "docs/formats.md describes labels; import files without labels with `rubricsvc rubrics import`"
            what = "labels, but not the completions that they belong to" if result.omitted_labels else "no labels"
            raise InvalidError(f"{result.file} has {what}", hint=hint)
        for noun, used in ids.items():
            if used or noun != LABELS:
                result.new[noun] = counts[noun]
                result.existing[noun] = len({*used}) - counts[noun]
        if replaced := len(self.session.info.get("replaced", ())):
            result.replaced = {LABELS: replaced}
            result.existing[LABELS] = max(0, result.existing[LABELS] - replaced)
        result.skipped, result.skipped_count, result.skipped_records = errors.errors, errors.count, errors.invalid
        result.notes, result.note_count = errors.notes, errors.note_count
        return result
