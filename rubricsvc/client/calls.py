"""The calls of the API, one function each: the table that both clients are made from."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rubricsvc.client.flows import Flow, Sleep, call, in_path
from rubricsvc.core.audit import KeptAudit
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Reward, reward
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.schemas import (
    Item,
    KeptCompletions,
    KeptLabels,
    NewCompletion,
    NewCompletions,
    NewItem,
    NewJob,
    NewJudge,
    NewLabel,
    NewLabels,
    NewPrompt,
    NewRubric,
    Page,
    PreferencePair,
    Retried,
    StoredCompletion,
    StoredJob,
    StoredJudge,
    StoredLabel,
    StoredPrompt,
    StoredRubric,
    StoredVerdict,
)


@dataclass(frozen=True)
class Scored(Reward):
    """A reward with the verdicts that it was folded from. ``value`` is None when too little was judged."""

    verdicts: tuple[Verdict, ...] = ()
    completion_id: int = 0


def add_prompt(prompt: Prompt | str, external_id: str | None = None) -> Flow[StoredPrompt]:
    value = Prompt.of(prompt) if isinstance(prompt, str) else prompt
    return call(StoredPrompt, "POST", "prompts", body=NewPrompt(prompt=value, external_id=external_id))


def get_prompt(ref: int | str) -> Flow[StoredPrompt]:
    return call(StoredPrompt, "GET", f"prompts/{in_path(ref)}")


def page_prompts(*, after: int = 0, limit: int = 100) -> Flow[Page[StoredPrompt]]:
    return call(Page[StoredPrompt], "GET", "prompts", after=after, limit=limit)


def add_rubric(rubric: Rubric, name: str, *, prompt_id: int | None = None, origin: str = "api") -> Flow[StoredRubric]:
    body = NewRubric(rubric=rubric, name=name, prompt_id=prompt_id, origin=origin)
    return call(StoredRubric, "POST", "rubrics", body=body)


def get_rubric(ref: int | str) -> Flow[StoredRubric]:
    return call(StoredRubric, "GET", f"rubrics/{in_path(ref)}")


def page_rubrics(
    *, name: str | None = None, prompt_id: int | None = None, after: int = 0, limit: int = 100
) -> Flow[Page[StoredRubric]]:
    return call(Page[StoredRubric], "GET", "rubrics", name=name, prompt_id=prompt_id, after=after, limit=limit)


def add_completions(prompt_id: int, completions: Iterable[Completion | str]) -> Flow[KeptCompletions]:
    values = (Completion(text=c) if isinstance(c, str) else c for c in completions)
    items = tuple(NewCompletion(prompt_id=prompt_id, completion=value) for value in values)
    return call(KeptCompletions, "POST", "completions", body=NewCompletions(completions=items))


def get_completion(completion_id: int) -> Flow[StoredCompletion]:
    return call(StoredCompletion, "GET", f"completions/{completion_id}")


def page_completions(
    *, prompt_id: int | None = None, policy: str | None = None, after: int = 0, limit: int = 100
) -> Flow[Page[StoredCompletion]]:
    return call(
        Page[StoredCompletion], "GET", "completions", prompt_id=prompt_id, policy=policy, after=after, limit=limit
    )


def add_judge(judge: Judge) -> Flow[StoredJudge]:
    return call(StoredJudge, "POST", "judges", body=NewJudge(judge=judge))


def get_judge(ref: int | str) -> Flow[StoredJudge]:
    return call(StoredJudge, "GET", f"judges/{in_path(ref)}")


def page_judges(*, after: int = 0, limit: int = 100) -> Flow[Page[StoredJudge]]:
    return call(Page[StoredJudge], "GET", "judges", after=after, limit=limit)


def page_audits(judge: int | str, *, after: int = 0, limit: int = 50) -> Flow[Page[KeptAudit]]:
    return call(Page[KeptAudit], "GET", f"judges/{in_path(judge)}/audits", after=after, limit=limit)


def submit_job(
    judge: int | str,
    items: Iterable[tuple[int, int | str]],
    *,
    name: str = "",
    key: str | None = None,
    budget: float | None = None,
) -> Flow[StoredJob]:
    """``items`` are pairs of (completion id, rubric's id or name). The same ``key`` gives the same job again.

    ``budget`` caps what the judge may cost, in US dollars.
    """
    pairs = tuple(NewItem(completion_id=completion_id, rubric=rubric) for completion_id, rubric in items)
    headers = {"Idempotency-Key": key or uuid.uuid4().hex}
    new = NewJob(judge=judge, items=pairs, name=name, budget=budget)
    return call(StoredJob, "POST", "jobs", body=new, headers=headers)


def get_job(job_id: int, *, summary: bool = False) -> Flow[StoredJob]:
    """With ``summary`` of one that has ended; of another where it is asked for."""
    return call(StoredJob, "GET", f"jobs/{job_id}", summary=summary or None)


def page_jobs(*, status: str | None = None, after: int = 0, limit: int = 100) -> Flow[Page[StoredJob]]:
    return call(Page[StoredJob], "GET", "jobs", status=status, after=after, limit=limit)


def page_items(job_id: int, *, verdicts: bool = True, after: int = 0, limit: int = 100) -> Flow[Page[Item]]:
    return call(Page[Item], "GET", f"jobs/{job_id}/items", verdicts=verdicts, after=after, limit=limit)


def page_pairs(job_id: int, *, min_margin: float = 0.0, after: int = 0, limit: int = 100) -> Flow[Page[PreferencePair]]:
    """Preference pairs; a page may be empty, and not the last."""
    return call(Page[PreferencePair], "GET", f"jobs/{job_id}/pairs", min_margin=min_margin, after=after, limit=limit)


def cancel_job(job_id: int) -> Flow[StoredJob]:
    return call(StoredJob, "POST", f"jobs/{job_id}/cancel")


def retry_job(job_id: int, *, budget: float | None = None) -> Flow[Retried]:
    return call(Retried, "POST", f"jobs/{job_id}/retry", budget=budget)


def page_verdicts(
    *,
    job_id: int | None = None,
    completion_id: int | None = None,
    outcome: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> Flow[Page[StoredVerdict]]:
    return call(
        Page[StoredVerdict],
        "GET",
        "verdicts",
        job_id=job_id,
        completion_id=completion_id,
        outcome=outcome,
        after=after,
        limit=limit,
    )


def add_labels(labels: Iterable[tuple[int, int | str, Label]], *, replace: bool = False) -> Flow[KeptLabels]:
    """``labels`` are (completion id, rubric's id or name, label). ``replace``: a person's newer word counts."""
    items = tuple(NewLabel(completion_id=id_, rubric=rubric, label=label) for id_, rubric, label in labels)
    return call(KeptLabels, "POST", "labels", body=NewLabels(labels=items, replace=replace))


def page_labels(
    *,
    completion_id: int | None = None,
    rubric_id: int | None = None,
    annotator: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> Flow[Page[StoredLabel]]:
    return call(
        Page[StoredLabel],
        "GET",
        "labels",
        completion_id=completion_id,
        rubric_id=rubric_id,
        annotator=annotator,
        after=after,
        limit=limit,
    )


def wait(
    job_id: int, timeout: float | None = None, on_progress: Callable[[StoredJob], None] | None = None
) -> Flow[StoredJob]:
    """The job once it is finished, however it ended. ``on_progress`` sees it at every look.

    Raises:
        TimeoutError: it is not finished after ``timeout`` seconds. It goes on; wait again, or cancel it.
    """
    end = None if timeout is None else time.monotonic() + timeout
    delay = 0.02
    while True:
        job = yield from get_job(job_id)
        if on_progress is not None:
            on_progress(job)
        if job.finished:
            return job
        left = delay if end is None else end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"job {job_id} is not finished after {timeout:g} s")
        yield Sleep(min(delay, left))
        delay = min(2.0, delay * 1.5)


def score(
    prompt: Prompt | str,
    rubric: Rubric,
    completions: Sequence[Completion | str],
    judge: Judge | str,
    *,
    rubric_name: str | None = None,
    timeout: float | None = None,
    cancel_late: bool = False,
    key: str | None = None,
    on_progress: Callable[[StoredJob], None] | None = None,
) -> Flow[list[Scored]]:
    """Keep what is given, have it scored in a job, wait, and give one `Scored` for each completion, in their order.

    ``judge`` is a judge, or the name of one that the service has. Without ``rubric_name`` the rubric is kept under its
    digest and belongs to no prompt, so that many prompts may be scored by it. The same ``key`` waits for the same job
    again.

    Raises:
        TimeoutError: the job is not finished after ``timeout`` seconds, and goes on. With ``cancel_late`` it is
            cancelled instead, and what was scored is given; the rest has no reward.
    """
    asked = yield from add_prompt(prompt)
    name = rubric_name or f"rubric-{rubric.digest[:12]}"
    listed = yield from add_rubric(rubric, name, prompt_id=asked.id if rubric_name else None)
    judge_ref = (yield from add_judge(judge)).id if isinstance(judge, Judge) else judge
    kept = yield from add_completions(asked.id, completions)
    job = yield from submit_job(judge_ref, [(id_, listed.id) for id_ in dict.fromkeys(kept.ids)], key=key)
    late = None
    try:
        yield from wait(job.id, timeout, on_progress)
    except TimeoutError as error:
        if not cancel_late:
            raise
        late = f"cancelled: {error}"
        yield from cancel_job(job.id)
    found: dict[int, Scored] = {}
    after: int | None = 0
    while after is not None:
        page = yield from page_items(job.id, after=after)
        found.update({item.completion_id: _scored(item, rubric, late) for item in page.data})
        after = page.next
    return [found[id_] for id_ in kept.ids]


def _scored(item: Item, rubric: Rubric, late: str | None) -> Scored:
    folded = reward(rubric, item.verdicts) if item.reward is not None else None
    return Scored(
        value=item.reward,
        coverage=item.coverage or 0.0,
        formula=item.formula or rubric.formula,
        parts=folded.parts if folded else {},
        vetoed_by=folded.vetoed_by if folded else None,
        why_none=None if folded else item.why_none or late or item.state,
        verdicts=item.verdicts,
        completion_id=item.completion_id,
    )
