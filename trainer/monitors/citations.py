"""Citations: do they resolve?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from trainer.monitors.monitor import Observed
from workers.checks.markdown import report_citations


def unresolved_citations(observed: Sequence[Observed]) -> Mapping[str, float | None]:
    """Return the share of completions that cite what they were not given and did not open.

    Of completions that could cite something: their prompt has documents, or they are episodes. None without any.
    """
    found = [not report_citations(one.text, one.sources) <= one.sources for one in observed if one.sources is not None]
    return {"unresolved_citations": fmean(found) if found else None}
