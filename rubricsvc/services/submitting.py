"""Select completions with their rubrics, and submit them for scoring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from rubricsvc.core.states import RETIRED
from rubricsvc.errors import InvalidError, NotApprovedError, cut
from rubricsvc.store import completions, jobs, judges, prompts, rubrics
from rubricsvc.store.session import PUBLISHED, every

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.judge import Judge
    from rubricsvc.services.importing import ImportResult
    from rubricsvc.store.tables import RubricRow


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, whether it ``is_new``, how many completions have no rubric, and a warning about required criteria.

    ``drafts`` are those of the completions without a rubric, as name@version.
    """

    job_id: int
    is_new: bool
    no_rubric: int
    warning: str | None
    drafts: Sequence[str] = ()


class Selection(NamedTuple):
    """Pairs of completion id and rubric id, how many completions have no rubric, and the drafts of their prompts."""

    pairs: list[tuple[int, int]]
    no_rubric: int
    drafts: list[str]


def submit(
    session: Session,
    judge_ref: str,
    imported: ImportResult | None = None,
    *,
    rubric: str | None = None,
    policy: str | None = None,
    limit: int | None = None,
    key: str | None = None,
    name: str = "",
    budget: float | None = None,
    min_coverage: float | None = None,
    allow_drafts: bool = False,
) -> Submission:
    """Submit the completions that `select` selects to a judge, in a session to write in.

    The same judge, completions, rubrics and ``min_coverage`` give the same job; so does the same idempotency ``key``.
    ``budget`` is in US dollars; ``min_coverage`` is used instead of the rubrics' own. With ``allow_drafts`` rubrics
    need no approval.

    Raises:
        NotFoundError: no such judge or rubric.
        NotApprovedError: a rubric is a draft, or only drafts could be used.
        InvalidError: no completion has a rubric, or a budget is given for a judge without a price.
        ConflictError: the key belongs to another job, or the job exists with another budget.
    """
    judge = judges.get(session, judge_ref)
    selected = select(session, imported, rubric=rubric, policy=policy, limit=limit, allow_drafts=allow_drafts)
    pairs, no_rubric, drafts = selected
    warning = None
    if judge.value.mode == "comparative":
        required = rubrics.judged_required(session, (rubric_id for _, rubric_id in pairs))
        warning = veto_warning(judge.value, required)
    job = jobs.submit(
        session,
        judge_id=judge.id,
        items=pairs,
        key=key,
        name=name,
        budget=budget,
        min_coverage=min_coverage,
        allow_drafts=allow_drafts,
    )
    return Submission(job.id, PUBLISHED in session.info, no_rubric, warning, drafts)  # only a new job is published


def select(
    session: Session,
    imported: ImportResult | None = None,
    *,
    rubric: str | None = None,
    policy: str | None = None,
    limit: int | None = None,
    allow_drafts: bool = False,
) -> Selection:
    """Return (completion id, rubric id) of an import or of all stored completions, and how many have no rubric.

    Without ``rubric`` it is the one that the record names, or the newest approved versions of all rubrics of the
    prompt. ``limit`` is the maximum number of completions that have one.

    Raises:
        NotFoundError: no such rubric.
        NotApprovedError: the rubric has no approved version; or nothing is selected, and there are drafts.
        InvalidError: nothing is selected.
    """
    one = rubrics.get(session, rubric, allow_drafts=allow_drafts) if rubric is not None else None
    without: dict[int, None] = {}

    @cache
    def rubric_ids(prompt_id: int) -> list[int]:
        if one is None:
            return [row.id for row in rubrics.for_prompt(session, prompt_id, allow_drafts=allow_drafts)]
        return [one.id] if one.prompt_id in (None, prompt_id) else []

    pairs: list[tuple[int, int]] = []
    selected = no_rubric = 0
    for completion_id, prompt_id, named in _completions(session, imported, policy):
        if ids := rubric_ids(prompt_id) if one is not None or named is None else [named]:
            pairs += ((completion_id, rubric_id) for rubric_id in ids)
            selected += 1
        else:
            no_rubric += 1
            without[prompt_id] = None
        if selected == limit:
            break
    drafts = [] if one is not None or allow_drafts else _drafts(session, without)
    if not pairs:
        if drafts:
            raise _only_drafts("nothing to score", drafts)
        raise _nothing_selected(session, one, without, policy)
    return Selection(pairs, no_rubric, [row.ref for row in drafts])


