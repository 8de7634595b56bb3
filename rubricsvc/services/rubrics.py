"""`Rubrics`: immutable versions of named rubrics: adding and editing, review, generation, analysis, differences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rubricsvc.collections import Collection
from rubricsvc.core import strict_json
from rubricsvc.core.generation import Generation, Provenance
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_analysis import RubricAnalysis
from rubricsvc.core.states import (
    APPROVED,
    DRAFT,
    FITTED,
    GENERATED,
    IMPORTED,
    IN_REVIEW,
    RETIRED,
    ApprovalPolicy,
    ReviewAction,
    RubricOrigin,
    RubricState,
)
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError, cut, needs_extra
from rubricsvc.formats.record import Record
from rubricsvc.lint import lint, rules_of
from rubricsvc.queries import AnalysisQuery, FitQuery, Paging, RubricFilters
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
from rubricsvc.schemas.base import takes
from rubricsvc.services.comparing import match_criteria
from rubricsvc.services.jobs import Jobs
from rubricsvc.settings import get_settings
from rubricsvc.store import completions, judges, labels, rubrics
from rubricsvc.store import generation as generations
from rubricsvc.store.session import PUBLISHED, added, every, page_of
from rubricsvc.store.tables import PromptRow, RubricEventRow, RubricRow, RubricTestRow

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy.orm import Session

    from rubricsvc.core.generation import Method
    from rubricsvc.core.prompt import Prompt
    from rubricsvc.core.rubric_analysis import RubricTest, WeightFit
    from rubricsvc.formats.record import RubricCheck
    from rubricsvc.lint import EmptyValue
    from rubricsvc.stats import OnProgress
    from rubricsvc.store.session import Database

MAX_COMPLETIONS = 20_000
"""Completions of an analysis that is one request: about 3 seconds of reading."""
MAX_CHANGES = 12
"""Changes of each side that a conflict lists."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Who adds rubrics, and how.

    Attributes:
        by: A person or an API key.
        parent: The version that the text was edited from: id, name, name@version or digest.
        force: Add it even if somebody else edited the same parent.
        draft: Add it as a draft.
        policy: Which rubrics are drafts when they are added.
    """

    by: str | None = None
    parent: int | str | None = None
    force: bool = False
    draft: bool = False
    policy: ApprovalPolicy = "generated"

    def state(self, origin: RubricOrigin) -> RubricState:
        """Return the state in which a rubric of this origin is added."""
        review = self.draft or self.policy == "all" or (self.policy == "generated" and origin == GENERATED)
        return DRAFT if review else APPROVED


class Rubrics:
    """Rubric versions, by id, name (the newest approved version), name@version or digest.

    Args:
        db: The database.
        edit: Who adds rubrics, and which of them are drafts.
        check: Checks each rubric.
        empty_value: Value of a check on an empty completion, for the rule of lint.
        collections_dir: Folder of collections, by default that of the settings.
    """

    def __init__(
        self,
        db: Database,
        edit: Edit = Edit(),
        *,
        check: RubricCheck | None = None,
        empty_value: EmptyValue | None = None,
        collections_dir: Path | None = None,
    ) -> None:
        self.db, self.edit, self.caller = db, edit, edit.by or "unknown"
        self.check, self.empty_value, self.collections_dir = check, empty_value, collections_dir

    @takes(NewRubric)
    def add(self, new: NewRubric) -> StoredRubric:
        """Store a rubric as the next version of its name. Identical content under a name is the same version.

        409 if that version belongs to another prompt; or if the `parent` has been edited already: then the rubric is
        kept as a draft, and the message says what both edits change.
        """
        if self.check is not None:
            self.check(new.rubric)
        edit = replace(self.edit, by=self.caller, parent=new.parent, force=new.force, draft=new.draft)
        with self.db.write() as session:
            if new.prompt_id is not None:
                completions.get_prompt(session, new.prompt_id)
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
        with self.db.write() as session:
            judge_id = judges.get(session, new.judge).id
            generation = Generation(**{name: getattr(new, name) for name in Generation.model_fields})
            settings = prepared(session, generation, self.collections_dir)
            refs = dict.fromkeys(new.prompts) or [row.id for row in every(page_of, session, table=PromptRow)]
            job_id = generations.submit(
                session,
                judge_id=judge_id,
                prompt_ids=[completions.get_prompt(session, ref).id for ref in list(refs)[: new.limit]],
                generation=settings,
                **new.model_dump(include={"key", "name", "budget"}),
            ).id
            is_new = PUBLISHED in session.info
        return Jobs(self.db).get(job_id).model_copy(update={"is_new": is_new})

    @takes(LintRequest)
    def lint(self, new: LintRequest) -> LintReport:
        """Find faults of a rubric without a model: two questions in one criterion, near-duplicates, vague words.

        Nothing is stored. 422 if a rule is unknown, or the rubric is invalid.
        """
        if self.check is not None:
            self.check(new.rubric)
        rules = rules_of(new.rules, new.ignore, new.severity)
        findings = lint(new.rubric, new.prompt, rules=rules, empty_value=self.empty_value)
        return LintReport(findings=tuple(findings))

    @takes(RubricFilters)
    def page(self, query: RubricFilters) -> Page[StoredRubric]:
        """List rubric versions, oldest first."""
        with self.db.read() as session:
            own = None if query.prompt_id is None else completions.get_prompt(session, query.prompt_id).id
            rows = page_of(session, RubricRow, **query.model_dump() | {"limit": query.limit + 1, "prompt_id": own})
            return Page.cut([StoredRubric.of(row) for row in rows], query.limit)

    @takes(AnalysisQuery)
    def analyse(self, ref: int | str, query: AnalysisQuery) -> RubricAnalysis:
        """Analyse a version's criteria from stored verdicts and labels, and advise what to change.

        Of at most 20,000 completions, since it reads all of their verdicts.
        """
        return self.analyses(ref, query, most=MAX_COMPLETIONS)[0]

    def analyses(
        self,
        ref: int | str | None,
        query: AnalysisQuery,
        on_progress: OnProgress = lambda _done, _total, _note: None,
        most: float = math.inf,
    ) -> list[RubricAnalysis]:
        """Analyse a version, or each one of a job, of at most so many completions."""
        with needs_extra("judging"):
            from rubricsvc.services import analysing
        with self.db.read() as session:
            selection, _ = analysing.scope_of(session, ref, query.job_id, query.judge)
            if (count := labels.count_selected(session, selection)) > most:
                message = f"{count} completions; an analysis over HTTP is limited to {most}"
                raise InvalidError(message, hint=f"run `rubricsvc rubrics analyse {ref} --json` beside the database")
            return analysing.analyse(session, ref, query, on_progress)

    def fit(self, ref: int | str, query: FitQuery, on_progress: OnProgress) -> WeightFit:
        """Fit the weights of a version to people's overall scores; with ``save`` store them as a draft version.

        Weights that are those of a stored version are that version, whose state stays.

        Raises:
            InvalidError: There is too little to fit, or the formula does not take these weights.
            ConflictError: Somebody has edited the rubric since; the weights are kept as a draft.
        """
        with needs_extra("judging"):
            from rubricsvc.services import analysing
        with self.db.read() as session:
            found = analysing.fit(session, ref, query, on_progress)
        if not query.save:
            return found
        with self.db.write() as session:
            start = rubrics.get(session, found.rubric)
            fitted = analysing.fitted_rubric(start.value, found)
            edit = Edit(self.edit.by, start.id, force=query.force, draft=True)
            new = add_version(session, fitted, edit, name=start.name, prompt_id=start.prompt_id, origin=FITTED)
        if new.conflict is not None:
            raise new.conflict
        return found.model_copy(update={"saved": new.row.ref})

    @takes(NewReview)
    def review(self, ref: int | str, new: NewReview) -> StoredRubric:
        """Submit, approve, reject or retire a version, or comment on it; by the name of the API key.

        A name means its only version that the action can start from. Doing the same again changes nothing. 409 if the
        version has a state that the action does not start from, or if it has examples and its newest test did not pass.
        """
        action, comment = new.action, (new.comment or "").strip() or None
        if comment is None and action in ("reject", "comment"):
            hint = "say why in `comment` (on the command line --comment TEXT)"
            raise InvalidError(f"to {action} needs a comment", hint=hint, path="comment")
        with self.db.write() as session:
            row = _version(session, ref, action)
            session.refresh(row, with_for_update=True)  # of two reviewers the second one sees what the first one did
            step = STEPS.get(action)
            after = step.after if step is not None else row.state
            if after == row.state:
                if comment is None:
                    return StoredRubric.of(row)
            elif step is not None and row.state not in step.before:
                allowed = " or ".join(state.replace("_", " ") for state in step.before)
                hint = f"list the versions with `rubricsvc rubrics show --name {row.name}`"
                if action == "approve":
                    hint = f"submit it for review first: `rubricsvc rubrics review {row.ref} submit`"
                message = f"{row.ref} is {row.state.replace('_', ' ')}; what can be {step.participle} is {allowed}"
                raise ConflictError(message, hint=hint, path="action")
            if action == "approve":
                _require_tests(session, row)
            rubrics.record_event(session, row, after, by=self.caller, comment=comment)
            return StoredRubric.of(row)

    def provenance(self, ref: int | str) -> Provenance:
        """Get where a generated version comes from: model, template, sampling, sources, reply, and the gate's findings.

        404 if it was not generated here. A name without an approved version means its newest draft.
        """
        with self.db.read() as session:
            row = rubrics.get(session, ref, allow_drafts=True)
            if row.provenance is None:
                raise NotFoundError(f"{row.ref} was not generated here; its origin is {row.origin!r}")
            return Provenance.model_validate(row.provenance)

    @takes(Paging)
    def tests(self, ref: int | str, query: Paging) -> Page[StoredRubricTest]:
        """List the tests of a version by its own examples, oldest first, which `rubricsvc rubrics test` stored.

        A version with examples is approved only if the newest one that was measured passed. A name without an approved
        version means its newest draft.
        """
        with self.db.read() as session:
            row = rubrics.get(session, ref, allow_drafts=True)
            rows = page_of(session, RubricTestRow, query.after, query.limit + 1, rubric_id=row.id)
            return Page.cut([StoredRubricTest.of(one, rubric=row.ref) for one in rows], query.limit)

    def add_test(self, rubric_id: int, test: RubricTest) -> int:
        """Store the result of a test of a version; return its id."""
        with self.db.write() as session:
            return rubrics.add_test(session, rubric_id, test, by=self.caller).id

    @takes(Paging)
    def history(self, ref: int | str, query: Paging) -> Page[RubricEvent]:
        """List the steps of the review of a version, oldest first; of a name those of all its versions."""
        with self.db.read() as session:
            named = page_of(session, RubricRow, limit=None, name=str(ref))
            versions = {row.id: row for row in named or [rubrics.get(session, ref)]}
            of_versions = RubricEventRow.rubric_id.in_(versions)
            rows = page_of(session, RubricEventRow, query.after, query.limit + 1, of_versions)
            return Page.cut([RubricEvent.of(row, rubric=versions[row.rubric_id].ref) for row in rows], query.limit)

    def get(self, ref: int | str) -> StoredRubric:
        """Get a version by id, name (newest approved version), name@version, or at least 8 digits of its digest.

        409 if a name has no approved version.
        """
        with self.db.read() as session:
            return StoredRubric.of(rubrics.get(session, ref))

    def with_prompt(self, ref: str, *, allow_drafts: bool = True) -> tuple[StoredRubric, Prompt | None]:
        """Return a version and its prompt; a name may mean its newest draft."""
        with self.db.read() as session:
            row = rubrics.get(session, ref, allow_drafts=allow_drafts)
            prompt = completions.get_prompt(session, row.prompt_id).value if row.prompt_id is not None else None
            return StoredRubric.of(row), prompt


def stored_records(session: Session, refs: Sequence[str] | None) -> Iterator[Record]:
    """Yield the named rubrics, or the newest approved version of every name that has one.

    Raises:
        NotFoundError: there is no such rubric.
        NotApprovedError: a name has no approved version.
    """
    rows = (rubrics.get(session, ref) for ref in refs or ())
    if not refs:
        approved = every(page_of, session, table=RubricRow, state=APPROVED)
        rows = (row for row in approved if rubrics.get(session, row.name).id == row.id)
    for row in rows:
        prompt = completions.get_prompt(session, row.prompt_id) if row.prompt_id is not None else None
        value, id_ = (prompt.value, prompt.external_id) if prompt is not None else (None, None)
        yield Record(value, row.value, id=id_, name=row.name)


@dataclass(frozen=True, slots=True)
class Addition:
    """A version, and whether it was added now. With a ``conflict`` it is kept as a draft: commit, then raise it."""

    row: RubricRow
    is_new: bool
    conflict: ConflictError | None = None


def add_version(
    session: Session,
    rubric: Rubric,
    edit: Edit,
    *,
    name: str,
    prompt_id: int | None = None,
    origin: RubricOrigin = IMPORTED,
) -> Addition:
    """Add a rubric as the next version of ``name``, or find the version that has this content already.

    Content that is stored as a draft and approved nowhere is a draft under any name, and so are content whose newest
    test failed and the edit of a version that is not approved. An edit whose parent was edited by somebody else is kept
    as a draft, with a conflict. Sending the same edit again gives the same result.

    Raises:
        NotFoundError: there is no such parent.
        NotApprovedError: the parent is a name without an approved version.
        InvalidError, ConflictError: as of `rubrics.add`.
    """
    parent = rubrics.get(session, edit.parent) if edit.parent is not None else None
    state, note = edit.state(origin), ""
    if state == APPROVED and edit.policy != "none":
        drafts = rubrics.only_drafts(session, [rubric.digest])
        same = next((row for row in drafts if row.name != name), None)
        tested = rubrics.newest_test(session, digest=rubric.digest) if rubric.examples else None
        if parent is not None and parent.state in rubrics.NOT_APPROVED:
            note = f"added as a draft: its parent {parent.ref} is {parent.state.replace('_', ' ')}"
        elif same is not None:
            note = f"added as a draft: it has the same content as {same.ref}"
        elif tested is not None and tested.outcome == "failed":
            failing = rubrics.get(session, tested.rubric_id).ref
            note = f"added as a draft: its content fails its own tests, as {failing}"
        state = DRAFT if note else state
    before, given = added(session)["rubrics"], {"name": name, "prompt_id": prompt_id, "origin": origin, "state": state}
    given |= {"parent_id": parent.id if parent is not None else None, "added_by": edit.by}
    row = rubrics.add(session, rubric, **given)  # type: ignore[arg-type]
    is_new, by, conflict = added(session)["rubrics"] > before, edit.by or "unknown", None
    if is_new and note:
        rubrics.record_event(session, row, state, by=by, comment=note)
    # Versions of a name are added one after another, so that all older ones can be seen here.
    if parent is None or row.parent_id != parent.id or not (is_new or row.state == DRAFT):
        return Addition(row, is_new)
    if (other := rubrics.edited_before(session, row, parent)) is None:
        return Addition(row, is_new)
    if not edit.force:
        state, conflict = DRAFT if is_new else row.state, _conflict(parent, other, row)
        row.state = state
    if is_new or state != row.state:
        branch = f"a branch of {parent.ref} beside {other.ref}"
        comment = branch if edit.force else f"refused: {parent.ref} had been edited as {other.ref}"
        rubrics.record_event(session, row, state, by=by, comment=comment)
    return Addition(row, is_new, conflict)


def _conflict(parent: RubricRow, other: RubricRow, row: RubricRow) -> ConflictError:
    """Return the error of an edit whose parent has been edited already; it says what both sides changed."""
    by = f" by {other.added_by}" if other.added_by else ""
    message = f"{parent.ref} has been edited already, as {other.ref}{by}"
    sides = ((f"{other.ref} changed", other), (f"your edit, stored as the draft {row.ref}, changes", row))
    for title, version in sides:
        found = changes(parent.value, version.value)
        more = [f"… and {len(found) - MAX_CHANGES} more"] if len(found) > MAX_CHANGES else []
        lines = [*map(str, found[:MAX_CHANGES]), *more] or ["nothing"]
        message += "\n".join([f"\n{title}:", *(f"  {line}" for line in lines)])
    again = f"add your changes to {other.ref} and name it as the parent: --parent {other.ref}"
    branch = f"or send the same again with --force (over HTTP: force), which makes {row.ref} a branch"
    return ConflictError(message, hint=f"{again}; {branch}", path="parent")


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


def _version(session: Session, ref: int | str, action: ReviewAction) -> RubricRow:
    """Return the version that is meant; a name means its only version that waits for this action."""
    name = str(ref)
    versions = page_of(session, RubricRow, limit=None, name=name)
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
        examples = newest.test.examples
        failed = [one.example for one in examples if one.passed is False]
        what = f"{len(failed)} of {len(examples)} examples ({', '.join(failed[:5])})" if failed else "faults"
        message = f"{row.ref} fails its own tests: {what}, by judge {newest.test.judge!r}"
        hint = f"correct the rubric or its examples; or, by another judge, {hint}"
        raise ConflictError(message, hint=hint, path="tests")


_OPTIONS: dict[str, tuple[Method, str]] = {
    "better": ("contrastive", ""),
    "worse": ("contrastive", ""),
    "specification": ("principles", "give a file with --specification, over HTTP its name and text"),
    "research": ("grounded", "name a collection with --collection, over HTTP in research"),
}
"""Options that belong to one method, and how to give those that it needs."""


def prepared(session: Session, generation: Generation, collections_dir: Path | None = None) -> Generation:
    """Return the settings as a job keeps them: specification stored, collection with digest.

    Raises:
        InvalidError: An option is missing or belongs to another method, or names what is not stored.
        NotFoundError: The collection is not on this machine.
        ConflictError: The collection has another digest than the one that is given.
    """
    given, research, changes = generation.specification, generation.research, dict[str, object]()
    for name, (method, hint) in _OPTIONS.items():
        is_given = getattr(generation, name) is not None
        if is_given and generation.method != method:
            raise InvalidError(f"{name} belongs to the method {method}", hint="leave it out", path=name)
        if hint and not is_given and generation.method == method:
            raise InvalidError(f"the method {method} needs {name}", hint=hint, path=name)
    if (generation.better is None) != (generation.worse is None):
        missing = "better" if generation.better is None else "worse"
        raise InvalidError("expected both policies, better and worse", hint=f"name the {missing} one", path=missing)
    path = "gate_judge"
    try:
        if generation.gate_judge is not None:
            judges.get(session, generation.gate_judge)
        path = "specification"
        if given is not None:
            digest = completions.keep_text(session, given.text, given.digest or "").digest
            changes["specification"] = given.model_copy(update={"text": None, "digest": digest})
    except NotFoundError as error:
        raise InvalidError(error.message, hint=error.hint, path=path) from error
    if research is not None:
        with Collection(collections_dir or get_settings().collections_dir, research.collection) as collection:
            found = collection.digest
        if research.digest not in (None, found):
            message = f"collection {research.collection!r} has the digest {found[:12]}…, not {research.digest}"
            raise ConflictError(message, hint="leave the digest out, or add the collection again as it was")
        changes["research"] = research.model_copy(update={"digest": found})
    return generation.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``criterion`` is the key (the new one, unless it was removed); None for the rubric itself.

    ``field`` is the changed field of a criterion that both rubrics have, or of the rubric; ``text`` says it in words.
    """

    kind: Literal["added", "removed", "changed"]
    criterion: str | None
    field: str | None
    old: Any
    new: Any
    text: str

    def __str__(self) -> str:
        return self.text if self.criterion is None else f"{self.criterion}: {self.text}"


