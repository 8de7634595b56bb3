"""Submit prompts, to have rubrics generated for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rubricsvc.collections import open_collection
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.settings import get_settings
from rubricsvc.store import generation as generations
from rubricsvc.store import judges, prompts, rubrics

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy.orm import Session

    from rubricsvc.core.generation import Generation, Method, Research
    from rubricsvc.store.tables import JobRow


def submit(
    session: Session,
    judge_ref: int | str,
    prompt_refs: Iterable[int | str],
    generation: Generation,
    *,
    collections_dir: Path | None = None,
    key: str | None = None,
    name: str = "",
    budget: float | None = None,
) -> JobRow:
    """Submit a job that generates a rubric for each prompt, in a session to write in.

    Prompts are named by id or external id. The same judge, prompts and settings give the same job; so does the same
    idempotency ``key``. ``budget`` is in US dollars; ``collections_dir`` has the collections, by default that of the
    settings.

    Raises:
        NotFoundError: no such judge, prompt or collection.
        InvalidError: an option is wrong, the judge has no model of its own, or a budget is given and a price is
            unknown.
        ConflictError: the key was used for something else, or the job exists with another budget; or the
            collection has another digest than the one that is given.
    """
    judge = judges.get(session, judge_ref)
    settings = prepared(session, generation, collections_dir)
    ids = [prompts.get(session, ref).id for ref in dict.fromkeys(prompt_refs)]
    given = {"judge_id": judge.id, "prompt_ids": ids, "generation": settings}
    return generations.submit(session, **given, key=key, name=name, budget=budget)  # type: ignore[arg-type]


def prepared(session: Session, generation: Generation, collections_dir: Path | None = None) -> Generation:
    """Return the settings as a job keeps them: specification stored, rubrics as name@version, collection with digest.

    Raises:
        InvalidError: An option is missing or belongs to another method, or names what is not stored.
        NotFoundError: The collection is not on this machine.
        ConflictError: The collection has another digest than the one that is given.
    """
    _check_options(generation)
    changes: dict[str, object] = {}
    if generation.gate_judge is not None:
        with _at("gate_judge"):
            judges.get(session, generation.gate_judge)
    if generation.rubrics is not None:
        with _at("rubrics"):
            rows = [rubrics.get(session, ref, allow_drafts=True) for ref in generation.rubrics]
        changes["rubrics"] = tuple(dict.fromkeys(row.ref for row in rows))
    if (given := generation.specification) is not None:
        with _at("specification"):
            digest = prompts.add_text(session, given.text) if given.text is not None else given.digest or ""
            prompts.get_text(session, digest)
        changes["specification"] = given.model_copy(update={"text": None, "digest": digest})
    if generation.research is not None:
        changes["research"] = _with_digest(generation.research, collections_dir)
    return generation.model_copy(update=changes)


def _with_digest(research: Research, collections_dir: Path | None) -> Research:
    folder = collections_dir or get_settings().collections_dir
    with open_collection(folder, research.collection) as collection:
        found = collection.digest
    if research.digest not in (None, found):
        message = f"collection {research.collection!r} has the digest {found[:12]}…, not {research.digest}"
        raise ConflictError(message, hint="leave the digest out, or add the collection again as it was")
    return research.model_copy(update={"digest": found})


_OPTIONS: dict[str, Method] = {
    "better": "contrastive",
    "worse": "contrastive",
    "specification": "principles",
    "rubrics": "merge",
    "research": "grounded",
}
"""Options that belong to one method."""


def _check_options(generation: Generation) -> None:
    for name, method in _OPTIONS.items():
        if getattr(generation, name) is not None and generation.method != method:
            raise InvalidError(f"{name} belongs to the method {method}", hint="leave it out", path=name)
    if generation.method == "principles" and generation.specification is None:
        hint = "give a file with --specification, over HTTP its name and text"
        raise InvalidError("the method principles needs a specification", hint=hint, path="specification")
    if generation.method == "grounded" and generation.research is None:
        hint = "name one with --collection, over HTTP in research"
        raise InvalidError("the method grounded needs a collection", hint=hint, path="research")
    if (generation.better is None) != (generation.worse is None):
        missing = "better" if generation.better is None else "worse"
        raise InvalidError("expected both policies, better and worse", hint=f"name the {missing} one", path=missing)


@contextmanager
def _at(path: str) -> Iterator[None]:
    """Report what is not stored as an error of this option."""
    try:
        yield
    except NotFoundError as error:
        raise InvalidError(error.message, hint=error.hint, path=path) from error
