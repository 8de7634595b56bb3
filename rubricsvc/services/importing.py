"""From files into the database: one transaction a file, all of it or nothing."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.database import database
from rubricsvc.cli.output import echo, show
from rubricsvc.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.label import Label
    from rubricsvc.core.prompt import Completion, Prompt
    from rubricsvc.core.rubric import Rubric
    from rubricsvc.formats import Fault, Record
    from rubricsvc.formats.completions import Answer
    from rubricsvc.formats.errors import Faults, Place, Steps
    from rubricsvc.formats.source import Source

File = Annotated[str, typer.Argument(help="The file; - is stdin.", show_default=False)]
_FORMATS = (
    "native, healthbench, deep_research_bench, paperbench, ifeval, openai_grader, llmbar, evalbiasbench, gsm8k, cherrl"
)
_LOOK = "told by looking at it"
Format = Annotated[str | None, typer.Option(help=f"{_FORMATS}.", show_default=_LOOK)]
AnyFormat = Annotated[str | None, typer.Option(help=f"completions, {_FORMATS}.", show_default=_LOOK)]
SkipInvalid = Annotated[bool, typer.Option("--skip-invalid", help="Leave bad records out and list them.")]
Language = Annotated[str | None, typer.Option(help="DeepResearch Bench: only tasks in this language (en, zh).")]


@contextmanager
def source_of(file: str) -> Iterator[Source]:
    """The file to read; stdin is first copied to a temporary one, so that it can be looked at twice."""
    from rubricsvc.formats.source import Source

    if not file.strip():
        raise InvalidError("the name of the file is empty", hint="name a file, or - for stdin")
    if file != "-":
        yield Source.of(file)
        return
    if sys.stdin.isatty():
        echo("reading from the terminal; end with Ctrl-D")
    with tempfile.NamedTemporaryFile(prefix="rubricsvc-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield Source(Path(copy.name), "<stdin>", "stdin")


def options_of(language: str | None) -> dict[str, str]:
    """The options that a format was given."""
    return {"language": language} if language is not None else {}


def bad_checks(rubric: Rubric, place: Place, faults: Faults) -> None:
    """Add each check of a rubric that there is not, and each argument that a check does not understand."""
    from rubricsvc.formats.fields import build
    from workers import checks

    for number, check in enumerate(criterion.check for criterion in rubric.criteria):
        if check is None:
            continue
        steps: Steps = ("criteria", number, "check")
        try:
            args = checks.check_named(check.name).args
        except InvalidError as error:
            faults.add(place, f"{error}; {error.hint}", steps)
            continue
        short = (*steps, check.name)
        build(args, check.args, place, faults, short if place.has(short) else (*steps, "args"), strict=False)


def labels_of(record: Record) -> Iterator[Label]:
    """A record's labels. People whom the file does not tell apart by name are ``person 1``, ``person 2``, …"""
    from rubricsvc.core.label import Label

    taken: set[tuple[str, str]] = set()
    for said in record.labels:
        who = said.detail if said.detail and said.detail.strip() else f"person {said.sample + 1}"
        if (said.criterion, who) in taken:
            who = f"{who} {said.sample + 1}"
        taken.add((said.criterion, who))
        yield Label(criterion=said.criterion, annotator=who, value=said.value, note=said.rationale)


