"""Judges of several answers with a taste of their own, for tests: they read what is shown, and answer at once."""

import json
import re
from collections.abc import Callable

from rubricsvc.core.verdict import Usage
from tests.instant_engine import InstantEngine
from workers.engines.base import EngineRequest, Failure, Question, Reply

Taste = Callable[[str], float]
"""What an answer is worth, in [0, 1]."""

_ANSWER = re.compile(r"^Answer ([A-Z]):\n<(answer-[0-9a-f]{8})>\n(.*?)\n</\2>$", re.DOTALL | re.MULTILINE)
_USAGE = Usage(prompt=100, cached=50, completion=10)


def answers_in(shared: str) -> dict[str, str]:
    """The answers that a request shows, by id."""
    return {letter: text for letter, _, text in _ANSWER.findall(shared)}


class Tasteful(InstantEngine):
    """Prefers what ``taste`` values more; ``pull`` (0 to 1) goes to whatever is shown first, whoever it is."""

    def __init__(self, taste: Taste, *, pull: float = 0.0, remember: int = 1000) -> None:
        super().__init__(remember=remember)
        self.taste, self.pull = taste, pull

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        self.answer = lambda question: self._compare(question, answers_in(request.shared))
        return await super().ask(request)

    def _compare(self, question: Question, shown: dict[str, str]) -> Reply | Failure:
        worth = {letter: self.taste(text) for letter, text in shown.items()}
        if question.schema is not None and "scores" in question.schema["properties"]:
            return Reply(text=scores(worth), usage=_USAGE)
        first = 1.0 if worth["A"] > worth["B"] else 0.0 if worth["A"] < worth["B"] else 0.5
        first = (1 - self.pull) * first + self.pull
        if question.labels:
            return Reply(label_mass={"A": first * 0.9, "B": (1 - first) * 0.9, "C": 0.0}, usage=_USAGE)
        said = "tie" if first == 0.5 else "answer A" if first > 0.5 else "answer B"
        finding = {"criterion": "C1", "rationale": f"It is {said}.", "evidence": [], "verdict": said}
        return Reply(text=json.dumps(finding), usage=_USAGE)


def scores(by_id: dict[str, float]) -> str:
    """A groupwise judge's reply."""
    return json.dumps({"scores": [{"answer": id_, "rationale": "So.", "score": s} for id_, s in by_id.items()]})
