"""Jobs that generate rubrics: submitted, and their results recorded. Their items are leased through `leases`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Select, func, select, update
from sqlalchemy.orm import Session

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.estimate import MIN_CLUSTERS
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.generation import AuthoringTask, Contrast, Generation, Provenance, Specification
from rubricsvc.core.prompt import Completion
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import DRAFT, GENERATED, RubricState
from rubricsvc.core.verdict import OVERALL
from rubricsvc.errors import InvalidError
from rubricsvc.store import completions, jobs, judges, leases, rubrics, tables
from rubricsvc.store.leases import GenerationLease, LeaseResult
from rubricsvc.store.session import insert
from rubricsvc.store.tables import CompletionRow, ItemRow, JobRow, LabelRow, PromptRow, ReplyRow, RubricRow


def submit(
    session: Session,
    *,
    judge_id: int,
    prompt_ids: Iterable[int],
    generation: Generation,
    key: str | None = None,
    name: str = "",
    budget: float | None = None,
) -> JobRow:
    """Store a job that generates a rubric for each prompt, and wake workers for it.

    The same ``key`` gives the same job; without a key, the same judge, prompts and settings do. ``budget`` is in US
    dollars.
    """
    ids = sorted(set(prompt_ids))
    if not ids:
        raise InvalidError("no prompts", hint="import prompts first, or name a file with prompts")
    judge = judges.get(session, judge_id).value
    if not judge.model:
        message = f"judge {judge.name!r} ({judge.mode}) has no model of its own"
        raise InvalidError(message, hint="name one of its members")
    jobs.check_budget(judge, budget)
    if generation.gate_judge is not None:
        jobs.check_budget(judges.get(session, generation.gate_judge).value, budget)
    settings = generation.model_dump(mode="json", exclude_none=True)
    content_key = digest(tables.GENERATE, judge_id, ids, settings)
    given: dict[str, Any] = {"key": key, "name": name, "budget": budget, "kind": tables.GENERATE, "settings": settings}
    rows = [{"prompt_id": id_} for id_ in ids]
    return jobs.add(session, rows, judge_id=judge_id, content_key=content_key, **given)[0]


def add_replies(session: Session, item_id: int, replies: Mapping[str, dict[str, Any]]) -> None:
    """Store replies by the digest of their questions. Of several to one question the first is kept."""
    for question in sorted(replies):  # one order for all writers: two cannot block each other
        row = {"item_id": item_id, "digest": question, "reply": replies[question]}
        statement = insert(session, ReplyRow).values(row)
        again = {"answered": ReplyRow.answered + 1}
        session.execute(statement.on_conflict_do_update(index_elements=["item_id", "digest"], set_=again))


@dataclass(frozen=True, slots=True)
class GeneratedItem(LeaseResult):
    """The rubric of a leased prompt with its provenance and the state in which it is added, or why there is none."""

    lease: GenerationLease
    rubric: Rubric | None = None
    provenance: Provenance | None = None
    state: RubricState = DRAFT
    reason: str = ""


def record(session: Session, results: Sequence[GeneratedItem]) -> list[int]:
    """Store the rubrics of the items whose leases are valid, each as a version of its name; return their ids.

    The rest is dropped. A version that has the same content already stays as it is, with its provenance.
    """
    ours = leases.lock_valid(session, results)
    for result in ours:
        values: dict[str, object] = {"state": tables.FAILED, "null_reason": result.reason[: leases.REASON_CHARS]}
        if result.rubric is not None and result.provenance is not None:
            prompt_id, made_by = result.lease.prompt_id, result.provenance
            # named by the prompt's id in its file, or by its id here if another prompt has that one too
            prompt, method = session.get_one(PromptRow, prompt_id), made_by.method
            base = " ".join((prompt.external_id or f"prompt-{prompt_id}").replace("@", "-").split())
            name = f"{base[: MAX_NAME_LENGTH - len(method) - 1]}-{method}"
            others = select(RubricRow.id).where(RubricRow.name == name, RubricRow.prompt_id.is_distinct_from(prompt_id))
            if session.scalar(others.limit(1)) is not None:
                name = f"prompt-{prompt_id}-{method}"
            row = rubrics.add(
                session, result.rubric, name=name, prompt_id=prompt_id, origin=GENERATED, state=result.state
            )
            if row.provenance is None:
                row.provenance = made_by.model_dump(mode="json", exclude_none=True)
                session.flush()
            values = {"state": tables.DONE, "rubric_id": row.id}
        item = update(ItemRow).where(ItemRow.id == result.lease.item_id)
        session.execute(item.values(lease_until=None, worker=None, **values))
    return [result.lease.item_id for result in ours]


MAX_REFERENCES = 5
MAX_LABELLED = 12
MAX_CONTRASTED = 3  # completions on each side
MAX_TRAJECTORIES = 4
_MAX_READ = 2000  # completions among which trajectories are looked for: the oldest ones

Scored = list[tuple[int, float]]  # ids of completions with a score, the best first


def inputs_of_prompt(
    session: Session,
    prompt_id: int,
    generation: Generation,
    *,
    job_id: int | None = None,
    collections_dir: Path | None = None,
) -> AuthoringTask:
    """Return the inputs for a prompt; another prompt is one of the same job, if it has a text.

    ``collections_dir`` has the collections of documents on this machine.
    """
    prompt = session.get_one(PromptRow, prompt_id).value
    references = [prompt.reference] if prompt.reference is not None else []
    if generation.references is not None:
        of_policy = _completions(prompt_id, generation.references).limit(MAX_REFERENCES)
        references += [row.value.text for row in session.scalars(of_policy)]
    first = session.scalars(_completions(prompt_id).limit(1)).first()
    own, method = first.value if first else None, generation.method
    sides = contrast(session, prompt_id, generation) if method == "contrastive" else None
    traces = trajectories(session, prompt_id) if method == "traces" else ()
    if sides is not None:
        own = sides.better[0]
    if traces:  # criteria are about its steps, which a judge reads as one text
        own = Completion(text=traces[0][0].full_text)
    specification = generation.specification
    if specification is not None and specification.digest is not None:
        text = completions.keep_text(session, digest=specification.digest).content
        specification = Specification(name=specification.name, text=text)
    return AuthoringTask(
        prompt=prompt,
        references=tuple(references),
        own=own,
        other=_other(session, prompt_id, job_id) if generation.gate else None,
        labelled=labelled(session, prompt_id, sides) if generation.gate else (),
        contrast=sides,
        trajectories=traces,
        specification=specification,
        collections_dir=collections_dir,
    )


def _completions(prompt_id: int, policy: str | None = None) -> Select[CompletionRow]:
    query = select(CompletionRow).where(CompletionRow.prompt_id == prompt_id).order_by(CompletionRow.id)
    return query if policy is None else query.where(CompletionRow.policy == policy)


def _other(session: Session, prompt_id: int, job_id: int | None) -> str | None:
    """Return the reference or a completion of another prompt: of the next one of the job that has any, or of any."""
    has_completion = select(CompletionRow.id).where(CompletionRow.prompt_id == PromptRow.id).exists()
    answered = PromptRow.content["reference"].as_string().is_not(None) | has_completion
    others = select(PromptRow).where(PromptRow.id != prompt_id, answered)
    of_job = others.join(ItemRow, (ItemRow.prompt_id == PromptRow.id) & (ItemRow.job_id == job_id))
    for query in (of_job, others):
        ordered = query.order_by(PromptRow.id <= prompt_id, PromptRow.id).limit(1)
        if (row := session.scalars(ordered).first()) is not None:
            if (reference := row.value.reference) is not None:
                return reference
            return session.scalars(_completions(row.id).limit(1)).one().value.text
    return None


def labelled(session: Session, prompt_id: int, sides: Contrast | None = None) -> tuple[tuple[Completion, float], ...]:
    """Return completions of the prompt with the mean of their overall labels; of those not shown, if they suffice."""
    shown = {one.digest for one in (*sides.better, *sides.worse)} if sides else set[str]()
    first = sorted(_labels(session, prompt_id))[: MAX_LABELLED + len(shown)]
    found = [(session.get_one(CompletionRow, id_).value, mean) for id_, mean in first]
    others = [one for one in found if one[0].digest not in shown]
    return tuple(others if len(others) >= MIN_CLUSTERS else found)[:MAX_LABELLED]


def contrast(session: Session, prompt_id: int, generation: Generation) -> Contrast | None:
    """Return completions of different quality: of two policies, or by labels, or else by rewards.

    Where the gate compares the rubric with enough labels, every other labelled completion is left to it.
    """
    if generation.better is not None and generation.worse is not None:
        better, worse = (
            tuple(row.value for row in session.scalars(_completions(prompt_id, one).limit(MAX_CONTRASTED)))
            for one in (generation.better, generation.worse)
        )
    else:
        scored = _labels(session, prompt_id)
        if generation.gate and len(scored) >= 2 * MIN_CLUSTERS:
            scored = scored[::2]
        ids = extremes(scored) or extremes(_rewards(session, prompt_id))
        better, worse = (tuple(session.get_one(CompletionRow, id_).value for id_ in side) for side in ids or ((), ()))
    same = {one.text for one in better} & {one.text for one in worse} | {""}
    better, worse = (tuple(one for one in side if one.text.strip() not in same) for side in (better, worse))
    return Contrast(better, worse) if better and worse else None


def extremes(scored: Scored, most: int = MAX_CONTRASTED) -> tuple[list[int], list[int]] | None:
    """Return the best ids, and the worst from the worst on; each of the ones scores more than each of the others."""
    count = min(most, len(scored) // 2)
    while count and scored[count - 1][1] <= scored[-count][1]:
        count -= 1
    ids = [id_ for id_, _ in scored]
    return (ids[:count], ids[: -count - 1 : -1]) if count else None


def trajectories(session: Session, prompt_id: int) -> tuple[tuple[Completion, float | None], ...]:
    """Return trajectories of agents, which call tools: the best and the worst where they have scores, or the first."""
    query = _completions(prompt_id).limit(_MAX_READ)
    agents = [
        row.id
        for row in session.scalars(query.execution_options(yield_per=100))
        if any(message.get("tool_calls") or message["role"] == "tool" for message in row.content["messages"])
    ]
    scores = dict(_labels(session, prompt_id) or _rewards(session, prompt_id))
    scored = sorted(((id_, scores[id_]) for id_ in agents if id_ in scores), key=lambda one: -one[1])
    best, worst = extremes(scored, MAX_TRAJECTORIES // 2) or ([], [])
    chosen = [*best, *worst] or agents[:MAX_TRAJECTORIES]
    return tuple((session.get_one(CompletionRow, id_).value, scores.get(id_)) for id_ in chosen)


def _labels(session: Session, prompt_id: int) -> Scored:
    """Return the completions by the mean of their overall labels."""
    mean = func.avg(LabelRow.value)
    query = select(CompletionRow.id, mean).join(LabelRow, LabelRow.completion_id == CompletionRow.id)
    of_prompt = (CompletionRow.prompt_id == prompt_id, LabelRow.criterion == OVERALL, LabelRow.value.is_not(None))
    query = query.where(*of_prompt).group_by(CompletionRow.id).order_by(mean.desc(), CompletionRow.id)
    return [(id_, float(score)) for id_, score in session.execute(query)]


def _rewards(session: Session, prompt_id: int) -> Scored:
    """Return the completions by their mean reward in the newest job where rewards differ."""
    rewarded = select(ItemRow.job_id).join(CompletionRow, CompletionRow.id == ItemRow.completion_id)
    done = (CompletionRow.prompt_id == prompt_id, ItemRow.state == tables.DONE, ItemRow.reward.is_not(None))
    rewarded = rewarded.where(*done)
    differ = rewarded.group_by(ItemRow.job_id).having(func.min(ItemRow.reward) < func.max(ItemRow.reward))
    newest = session.scalar(differ.order_by(ItemRow.job_id.desc()).limit(1))
    mean = func.avg(ItemRow.reward)
    query = rewarded.with_only_columns(CompletionRow.id, mean).where(ItemRow.job_id == newest)
    query = query.group_by(CompletionRow.id).order_by(mean.desc(), CompletionRow.id)
    return [(id_, float(score)) for id_, score in session.execute(query)]
