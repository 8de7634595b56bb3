"""A judge and a proposer for tests of evolving rubrics, whose criteria are about words: ‘Uses the word “a”.’"""

import json
import re
from collections.abc import Sequence

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Reason
from tests.instant_engine import InstantEngine
from workers.engines import ENGINES
from workers.engines.base import EngineRequest, Failure, Question, Reply

JUDGE = Judge(name="letters", engine="letters", model="m")
_COMPLETION = re.compile(r"<completion-\w+>\n(.*?)\n?</completion-", re.DOTALL)


def uses(word: str) -> str:
    """The text of a criterion."""
    return f"Uses the word “{word}” in the answer."


def proposal(*words: str, pitfalls: Sequence[str] = ()) -> str:
    """A proposer's reply with a criterion for each word; a pitfall has a negative weight."""
    weighted = [*((word, 1) for word in words), *((word, -1) for word in pitfalls)]
    return json.dumps({"criteria": [{"text": uses(word), "weight": weight} for word, weight in weighted]})


class WordEngine(InstantEngine):
    """Says yes where the completion has the word of the criterion, and fails on the words ``unknown``."""

    def __init__(self, *unknown: str) -> None:
        super().__init__(remember=999)
        self.unknown = set(unknown)

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        await super().ask(request)
        found = _COMPLETION.search(request.shared)
        return [self._reply(question, found[1] if found else "") for question in request.questions]

    def _reply(self, question: Question, completion: str) -> Reply | Failure:
        word = question.text.partition("“")[2].partition("”")[0]
        if word in self.unknown:
            return Failure(Reason.TIMEOUT, "too slow")
        yes = 1.0 if word in completion else 0.0
        return Reply(label_mass={"Yes": yes, "No": 1 - yes})


ENGINES["letters"] = lambda _judge: WordEngine()