def _nothing_selected(
    session: Session, one: RubricRow | None, prompt_ids: Iterable[int], policy: str | None
) -> InvalidError:
    """Return why no completion has a rubric: the ``one`` that is named is of another prompt, or all are retired."""
    of = f" of policy {policy!r}" if policy is not None else ""
    message = f"nothing to score: no completion{of} has a rubric"
    hint = "see `rubricsvc rubrics list` and `rubricsvc completions list`, or name a rubric with --rubric"
    retired = [row for id_ in prompt_ids for row in rubrics.page(session, prompt_id=id_, state=RETIRED)]
    if one is not None and one.prompt_id is not None:
        owner = prompts.get(session, one.prompt_id).external_id or one.prompt_id
        message = f"nothing to score: no completion{of} is of prompt {owner!r}, to which rubric {one.ref} belongs"
        hint = "leave --rubric out, or name a rubric of the prompt of the completions"
    elif retired:
        message += f": {cut(', '.join(row.ref for row in retired), 400)} is retired"
        hint = f"name it exactly: --rubric {retired[-1].ref}"
    return InvalidError(message, hint=hint)


def _drafts(session: Session, prompt_ids: Iterable[int]) -> list[RubricRow]:
    """Return the drafts of prompts that have no approved rubric."""
    return [row for id_ in prompt_ids for row in rubrics.for_prompt(session, id_, allow_drafts=True)]


def _only_drafts(what: str, drafts: Sequence[RubricRow], path: str = "") -> NotApprovedError:
    listed = cut(", ".join(row.ref for row in drafts), 400)
    return NotApprovedError(f"{what}: only drafts: {listed}", hint=rubrics.approval_hint(drafts[0]), path=path)


def with_rubrics(
    session: Session, items: Iterable[tuple[int, int | str | None]], *, allow_drafts: bool = False
) -> list[tuple[int, int]]:
    """Return (completion id, rubric id) for pairs of a completion id and a rubric: id, name, name@version or digest.

    Where the rubric is None they are the newest approved versions of all rubrics of the completion's prompt, as in
    `select`.

    Raises:
        NotFoundError: no such rubric; or no such completion, where its rubric is None.
        NotApprovedError: a rubric has no approved version.
        InvalidError: the prompt of a completion has no rubric.
    """
    items = list(items)
    given = {ref for _, ref in items if ref is not None}
    by_ref = {ref: rubrics.get(session, ref, allow_drafts=allow_drafts).id for ref in given}
    owners = completions.prompt_ids(session, {id_ for id_, ref in items if ref is None})
    own = {
        prompt_id: [row.id for row in rubrics.for_prompt(session, prompt_id, allow_drafts=allow_drafts)]
        for prompt_id in {*owners.values()}
    }
    pairs: list[tuple[int, int]] = []
    for number, (completion_id, ref) in enumerate(items):
        if ref is not None:
            pairs.append((completion_id, by_ref[ref]))
            continue
        if completion_id not in owners:
            completions.get(session, completion_id)  # raises NotFoundError
        if not own[owners[completion_id]]:
            message = f"the prompt of completion {completion_id} has no rubric"
            if drafts := _drafts(session, [owners[completion_id]]):
                raise _only_drafts(f"the prompt of completion {completion_id}", drafts, f"items.{number}")
            raise InvalidError(message, hint="name a rubric, or store one with the prompt's id", path=f"items.{number}")
        pairs += ((completion_id, rubric_id) for rubric_id in own[owners[completion_id]])
    return pairs


def only_rubric(session: Session, prompt_id: int, *, allow_drafts: bool = False) -> RubricRow:
    """Return the newest approved version of a prompt's only rubric.

    Raises:
        NotApprovedError: it has no approved version.
        InvalidError: the prompt has no rubric, or several.
    """
    rows = rubrics.for_prompt(session, prompt_id, allow_drafts=allow_drafts)
    if len(rows) == 1:
        return rows[0]
    if not rows and (drafts := _drafts(session, [prompt_id])):
        raise _only_drafts("the prompt", drafts)
    if not rows:
        raise InvalidError("the prompt has no rubric", hint="name a rubric, or store one with the prompt's id")
    listed = cut(", ".join(row.ref for row in rows), 400)
    raise InvalidError(f"the prompt has {len(rows)} rubrics: {listed}", hint="name one of them")


def _completions(
    session: Session, imported: ImportResult | None, policy: str | None
) -> Iterator[tuple[int, int, int | None]]:
    """Yield (completion id, prompt id, id of the rubric that its record names)."""
    if imported is None:
        yield from ((row.id, row.prompt_id, None) for row in every(completions.page, session, policy=policy))
    else:
        selected = [one for one in imported.completions if policy in (None, one.policy)]
        yield from dict.fromkeys((one.id, one.prompt_id, one.rubric_id) for one in selected)


def veto_warning(judge: Judge, required: Sequence[str]) -> str | None:
    """Return a warning if a comparative judge judges ``required`` criteria: it vetoes about half of each group."""
    if judge.mode != "comparative" or not required:
        return None
    more = f" and {len(required) - 1} more" if len(required) > 1 else ""
    return (
        f"{required[0]}{more} is required, and judge {judge.name} is comparative: its values are relative, so"
        " about half of each group is vetoed. Use `required` with checks, or with a readout or written judge."
    )
