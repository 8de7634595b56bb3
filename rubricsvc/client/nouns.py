"""Methods of the clients, by noun: ``client.jobs.get(3)``, or ``await client.jobs.get(3)``.

Each method is a function that returns a `Flow`. `Method` makes it a method of both clients.
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
from rubricsvc.client.transport import Flow, send
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
T = TypeVar("T")


class Noun(Generic[C]):
    """Methods of one noun, bound to a client."""

    def __init__(self, client: C) -> None:
        self.run = client.run


class Method(Generic[P, T]):
    """Descriptor that runs a flow: blocking on a `Client`, as a coroutine on an `AsyncClient`."""

    def __init__(self, flow: Callable[P, Flow[T]]) -> None:
        self.flow = flow

    @overload
    def __get__(self, noun: None, owner: object = None) -> Callable[P, Flow[T]]: ...
    @overload
    def __get__(self, noun: Client | Noun[Client], owner: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, noun: AsyncClient | Noun[AsyncClient], owner: object = None
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, noun: Any, owner: object = None) -> Any:
        if noun is None:
            return self.flow
        return wraps(self.flow)(lambda *args, **kwargs: noun.run(self.flow(*args, **kwargs)))


def _get(row: type[M], noun: str, ref: int | str) -> Flow[M]:
    return send(row, "GET", f"{noun}/{quote(str(ref), safe='@/')}")


def _page(row: type[M], path: str, after: int, limit: int, **params: object) -> Flow[Page[M]]:
    return send(Page[row], "GET", path, {**params, "after": after, "limit": limit})  # type: ignore[valid-type]


class Prompts(Noun[C]):
    """Methods of ``client.prompts``."""

    @Method
    def add(prompt: Prompt | str, external_id: str | None = None) -> Flow[schemas.StoredPrompt]:
        """Store a prompt; identical content is stored once."""
        value = Prompt.of(prompt) if isinstance(prompt, str) else prompt
        return send(
            schemas.StoredPrompt, "POST", "prompts", body=schemas.NewPrompt(prompt=value, external_id=external_id)
        )

    @Method
    def get(ref: int | str) -> Flow[schemas.StoredPrompt]:
        """Get a prompt by id or external id."""
        return _get(schemas.StoredPrompt, "prompts", ref)

    @Method
    def page(*, after: int = 0, limit: int = 100) -> Flow[Page[schemas.StoredPrompt]]:
        """List prompts."""
        return _page(schemas.StoredPrompt, "prompts", after, limit)


class Rubrics(Noun[C]):
    """Methods of ``client.rubrics``."""

    @Method
    def add(
        rubric: Rubric, name: str, *, prompt_id: int | None = None, origin: str = "api"
    ) -> Flow[schemas.StoredRubric]:
        """Store a rubric version under a name; identical content is the same version."""
        body = schemas.NewRubric(rubric=rubric, name=name, prompt_id=prompt_id, origin=origin)
        return send(schemas.StoredRubric, "POST", "rubrics", body=body)

    @Method
    def get(ref: int | str) -> Flow[schemas.StoredRubric]:
        """Get a rubric by id, name (newest version), name@version or digest."""
        return _get(schemas.StoredRubric, "rubrics", ref)

    @Method
    def page(
        *, name: str | None = None, prompt_id: int | None = None, after: int = 0, limit: int = 100
    ) -> Flow[Page[schemas.StoredRubric]]:
        """List rubric versions."""
        return _page(schemas.StoredRubric, "rubrics", after, limit, name=name, prompt_id=prompt_id)


class Completions(Noun[C]):
    """Methods of ``client.completions``."""

    @Method
    def add(prompt_id: int, completions: Iterable[Completion | str]) -> Flow[schemas.StoredIds]:
        """Store completions of one prompt; the response has their ids in order."""
        values = (Completion(text=one) if isinstance(one, str) else one for one in completions)
        items = tuple(schemas.NewCompletion(prompt_id=prompt_id, completion=value) for value in values)
        return send(schemas.StoredIds, "POST", "completions", body=schemas.NewCompletions(completions=items))

    @Method
    def get(completion_id: int) -> Flow[schemas.StoredCompletion]:
        """Get a completion."""
        return _get(schemas.StoredCompletion, "completions", completion_id)

    @Method
    def page(
        *, prompt_id: int | None = None, policy: str | None = None, after: int = 0, limit: int = 100
    ) -> Flow[Page[schemas.StoredCompletion]]:
        """List completions."""
        return _page(schemas.StoredCompletion, "completions", after, limit, prompt_id=prompt_id, policy=policy)


class Judges(Noun[C]):
    """Methods of ``client.judges``."""

    @Method
    def add(judge: Judge) -> Flow[schemas.StoredJudge]:
        """Store a judge under its name."""
        return send(schemas.StoredJudge, "POST", "judges", body=schemas.NewJudge(judge=judge))

    @Method
    def get(ref: int | str) -> Flow[schemas.StoredJudge]:
        """Get a judge by id or name."""
        return _get(schemas.StoredJudge, "judges", ref)

    @Method
    def page(*, after: int = 0, limit: int = 100) -> Flow[Page[schemas.StoredJudge]]:
        """List judges."""
        return _page(schemas.StoredJudge, "judges", after, limit)

    @Method
    def audits(judge: int | str, *, after: int = 0, limit: int = 50) -> Flow[Page[StoredAudit]]:
        """List the audits of a judge, oldest first."""
        return _page(StoredAudit, f"judges/{quote(str(judge), safe='@/')}/audits", after, limit)


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
    ) -> Flow[schemas.StoredJob]:
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
        return send(schemas.StoredJob, "POST", "jobs", body=body, headers={"Idempotency-Key": key or uuid.uuid4().hex})

    @Method
    def get(job_id: int, *, summary: bool = False) -> Flow[schemas.StoredJob]:
        """Get a job. A finished job has its summary; ``summary`` asks for it earlier."""
        return send(schemas.StoredJob, "GET", f"jobs/{job_id}", {"summary": summary or None})

    @Method
    def page(*, status: str | None = None, after: int = 0, limit: int = 100) -> Flow[Page[schemas.StoredJob]]:
        """List jobs."""
        return _page(schemas.StoredJob, "jobs", after, limit, status=status)

    @Method
    def items(job_id: int, *, verdicts: bool = True, after: int = 0, limit: int = 100) -> Flow[Page[schemas.Item]]:
        """List a job's items: rewards with their verdicts."""
        return _page(schemas.Item, f"jobs/{job_id}/items", after, limit, verdicts=verdicts)

    @Method
    def pairs(
        job_id: int, *, min_margin: float = 0.0, after: int = 0, limit: int = 100
    ) -> Flow[Page[schemas.PreferencePair]]:
        """List a job's preference pairs. A page may be empty without being the last."""
        return _page(schemas.PreferencePair, f"jobs/{job_id}/pairs", after, limit, min_margin=min_margin)

    @Method
    def cancel(job_id: int) -> Flow[schemas.StoredJob]:
        """Cancel a job; scored items keep their rewards."""
        return send(schemas.StoredJob, "POST", f"jobs/{job_id}/cancel")

    @Method
    def rescore(
        job_id: int, *, rubrics: Sequence[str | int] = (), budget: float | None = None
    ) -> Flow[schemas.StoredJob]:
        """Score a job's completions under the newest version of its rubrics, as a new job.

        ``rubrics`` are versions to use in place of the newest. Only questions without a stored verdict are asked.
        """
        params = {"rubric": [str(ref) for ref in rubrics] or None, "budget": budget}
        return send(schemas.StoredJob, "POST", f"jobs/{job_id}/rescore", params)

    @Method
    def retry(job_id: int, *, budget: float | None = None) -> Flow[schemas.RetriedJob]:
        """Score failed and cancelled items again."""
        return send(schemas.RetriedJob, "POST", f"jobs/{job_id}/retry", {"budget": budget})


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
    ) -> Flow[Page[schemas.StoredVerdict]]:
        """List verdicts."""
        filters = {"job_id": job_id, "completion_id": completion_id, "outcome": outcome}
        return _page(schemas.StoredVerdict, "verdicts", after, limit, **filters)


class Labels(Noun[C]):
    """Methods of ``client.labels``."""

    @Method
    def add(labels: Iterable[tuple[int, int | str, Label]], *, replace: bool = False) -> Flow[schemas.StoredIds]:
        """Store labels, each as (completion id, rubric, label); ``replace`` overwrites earlier ones of an annotator."""
        items = tuple(schemas.NewLabel(completion_id=id_, rubric=rubric, label=label) for id_, rubric, label in labels)
        return send(schemas.StoredIds, "POST", "labels", body=schemas.NewLabels(labels=items, replace=replace))

    @Method
    def page(
        *,
        completion_id: int | None = None,
        rubric_id: int | None = None,
        annotator: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> Flow[Page[schemas.StoredLabel]]:
        """List labels."""
        filters = {"completion_id": completion_id, "rubric_id": rubric_id, "annotator": annotator}
        return _page(schemas.StoredLabel, "labels", after, limit, **filters)


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
    ) -> Flow[schemas.ImportedFile]:
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
        flags = {"replace_labels": replace_labels, "skip_invalid": skip_invalid}
        params = {"name": file.name, "format": format, "rubric_name": rubric_name, **flags}
        return send(schemas.ImportedFile, "POST", "imports", params, body=file.read_bytes())
