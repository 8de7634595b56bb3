"""`Rubrics`: immutable versions of named rubrics, their review, generation and analysis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from rubricsvc.collections import open_collection
from rubricsvc.core.generation import Provenance
from rubricsvc.core.rubric_analysis import RubricAnalysis
from rubricsvc.core.states import APPROVED, DRAFT, IN_REVIEW, RETIRED, ApprovalPolicy, ReviewAction, RubricState
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.formats.record import Record
from rubricsvc.lint import lint, rules_of
from rubricsvc.queries import AnalysisQuery, Paging, RubricFilters
from rubricsvc.schemas import (
    LintReport,
    LintRequest,
    NewGeneration,
    NewReview,
    NewRubric,
    Page,
    RubricEvent,
    StoredJob,
    StoredRubric,
    StoredRubricTest,
)
from rubricsvc.schemas.methods import takes
from rubricsvc.services import analysing
from rubricsvc.services.editing import Edit, add_version
from rubricsvc.services.jobs import Jobs
from rubricsvc.services.validators import Validators
from rubricsvc.settings import get_settings
from rubricsvc.store import generation as generations
from rubricsvc.store import judges, labels, prompts, rubrics
from rubricsvc.store.session import PUBLISHED, every, id_of

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy.orm import Session

    from rubricsvc.core.generation import Generation, Method, Research
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import JobRow, RubricRow

MAX_COMPLETIONS = 20_000
"""Completions of an analysis that is one request: about 3 seconds of reading."""


class Rubrics:
    """Rubric versions, by id, name (the newest approved version), name@version or digest."""

    def __init__(
        self,
        db: Database,
        *,
        caller: str | None = None,
        approval: ApprovalPolicy = "generated",
        validators: Validators | None = None,
        collections_dir: Path | None = None,
    ) -> None:
        self.db, self.caller, self.approval = db, caller or "unknown", approval
        self.validators, self.collections_dir = validators or Validators(), collections_dir

    @takes(NewRubric)
    def add(self, new: NewRubric) -> StoredRubric:
        """Store a rubric as the next version of its name. Identical content under a name is the same version.

        409 if that version belongs to another prompt; or if the `parent` has been edited already: then the rubric is
        kept as a draft, and the message says what both edits change.
        """
        self.validators.rubric(new.rubric)
        edit = Edit(self.caller, new.parent, force=new.force, draft=new.draft, policy=self.approval)
        with self.db.write() as session:
            if new.prompt_id is not None:
                prompts.get(session, new.prompt_id)
            added = add_version(session, new.rubric, edit, name=new.name, prompt_id=new.prompt_id, origin="api")
        if added.conflict is not None:
            raise added.conflict
        return StoredRubric.of(added.row)

    @takes(NewGeneration)
    def generate(self, new: NewGeneration) -> StoredJob:
        """Submit a job that generates a rubric for each prompt; its items have the versions once they are done.

        Without an Idempotency-Key the same judge, prompts and settings return the same job. 201 for a new job, 200 for
        an existing one, 409 if the key was used for something else, if the job exists with another budget, or if the
        collection has another digest than `research` names. 404 if there is no such collection on this machine.
        """
        options = new.model_dump(include={"key", "name", "budget"}) | {"collections_dir": self.collections_dir}
        with self.db.write() as session:
            job = submit_generation(session, new.judge, new.prompts, new.generation, **options)
            is_new = PUBLISHED in session.info
        return Jobs(self.db).get(job.id).model_copy(update={"is_new": is_new})

    @takes(LintRequest)
    def lint(self, new: LintRequest) -> LintReport:
        """Find faults of a rubric without a model: two questions in one criterion, near-duplicates, vague words.

        Nothing is stored. 422 if a rule is unknown, or the rubric is invalid.
        """
        self.validators.rubric(new.rubric)
        rules = rules_of(new.rules, new.ignore, new.severity)
        findings = lint(new.rubric, new.prompt, rules=rules, empty_value=self.validators.empty_value)
        return LintReport(findings=tuple(findings))

    @takes(RubricFilters)
    def page(self, query: RubricFilters) -> Page[StoredRubric]:
        """List rubric versions, oldest first."""
        with self.db.read() as session:
            rows = rubrics.page(session, **(query.model_dump() | {"limit": query.limit + 1}))
            return Page.cut([StoredRubric.of(row) for row in rows], query.limit)

    @takes(AnalysisQuery)
    def analyse(self, ref: int | str, query: AnalysisQuery) -> RubricAnalysis:
        """Analyse a version's criteria from stored verdicts and labels, and advise what to change.

        Of at most 20,000 completions, since it reads all of their verdicts.
        """
        with self.db.read() as session:
            scope = analysing.scope_of(session, ref, query.job_id, query.judge)
            if (count := labels.count_selected(session, scope.selection)) > MAX_COMPLETIONS:
                message = f"{count} completions; an analysis over HTTP is limited to {MAX_COMPLETIONS}"
                raise InvalidError(message, hint=f"run `rubricsvc rubrics analyse {ref} --json` beside the database")
            return analysing.analyse(session, ref, job_id=query.job_id, judge=query.judge)[0]

    @takes(NewReview)
    def review(self, ref: int | str, new: NewReview) -> StoredRubric:
        """Submit, approve, reject or retire a version, or comment on it; by the name of the API key.

        A name means its only version that the action can start from. Doing the same again changes nothing. 409 if the
        version has a state that the action does not start from, or if it has examples and its newest test did not pass.
        """
        with self.db.write() as session:
            row = review(session, ref, new.action, by=self.caller, comment=new.comment)
            return StoredRubric.of(row)

    def provenance(self, ref: int | str) -> Provenance:
        """Get where a generated version comes from: model, template, sampling, sources, reply, and the gate's findings.

        404 if it was not generated here. A name without an approved version means its newest draft.
        """
        with self.db.read() as session:
            return rubrics.provenance(session, ref)

    @takes(Paging)
    def tests(self, ref: int | str, query: Paging) -> Page[StoredRubricTest]:
        """List the tests of a version by its own examples, oldest first, which `rubricsvc rubrics test` stored.

        A version with examples is approved only if the newest one that was measured passed. A name without an approved
        version means its newest draft.
        """
        with self.db.read() as session:
            row = rubrics.get(session, ref, allow_drafts=True)
            rows = rubrics.tests(session, row.id, after=query.after, limit=query.limit + 1)
            return Page.cut([StoredRubricTest.of(one, rubric=row.ref) for one in rows], query.limit)

    @takes(Paging)
    def history(self, ref: int | str, query: Paging) -> Page[RubricEvent]:
        """List the steps of the review of a version, oldest first; of a name those of all its versions."""
        with self.db.read() as session:
            named = rubrics.of_name(session, str(ref)) if id_of(ref) is None else []
            versions = {row.id: row for row in named or [rubrics.get(session, ref)]}
            rows = rubrics.events(session, list(versions), after=query.after, limit=query.limit + 1)
            return Page.cut([RubricEvent.of(row, rubric=versions[row.rubric_id].ref) for row in rows], query.limit)

    def get(self, ref: int | str) -> StoredRubric:
        """Get a version by id, name (newest approved version), name@version, or at least 8 digits of its digest.

        409 if a name has no approved version.
        """
        with self.db.read() as session:
            return StoredRubric.of(rubrics.get(session, ref))


class Step(NamedTuple):
    """A change of state: the states that it starts from, the usual one first, and the new one."""

    before: tuple[RubricState, ...]
    after: RubricState
    participle: str


STEPS: dict[ReviewAction, Step] = {
    "submit": Step((DRAFT,), IN_REVIEW, "submitted"),
    "approve": Step((IN_REVIEW, RETIRED), APPROVED, "approved"),
    "reject": Step((IN_REVIEW,), DRAFT, "rejected"),
    "retire": Step((APPROVED,), RETIRED, "retired"),
}
_NEEDS_COMMENT = ("reject", "comment")


def review(session: Session, ref: int | str, action: ReviewAction, *, by: str, comment: str | None = None) -> RubricRow:
    """Change the state of a version, or comment on it; return it. Doing the same again changes nothing.

    Args:
        session: The session to write in.
        ref: The version. A name means its only version that the action can start from.
        action: What is done. Rejecting and commenting need a comment.
        by: Name of the person or API key.
        comment: Stored with the event.

    Raises:
        NotFoundError: There is no such version.
        ConflictError: The version has a state that the action does not start from; or it is to be approved, has
            examples, and its newest test did not pass.
        InvalidError: The comment is missing, or several versions of the name could be meant.
    """
    comment = (comment or "").strip() or None
    if comment is None and action in _NEEDS_COMMENT:
        raise InvalidError(
            f"to {action} needs a comment",
            hint="say why in `comment` (on the command line --comment TEXT)",
            path="comment",
        )
    row = _version(session, ref, action)
    rubrics.lock(session, row)
    after = STEPS[action].after if action in STEPS else row.state
    if after == row.state:
        last = rubrics.last_event(session, row.id)
        repeated = last is not None and (last.to_state, last.by, last.comment) == (after, by, comment)
        if comment is None or repeated:
            return row
    elif row.state not in STEPS[action].before:
        raise _wrong_state(row, action)
    if action == "approve":
        _require_tests(session, row)
    rubrics.record_event(session, row, after, by=by, comment=comment)
    return row


def _version(session: Session, ref: int | str, action: ReviewAction) -> RubricRow:
    """Return the version that is meant; a name means its only version that waits for this action."""
    name = str(ref)
    versions = rubrics.of_name(session, name) if id_of(ref) is None and "@" not in name else []
    if not versions or action not in STEPS:
        return rubrics.get(session, ref, allow_drafts=True)
    waiting = [row for row in versions if row.state == STEPS[action].before[0]]
    if len(waiting) > 1:
        listed = ", ".join(row.ref for row in waiting)
        message = f"{len(waiting)} versions of {name!r} can be {STEPS[action].participle}: {listed}"
        raise InvalidError(message, hint=f"name one of them: {waiting[-1].ref}", path="ref")
    return waiting[0] if waiting else versions[-1]


def _require_tests(session: Session, row: RubricRow) -> None:
    """Raise a ConflictError unless the newest measured test of a version with examples passed, by whatever judge."""
    if not row.value.examples:
        return
    hint = f"run `rubricsvc rubrics test {row.ref} --judge NAME`, then approve it"
    newest = rubrics.newest_test(session, row.id)
    if newest is None:
        raise ConflictError(f"{row.ref} has examples, and no test of them is stored", hint=hint, path="tests")
    if newest.outcome != "passed":
        failed = [one.example for one in newest.test.examples if one.passed is False]
        what = (
            f"{len(failed)} of {len(newest.test.examples)} examples ({', '.join(failed[:5])})" if failed else "faults"
        )
        judge = f"judge {newest.test.judge!r}"
        message = f"{row.ref} fails its own tests: {what}, by {judge}"
        raise ConflictError(
            message, hint=f"correct the rubric or its examples; or, by another judge, {hint}", path="tests"
        )


def _wrong_state(row: RubricRow, action: ReviewAction) -> ConflictError:
    step = STEPS[action]
    allowed = " or ".join(state.replace("_", " ") for state in step.before)
    state = row.state.replace("_", " ")
    hint = f"list the versions with `rubricsvc rubrics show --name {row.name}`"
    if action == "approve":
        hint = f"submit it for review first: `rubricsvc rubrics submit {row.ref}`"
    message = f"{row.ref} is {state}; what can be {step.participle} is {allowed}"
    return ConflictError(message, hint=hint, path="action")


def submit_generation(
    session: Session,
    judge_ref: int | str,
    prompt_refs: Iterable[int | str],
    generation: Generation,
    *,
    collections_dir: Path | None = None,
    key: str | None = None,
    name: str = "",
    budget: float | None = None,
) -> JobRow:
    """Submit a job that generates a rubric for each prompt, in a session to write in.

    Prompts are named by id or external id. The same judge, prompts and settings give the same job; so does the same
    idempotency ``key``. ``budget`` is in US dollars; ``collections_dir`` has the collections, by default that of the
    settings.

    Raises:
        NotFoundError: no such judge, prompt or collection.
        InvalidError: an option is wrong, the judge has no model of its own, or a budget is given and a price is
            unknown.
        ConflictError: the key was used for something else, or the job exists with another budget; or the
            collection has another digest than the one that is given.
    """
    judge = judges.get(session, judge_ref)
    settings = prepared(session, generation, collections_dir)
    ids = [prompts.get(session, ref).id for ref in dict.fromkeys(prompt_refs)]
    given = {"judge_id": judge.id, "prompt_ids": ids, "generation": settings}
    return generations.submit(session, **given, key=key, name=name, budget=budget)  # type: ignore[arg-type]


def prepared(session: Session, generation: Generation, collections_dir: Path | None = None) -> Generation:
    """Return the settings as a job keeps them: specification stored, collection with digest.

    Raises:
        InvalidError: An option is missing or belongs to another method, or names what is not stored.
        NotFoundError: The collection is not on this machine.
        ConflictError: The collection has another digest than the one that is given.
    """
    _check_options(generation)
    changes: dict[str, object] = {}
    if generation.gate_judge is not None:
        with _at("gate_judge"):
            judges.get(session, generation.gate_judge)
    if (given := generation.specification) is not None:
        with _at("specification"):
            digest = prompts.add_text(session, given.text) if given.text is not None else given.digest or ""
            prompts.get_text(session, digest)
        changes["specification"] = given.model_copy(update={"text": None, "digest": digest})
    if generation.research is not None:
        changes["research"] = _with_digest(generation.research, collections_dir)
    return generation.model_copy(update=changes)


def _with_digest(research: Research, collections_dir: Path | None) -> Research:
    folder = collections_dir or get_settings().collections_dir
    with open_collection(folder, research.collection) as collection:
        found = collection.digest
    if research.digest not in (None, found):
        message = f"collection {research.collection!r} has the digest {found[:12]}…, not {research.digest}"
        raise ConflictError(message, hint="leave the digest out, or add the collection again as it was")
    return research.model_copy(update={"digest": found})


_OPTIONS: dict[str, Method] = {
    "better": "contrastive",
    "worse": "contrastive",
    "specification": "principles",
    "research": "grounded",
}
"""Options that belong to one method."""


def _check_options(generation: Generation) -> None:
    for name, method in _OPTIONS.items():
        if getattr(generation, name) is not None and generation.method != method:
            raise InvalidError(f"{name} belongs to the method {method}", hint="leave it out", path=name)
    if generation.method == "principles" and generation.specification is None:
        hint = "give a file with --specification, over HTTP its name and text"
        raise InvalidError("the method principles needs a specification", hint=hint, path="specification")
    if generation.method == "grounded" and generation.research is None:
        hint = "name one with --collection, over HTTP in research"
        raise InvalidError("the method grounded needs a collection", hint=hint, path="research")
    if (generation.better is None) != (generation.worse is None):
        missing = "better" if generation.better is None else "worse"
        raise InvalidError("expected both policies, better and worse", hint=f"name the {missing} one", path=missing)


@contextmanager
def _at(path: str) -> Iterator[None]:
    """Report what is not stored as an error of this option."""
    try:
        yield
    except NotFoundError as error:
        raise InvalidError(error.message, hint=error.hint, path=path) from error


def record_of(session: Session, row: RubricRow) -> Record:
    """Return a stored rubric with its prompt."""
    prompt = prompts.get(session, row.prompt_id) if row.prompt_id is not None else None
    return Record(prompt.value if prompt else None, row.value, id=prompt.external_id if prompt else None, name=row.name)


def stored_records(session: Session, refs: Sequence[str] | None) -> Iterator[Record]:
    """Yield the named rubrics, or the newest approved version of every name that has one.

    Raises:
        NotFoundError: there is no such rubric.
        NotApprovedError: a name has no approved version.
    """
    if refs:
        rows = (rubrics.get(session, ref) for ref in refs)
    else:
        rows = (
            row for row in every(rubrics.page, session, state=APPROVED) if rubrics.get(session, row.name).id == row.id
        )
    return (record_of(session, row) for row in rows)
