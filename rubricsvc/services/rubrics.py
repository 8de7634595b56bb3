"""`Rubrics`: immutable versions of named rubrics: adding and editing, review, generation, analysis."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy.orm import Session

from rubricsvc.collections import Collection
from rubricsvc.core import rubric_analysis
from rubricsvc.core.generation import Generation, Method, Provenance
from rubricsvc.core.rubric import Rubric, nearest_level
from rubricsvc.core.states import FITTED, NOT_APPROVED
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError, cut, needs_extra
from rubricsvc.lint import lint, rules_of
from rubricsvc.queries import AnalysisQuery, FitQuery, Paging, RubricFilters, RubricQuery
from rubricsvc.schemas import rubrics as wire
from rubricsvc.schemas.base import Page, takes
from rubricsvc.schemas.jobs import StoredJob
from rubricsvc.services import lazy, versions
from rubricsvc.services.deletion import Deletable
from rubricsvc.services.jobs import Jobs
from rubricsvc.services.versions import Edit, add_version
from rubricsvc.settings import get_settings
from rubricsvc.store import completions, judges, rubrics
from rubricsvc.store import generation as generations
from rubricsvc.store.session import PUBLISHED, Database, every, page_of
from rubricsvc.store.tables import JudgeRow, PromptRow, RubricEventRow, RubricRow, RubricTestRow


@dataclass(eq=False)
class Rubrics(Deletable):
    """Rubric versions, by id, name (the newest approved version), name@version or digest.

    ``edit`` says who adds rubrics, and which of them are drafts.
    """

    db: Database
    edit: Edit = field(default_factory=Edit)
    collections_dir: Path | None = None

    @takes(wire.NewRubric)
    def add(self, new: wire.NewRubric) -> wire.StoredRubric:
        """Store a rubric as the next version of its name. Identical content under a name is the same version.

        409 if that version belongs to another prompt; or if the `parent` has been edited already: then the rubric is
        kept as a draft, and the message says what both edits change.
        """
        lazy.check_rubric(new.rubric)
        edit = replace(self.edit, by=self.edit.person, parent=new.parent, force=new.force, draft=new.draft)
        with self.db.write() as session:
            if new.prompt_id is not None:
                completions.get_prompt(session, new.prompt_id)
            added = add_version(session, new.rubric, edit, name=new.name, prompt_id=new.prompt_id, origin="api")
            why = rubrics.notes(session, [added.row.id]) if added.row.state in NOT_APPROVED else {}
        if added.conflict is not None:
            raise added.conflict
        return wire.StoredRubric.of(added.row, note=why.get(added.row.id))

    @takes(wire.NewGeneration)
    def generate(self, new: wire.NewGeneration) -> StoredJob:
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

    @takes(wire.LintRequest)
    def lint(self, new: wire.LintRequest) -> wire.LintReport:
        """Find faults of a rubric without a model: two questions in one criterion, near-duplicates, vague words.

        Nothing is stored. 422 if a rule is unknown, or the rubric is invalid.
        """
        lazy.check_rubric(new.rubric)
        rules = rules_of(new.rules, new.ignore, new.severity)
        findings = lint(new.rubric, new.prompt, rules=rules, empty_value=lazy.value_of_empty)
        return wire.LintReport(findings=tuple(findings))

    @takes(RubricFilters)
    def page(self, query: RubricFilters) -> Page[wire.StoredRubric]:
        """List rubric versions, oldest first."""
        with self.db.read() as session:
            own = None if query.prompt_id is None else completions.get_prompt(session, query.prompt_id).id
            rows = page_of(session, RubricRow, **query.model_dump() | {"limit": query.limit + 1, "prompt_id": own})
            return Page.cut([wire.StoredRubric.of(row) for row in rows], query.limit)

    @takes(AnalysisQuery)
    def analyse(self, ref: int | str, query: AnalysisQuery) -> rubric_analysis.RubricAnalysis:
        """Analyse a version's criteria from stored verdicts and labels, and advise what to change.

        Of at most 100,000 completions, since it reads all of their verdicts.
        """
        with needs_extra("judging"):
            from rubricsvc.services import analysing
        with self.db.read() as session:
            return analysing.analyse(session, ref, query)

    @takes(rubric_analysis.RewardComparison)
    def reward_changes(self, new: rubric_analysis.RewardComparison) -> rubric_analysis.RewardChanges:
        """Compare the rewards of a job's completions under two versions, from stored verdicts. Nothing is stored."""
        with self.db.read() as session:
            changes: rubric_analysis.RewardChanges = lazy.reward_changes(session, new.job_id, new.old, new.new)
            return changes

    @takes(FitQuery)
    def fit(self, ref: int | str, query: FitQuery) -> rubric_analysis.WeightFit:
        """Fit the weights of a version to people's overall scores; with `save` store them as a draft version.

        Weights that are those of a stored version are that version, whose state stays. 422 if there is too little to
        fit, or the formula does not take these weights. 409 if somebody has edited the rubric since; the weights are
        kept as a draft.
        """
        with needs_extra("judging"):
            from rubricsvc.services import analysing
        with self.db.read() as session:
            found = analysing.fit(session, ref, query)
        if not query.save:
            return found
        weights = {one.key: one.new for one in found.weights}
        with self.db.write() as session:
            start = rubrics.get(session, found.rubric)
            fitted = start.value.model_dump()
            for criterion in fitted["criteria"]:
                criterion["weight"] = weights[criterion["key"]]
            edit = replace(self.edit, parent=start.id, force=query.force, draft=True)
            rubric, name = Rubric.model_validate(fitted), start.name
            new = add_version(session, rubric, edit, name=name, prompt_id=start.prompt_id, origin=FITTED)
        if new.conflict is not None:
            raise new.conflict
        return found.model_copy(update={"saved": new.row.ref})

    @takes(wire.NewReview)
    def review(self, ref: int | str, new: wire.NewReview) -> wire.StoredRubric:
        """Submit, approve, reject or retire a version, or comment on it; by the name of the API key.

        A name means its only version that the action can start from. Doing the same again changes nothing. 409 if the
        version has a state that the action does not start from, or if it has examples and its newest test did not pass.
        """
        action, comment = new.action, (new.comment or "").strip() or None
        if comment is None and action in ("reject", "comment"):
            hint = "say why in `comment` (on the command line --comment TEXT)"
            raise InvalidError(f"to {action} needs a comment", hint=hint, path="comment")
        with self.db.write() as session:
            row, note = versions.review(session, ref, action, comment, self.edit)
            return wire.StoredRubric.of(row, note=note)

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
    def tests(self, ref: int | str, query: Paging) -> Page[wire.StoredRubricTest]:
        """List the tests of a version by its own examples, oldest first, which `rubricsvc rubrics test` stored.

        A version with examples is approved only if the newest one that was measured passed. A name without an approved
        version means its newest draft.
        """
        with self.db.read() as session:
            row = rubrics.get(session, ref, allow_drafts=True)
            rows = page_of(session, RubricTestRow, query.after, query.limit + 1, rubric_id=row.id)
            return Page.cut([wire.StoredRubricTest.of(one, rubric=row.ref) for one in rows], query.limit)

    @takes(rubric_analysis.RubricTest)
    def add_test(self, ref: int | str, test: rubric_analysis.RubricTest) -> wire.StoredRubricTest:
        """Store the result of a test of a version, with who posts it.

        422 if it is of a judge that is not stored, of other content, not of all that its examples expect, or passed
        what is not as expected.
        """
        with self.db.write() as session:
            row = rubrics.get(session, ref, allow_drafts=True)
            if not page_of(session, JudgeRow, limit=1, name=test.judge, digest=test.judge_digest):
                message = f"no judge {cut(test.judge, 80)!r} with the digest {test.judge_digest[:8]!r} is stored"
                hint = "name a judge of `rubricsvc judges show`, or add it first: `rubricsvc judges add`"
                raise InvalidError(message, hint=hint, path="judge_digest")
            expected = [(one.key, dict(one.verdicts or {}), one.reward) for one in row.value.examples or ()]
            tested = [
                (one.example, {each.criterion: each.expected for each in one.verdicts}, one.expected_reward)
                for one in test.examples
            ]
            if row.digest != test.rubric_digest or tested != expected:
                message = f"the test is not one of {row.ref} and all its examples"
                raise InvalidError(message, hint=f"run `rubricsvc rubrics test {row.ref}`", path="rubric_digest")
            scales = {key: one.scale for key, one in row.value.by_key.items()}
            met = [
                each.found is not None and nearest_level(scales[each.criterion], each.found) in each.expected
                for one in test.examples
                for each in one.verdicts
                if each.passed
            ]
            met += [
                one.reward is not None and one.expected_reward is not None and one.reward in one.expected_reward
                for one in test.examples
                if one.reward_passed
            ]
            if not all(met):
                raise InvalidError("a result passed that is not as its example expects", path="examples")
            stored = rubrics.add_test(session, row.id, test, by=self.edit.person)
            return wire.StoredRubricTest.of(stored, rubric=row.ref)

    @takes(Paging)
    def history(self, ref: int | str, query: Paging) -> Page[wire.RubricEvent]:
        """List the steps of the review of a version, oldest first; of a name those of all its versions."""
        with self.db.read() as session:
            named = page_of(session, RubricRow, limit=None, name=str(ref))
            versions = {row.id: row for row in named or [rubrics.get(session, ref)]}
            rows = page_of(session, RubricEventRow, query.after, query.limit + 1, rubric_id={*versions})
            return Page.cut([wire.RubricEvent.of(row, rubric=versions[row.rubric_id].ref) for row in rows], query.limit)

    @takes(RubricQuery)
    def get(self, ref: int | str, query: RubricQuery) -> wire.StoredRubric:
        """Get a version by id, name (newest approved version), name@version, or at least 8 digits of its digest.

        409 if a name has no approved version.
        """
        with self.db.read() as session:
            row = rubrics.get(session, ref, allow_drafts=query.allow_drafts)
            why = rubrics.notes(session, [row.id]) if row.state in NOT_APPROVED else {}
            return wire.StoredRubric.of(row, note=why.get(row.id))


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
