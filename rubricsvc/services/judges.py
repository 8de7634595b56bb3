"""`Judges`: models that score completions, and what is known of their quality."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from rubricsvc.core.audit import Audit, Repeatability, StoredAudit
from rubricsvc.core.judge import Calibration, Judge, JudgedCompletion
from rubricsvc.core.passport import Passport
from rubricsvc.core.verdict import JudgedLabel
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.queries import AgreementQuery, CalibrationQuery, JudgedFilters, Paging
from rubricsvc.schemas.base import Page, takes
from rubricsvc.schemas.judges import NewJudge, StoredJudge
from rubricsvc.services import lazy
from rubricsvc.stats.reports import AgreementReport, CalibratedJudge
from rubricsvc.store import completions, jobs, judges
from rubricsvc.store.labels import judged_labels
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import AuditRow, JudgeRow


@dataclass(eq=False)
class Judges:
    """Judges, by id or name. A name refers to one judge forever; only its endpoint may change.

    Addresses and API keys may be changed only by a caller ``on_machine``, which one over HTTP is not.
    """

    db: Database
    on_machine: bool = True

    @takes(NewJudge)
    def add(self, new: NewJudge) -> StoredJudge:
        """Store a judge under its name, with its passport; a judge whose name is known has its endpoint and adapter.

        API keys and known addresses are changed on the service's machine only (`judges add`), so that a caller
        cannot send the service's keys elsewhere.

        409 if the name belongs to another judge, or over HTTP to one with another endpoint or adapter. 422 if the judge
        is invalid, the passport is of another one, or over HTTP it names an API key.
        """
        judge = new.judge
        if not self.on_machine:
            self._check_addresses(judge)
        lazy.check_judge(judge)
        with self.db.write() as session:
            row = judges.add(session, judge)
            if new.passport is not None:
                judges.set_passport(session, row.id, new.passport)
            return _stored(session, [row], with_audit=True)[0]

    def _check_addresses(self, judge: Judge) -> None:
        """Check that a judge from another machine is asked without the service's keys, and changes no address."""
        hint = "add this judge on the server: rubricsvc judges add … --api-key-env NAME"
        if any(one.endpoint.api_key_env is not None for one in (judge, *judge.leaf_judges)):
            raise InvalidError("api_key_env cannot be set over HTTP", hint=hint, path="judge.endpoint.api_key_env")
        with self.db.read() as session:
            is_new = judges.find(session, judge.name) is None
        if is_new and any(one.engine == "openai_http" and one.endpoint.key_variable for one in judge.leaf_judges):
            message = "a judge at OpenAI would be asked with the service's OPENAI_API_KEY"
            raise InvalidError(message, hint=f"name another server, or {hint}", path="judge.endpoint.base_url")
        self._keep_address(judge)

    def _keep_address(self, judge: Judge) -> None:
        """Raise a ConflictError if a stored judge of this name has another endpoint or adapter."""
        with self.db.read() as session:
            row = judges.find(session, judge.name)
            known = row.value if row is not None else judge
        places = [[(one.endpoint, one.adapter) for one in (each, *each.leaf_judges)] for each in (known, judge)]
        if places[0] != places[1]:  # the digest has neither
            commands = "`rubricsvc judges add NAME --url …` or `--adapter …`"
            hint = f"change it on the server with {commands}, or choose another name"
            raise ConflictError(f"judge {judge.name!r} has another endpoint or adapter folder", hint=hint)

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

    @takes(Audit)
    def record_audit(self, ref: int | str, audit: Audit) -> StoredAudit:
        """Store an audit of a judge. 422 if a suite that passed is above its limit."""
        wrong = [one.name for one in audit.suites if one.passed and (one.rate.value or 0.0) > one.max_rate]
        if wrong:
            raise InvalidError(f"suite {wrong[0]} passed, and its rate is above its limit", path="suites")
        with self.db.write() as session:
            return judges.add_audit(session, judges.get(session, ref).id, audit).value

    @takes(Repeatability)
    def record_repeatability(self, ref: int | str, repeatability: Repeatability) -> StoredJudge:
        """Store a measurement of a judge's repeatability in place of an older one."""
        with self.db.write() as session:
            row = judges.get(session, ref)
            row.repeatability = repeatability.model_dump(mode="json")
            return _stored(session, [row], with_audit=True)[0]

    def _judged_labels(
        self, ref: int | str, job: int | None, criterion: str | None = None
    ) -> tuple[Judge, list[JudgedLabel]]:
        """Return a judge, and people's labels beside its verdicts; an InvalidError without either."""
        with self.db.read() as session:
            row = judges.get(session, ref)
            judge, found = row.value, judged_labels(session, row.id, job_id=job)
        rows = [one for one in found if criterion in (None, one.label.criterion)]
        if not rows:
            scope = f" of criterion {criterion!r}" if criterion else ""
            scope += f" on what job {job} scored" if job is not None else ""
            raise InvalidError(f"no labels{scope}", hint="import labels with `rubricsvc labels import FILE`")
        if not any(one.verdicts for one in rows):
            hint = f"score them with `rubricsvc jobs submit --judge {judge.name} --wait`; a label counts for each"
            hint += " rubric version whose criterion has the same text, scale, reference and passages"
            raise InvalidError(f"judge {judge.name!r} has judged none of the labelled criteria", hint=hint)
        return judge, rows

    @takes(AgreementQuery)
    def agreement(self, ref: int | str, query: AgreementQuery) -> AgreementReport:
        """Compare a judge's verdicts with people's labels."""
        from rubricsvc.stats.agreement import agreement_report

        return agreement_report(*self._judged_labels(ref, query.job_id, query.criterion), resamples=query.resamples)

    @takes(CalibrationQuery)
    def calibrate(self, ref: int | str, query: CalibrationQuery) -> CalibratedJudge:
        """Fit a readout judge's curves to labels, and store the calibrated judge, if a family has a curve.

        409 if the new name belongs to another judge; 422 if the judge is no readout, or too few prompts have labels.
        """
        from rubricsvc.stats.calibration_fit import calibrate

        judge, rows = self._judged_labels(ref, query.job_id)
        if judge.mode != "readout":
            hint = "calibrate its readout members, or use a judge of mode readout"
            raise InvalidError(f"judge {judge.name!r} has no probabilities: its mode is {judge.mode}", hint=hint)
        families = calibrate(rows, held_out=query.held_out)
        curves = {one.family: one.curve for one in families if one.curve is not None}
        if not curves:
            return CalibratedJudge(judge=None, families=tuple(families))
        name, calibration = query.name or f"{judge.name}-calibrated", Calibration(families=curves)
        calibrated = judge.model_copy(update={"name": name, "calibration": calibration})
        if not self.on_machine:
            self._keep_address(calibrated)
        with self.db.write() as session:
            judges.add(session, calibrated)
        return CalibratedJudge(judge=name, families=tuple(families))

    @takes(JudgedFilters)
    def completions(self, ref: int | str, query: JudgedFilters) -> Page[JudgedCompletion]:
        """List completions with the judge's newest verdicts under each rubric version, or on what a job scored.

        422 if the job was scored by another judge.
        """
        with self.db.read() as session:
            row = judges.get(session, ref)
            if query.job_id is not None and (job := jobs.scoring(session, query.job_id)).judge_id != row.id:
                message = f"job {query.job_id} was scored by the judge {job.judge.name!r}, not by {row.name!r}"
                raise InvalidError(message, hint=f"name the judge {job.judge.name!r}, or another job", path="job_id")
            rows = jobs.newest_scored(session, row.id, query.job_id, query.after, query.limit + 1)
            found = completions.verdicts_of_items(session, [one.id for one in rows])
            judged = [
                JudgedCompletion(
                    id=one.id,
                    prompt=one.completion.prompt.value,
                    completion=one.completion.value,
                    rubric=one.rubric.value,
                    verdicts=tuple(found.get(one.id, ())),
                )
                for one in rows
            ]
            return Page.cut(judged, query.limit)


def _stored(session: Session, rows: Sequence[JudgeRow], *, with_audit: bool = False) -> list[StoredJudge]:
    newest = {id_: row.value for id_, row in judges.newest_audit(session, [row.id for row in rows]).items()}
    results = {id_: f"{one.audit.result} {one.created_at:%Y-%m-%d}" for id_, one in newest.items()}
    whole = newest if with_audit else {}
    return [
        StoredJudge.of(row, judge=row.valid, audit=results.get(row.id), newest_audit=whole.get(row.id)) for row in rows
    ]
