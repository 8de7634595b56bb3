"""The rubric about criteria, and what a judge finds by it."""

from __future__ import annotations

import asyncio

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.lint import RULES
from rubricsvc.lint.registry import Subject
from tests.instant_engine import InstantEngine
from workers.authoring.model_lint import MODEL_RULES, ModelLint, ModelRule, lint_by_model
from workers.engines.base import EngineRequest, Failure, Reply

JUDGE = Judge(name="reader", engine="instant", model="m")
RUBRIC = Rubric.model_validate(
    {
        "criteria": [
            {"key": "two", "text": "Names the drug and its side effects.", "weight": 5, "reference": "Ibuprofen"},
            {"key": "short", "text": "Is short.", "check": {"name": "words", "args": {"max": 50}}},
            {"key": "fault", "text": "Recommends a lethal dose.", "weight": -3},
        ]
    }
)


class Reader(InstantEngine):
    """Finds two things in what has the word ``and``, and everything else in order; keeps what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[EngineRequest] = []

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        self.shown.append(request)
        return [self._reply("one thing" in one.text and "drug and" in request.shared) for one in request.questions]

    def _reply(self, finds: bool) -> Reply | Failure:
        return Reply(label_mass={"Yes": 0.125, "No": 0.875} if finds else {"Yes": 0.9, "No": 0.1})


def by_model(engine: Reader, prompt: Prompt | None = None, *names: str) -> ModelLint:
    rules = [MODEL_RULES[name] for name in names] or [*RULES.values(), *MODEL_RULES.values()]
    return asyncio.run(lint_by_model(engine, JUDGE, rules, Subject(RUBRIC, prompt)))


@pytest.mark.parametrize("rule", MODEL_RULES.values(), ids=lambda rule: rule.name)
def test_model_rule_is_explained(rule: ModelRule) -> None:
    texts = [rule.summary, rule.asks, rule.why, rule.fix, rule.bad, rule.good]
    assert all(texts) and len(set(texts)) == len(texts)
    assert rule.name.startswith("model/") and rule.severity != "error" and 0 < rule.threshold < 1


def test_lint_by_model_finds_what_is_below_the_threshold() -> None:
    found = by_model(Reader(), Prompt.of("What helps?"))
    assert [(one.rule, one.criterion, one.judge, one.severity) for one in found.findings] == [
        ("model/one-question", "two", "reader", "warning")
    ]
    assert (found.findings[0].value, found.findings[0].probability) == (0.125, 0.125)
    assert (len(found.verdicts), found.unmeasured) == (2 * len(MODEL_RULES), [])
