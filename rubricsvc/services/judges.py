"""`Judges`: models that score completions, and what is known of their quality."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rubricsvc.core.audit import Audit, Repeatability, StoredAudit
from rubricsvc.core.judge import Calibration, Judge
from rubricsvc.core.passport import Passport
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import JudgedLabel, Label, Verdict
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.queries import Paging
from rubricsvc.schemas.base import Page, takes
from rubricsvc.schemas.judges import NewJudge, StoredJudge
from rubricsvc.store import completions, jobs, judges, labels, rubrics
from rubricsvc.store.labels import RubricVersion, judged_labels, superseded
from rubricsvc.store.session import page_of
from rubricsvc.store.tables import AuditRow, ItemRow, JudgeRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.services.local import Validators
    from rubricsvc.stats.agreement import AgreementReport
    from rubricsvc.stats.calibration_fit import FittedFamily
    from rubricsvc.store.session import Database


PAGE = 200
"""Completions that are read in one transaction."""


@dataclass(frozen=True)
class JudgedCompletion:
    """A completion with one judge's verdicts, or people's labels, under one rubric version."""

    prompt: Prompt
    completion: Completion
    rubric: Rubric
    judged: tuple[Verdict | Label, ...]


@dataclass(eq=False)
class Judges:
    """Judges, by id or name. A name refers to one judge forever; only its endpoint may change.

    Args:
        db: The database.
        validators: Checks of the workers.
    """

    db: Database
    validators: Validators

    @takes(NewJudge)
    def add(self, new: NewJudge) -> StoredJudge:
        """Store a judge under its name; a judge whose name is known has its endpoint and adapter's folder.

        API keys are assigned to addresses on the service's machine only (`add_all`, `judges add`), so that a caller
        cannot send the service's keys elsewhere.

        Raises:
            ConflictError: The name belongs to another judge, or to one with another endpoint or adapter folder.
            InvalidError: The judge is invalid, or names a variable with an API key.
        """
        judge = new.judge
        if any(one.endpoint.api_key_env is not None for one in (judge, *judge.leaf_judges)):
            hint = "add this judge on the server: rubricsvc judges add … --api-key-env NAME"
            raise InvalidError("api_key_env cannot be set over HTTP", hint=hint, path="judge.endpoint.api_key_env")
        with self.db.read() as session:
            row = judges.find(session, judge.name)
            known = row.value if row is not None else judge
            places = [[(one.endpoint, one.adapter) for one in (each, *each.leaf_judges)] for each in (known, judge)]
            if places[0] != places[1]:  # the digest has neither
                commands = "`rubricsvc judges add NAME --url …` or `--adapter …`"
                hint = f"change it on the server with {commands}, or choose another name"
                raise ConflictError(f"judge {judge.name!r} has another endpoint or adapter folder", hint=hint)
        return self.add_all([judge])[0]

    def add_all(self, added: Sequence[Judge], passport: Passport | None = None) -> list[StoredJudge]:
        """Store all judges or none, with their endpoints, and the passport of the only one.

        Raises:
            ConflictError: A name belongs to another judge.
            InvalidError: A judge is invalid, or the passport is of another one.
        """
        for judge in added:
            self.validators.judge(judge)
        with self.db.write() as session:
            rows = [judges.add(session, judge) for judge in added]
            if passport is not None:
                judges.set_passport(session, rows[0].id, passport)
            return _stored(session, rows, with_audit=True)

    def get(self, ref: int | str) -> StoredJudge:
        """Get a judge."""
        with self.db.read() as session:
            return _stored(session, [judges.get(session, ref)], with_audit=True)[0]

    @takes(Paging)
    def page(self, query: Paging) -> Page[StoredJudge]:
        """List judges, oldest first."""
        with self.db.read() as session:
            rows = page_of(session, JudgeRow, query.after, query.limit + 1)
            return Page.cut(_stored(session, rows), query.limit)

    @takes(Paging)
    def audits(self, ref: int | str, query: Paging) -> Page[StoredAudit]:
        """List the audits of a judge, oldest first. The last one counts."""
        with self.db.read() as session:
            judge_id = judges.get(session, ref).id
            rows = page_of(session, AuditRow, query.after, query.limit + 1, judge_id=judge_id)
            return Page.cut([row.value for row in rows], query.limit)

    def passport(self, ref: int | str) -> Passport:
        """Get the passport of a trained judge: its data with licenses, its figures, what it must not be used for."""
        with self.db.read() as session:
            row = judges.get(session, ref)
            if (value := row.passport_value) is None:
                hint = "store one with `rubricsvc judges add --file judge.yaml --passport passport.json`"
                raise NotFoundError(f"judge {row.name!r} has no passport", hint=hint)
            return value

    def value(self, ref: int | str) -> Judge:
        """Return a stored judge, to ask it; an InvalidError if what is stored is not valid any more."""
        with self.db.read() as session:
            return judges.get(session, ref).value

    def content(self, name: str) -> dict[str, Any] | None:
        """Return the fields of the judge of a name, which need not be valid any more, if there is one."""
        judges.check_name(name)
        with self.db.read() as session:
            row = judges.find(session, name)
            return row.content if row is not None else None

    def measured(self, ref: int | str, result: Audit | Repeatability) -> None:
        """Store an audit of a judge, or a measurement of its repeatability in place of an older one."""
        with self.db.write() as session:
            row = judges.get(session, ref)
            if isinstance(result, Audit):
                judges.add_audit(session, row.id, result)
            else:
                row.repeatability = result.model_dump(mode="json")

    def sample_of_job(
        self, job_id: int, limit: int, *, whole_groups: bool, seed: int = 0
    ) -> list[tuple[Rubric, Prompt, Completion]]:
        """Return a random sample of a job's completions; ``whole_groups`` keeps those of a prompt together."""
        with self.db.read() as session:
            rewards = jobs.rewards(session, jobs.scoring(session, job_id).id)
            rows = sorted(rewards, key=lambda row: (row.prompt_id, row.rubric_id, row.completion_id))
            prompts = groupby(rows, lambda row: (row.prompt_id, row.rubric_id) if whole_groups else row.id)
            groups = [[row.id for row in group] for _, group in prompts]
            random.Random(seed).shuffle(groups)
            taken: list[int] = []
            for group in groups:
                if not taken or len(taken) + len(group) <= limit:
                    taken += group
            found = [session.get_one(ItemRow, one) for one in taken]
            return [(one.rubric.value, one.completion.prompt.value, one.completion.value) for one in found]

    def _judged_labels(
        self, ref: int | str, job: int | None, criterion: str | None = None
    ) -> tuple[Judge, list[JudgedLabel]]:
        """Return a judge, and people's labels beside its verdicts.

        Raises:
            InvalidError: There are no labels, or the judge has judged none of the labelled criteria.
        """
        with self.db.read() as session:
            row = judges.get(session, ref)
            if job is not None:
                jobs.scoring(session, job)
            judge, found = row.value, judged_labels(session, row.id, job_id=job)
        rows = [one for one in found if criterion in (None, one.label.criterion)]
        if not rows:
            scope = f" of criterion {criterion!r}" if criterion else ""
            scope += f" on what job {job} scored" if job is not None else ""
            raise InvalidError(f"no labels{scope}", hint="import labels with `rubricsvc labels import FILE`")
        if not any(one.verdicts for one in rows):
            hint = (
                f"score them with `rubricsvc jobs submit --judge {judge.name} --wait`; a label counts for each rubric "
            )
            hint += "version whose criterion has the same text, scale, reference and passages"
            raise InvalidError(f"judge {judge.name!r} has judged none of the labelled criteria", hint=hint)
        return judge, rows

    def agreement(
        self, ref: int | str, *, job: int | None = None, criterion: str | None = None, resamples: int
    ) -> AgreementReport:
        """Compare a judge's verdicts with people's labels."""
        from rubricsvc.stats.agreement import agreement_report

        return agreement_report(*self._judged_labels(ref, job, criterion), resamples=resamples)

    def calibrate(
        self, ref: int | str, name: str | None = None, *, job: int | None = None, held_out: float, seed: int = 0
    ) -> tuple[StoredJudge | None, list[FittedFamily]]:
        """Fit a readout judge's curves to labels, and store the calibrated judge, if a family has a curve.

        Raises:
            ConflictError: The new name belongs to another judge.
            InvalidError: The judge is no readout, or the labels are on too few prompts.
        """
        from rubricsvc.stats.calibration_fit import calibrate

        judge, rows = self._judged_labels(ref, job)
        if judge.mode != "readout":
            hint = "calibrate its readout members, or use a judge of mode readout"
            raise InvalidError(f"judge {judge.name!r} has no probabilities: its mode is {judge.mode}", hint=hint)
        families = calibrate(rows, held_out=held_out, seed=seed)
        curves = {one.family: one.curve for one in families if one.curve is not None}
        if not curves:
            return None, families
        fields = {"name": name or f"{judge.name}-calibrated", "calibration": Calibration(families=curves)}
        return self.add_all([judge.model_copy(update=fields)])[0], families

    def labels(
        self, rubric: int | str | None, annotators: Collection[str], job_id: int | None, left_out: Counter[str]
    ) -> Iterator[JudgedCompletion]:
        """Yield each labelled completion with its labels under one rubric version, by completion.

        A label counts for its question: with a ``rubric``, labels on its other versions are yielded where it asks the
        same. If a person labelled a question under several versions, the newest label counts. Without ``annotators``
        it is everybody's. ``left_out`` counts the other labels: ``superseded``, or of an ``other_question``.
        """
        with self.db.read() as session:
            if job_id is not None:
                jobs.scoring(session, job_id)
            version = rubrics.get(session, rubric) if rubric is not None else None
            names = [version.name] if version is not None else []
            asked = {one.question for one in version.value.criteria} if version is not None else set()
        for rows in labels.pages(self.db, names=names, annotators=annotators, job_id=job_id, size=PAGE):
            known = {row.id: RubricVersion(row.id, row.name, row.value) for *_, row in rows}
            outdated = superseded((label for label, *_ in rows), known)
            for _, group in groupby(rows, key=lambda row: (row[1].id, row[2].id)):
                given, kept = list(group), []
                _, completion, row = given[0]
                for label, *_ in given:
                    criterion = known[row.id].rubric.by_key.get(label.criterion)
                    if label.id in outdated:
                        left_out["superseded"] += 1
                    elif asked and criterion is not None and criterion.question not in asked:
                        left_out["other_question"] += 1
                    else:  # a score of the whole completion is of no criterion, and always counts
                        kept.append(label.label)
                if kept:
                    prompt, rubric_version = completion.prompt.value, known[row.id].rubric
                    yield JudgedCompletion(prompt, completion.value, rubric_version, tuple(kept))

    def verdicts(self, judge: int | str, *, job_id: int | None = None) -> Iterator[JudgedCompletion]:
        """Yield the judge's newest verdicts on each completion under each rubric version, or on what a job scored.

        Raises:
            InvalidError: The job was scored by another judge.
        """
        with self.db.read() as session:
            row = judges.get(session, judge)
            if job_id is not None and (job := jobs.scoring(session, job_id)).judge_id != row.id:
                message = f"job {job_id} was scored by the judge {job.judge.name!r}, not by {row.name!r}"
                raise InvalidError(message, hint=f"name the judge {job.judge.name!r}, or another job", path="job")
        for rows in jobs.newest_item_pages(self.db, row.id, job_id, size=PAGE):
            with self.db.read() as session:
                found = completions.verdicts_of_items(session, [one.id for one in rows])
            values = {one.rubric_id: one.rubric.value for one in rows}
            for one in rows:
                texts = one.completion.prompt.value, one.completion.value
                yield JudgedCompletion(*texts, values[one.rubric_id], tuple(found.get(one.id, ())))


def _stored(session: Session, rows: Sequence[JudgeRow], *, with_audit: bool = False) -> list[StoredJudge]:
    newest = {id_: row.value for id_, row in judges.newest_audit(session, [row.id for row in rows]).items()}
    results = {id_: f"{one.audit.result} {one.created_at:%Y-%m-%d}" for id_, one in newest.items()}
    whole = newest if with_audit else {}
    return [
        StoredJudge.of(row, judge=row.valid, audit=results.get(row.id), newest_audit=whole.get(row.id)) for row in rows
    ]
