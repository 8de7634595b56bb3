"""AutoRubric's side of `bench_judging`, in the Python that has it (see .venv-autorubric in the Makefile).

Reads a case a line as JSON (base_url, model, criteria, task, completion), grades it with AutoRubric's default grader,
and prints the seconds that took and how many criteria got a verdict. Of the settings only the time limit is not its
default: 60 seconds, and then again, are too few for a small machine.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

from autorubric import Criterion, LLMConfig, Rubric
from autorubric.graders import CriterionGrader


async def grade(case: dict[str, Any]) -> dict[str, Any]:
    rubric = Rubric([Criterion(weight=1.0, requirement=text) for text in case["criteria"]])
    judge = LLMConfig(model=f"openai/{case['model']}", api_base=case["base_url"], api_key="none", timeout=1800.0)
    grader = CriterionGrader(judge_model_config=judge)
    start = time.perf_counter()
    report = await rubric.grade(to_grade=case["completion"], grader=grader, query=case["task"])
    seconds = time.perf_counter() - start
    found = report.report or []
    errors = sorted({str(one.error)[:200] for one in found if one.error} | ({report.error} - {None}))
    return {"seconds": seconds, "verdicts": sum(one.error is None for one in found), "errors": errors}


def main() -> None:
    logging.disable()  # errors are in the report
    results, sys.stdout = sys.stdout, sys.stderr  # LiteLLM prints advice beside its errors
    for line in sys.stdin:
        print(json.dumps(asyncio.run(grade(json.loads(line)))), file=results, flush=True)


if __name__ == "__main__":
    main()
