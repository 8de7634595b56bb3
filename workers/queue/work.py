"""The work on leased items: scoring a completion, and generating the rubric of a prompt.

It is loaded in the transaction that claims the items. What decides nothing more (`complete_answered`) asks no judge.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy.orm import Session
from structlog import get_logger

from rubricsvc.core.fingerprint import QuestionSet
from rubricsvc.core.generation import AuthoringTask, Generation, Provenance
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import APPROVED, DRAFT, ApprovalPolicy, RubricState
from rubricsvc.core.validation_messages import first_error
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import RubricsvcError
from rubricsvc.settings import Settings, get_settings
from rubricsvc.store import completions, generation, items, jobs, judges, leases, prompts, rubrics, verdicts
from rubricsvc.store.generation import GeneratedItem
from rubricsvc.store.leases import GenerationLease, ItemResult, Lease, Recorded, ScoringLease
from rubricsvc.store.session import Database
from workers.authoring.author import Author, GenerationError
from workers.authoring.gate import judge_of_gate, try_rubric
from workers.authoring.methods import write_rubric
from workers.authoring.recording import REPLIES, RecordingEngine
from workers.engines.base import Engine, error_message
from workers.queue.costs import Write
from workers.queue.engine_pool import DrainEngines
from workers.scoring.completions import score, score_group
from workers.scoring.questions import group_questions, questions_of

log = get_logger(__name__)

_PAGE = 500
"""Items that `complete_answered` claims at once."""


@dataclass(slots=True)
class GroupWork:
    """The completions of one job with the same prompt and rubric, which a comparative judge judges together.

    It is judged whole, leased or not: a verdict is relative to its group, and must not depend on how the queue was cut.
    It is judged when the first of its ``leases`` asks, and cancelled when the last has left. Where two claims share a
    group it is judged twice, and the verdicts that are recorded first stand.

    Attributes:
        members: Completions by id.
        known: Stored verdicts by completion id and criterion.
        leases: How many leases share it; each must call `verdicts` once.
    """

    judge: Judge
    rubric: Rubric
    prompt: Prompt
    members: Mapping[int, Completion]
    known: Mapping[int, Mapping[str, Verdict]]
    leases: int
    _task: asyncio.Task[list[list[Verdict]]] | None = field(default=None, init=False)

    async def verdicts(self, engine: Engine, completion_id: int) -> list[Verdict]:
        """Return the verdicts on one member."""
        if self._task is None:
            known = [self.known[id_] for id_ in self.members]
            asked = score_group(engine, self.judge, self.rubric, self.prompt, list(self.members.values()), known=known)
            self._task = asyncio.create_task(asked)
        try:
            by_member = await asyncio.shield(self._task)
        finally:
            self.leases -= 1
            if not self.leases:
                self._task.cancel()
        return by_member[list(self.members).index(completion_id)]


@dataclass(slots=True)
class ScoringWork:
    """The scoring of one completion under one rubric.

    Attributes:
        group_key: Names the completions of its job with the same rubric and prompt.
        questions: What the judge is asked.
        known: Stored verdicts by criterion; they are not asked for again.
        group: The group that the completion is judged with, for a comparative judge.
    """

    lease: ScoringLease
    judge: Judge
    group_key: leases.GroupKey
    rubric: Rubric
    prompt: Prompt
    completion: Completion
    questions: QuestionSet = field(init=False)
    known: Mapping[str, Verdict] = field(init=False)
    group: GroupWork | None = None

    @property
    def priced(self) -> bool:
        """Whether its calls have a price."""
        return self.judge.priced

    async def run(self, engines: DrainEngines, _write: Write) -> ItemResult:
        """Score the completion; every error is a failed verdict."""
        engine = engines.of(self.judge)
        try:
            if self.group is not None:
                scored = await self.group.verdicts(engine, self.lease.completion_id)
            else:
                about = self.rubric, self.prompt, self.completion
                scored = await score(engine, self.judge, *about, known=self.known)
        except Exception as error:
            log.exception("scoring failed")
            detail = error_message(error)
            keys = [criterion.key for criterion in self.rubric.criteria]
            scored = [self.known.get(key) or Verdict.failed(key, Reason.ENGINE_ERROR, detail=detail) for key in keys]
        return ItemResult(self.lease, self.rubric, self.questions, scored, frozenset(self.known))


@dataclass(slots=True)
class GenerationWork:
    """The generation of one prompt's rubric.

    Attributes:
        gate_judge: The judge that tries the rubric.
        known: Replies that were stored by an earlier worker.
        approval: Which rubrics are drafts until they are approved.
    """

    lease: GenerationLease
    judge: Judge
    gate_judge: Judge
    generation: Generation
    task: AuthoringTask
    known: Mapping[str, Mapping[str, Any]]
    approval: ApprovalPolicy

    @property
    def priced(self) -> bool:
        """Whether its calls have a price."""
        return self.judge.priced or self.gate_judge.priced

    async def run(self, engines: DrainEngines, write: Write) -> GeneratedItem:
        """Write the rubric and try it; every error is a reason."""
        try:
            stored = self.lease.item_id, REPLIES.validate_python(self.known), write
            recording = RecordingEngine(engines.of(self.judge), self.judge, *stored)
            author = Author(recording, self.judge, self.generation, retries=self.lease.retries)
            draft = await write_rubric(author, self.task)
            findings = None
            if self.generation.gate:
                engine = RecordingEngine(engines.of(self.gate_judge), self.gate_judge, *stored)
                findings = await try_rubric(engine, self.gate_judge, self.generation, draft.rubric, self.task)
        except GenerationError as error:
            reason = f"{error.reason}: {error.message}"
            return GeneratedItem(self.lease, reason=reason, redraws=error.redraws, repairs=error.repairs)
        except Exception as error:
            log.exception("generation failed")
            return GeneratedItem(self.lease, reason=f"{Reason.ENGINE_ERROR}: {error_message(error)}")
        refused = findings is not None and findings.refused_by
        state: RubricState = DRAFT if refused or self.approval != "none" else APPROVED
        provenance = Provenance(
            method=self.generation.method,
            job_id=self.lease.job_id,
            judge=self.judge.name,
            model=self.judge.model,
            template=draft.template.name,
            template_digest=draft.template.digest,
            sampling=self.generation.sampling,
            redraws=draft.redraws,
            repairs=draft.repairs,
            sources=draft.sources,
            research=draft.research,
            raw_reply=draft.raw_reply,
            cleaned=draft.cleaned,
            gate=findings,
        )
        return GeneratedItem(self.lease, draft.rubric, provenance, state)


ItemWork = ScoringWork | GenerationWork
Result = ItemResult | GeneratedItem
"""What the work on an item returns. An error of a model is a result too."""


class WorkLoader:
    """Loads the work of leases and records its results; keeps rubrics and prompts, which never change."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._settings = settings

        @lru_cache(maxsize=4096)
        def rubric(rubric_id: int) -> Rubric:
            with db.read() as session:
                return rubrics.get(session, rubric_id).value

        @lru_cache(maxsize=4096)
        def prompt(prompt_id: int) -> Prompt:
            with db.read() as session:
                return prompts.get(session, prompt_id).value

        self._rubric, self._prompt = rubric, prompt

    def load(self, session: Session, judge: Judge, taken: Sequence[Lease]) -> list[ItemWork]:
        """Return the work of the leases. One whose inputs cannot be read fails at once."""
        scoring: list[ScoringWork] = []
        generating: list[GenerationWork] = []
        of_scoring = [lease.completion_id for lease in taken if isinstance(lease, ScoringLease)]
        rows = completions.many(session, of_scoring) if of_scoring else {}
        for lease in taken:
            try:
                if isinstance(lease, ScoringLease):
                    prompt_id, completion = rows[lease.completion_id]
                    key = (lease.job_id, lease.rubric_id, prompt_id)
                    about = self._rubric(lease.rubric_id), self._prompt(prompt_id), completion
                    scoring.append(ScoringWork(lease, judge, key, *about))
                elif isinstance(lease, GenerationLease):
                    generating.append(self._generation(session, judge, lease))
            except (ValidationError, RubricsvcError) as error:
                if isinstance(lease, ScoringLease) and not isinstance(error, ValidationError):
                    raise  # of the database, not of what it holds
                detail = ": ".join(first_error(error)) if isinstance(error, ValidationError) else str(error)
                leases.fail(session, [lease], f"its inputs cannot be read: {detail}")
                jobs.finish(session, [lease.job_id])
        if judge.mode == "comparative":
            _prepare_groups(session, judge, scoring)
        else:
            for one in scoring:
                one.questions = questions_of(one.rubric, judge)
            known = verdicts.known(session, [(one.lease.completion_id, one.questions) for one in scoring])
            for one, answered in zip(scoring, known, strict=True):
                one.known = answered
        return [*scoring, *generating]

    def record(self, session: Session, results: Sequence[Result]) -> Recorded:
        """Record results of any kind, of the items whose leases are valid."""
        scored = leases.record(session, [one for one in results if isinstance(one, ItemResult)])
        made = generation.record(session, [one for one in results if isinstance(one, GeneratedItem)])
        return Recorded(scored.items + made.items, scored.repaired_jobs | made.repaired_jobs)

    def _generation(self, session: Session, judge: Judge, lease: GenerationLease) -> GenerationWork:
        how = generation.settings_of(session, lease.job_id)
        folder = self._settings.collections_dir
        task = generation.inputs_of_prompt(session, lease.prompt_id, how, job_id=lease.job_id, collections_dir=folder)
        gate_judge = judge_of_gate(judges.get(session, how.gate_judge).value if how.gate_judge is not None else judge)
        known = items.known_replies(session, lease.item_id)
        return GenerationWork(lease, judge, gate_judge, how, task, known, self._settings.require_approval)


