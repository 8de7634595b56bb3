"""The regression suite of a run (`[eval] regression`): what the policy passed at the start and what it passes now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rubricsvc.schemas.runs import Alarm

LOST = 2
"""Requests more lost than gained that raise an alarm: one may flip by chance."""


class Regression(NamedTuple):
    """A request of the suite with its results: ``tokens``, ``failed`` (empty where it passed) and ``text``."""

    name: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def change(self) -> int:
        """-1 if it is lost, 1 if it is gained, else 0."""
        return bool(self.before["failed"]) - bool(self.after["failed"])


def regressions(lines: Sequence[Mapping[str, Any]]) -> list[Regression]:
    """Return the requests in the first and the last evaluation with the suite; empty with fewer than two."""
    known = [line["regression"] for line in lines if "regression" in line]
    if len(known) < 2:
        return []
    first, last = known[0], known[-1]
    return [Regression(name, first[name], last[name]) for name in last if name in first]


def regression_alarm(lines: Sequence[Mapping[str, Any]]) -> Alarm | None:
    """Return the alarm of a policy that lost small requests; None without one."""
    found = regressions(lines)
    if -sum(one.change for one in found) < LOST:
        return None
    lost = ", ".join(f"{one.name} ({', '.join(one.after['failed'])})" for one in found if one.change < 0)
    text = f"Of {len(found)} small requests that no run trains on, the policy lost those that it passed: {lost}."
    return Alarm(text=text)
