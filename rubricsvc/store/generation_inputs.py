"""What a rubric is generated from and tried on: references, completions and labels of its prompt, another prompt."""

from __future__ import annotations

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from rubricsvc.core.authoring import AuthoringTask, Contrast
from rubricsvc.core.generation import Generation
from rubricsvc.core.label import OVERALL
from rubricsvc.core.prompt import Completion
from rubricsvc.store import method_inputs
from rubricsvc.store.tables import CompletionRow, ItemRow, JobRow, LabelRow, PromptRow

MAX_REFERENCES = 5
MAX_LABELLED = 12


def settings(session: Session, job_id: int) -> Generation:
    """Return the settings of a job.

    Raises:
        ValidationError: They cannot be read.
    """
    return Generation.model_validate(session.get_one(JobRow, job_id).settings)


def of_prompt(session: Session, prompt_id: int, generation: Generation, job_id: int | None = None) -> AuthoringTask:
    """Return the inputs for a prompt; another prompt is one of the same job, if one has an answer.

    Raises:
        ValidationError: A text cannot be read.
        NotFoundError: A rubric or a text that the settings name is not stored.
    """
    prompt = session.get_one(PromptRow, prompt_id).value
    references = [prompt.reference] if prompt.reference is not None else []
    if generation.references is not None:
        of_policy = _completions(prompt_id).where(CompletionRow.policy == generation.references)
        references += [row.value.text for row in session.scalars(of_policy.limit(MAX_REFERENCES))]
    first = session.scalars(_completions(prompt_id).limit(1)).first()
    own, method = first.value if first else None, generation.method
    contrast = method_inputs.contrast(session, prompt_id, generation) if method == "contrastive" else None
    trajectories = method_inputs.trajectories(session, prompt_id) if method == "traces" else ()
    if contrast is not None:
        own = contrast.better[0]
    if trajectories:  # criteria are about its steps, which a judge reads as one text
        own = Completion(text=trajectories[0].completion.full_text)
    return AuthoringTask(
        prompt,
        tuple(references),
        own,
        _other(session, prompt_id, job_id) if generation.gate else None,
        labelled(session, prompt_id, contrast) if generation.gate else (),
        contrast,
        trajectories,
        method_inputs.parents(session, prompt_id, generation) if method == "merge" else (),
        method_inputs.specification(session, generation),
    )


def _completions(prompt_id: int) -> Select[CompletionRow]:
    return select(CompletionRow).where(CompletionRow.prompt_id == prompt_id).order_by(CompletionRow.id)


def _other(session: Session, prompt_id: int, job_id: int | None) -> str | None:
    """Return an answer to another prompt: to the next one of the job that has an answer, or to any."""
    has_completion = select(CompletionRow.id).where(CompletionRow.prompt_id == PromptRow.id).exists()
    answered = PromptRow.content["reference"].as_string().is_not(None) | has_completion
    others = select(PromptRow).where(PromptRow.id != prompt_id, answered)
    of_job = others.join(ItemRow, (ItemRow.prompt_id == PromptRow.id) & (ItemRow.job_id == job_id))
    for query in (of_job, others):
        ordered = query.order_by(PromptRow.id <= prompt_id, PromptRow.id).limit(1)
        if (row := session.scalars(ordered).first()) is not None:
            if (reference := row.value.reference) is not None:
                return reference
            completion = session.scalars(_completions(row.id).limit(1)).one()
            return completion.value.text
    return None


def labelled(
    session: Session, prompt_id: int, contrast: Contrast | None = None
) -> tuple[tuple[Completion, float], ...]:
    """Return completions of the prompt with the mean of their overall labels; of those not shown, if they suffice."""
    query = (
        select(CompletionRow, func.avg(LabelRow.value))
        .join(LabelRow, LabelRow.completion_id == CompletionRow.id)
        .where(CompletionRow.prompt_id == prompt_id, LabelRow.criterion == OVERALL, LabelRow.value.is_not(None))
        .group_by(CompletionRow.id)
        .order_by(CompletionRow.id)
    )
    shown = {one.digest for one in (*contrast.better, *contrast.worse)} if contrast else set[str]()
    rows = session.execute(query.limit(MAX_LABELLED + len(shown)))
    found = [(row.value, float(mean)) for row, mean in rows]
    others = [one for one in found if one[0].digest not in shown]
    return tuple(others if len(others) >= method_inputs.MIN_MEASURED else found)[:MAX_LABELLED]
