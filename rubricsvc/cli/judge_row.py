"""A judge as a row of a table."""

from __future__ import annotations

from typing import Any

from rubricsvc.store.tables import AuditRow, JudgeRow


def judge_row(row: JudgeRow, audit: AuditRow | None = None) -> dict[str, Any]:
    """Return a judge with its newest audit and the standard deviation of its rewards."""
    judge, repeatability = row.value, row.measured
    return {
        "id": row.id,
        "name": row.name,
        "engine": "" if judge.members else judge.engine,  # members have their own
        "model": judge.model,
        "mode": judge.mode,
        "members": [member.name for member in judge.members or ()],
        "calibrated": judge.calibrated,
        "audit": audit and f"{'passed' if audit.passed else 'not passed'} {audit.created_at:%Y-%m-%d}",
        "reward_std": repeatability and repeatability.reward.value,
        "url": judge.endpoint.base_url,
        "digest": row.digest[:12],
    }
