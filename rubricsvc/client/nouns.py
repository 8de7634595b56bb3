"""Methods of the clients, by noun: ``client.jobs.get(3)``, or ``await client.jobs.get(3)``.

Each method is a function that builds a `Request`. `Method` makes it a method of both clients.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload
from urllib.parse import quote

from pydantic import BaseModel

from rubricsvc import schemas
from rubricsvc.client.requests import Request
from rubricsvc.core.audit import StoredAudit
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.schemas import Page

if TYPE_CHECKING:
    from rubricsvc.client.clients import AsyncClient, Client

C = TypeVar("C", bound="Client | AsyncClient")
M = TypeVar("M", bound=BaseModel)
P = ParamSpec("P")


class Noun(Generic[C]):
    """Methods of one noun, bound to a client."""

    def __init__(self, client: C) -> None:
        self.client = client


class Method(Generic[P, M]):
    """Descriptor that builds a request and sends it: blocking on a `Client`, a coroutine on an `AsyncClient`."""

    def __init__(self, build: Callable[P, Request[M]]) -> None:
        self.build = build

    @overload
    def __get__(self, noun: Noun[Client], owner: object = None) -> Callable[P, M]: ...
    @overload
    def __get__(self, noun: Noun[AsyncClient], owner: object = None) -> Callable[P, Coroutine[Any, Any, M]]: ...

    def __get__(self, noun: Noun[Any] | None, owner: object = None) -> Any:
        if noun is None:
            return self.build

        @wraps(self.build)
        def send(*args: P.args, **kwargs: P.kwargs) -> Any:
            return noun.client.send(self.build(*args, **kwargs))

        return send


def _segment(ref: int | str) -> str:
    return quote(str(ref), safe="@/")


class Prompts(Noun[C]):
    """Methods of ``client.prompts``."""

    @Method
    def add(prompt: Prompt | str, external_id: str | None = None) -> Request[schemas.StoredPrompt]:
        """Store a prompt; identical content is stored once."""
        value = Prompt.of(prompt) if isinstance(prompt, str) else prompt
        body = schemas.NewPrompt(prompt=value, external_id=external_id)
        return Request(schemas.StoredPrompt, "POST", "prompts", body=body)

    @Method
    def get(ref: int | str) -> Request[schemas.StoredPrompt]:
        """Get a prompt by id or external id."""
        return Request(schemas.StoredPrompt, "GET", f"prompts/{_segment(ref)}")

    @Method
    def page(*, after: int = 0, limit: int = 100) -> Request[Page[schemas.StoredPrompt]]:
        """List prompts."""
        return Request(Page[schemas.StoredPrompt], "GET", "prompts", {"after": after, "limit": limit})


class Rubrics(Noun[C]):
    """Methods of ``client.rubrics``."""

    @Method
    def add(
        rubric: Rubric, name: str, *, prompt_id: int | None = None, origin: str = "api"
    ) -> Request[schemas.StoredRubric]:
        """Store a rubric version under a name; identical content is the same version."""
        body = schemas.NewRubric(rubric=rubric, name=name, prompt_id=prompt_id, origin=origin)
        return Request(schemas.StoredRubric, "POST", "rubrics", body=body)

    @Method
    def get(ref: int | str) -> Request[schemas.StoredRubric]:
        """Get a rubric by id, name (newest version), name@version or digest."""
        return Request(schemas.StoredRubric, "GET", f"rubrics/{_segment(ref)}")

    @Method
    def page(
        *, name: str | None = None, prompt_id: int | None = None, after: int = 0, limit: int = 100
    ) -> Request[Page[schemas.StoredRubric]]:
        """List rubric versions."""
        params = {"name": name, "prompt_id": prompt_id, "after": after, "limit": limit}
        return Request(Page[schemas.StoredRubric], "GET", "rubrics", params)


class Completions(Noun[C]):
    """Methods of ``client.completions``."""

    @Method
    def add(prompt_id: int, completions: Iterable[Completion | str]) -> Request[schemas.StoredCompletionIds]:
        """Store completions of one prompt; the response has their ids in order."""
        values = (Completion(text=one) if isinstance(one, str) else one for one in completions)
        items = tuple(schemas.NewCompletion(prompt_id=prompt_id, completion=value) for value in values)
        body = schemas.NewCompletions(completions=items)
        return Request(schemas.StoredCompletionIds, "POST", "completions", body=body)

    @Method
    def get(completion_id: int) -> Request[schemas.StoredCompletion]:
        """Get a completion."""
        return Request(schemas.StoredCompletion, "GET", f"completions/{completion_id}")

    @Method
    def page(
        *, prompt_id: int | None = None, policy: str | None = None, after: int = 0, limit: int = 100
    ) -> Request[Page[schemas.StoredCompletion]]:
        """List completions."""
        params = {"prompt_id": prompt_id, "policy": policy, "after": after, "limit": limit}
        return Request(Page[schemas.StoredCompletion], "GET", "completions", params)


class Judges(Noun[C]):
    """Methods of ``client.judges``."""

    @Method
    def add(judge: Judge) -> Request[schemas.StoredJudge]:
        """Store a judge under its name."""
        return Request(schemas.StoredJudge, "POST", "judges", body=schemas.NewJudge(judge=judge))

    @Method
    def get(ref: int | str) -> Request[schemas.StoredJudge]:
        """Get a judge by id or name."""
        return Request(schemas.StoredJudge, "GET", f"judges/{_segment(ref)}")

    @Method
    def page(*, after: int = 0, limit: int = 100) -> Request[Page[schemas.StoredJudge]]:
        """List judges."""
        return Request(Page[schemas.StoredJudge], "GET", "judges", {"after": after, "limit": limit})

    @Method
    def audits(judge: int | str, *, after: int = 0, limit: int = 50) -> Request[Page[StoredAudit]]:
        """List the audits of a judge, oldest first."""
        return Request(Page[StoredAudit], "GET", f"judges/{_segment(judge)}/audits", {"after": after, "limit": limit})


class Jobs(Noun[C]):
    """Methods of ``client.jobs``."""

    @Method
    def submit(
        judge: int | str,
        items: Iterable[tuple[int, int | str]],
        *,
        name: str = "",
        key: str | None = None,
        budget: float | None = None,
    ) -> Request[schemas.StoredJob]:
        """Submit a scoring job.

        Args:
            judge: id or name.
            items: pairs of completion id and rubric (id, name, name@version or digest).
            name: shown in lists.
            key: idempotency key; the same key returns the same job.
            budget: US dollars that the judge may cost.
        """
        pairs = tuple(schemas.NewItem(completion_id=completion_id, rubric=rubric) for completion_id, rubric in items)
        body = schemas.NewJob(judge=judge, items=pairs, name=name, budget=budget)
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return Request(schemas.StoredJob, "POST", "jobs", body=body, headers=headers)

    @Method
    def get(job_id: int, *, summary: bool = False) -> Request[schemas.StoredJob]:
        """Get a job. A finished job has its summary; ``summary`` asks for it earlier."""
        return Request(schemas.StoredJob, "GET", f"jobs/{job_id}", {"summary": summary or None})

    @Method
    def page(*, status: str | None = None, after: int = 0, limit: int = 100) -> Request[Page[schemas.StoredJob]]:
        """List jobs."""
        return Request(Page[schemas.StoredJob], "GET", "jobs", {"status": status, "after": after, "limit": limit})

    @Method
    def items(job_id: int, *, verdicts: bool = True, after: int = 0, limit: int = 100) -> Request[Page[schemas.Item]]:
        """List a job's items: rewards with their verdicts."""
        params = {"verdicts": verdicts, "after": after, "limit": limit}
        return Request(Page[schemas.Item], "GET", f"jobs/{job_id}/items", params)

    @Method
    def pairs(
        job_id: int, *, min_margin: float = 0.0, after: int = 0, limit: int = 100
    ) -> Request[Page[schemas.PreferencePair]]:
        """List a job's preference pairs. A page may be empty without being the last."""
        params = {"min_margin": min_margin, "after": after, "limit": limit}
        return Request(Page[schemas.PreferencePair], "GET", f"jobs/{job_id}/pairs", params)

    @Method
    def cancel(job_id: int) -> Request[schemas.StoredJob]:
        """Cancel a job; scored items keep their rewards."""
        return Request(schemas.StoredJob, "POST", f"jobs/{job_id}/cancel")

    @Method
    def rescore(
        job_id: int, *, rubrics: Sequence[str | int] = (), budget: float | None = None
    ) -> Request[schemas.StoredJob]:
        """Score a job's completions under the newest version of its rubrics, as a new job.

        ``rubrics`` are versions to use in place of the newest. Only questions without a stored verdict are asked.
        """
        params = {"rubric": [str(ref) for ref in rubrics] or None, "budget": budget}
        return Request(schemas.StoredJob, "POST", f"jobs/{job_id}/rescore", params)

    @Method
    def retry(job_id: int, *, budget: float | None = None) -> Request[schemas.RetriedJob]:
        """Score failed and cancelled items again."""
        return Request(schemas.RetriedJob, "POST", f"jobs/{job_id}/retry", {"budget": budget})


