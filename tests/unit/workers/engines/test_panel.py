from __future__ import annotations

import asyncio

from rubricsvc.core.judge import CHECKS
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Reason
from workers.engines import make_engine
from workers.judges import validate
from workers.scoring.completions import score


def test_panel_engine_without_members_scores_checks_and_refuses_judged_criteria() -> None:
    validate(CHECKS)
    checked = Criterion(key="a", text="Says a.", check=Check(name="contains", args={"terms": ["a"]}))
    rubric = Rubric(criteria=(checked, Criterion(key="b", text="Is kind.")))
    verdicts = asyncio.run(score(make_engine(CHECKS), CHECKS, rubric, Prompt.of("?"), Completion(text="a")))
    assert [(verdict.value, verdict.reason) for verdict in verdicts] == [(1.0, None), (None, Reason.REFUSED)]
