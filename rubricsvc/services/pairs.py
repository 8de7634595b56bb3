"""Export of a job's preference pairs: prompt, chosen and rejected as lists of messages, as TRL reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rubricsvc.store.session import Database

PAGE = 100


@dataclass(frozen=True, slots=True)
class PairCounts:
    """How many pairs were written, and left out because rewards are ``close`` or texts the ``same``."""

    written: int = 0
    close: int = 0
    same: int = 0


def export_pairs(db: Database, job_id: int, stream: TextIO, *, min_margin: float) -> PairCounts:
    """Write a JSON line for each two completions of a prompt whose rewards differ by at least ``min_margin``.

    Raises:
        NotFoundError: no such job.
    """
    from rubricsvc.store import groups, jobs, pairs

    counts, after = PairCounts(), (0, 0)
    while True:
        with db.read() as session:  # one page a transaction: memory does not grow with the job
            job = jobs.get(session, job_id)
            page = groups.page(session, job_id, after=after, limit=PAGE)
            for group in page:
                group_pairs = pairs.of_group(session, job, group, min_margin)
                for pair in group_pairs.preferences:
                    stream.write(json.dumps(group_pairs.line(pair), ensure_ascii=False, allow_nan=False) + "\n")
                counts = PairCounts(
                    written=counts.written + len(group_pairs.preferences),
                    close=counts.close + group_pairs.close,
                    same=counts.same + group_pairs.same,
                )
        if not page:
            return counts
        after = page[-1]
