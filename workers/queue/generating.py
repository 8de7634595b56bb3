"""The generation of the rubric of a prompt: its inputs, loaded in the transaction that claims the item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session
from structlog import get_logger

from rubricsvc.core.authoring import AuthoringTask
from rubricsvc.core.generation import GateFindings, Generation, Provenance
from rubricsvc.core.judge import Judge
from rubricsvc.core.states import APPROVED, DRAFT, ApprovalPolicy, RubricState
from rubricsvc.core.validation_messages import first_error
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import RubricsvcError
from rubricsvc.store import generation_inputs, jobs, judges, leases, replies
from rubricsvc.store.generation import GeneratedItem
from rubricsvc.store.leases import GenerationLease
from workers.authoring.author import Author, Draft, GenerationError
from workers.authoring.gate import judge_of_gate, try_rubric
from workers.authoring.methods import write_rubric
from workers.authoring.recording import RecordingEngine, ReplyLog
from workers.engines.base import error_message
from workers.queue.costs import Write
from workers.queue.engine_pool import DrainEngines

log = get_logger(__name__)


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
            stored = ReplyLog(replies.OF_ITEM, self.lease.item_id, self.known, write)
            recording = RecordingEngine(engines.of(self.judge), self.judge, stored)
            author = Author(recording, self.judge, self.generation, retries=self.lease.retries)
            draft = await write_rubric(author, self.task)
            findings = None
            if self.generation.gate:
                engine = RecordingEngine(engines.of(self.gate_judge), self.gate_judge, stored)
                findings = await try_rubric(engine, self.gate_judge, self.generation, draft.rubric, self.task)
        except GenerationError as error:
            reason = f"{error.reason}: {error.message}"
            return GeneratedItem(self.lease, reason=reason, redraws=error.redraws, repairs=error.repairs)
        except Exception as error:
            log.exception("generation failed")
            return GeneratedItem(self.lease, reason=f"{Reason.ENGINE_ERROR}: {error_message(error)}")
        refused = findings is not None and findings.refused_by
        state: RubricState = DRAFT if refused or self.approval != "none" else APPROVED
        return GeneratedItem(self.lease, draft.rubric, self._provenance(draft, findings), state)

    def _provenance(self, draft: Draft, findings: GateFindings | None) -> Provenance:
        return Provenance(
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
            parents=draft.parents,
            raw_reply=draft.raw_reply,
            cleaned=draft.cleaned,
            gate=findings,
        )


class GenerationLoader:
    """Loads the work of leases on prompts."""

    def __init__(self, approval: ApprovalPolicy, collections_dir: Path) -> None:
        self._approval, self._collections_dir = approval, collections_dir

    def load(self, session: Session, judge: Judge, taken: Sequence[GenerationLease]) -> list[GenerationWork]:
        """Return the work of the leases. One whose inputs cannot be read fails at once."""
        work: list[GenerationWork] = []
        for lease in taken:
            try:
                work.append(self._load(session, judge, lease))
            except (ValidationError, RubricsvcError) as error:
                detail = ": ".join(first_error(error)) if isinstance(error, ValidationError) else str(error)
                leases.fail(session, [lease], f"unreadable: {detail}")
                jobs.finish(session, [lease.job_id])
        return work

    def _load(self, session: Session, judge: Judge, lease: GenerationLease) -> GenerationWork:
        generation = generation_inputs.settings(session, lease.job_id)
        task = generation_inputs.of_prompt(
            session, lease.prompt_id, generation, job_id=lease.job_id, collections_dir=self._collections_dir
        )
        name = generation.gate_judge
        gate_judge = judge_of_gate(judges.get(session, name).value if name is not None else judge)
        known = replies.known(session, replies.OF_ITEM, lease.item_id)
        return GenerationWork(lease, judge, gate_judge, generation, task, known, self._approval)
