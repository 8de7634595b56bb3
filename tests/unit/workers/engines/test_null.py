from __future__ import annotations

import asyncio

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason
from rubricsvc.store.judges import CHECKS
from workers.engines import make_engine
from workers.judges import validate
from workers.scoring.completions import score


def test_checks_need_nobody_and_what_is_to_be_judged_fails() -> None:
    validate(CHECKS)
    checked = Criterion(key="a", text="Says a.", check=Check(name="contains", args={"terms": ["a"]}))
    rubric = Rubric(criteria=(checked, Criterion(key="b", text="Is kind.")))
    found = asyncio.run(score(make_engine(CHECKS), CHECKS, rubric, Prompt.of("?"), Completion(text="a")))
    assert [(verdict.value, verdict.reason) for verdict in found] == [(1.0, None), (None, Reason.REFUSED)]
    assert "asks no model" in (found[1].detail or "")