class Verdicts(Noun[C]):
    """Methods of ``client.verdicts``."""

    @Method
    def page(
        *,
        job_id: int | None = None,
        completion_id: int | None = None,
        outcome: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> Request[Page[schemas.StoredVerdict]]:
        """List verdicts."""
        params = {"job_id": job_id, "completion_id": completion_id, "outcome": outcome, "after": after, "limit": limit}
        return Request(Page[schemas.StoredVerdict], "GET", "verdicts", params)


class Imports(Noun[C]):
    """Methods of ``client.imports``."""

    @Method
    def create(
        path: str | Path,
        format: str | None = None,
        *,
        rubric_name: str | None = None,
        replace_labels: bool = False,
        skip_invalid: bool = False,
    ) -> Request[schemas.ImportedFile]:
        """Import a file, whole or not at all.

        Args:
            path: the file, in any format of docs/formats.md but DeepResearch Bench, which is a folder.
            format: its format; detected by default.
            rubric_name: name of the rubric, for a file with one.
            replace_labels: overwrite earlier labels of the same people.
            skip_invalid: skip invalid records, and list their errors in ``skipped``, instead of rejecting the file.

        Raises:
            FormatError: the file is invalid; ``errors`` lists what is wrong with it.
        """
        file = Path(path)
        params = {
            "name": file.name,
            "format": format,
            "rubric_name": rubric_name,
            "replace_labels": replace_labels,
            "skip_invalid": skip_invalid,
        }
        return Request(schemas.ImportedFile, "POST", "imports", params, content=file.read_bytes())


class Labels(Noun[C]):
    """Methods of ``client.labels``."""

    @Method
    def add(
        labels: Iterable[tuple[int, int | str, Label]], *, replace: bool = False
    ) -> Request[schemas.StoredLabelIds]:
        """Store labels.

        Args:
            labels: (completion id, rubric, label).
            replace: overwrite an earlier label of the same annotator.
        """
        items = tuple(schemas.NewLabel(completion_id=id_, rubric=rubric, label=label) for id_, rubric, label in labels)
        return Request(schemas.StoredLabelIds, "POST", "labels", body=schemas.NewLabels(labels=items, replace=replace))

    @Method
    def page(
        *,
        completion_id: int | None = None,
        rubric_id: int | None = None,
        annotator: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> Request[Page[schemas.StoredLabel]]:
        """List labels."""
        filters = {"completion_id": completion_id, "rubric_id": rubric_id, "annotator": annotator}
        return Request(Page[schemas.StoredLabel], "GET", "labels", {**filters, "after": after, "limit": limit})
