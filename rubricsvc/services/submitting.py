"""Select completions with their rubrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from rubricsvc.core.states import RETIRED
from rubricsvc.errors import InvalidError, NotApprovedError, cut
from rubricsvc.store import completions, prompts, rubrics
from rubricsvc.store.session import every

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.judge import Judge
    from rubricsvc.schemas import NewItem, NewJob
    from rubricsvc.services.importing import ImportResult
    from rubricsvc.store.tables import RubricRow


class Selection(NamedTuple):
    """Pairs of completion id and rubric id, how many completions have no rubric, and the drafts of their prompts."""

    pairs: list[tuple[int, int]]
    no_rubric: int = 0
    drafts: Sequence[str] = ()


def select(session: Session, new: NewJob, imported: ImportResult | None = None) -> Selection:
    """Return (completion id, rubric id) of an import or of all stored completions, and how many have no rubric.

    Without ``new.rubric`` it is the one that the record names, or the newest approved versions of all rubrics of the
    prompt. ``new.limit`` is the maximum number of completions that have one.

    Raises:
        NotFoundError: No such rubric.
        NotApprovedError: The rubric has no approved version; or nothing is selected, and there are drafts.
        InvalidError: Nothing is selected.
    """
    one = rubrics.get(session, new.rubric, allow_drafts=new.allow_drafts) if new.rubric is not None else None
    without: dict[int, None] = {}

    @cache
    def rubric_ids(prompt_id: int) -> list[int]:
        if one is None:
            return [row.id for row in rubrics.for_prompt(session, prompt_id, allow_drafts=new.allow_drafts)]
        return [one.id] if one.prompt_id in (None, prompt_id) else []

    pairs: list[tuple[int, int]] = []
    selected = no_rubric = 0
    for completion_id, prompt_id, named in _completions(session, imported, new.policy):
        if ids := rubric_ids(prompt_id) if one is not None or named is None else [named]:
            pairs += ((completion_id, rubric_id) for rubric_id in ids)
            selected += 1
        else:
            no_rubric += 1
            without[prompt_id] = None
        if selected == new.limit:
            break
    drafts = [] if one is not None or new.allow_drafts else _drafts(session, without)
    if not pairs:
        if drafts:
            raise _only_drafts("nothing to score", drafts)
        raise _nothing_selected(session, one, without, new.policy)
    return Selection(pairs, no_rubric, [row.ref for row in drafts])


def _completions(
    session: Session, imported: ImportResult | None, policy: str | None
) -> Iterator[tuple[int, int, int | None]]:
    """Yield (completion id, prompt id, id of the rubric that its record names)."""
    if imported is None:
        yield from ((row.id, row.prompt_id, None) for row in every(completions.page, session, policy=policy))
    else:
        selected = [one for one in imported.completions if policy in (None, one.policy)]
        yield from dict.fromkeys((one.id, one.prompt_id, one.rubric_id) for one in selected)


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


def with_rubrics(session: Session, items: Sequence[NewItem], *, allow_drafts: bool = False) -> list[tuple[int, int]]:
    """Return (completion id, rubric id) for items; without a rubric as in `select`.

    Raises:
        NotFoundError: No such rubric; or no such completion, where its rubric is None.
        NotApprovedError: A rubric has no approved version.
        InvalidError: The prompt of a completion has no rubric.
    """
    given = {one.rubric for one in items if one.rubric is not None}
    by_ref = {ref: rubrics.get(session, ref, allow_drafts=allow_drafts).id for ref in given}
    owners = completions.prompt_ids(session, {one.completion_id for one in items if one.rubric is None})
    own = {
        prompt_id: [row.id for row in rubrics.for_prompt(session, prompt_id, allow_drafts=allow_drafts)]
        for prompt_id in {*owners.values()}
    }
    pairs: list[tuple[int, int]] = []
    for number, one in enumerate(items):
        id_, path = one.completion_id, f"items.{number}"
        if one.rubric is not None:
            pairs.append((id_, by_ref[one.rubric]))
            continue
        if id_ not in owners:
            completions.get(session, id_)  # raises NotFoundError
        if not own[owners[id_]]:
            if drafts := _drafts(session, [owners[id_]]):
                raise _only_drafts(f"the prompt of completion {id_}", drafts, path)
            hint = "name a rubric, or store one with the prompt's id"
            raise InvalidError(f"the prompt of completion {id_} has no rubric", hint=hint, path=path)
        pairs += ((id_, rubric_id) for rubric_id in own[owners[id_]])
    return pairs


def only_rubric(session: Session, prompt_id: int, *, allow_drafts: bool = False) -> RubricRow:
    """Return the newest approved version of a prompt's only rubric.

    Raises:
        NotApprovedError: It has no approved version.
        InvalidError: The prompt has no rubric, or several.
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


def veto_warning(judge: Judge, required: Sequence[str]) -> str | None:
    """Return a warning if a comparative judge judges ``required`` criteria: it vetoes about half of each group."""
    if judge.mode != "comparative" or not required:
        return None
    more = f" and {len(required) - 1} more" if len(required) > 1 else ""
    return (
        f"{required[0]}{more} is required, and judge {judge.name} is comparative: its values are relative, so"
        " about half of each group is vetoed. Use `required` with checks, or with a readout or written judge."
    )
