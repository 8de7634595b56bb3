"""Read stored verdicts as arrays, one matrix of values a rubric version. Needs the extra ``judging``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from rubricsvc.stats.criteria import VerdictMatrix
from rubricsvc.store.labels import ABSTAINED, FAILED, Chunks, Selection, read_items, read_values
from rubricsvc.store.session import by_id
from rubricsvc.store.tables import RubricRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.stats.intervals import Floats


def read_matrices(session: Session, selection: Selection) -> Iterator[VerdictMatrix]:
    """Yield the verdicts of each rubric version of a selection, by its id."""
    items = _columns(read_items(session, selection), 6)
    if not items.shape[1]:
        return
    verdicts = _columns(read_values(session, selection), 3)
    by_item = np.argsort(items[0])
    rows = by_item[np.searchsorted(items[0], verdicts[0], sorter=by_item)]
    order = np.argsort(rows, kind="stable")
    rows, verdicts = rows[order], verdicts[1:, order]
    starts = [*np.flatnonzero(np.diff(items[3], prepend=-1)).tolist(), items.shape[1]]
    bounds = np.searchsorted(rows, starts).tolist()
    stored = by_id(session, RubricRow, np.unique(items[3]).astype(int).tolist())
    for number, start in enumerate(starts[:-1]):
        cells = slice(bounds[number], bounds[number + 1])
        row = stored[int(items[3, start])]
        of_version, at = items[:, start : starts[number + 1]], rows[cells] - start
        positions, values = verdicts[0, cells].astype(np.int64), verdicts[1, cells]
        rubric = row.value
        size, scored = len(rubric.criteria), values >= 0
        matrix = np.full((of_version.shape[1], size), np.nan)
        matrix[at[scored], positions[scored]] = values[scored]
        yield VerdictMatrix(
            rubric_id=row.id,
            name=f"{row.name}@{row.version}",
            rubric=rubric,
            completions=of_version[1].astype(np.int64),
            prompts=of_version[2].astype(np.int64),
            rewards=of_version[4],
            lengths=of_version[5],
            values=matrix,
            failed=np.bincount(positions[values == FAILED], minlength=size),
            abstained=np.bincount(positions[values == ABSTAINED], minlength=size),
        )


def _columns(chunks: Chunks, width: int) -> Floats:
    """Return the columns [width, rows] of chunks of rows, NaN for null; ids are exact up to 2^53."""
    parts = [np.array([tuple(row) for row in chunk], np.float64) for chunk in chunks]
    return np.ascontiguousarray(np.concatenate(parts or [np.empty((0, width))]).T)