def _prepare_groups(session: Session, judge: Judge, work: Sequence[ScoringWork]) -> None:
    """Give each lease its whole group: the completions of its job with the same prompt and rubric, leased or not."""
    leased = Counter(one.group_key for one in work)
    ids = leases.groups(session, leased)
    rows = completions.many(session, {id_ for members in ids.values() for id_ in members})
    groups: dict[leases.GroupKey, tuple[QuestionSet, GroupWork]] = {}
    for one in work:
        key = one.group_key
        if key not in groups:
            members = {id_: rows[id_][1] for id_ in ids[key]}
            questions = group_questions(one.rubric, judge, [*members.values()])
            known = verdicts.known(session, [(id_, questions) for id_ in members])
            by_member = dict(zip(members, known, strict=True))
            groups[key] = questions, GroupWork(judge, one.rubric, one.prompt, members, by_member, leased[key])
        one.questions, one.group = groups[key]
        one.known = one.group.known[one.lease.completion_id]


class Rescored(NamedTuple):
    """How many completions were ``completed``, and of all, how many verdicts are ``stored`` and how many ``to_ask``."""

    completed: int
    stored: int
    to_ask: int


def complete_answered(db: Database, job_id: int) -> Rescored:
    """Complete the pending items of a job whose questions are all answered.

    No judge is asked and no engine is made. The other items stay pending. A page is claimed, recorded and released in
    one transaction, so that a killed process holds no lease.
    """
    loader, completed, after = WorkLoader(db, get_settings()), 0, 0
    asked: dict[int, tuple[int, int]] = {}  # verdicts stored and in all, by item: a group's may be claimed twice
    with db.read() as session:
        job = jobs.get(session, job_id)
        judge_id, judge = job.judge_id, job.judge.value
    while True:
        with db.write() as session:
            taken = leases.claim(
                session,
                judge_id,
                limit=_PAGE,
                worker="rescore",
                seconds=60.0,
                whole_groups=judge.mode == "comparative",
                job_id=job_id,
                after=after,
            )
            if not taken:
                break
            results, unanswered = [], list[Lease]()
            for one in loader.load(session, judge, taken):
                if not isinstance(one, ScoringWork):
                    continue
                keys, known = list(one.rubric.by_key), one.known
                asked[one.lease.item_id] = len(known), len(keys)
                if known.keys() >= set(keys):
                    in_order = [known[key] for key in keys]
                    results.append(ItemResult(one.lease, one.rubric, one.questions, in_order, frozenset(known)))
                else:
                    unanswered.append(one.lease)
            completed += len(leases.record(session, results).items)
            leases.release(session, unanswered)
        after = [lease.item_id for lease in taken if lease.item_id > after][:_PAGE][-1]  # the rest is of their groups
    with db.write() as session:
        jobs.finish(session, [job_id])
    stored, questions = (sum(counts) for counts in zip((0, 0), *asked.values(), strict=True))
    return Rescored(completed, stored, questions - stored)
