"""The check on traces that go round in circles."""

from __future__ import annotations

from rubricsvc.core.prompt import Completion, Message, Prompt, ToolCall
from rubricsvc.core.rubric import Check, Criterion, Rubric
from workers.checks import run


def value(completion: Completion, name: str, **args: object) -> tuple[float | None, str]:
    rubric = Rubric(criteria=(Criterion(key="k", text="t", check=Check(name=name, args=args)),))
    (verdict,) = run(rubric, Prompt.of("q"), completion)
    return verdict.value, verdict.rationale or verdict.detail or ""


def trace(*queries: str) -> Completion:
    calls = ((ToolCall(name="find", arguments=f'{{"q": "{query}"}}'),) for query in queries)
    return Completion(messages=tuple(Message(role="assistant", content="", tool_calls=call) for call in calls))


def test_loops() -> None:
    assert value(trace("a", "b", "c"), "loops") == (1.0, "nothing repeats")
    found, why = value(trace("x", "a", "a", "a"), "loops")
    assert found == 0.5
    assert "step 2" in why
    assert value(trace("a", "b", "a", "c"), "loops")[0] == 1.0
    assert value(trace("a", "b", "a", "c"), "loops", calls=True)[0] == 0.75
    assert value(Completion(text="Just an answer."), "loops", calls=True)[0] == 1.0