@dataclass
class Imported:
    """What a file brought: how many of each noun were new and were there already, and what was left out."""

    new: dict[str, int] = field(default_factory=dict)
    same: dict[str, int] = field(default_factory=dict)
    skipped: list[Fault] = field(default_factory=list)
    rubric_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    label_ids: list[int] = field(default_factory=list)
    labels_left: int = 0
    file: str = ""
    """What messages call it."""
    superseded: dict[str, int] = field(default_factory=dict)
    """Rubrics that were there as an earlier version of their name, and which version is the newest."""

    def report(self, as_json: bool) -> None:
        """What was kept to stdout, the rest to stderr."""
        self.tell()
        if as_json:
            skipped = [{"file": fault.file, "line": fault.line, "message": fault.message} for fault in self.skipped]
            show({"new": self.new, "already_there": self.same, "skipped": skipped}, True)
        else:
            show({"new": self.new, "already there": self.same}, False)

    def tell(self) -> None:
        """Say what was not kept."""
        for fault in self.skipped:
            echo(f"skipped {fault}")
        if self.labels_left:
            echo(f"{self.labels_left} labels are left out: `rubricsvc labels import` takes them, with their rubrics")
        for ref, newest in self.superseded.items():
            echo(f"{ref} has this text already, and version {newest} stays the newest: call it {ref} where you mean it")
        if not any(self.new.values()):
            same = [
                f"{count} {noun.removesuffix('s') if count == 1 else noun}"
                for noun, count in self.same.items()
                if count
            ]
            echo(f"{self.file}: {', '.join(same) or 'nothing'}, all stored before")


@contextmanager
def importing(file: str, as_json: bool, **options: Any) -> Iterator[tuple[Importer, Source]]:
    """A file, and what takes it into the database in one transaction; at the end it is told what was kept.

    ``options`` are the importer's.
    """
    with source_of(file) as source, database() as db:
        with db.write() as session:
            importer = Importer(session, **options)
            yield importer, source
        importer.result.report(as_json)


