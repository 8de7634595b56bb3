"""Select the completions that a job scores, and their rubrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from rubricsvc.errors import InvalidError
from rubricsvc.store import completions, rubrics

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.judge import Judge
    from rubricsvc.services.importing import ImportResult


@dataclass(frozen=True, slots=True)
class Selection:
    """``pairs`` of (completion id, rubric id), and how many completions have ``no_rubric`` and are left out."""

    pairs: list[tuple[int, int]]
    no_rubric: int


def select(
    session: Session,
    imported: ImportResult | None = None,
    *,
    rubric: str | None = None,
    policy: str | None = None,
    limit: int | None = None,
) -> Selection:
    """Select completions with rubrics: of an import, or of all stored ones.

    Args:
        session: the session to read in.
        imported: the import whose completions are selected; all completions by default.
        rubric: score by this rubric; by default by the newest versions of all rubrics of each prompt.
        policy: select the completions of this policy.
        limit: maximum number of completions that have a rubric.

    Raises:
        NotFoundError: no such rubric.
        InvalidError: nothing is selected.
    """
    one = rubrics.get(session, rubric) if rubric is not None else None
    rubrics_of: dict[int, list[int]] = {}
    no_rubric = 0

    def pairs() -> Iterator[list[tuple[int, int]]]:
        nonlocal no_rubric
        for completion_id, prompt_id in _completions(session, imported, policy):
            if prompt_id not in rubrics_of:
                if one is None:
                    rubrics_of[prompt_id] = [row.id for row in rubrics.for_prompt(session, prompt_id)]
                else:
                    rubrics_of[prompt_id] = [one.id] if one.prompt_id in (None, prompt_id) else []
            if rubrics_of[prompt_id]:
                yield [(completion_id, rubric_id) for rubric_id in rubrics_of[prompt_id]]
            else:
                no_rubric += 1

    selected = [pair for of_completion in islice(pairs(), limit) for pair in of_completion]
    if not selected:
        of = f" of policy {policy!r}" if policy is not None else ""
        raise InvalidError(
            f"nothing to score: no completion{of} has a rubric",
            hint="see `rubricsvc rubrics list` and `rubricsvc completions list`, or name a rubric with --rubric",
        )
    return Selection(selected, no_rubric)


def veto_warning(judge: Judge, required: Sequence[str]) -> str | None:
    """Return a warning if a comparative judge judges ``required`` criteria: it vetoes about half of each group."""
    if judge.mode != "comparative" or not required:
        return None
    more = f" and {len(required) - 1} more" if len(required) > 1 else ""
    return (
        f"{required[0]}{more} is required, and judge {judge.name} is comparative: its values are relative, so"
        " about half of each group is vetoed. Use `required` with checks, or with a readout or written judge."
    )


def _completions(session: Session, imported: ImportResult | None, policy: str | None) -> Iterator[tuple[int, int]]:
    """Yield (completion id, prompt id)."""
    if imported is not None:
        yield from dict.fromkeys((c.id, c.prompt_id) for c in imported.completions if policy in (None, c.policy))
        return
    after = 0
    while rows := completions.page(session, after=after, limit=500, policy=policy):
        yield from ((row.id, row.prompt_id) for row in rows)
        after = rows[-1].id
