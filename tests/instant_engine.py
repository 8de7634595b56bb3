"""An engine without a model that replies at once, for tests and the scoring benchmark."""

import json
import re
from collections.abc import Callable

from rubricsvc.core.verdict import Usage
from workers.engines import ENGINES
from workers.engines.base import EngineRequest, Failure, Question, Reply

Answer = Callable[[Question], Reply | Failure]

_USAGE = Usage(prompt=100, cached=90, completion=1)


class InstantEngine:
    """Answer each question with ``answer``; keep the last ``remember`` requests in ``requests``."""

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


ENGINES["instant"] = lambda _judge: InstantEngine()


def agreeable(question: Question) -> Reply:
    """Return 0.9 for the first label; the first level or number for every criterion of a written question."""
    if question.labels:
        rest = 0.1 / max(len(question.labels) - 1, 1)
        return Reply(label_mass={label: rest if i else 0.9 for i, label in enumerate(question.labels)}, usage=_USAGE)
    schema = question.schema or {}
    items = schema["properties"].get("verdicts")
    verdicts = [_verdict(item) for item in (items["items"]["anyOf"] if items else [schema])]
    return Reply(text=json.dumps({"verdicts": verdicts} if items else verdicts[0]), usage=_USAGE)


def _verdict(schema: dict[str, dict[str, dict[str, list[str]]]]) -> dict[str, object]:
    properties = schema["properties"]
    verdict: object = properties["verdict"]["enum"][0] if "enum" in properties["verdict"] else 0
    if "anyOf" in properties["verdict"]:
        number = re.search(r'"minimum": (-?[\d.e+]+)', json.dumps(properties["verdict"]))
        verdict = float(number[1]) if number else 0
    return {
        "criterion": properties["criterion"]["enum"][0], "rationale": "So it is.", "evidence": [], "verdict": verdict,
    }  # fmt: skip