def changes(old: Rubric, new: Rubric) -> list[Change]:
    """Return the differences: of the rubric, then of the criteria in their new order, then the removed criteria.

    Criteria are matched by key and wording, else by wording, else by key. The list is empty only for equal content.
    """
    before = {after.key: one for one, after in match_criteria(old, new)}
    kept = {one.key for one in before.values()}
    sums = [sum(abs(one.weight) for one in rubric.criteria) for rubric in (old, new)]
    found: list[Change] = []
    sides: list[tuple[str | None, Any, Any]] = [
        (None, old, new),
        *((one.key, before.get(one.key), one) for one in new.criteria),
    ]
    for key, one, other in [*sides, *((one.key, one, None) for one in old.criteria if one.key not in kept)]:
        a, b = (side and side.model_dump(mode="json", exclude={"criteria"}) for side in (one, other))
        if a is None or b is None:
            kind: Literal["added", "removed"] = "added" if a is None else "removed"
            text = f"{kind}: {_value((a or b)['text'])} (weight {(a or b)['weight']:g})"
            found.append(Change(kind, key, None, a, b, text))
            continue
        for name in b:
            if a[name] != b[name]:
                text = f"{name.replace('_', ' ')} {_value(a[name])} → {_value(b[name])}"
                if name == "weight":
                    text += f" (share of all weights {abs(a[name]) / sums[0]:.0%} → {abs(b[name]) / sums[1]:.0%})"
                found.append(Change("changed", key, name, a[name], b[name], text))
    order = [before[one.key].key for one in new.criteria if one.key in before]
    if [one.key for one in old.criteria if one.key in kept] != order:
        keys, new_keys = ([one.key for one in rubric.criteria] for rubric in (old, new))
        found.append(Change("changed", None, "criteria", keys, new_keys, "the criteria are in another order"))
    return found


def _value(value: Any) -> str:
    """Return the value of a field as it is read: text in quotation marks, else JSON, at most 400 characters."""
    if value in (None, [], {}):
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    return f"“{cut(' '.join(value.split()), 400)}”" if isinstance(value, str) else cut(strict_json.dump(value), 400)
