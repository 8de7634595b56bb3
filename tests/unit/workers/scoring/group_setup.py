"""Groups of completions, and the judges that compare them in tests."""

import asyncio
from collections.abc import Sequence
from typing import Any

from rubricsvc.core.judge import Comparison, Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from workers.engines.base import Engine
from workers.scoring.completions import score_group

PROMPT = Prompt.of("Why?")
RUBRIC = Rubric(criteria=(Criterion(key="best", text="Is the better answer overall."),))
TEXTS = ["a", "bbb", "cc", "ddddd", "eeee"]


def judge(kind: str = "groupwise", **how: Any) -> Judge:
    return Judge(name="c", model="m", engine="instant", mode="comparative", comparison=Comparison(kind=kind, **how))


PAIRS, GROUP, WRITTEN = judge("pairwise"), judge(), judge("pairwise", written=True)


def long_is_good(text: str) -> float:
    return min(len(text), 10) / 10


def compare(
    engine: Engine, asked: Judge, texts: Sequence[str], rubric: Rubric = RUBRIC, **options: Any
) -> list[list[Verdict]]:
    """Each text's verdicts, as completions of one prompt."""
    completions = [Completion(text=text) for text in texts]
    return asyncio.run(score_group(engine, asked, rubric, PROMPT, completions, **options))


def values(found: Sequence[Sequence[Verdict]]) -> list[float | None]:
    """Of each completion, what its first criterion is worth."""
    return [verdicts[0].value for verdicts in found]
