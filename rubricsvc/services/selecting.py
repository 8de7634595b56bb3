"""Which completions a job scores, and by which rubrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from rubricsvc.cli.output import echo
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.judge import Judge
    from rubricsvc.services.importing import Imported

Pair = tuple[int, int]


def select(
    session: Session, imported: Imported | None, *, rubric: str | None, policy: str | None, limit: int | None
) -> list[Pair]:
    """Pairs of (completion id, rubric id): of what was just imported, or else of all completions.

    Without ``rubric`` each completion is scored by all rubrics of its prompt (newest versions); one whose prompt has
    none is left out. ``limit`` counts completions that have a rubric.

    Raises:
        NotFoundError: no such rubric.
        InvalidError: nothing fits.
    """
    from rubricsvc.store import rubrics

    one = rubrics.get(session, rubric) if rubric is not None else None
    rubrics_of: dict[int, list[int]] = {}
    bare = 0

    def chosen() -> Iterator[list[Pair]]:
        nonlocal bare
        for completion_id, prompt_id in _completions(session, imported, policy):
            if prompt_id not in rubrics_of:
                if one is None:
                    rubrics_of[prompt_id] = [row.id for row in rubrics.for_prompt(session, prompt_id)]
                else:
                    rubrics_of[prompt_id] = [one.id] if one.prompt_id in (None, prompt_id) else []
            if rubrics_of[prompt_id]:
                yield [(completion_id, rubric_id) for rubric_id in rubrics_of[prompt_id]]
            else:
                bare += 1

    pairs = [pair for group in islice(chosen(), limit) for pair in group]
    if bare:
        what = "belong to other prompts than this rubric" if one else "have no rubric for their prompt"
        echo(f"{bare} completions {what} and are left out")
    if not pairs:
        of = f" of policy {policy!r}" if policy is not None else ""
        raise InvalidError(
            f"nothing to score: no completion{of} has a rubric",
            hint="see `rubricsvc rubrics list` and `rubricsvc completions list`; --rubric names a rubric",
        )
    return pairs


def warn_of_vetoes(judge: Judge, required: Sequence[str]) -> None:
    """Say that a judge which compares vetoes about half of each group by the ``required`` criteria that it judges."""
    if judge.mode != "comparative" or not required:
        return
    more = f" and {len(required) - 1} more" if len(required) > 1 else ""
    echo(
        f"warning: {required[0]}{more} is required, and {judge.name} compares: its values are relative,"
        " so about half of each group is vetoed"
    )
    echo("hint: leave `required` to checks, or to a judge that sees one answer at a time (readout, written)")


def _completions(session: Session, imported: Imported | None, policy: str | None) -> Iterator[Pair]:
    """Completion id and prompt id of each completion to look at."""
    from rubricsvc.store import completions
    from rubricsvc.store.upsert import batched

    if imported is not None:
        for ids in batched(dict.fromkeys(imported.completion_ids)):
            found = completions.many(session, ids)
            yield from ((id_, found[id_][0]) for id_ in ids if policy in (None, found[id_][1].policy))
        return
    after = 0
    while rows := completions.page(session, after=after, limit=500, policy=policy):
        yield from ((row.id, row.prompt_id) for row in rows)
        after = rows[-1].id