class Importer:
    """Writes what files hold into the session's transaction."""

    def __init__(
        self, session: Session, *, skip_invalid: bool = False, name: str | None = None, replace_labels: bool = False
    ) -> None:
        from rubricsvc.store.upsert import added

        self.session = session
        self.skip_invalid = skip_invalid
        self.name = name
        self.replace_labels = replace_labels
        self.result = Imported()
        self._added = added(session)
        self._before = self._added.copy()
        self._prompt_ids: dict[tuple[str, str | None], int] = {}
        self._refs: dict[int | str, int] = {}
        self._rubric_refs: dict[int | str, tuple[int, Rubric]] = {}
        self._labels: list[tuple[int, int, Label]] = []  # (the completion's place among those kept, rubric id, label)

    def read(self, source: Source, format: str | None, *, rubrics_too: bool, **options: str) -> Imported:
        """A file of records, or of completions by themselves.

        Raises:
            FormatError: the file is bad, or names prompts or checks that are not there.
            InvalidError: one name was given for several rubrics.
        """
        from rubricsvc.formats import completions

        alone = format == "completions" or (
            format is None and not options and not source.path.is_dir() and completions.fits(source)
        )
        return self.answers(source) if alone else self.records(source, format, rubrics_too=rubrics_too, **options)

    def records(self, source: Source, format: str | None, *, rubrics_too: bool, **options: str) -> Imported:
        """The prompts and completions of a file of any format, and its rubrics where they are wanted."""
        from rubricsvc import formats

        self.result.file = source.name
        on_skip = self.result.skipped.append if self.skip_invalid else None
        examine = bad_checks if rubrics_too else None
        stream = formats.stream(source, format, on_skip=on_skip, examine=examine, **options)
        self._keep(self._of_records(stream, rubrics_too))
        return self._counted()

    def answers(self, source: Source) -> Imported:
        """Completions by themselves (`formats.completions`), with their prompts or naming ones that are there."""
        from rubricsvc.formats import completions
        from rubricsvc.formats.errors import Faults, refuse

        faults = Faults()
        self.result.file = source.name
        self._keep(self._of_answers(completions.read(source, faults), faults))
        if not self.skip_invalid:
            faults.raise_if_any(source.name)
        self.result.skipped += faults.told(source.name)
        if not self.result.completion_ids:
            raise refuse(source.place, "holds no completion that can be used")
        return self._counted()

    def _of_records(self, stream: Iterable[Record], rubrics_too: bool) -> Iterator[tuple[int, Completion]]:
        kept = 0
        for record in stream:
            prompt_id = self._prompt(record.prompt, record.id) if record.prompt else None
            rubric_id = self._rubric(record, prompt_id) if rubrics_too else None
            if rubric_id is None or not record.completions:
                self.result.labels_left += len(record.labels)
            else:
                self._labels += ((kept, rubric_id, label) for label in labels_of(record))
            if prompt_id is not None:
                for completion in record.completions:
                    kept += 1
                    yield prompt_id, completion

    def labels(self, source: Source) -> Imported:
        """Labels by themselves (`formats.labels`), of completions and rubrics that are there."""
        from rubricsvc.formats import labels
        from rubricsvc.formats.errors import Faults, refuse
        from rubricsvc.store import labels as stored

        faults = Faults()
        self.result.file = source.name
        for line in labels.read(source, faults):
            try:
                rubric_id, rubric = self._known_rubric(line.rubric)
                placed = (line.completion_id, rubric_id, line.valued(rubric))
                self.result.label_ids += stored.add_many(self.session, [placed], replace=self.replace_labels)
            except (NotFoundError, InvalidError) as error:
                faults.add(line.place, str(error), (error.path,) if error.path else ())
        if not self.skip_invalid:
            faults.raise_if_any(source.name)
        self.result.skipped += faults.told(source.name)
        if not self.result.label_ids:
            raise refuse(source.place, "holds no label that can be used")
        return self._counted()

    def _known_rubric(self, ref: int | str) -> tuple[int, Rubric]:
        from rubricsvc.store import rubrics

        if ref not in self._rubric_refs:
            row = rubrics.get(self.session, ref)
            self._rubric_refs[ref] = row.id, row.value
        return self._rubric_refs[ref]

    def _of_answers(self, stream: Iterable[Answer], faults: Faults) -> Iterator[tuple[int, Completion]]:
        for answer in stream:
            try:
                prompt_id = self._prompt(answer.prompt, None) if answer.prompt else self._known(answer.prompt_id or "")
            except NotFoundError:
                faults.add(answer.place, f"no prompt {answer.prompt_id!r} in the database", ("prompt_id",))
                continue
            if self.skip_invalid or not faults.count:
                yield prompt_id, answer.completion

    def _known(self, ref: int | str) -> int:
        from rubricsvc.store import prompts

        if ref not in self._refs:
            self._refs[ref] = prompts.get_as_in_file(self.session, ref).id
        return self._refs[ref]

    def _prompt(self, prompt: Prompt, external_id: str | None) -> int:
        from rubricsvc.store import prompts

        key = (prompt.digest, external_id)
        if key not in self._prompt_ids:
            self._prompt_ids[key] = prompts.add(self.session, prompt, external_id).id
        return self._prompt_ids[key]

    def _rubric(self, record: Record, prompt_id: int | None) -> int | None:
        from rubricsvc.store import rubrics

        if record.rubric is None:
            return None
        if self.name is not None and self.result.rubric_ids:
            raise InvalidError("--name is for a file with one rubric, and this one has several")
        row = rubrics.add(self.session, record.rubric, name=self.name or record.name, prompt_id=prompt_id)
        self.result.rubric_ids.append(row.id)
        if (newest := rubrics.get(self.session, row.name).version) > row.version:
            self.result.superseded[f"{row.name}@{row.version}"] = newest
        return row.id

    def _keep(self, pairs: Iterable[tuple[int, Completion]]) -> None:
        from rubricsvc.store import completions, labels

        self.result.completion_ids = ids = completions.add_many(self.session, pairs)
        placed = ((ids[at], rubric_id, label) for at, rubric_id, label in self._labels)
        self.result.label_ids = labels.add_many(self.session, placed, replace=self.replace_labels)

    def _counted(self) -> Imported:
        used = {
            "prompts": len({*self._prompt_ids.values(), *self._refs.values()}),
            "rubrics": len(set(self.result.rubric_ids)),
            "completions": len(set(self.result.completion_ids)),
        } | ({"labels": len(set(self.result.label_ids))} if self.result.label_ids else {})
        for noun, count in used.items():
            self.result.new[noun] = self._added[noun] - self._before[noun]
            self.result.same[noun] = count - self.result.new[noun]
        return self.result
