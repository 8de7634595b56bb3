"""An engine that answers at once, for tests and the scoring benchmark. No model is behind it: answers are chosen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Usage
from workers.engines import register
from workers.engines.base import Engine, EngineRequest, Failure, Question, Reply

Answer = Callable[[Question], Reply | Failure]

_USAGE = Usage(prompt=100.0, cached=90.0, completion=1.0)


class InstantEngine:
    """Answers each question by ``answer``; keeps the last ``remember`` requests in ``requests``."""

    def __init__(self, answer: Answer | None = None, remember: int = 0) -> None:
        self.answer = answer or agreeable
        self.remember = remember
        self.requests: list[EngineRequest] = []

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        if self.remember:
            self.requests = [*self.requests, request][-self.remember :]
        return [self.answer(question) for question in request.questions]

    async def aclose(self) -> None:
        return


@register("instant")
def _instant(judge: Judge) -> Engine:
    return InstantEngine()


def agreeable(question: Question) -> Reply:
    """Nine parts for the first label; ``met`` (a level, a number) for every criterion of a written question."""
    if question.labels:
        rest = 0.1 / max(len(question.labels) - 1, 1)
        return Reply(label_mass={label: rest if i else 0.9 for i, label in enumerate(question.labels)}, usage=_USAGE)
    schema = question.schema or {}
    items = schema["properties"].get("verdicts")
    findings = [_finding(item) for item in (items["items"]["anyOf"] if items else [schema])]
    return Reply(text=json.dumps({"verdicts": findings} if items else findings[0]), usage=_USAGE)


def _finding(schema: dict[str, dict[str, dict[str, list[str]]]]) -> dict[str, object]:
    wanted = schema["properties"]
    verdict: object = wanted["verdict"]["enum"][0] if "enum" in wanted["verdict"] else 0
    if "anyOf" in wanted["verdict"]:
        number = re.search(r'"minimum": (-?[\d.e+]+)', json.dumps(wanted["verdict"]))
        verdict = float(number[1]) if number else 0
    return {"criterion": wanted["criterion"]["enum"][0], "rationale": "So it is.", "evidence": [], "verdict": verdict}
