"""`Completions`, and what was found about them: `Verdicts` of judges, `Labels` of people."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy.orm import Session

from rubricsvc.core.judge import JudgedCompletion
from rubricsvc.core.prompt import Completion
from rubricsvc.errors import InvalidError
from rubricsvc.queries import AgreementQuery, CompletionFilters, LabelFilters, LabelledFilters, Paging, VerdictFilters
from rubricsvc.schemas import completions as wire
from rubricsvc.schemas.base import Page, StoredIds, takes
from rubricsvc.services.deletion import Deletable
from rubricsvc.stats.reports import AgreementReport
from rubricsvc.store import completions, jobs, labels, rubrics
from rubricsvc.store.labels import RubricVersion, superseded
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import CompletionRow, PromptRow


@dataclass(eq=False)
class Completions(Deletable):
    """Completions, by id."""

    db: Database

    @takes(wire.NewCompletions)
    def add(self, new: wire.NewCompletions) -> StoredIds:
        """Store completions of one or several prompts. Identical content for a prompt is stored once."""
        return self._store(new, completions.add_many)

    @takes(wire.NewCompletions)
    def add_samples(self, new: wire.NewCompletions) -> StoredIds:
        """Store samples, but for those whose policy and sampling, with the number, a completion of the prompt has."""
        return self._store(new, completions.add_samples)

    def _store(
        self, new: wire.NewCompletions, add: Callable[[Session, list[tuple[int, Completion]]], list[int]]
    ) -> StoredIds:
        with self.db.write() as session:
            for prompt_id in {item.prompt_id for item in new.completions}:
                completions.get_prompt(session, prompt_id)
            pairs = [(item.prompt_id, item.completion) for item in new.completions]
            return StoredIds(ids=tuple(add(session, pairs)))

    @takes(CompletionFilters)
    def page(self, query: CompletionFilters) -> Page[wire.StoredCompletion]:
        """List completions, oldest first."""
        with self.db.read() as session:
            own = None if query.prompt_id is None else completions.get_prompt(session, query.prompt_id).id
            rows = page_of(session, CompletionRow, **query.model_dump() | {"limit": query.limit + 1, "prompt_id": own})
            return Page.cut([wire.StoredCompletion.of(row) for row in rows], query.limit)

    def get(self, completion_id: int) -> wire.StoredCompletion:
        """Get a completion."""
        with self.db.read() as session:
            return wire.StoredCompletion.of(completions.get(session, completion_id))


@dataclass(eq=False)
class Verdicts:
    """Verdicts of judges, by criterion."""

    db: Database

    @takes(VerdictFilters)
    def page(self, query: VerdictFilters) -> Page[wire.StoredVerdict]:
        """List verdicts, oldest first. Filter by job, completion or outcome."""
        with self.db.read() as session:
            if query.job_id is not None:
                jobs.get(session, query.job_id)  # raises NotFoundError
            rows = completions.verdict_page(session, **query.model_dump() | {"limit": query.limit + 1})
            return Page.cut([wire.StoredVerdict.of(row) for row in rows], query.limit)


@dataclass(eq=False)
class Labels(Deletable):
    """People's verdicts."""

    db: Database

    @takes(wire.NewLabels)
    def add(self, new: wire.NewLabels) -> StoredIds:
        """Store labels. 409 if the annotator has a different label there, unless ``replace`` is true."""
        with self.db.write() as session:
            rubric_ids = {ref: rubrics.get(session, ref).id for ref in {item.rubric for item in new.labels}}
            rows = ((item.completion_id, rubric_ids[item.rubric], item.label) for item in new.labels)
            return StoredIds(ids=tuple(labels.add_many(session, rows, replace=new.replace)))

    @takes(LabelFilters)
    def page(self, query: LabelFilters) -> Page[wire.StoredLabel]:
        """List labels, oldest first. Filter by completion, rubric version, annotator or job."""
        with self.db.read() as session:
            if query.completion_id is not None:
                completions.get(session, query.completion_id)
            if query.job_id is not None:
                jobs.get(session, query.job_id)
            version = None if query.rubric_id is None else rubrics.get(session, query.rubric_id).id
            rows = labels.page(session, **query.model_dump() | {"rubric_id": version, "limit": query.limit + 1})
            found = [
                wire.StoredLabel.of(
                    row,
                    rubric=row.rubric.ref,
                    prompt_digest=row.completion.prompt.digest,
                    completion_digest=row.completion.digest,
                    rubric_digest=row.rubric.digest,
                )
                for row in rows
            ]
            return Page.cut(found, query.limit)

    @takes(AgreementQuery)
    def agreement(self, query: AgreementQuery) -> AgreementReport:
        """Compare people's labels with each other, without any judge. 422 if no two people labelled the same."""
        from rubricsvc.stats.agreement import agreement_report

        with self.db.read() as session:
            rows = labels.judged_labels(session, None, job_id=query.job_id)
        rows = [one for one in rows if query.criterion in (None, one.label.criterion)]
        found = agreement_report(None, rows, resamples=query.resamples)
        if not found.pooled.annotator_pairs and not (found.reward and found.reward.annotator_pairs):
            raise InvalidError("no criterion has labels of two people", hint="write sheets: `labels export --blind`")
        return found

    @takes(LabelledFilters)
    def completions(self, query: LabelledFilters) -> Page[JudgedCompletion]:
        """List labelled completions with their labels under each rubric version.

        A label counts for its question: with a ``rubric``, labels on its other versions are listed where it asks the
        same. If a person labelled a question under several versions, the newest label counts.
        """
        with self.db.read() as session:
            if query.job_id is not None:
                jobs.scoring(session, query.job_id)
            version = rubrics.get(session, query.rubric) if query.rubric is not None else None
            asked = {one.question for one in version.value.criteria} if version is not None else set()
            rows, following = labels.labelled(
                session,
                names=[version.name] if version is not None else (),
                **query.model_dump(include={"annotators", "job_id", "after", "limit"}),
            )
            known = {row.id: RubricVersion(row.id, row.name, row.value) for *_, row in rows}
            outdated = superseded((label for label, *_ in rows), known)
            found = []
            for _, group in groupby(rows, key=lambda row: (row[1].id, row[2].id)):
                given, kept, left_out = list(group), [], Counter[str]()
                _, completion, row = given[0]
                rubric = known[row.id].rubric
                for label, *_ in given:
                    criterion = rubric.by_key.get(label.criterion)
                    if label.id in outdated:
                        left_out["superseded"] += 1
                    elif asked and criterion is not None and criterion.question not in asked:
                        left_out["other_question"] += 1
                    else:  # a score of the whole completion is of no criterion, and always counts
                        kept.append(label.label)
                found.append(
                    JudgedCompletion(
                        id=completion.id,
                        prompt=completion.prompt.value,
                        completion=completion.value,
                        rubric=rubric,
                        labels=tuple(kept),
                        left_out=left_out,
                    )
                )
            return Page(data=tuple(found), next=following)


@dataclass(eq=False)
class Prompts(Deletable):
    """Prompts, by id or external id."""

    db: Database

    @takes(wire.NewPrompt)
    def add(self, new: wire.NewPrompt) -> wire.StoredPrompt:
        """Store a prompt. Identical content is stored once."""
        with self.db.write() as session:
            return wire.StoredPrompt.of(completions.add_prompt(session, new.prompt, new.external_id))

    @takes(Paging)
    def page(self, query: Paging) -> Page[wire.StoredPrompt]:
        """List prompts, oldest first."""
        with self.db.read() as session:
            rows = page_of(session, PromptRow, query.after, query.limit + 1)
            return Page.cut([wire.StoredPrompt.of(row) for row in rows], query.limit)

    def get(self, ref: int | str) -> wire.StoredPrompt:
        """Get a prompt by id or external id."""
        with self.db.read() as session:
            return wire.StoredPrompt.of(completions.get_prompt(session, ref))
