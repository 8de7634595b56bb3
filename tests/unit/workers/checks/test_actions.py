"""Checks of what a policy did: valid calls, and actions that it claims and no call did."""

import json

from rubricsvc.core.prompt import Completion, Document, Message, Prompt, ToolCall
from rubricsvc.core.rubric import Check, Criterion, Rubric
from workers.checks import run

Step = tuple[str, dict[str, str], str]
"""The name of a tool, its arguments, and its result."""

SEARCH: Step = ("search", {"query": "dead tuples"}, "[vacuum] VACUUM: removes dead tuples\n[freeze] Freezing")
OPEN: Step = ("open", {"id": "vacuum"}, "The vacuum process reclaims storage occupied by dead tuples.")
NOTES: Step = ("open", {"id": "release-15"}, "Release notes of version 15")
RUN: Step = ("python", {"code": "print(6 * 7)"}, "42")
MISSING: Step = ("open", {"id": "release-15"}, '{"error": "no document \'release-15\'"}')
NOTHING: Step = ("search", {"query": "zebra"}, '{"error": "no document has these words"}')
MALFORMED = [
    Message(role="assistant", content='<tool_call>{"name": "search"'),
    Message(role="tool", content='{"error": "the call is no JSON"}'),
]


def trace(*steps: Step, text: str = "Done.", before: tuple[Message, ...] = ()) -> Completion:
    messages = [*before]
    for number, (name, arguments, result) in enumerate(steps):
        call = ToolCall(name=name, arguments=json.dumps(arguments), id=f"c{number}")
        messages.append(Message(role="assistant", content="", tool_calls=(call,)))
        messages.append(Message(role="tool", content=result, name=name, tool_call_id=call.id))
    finish = ToolCall(name="finish", arguments=json.dumps({"report": text}), id="last")
    messages.append(Message(role="assistant", content="", tool_calls=(finish,)))
    return Completion(messages=(*messages, Message(role="assistant", content=text)))


def value(completion: Completion, name: str, prompt: Prompt | None = None, **args: object) -> float | None:
    rubric = Rubric(criteria=(Criterion(key="k", text="t", check=Check.model_validate({"name": name, "args": args})),))
    (verdict,) = run(rubric, prompt or Prompt.of("q"), completion)
    return verdict.value


def test_valid_calls() -> None:
    for completion, minimum, valid in [
        (trace(SEARCH, OPEN), 1, 1.0),
        (trace(SEARCH, OPEN), 4, 0.5),
        (trace(SEARCH, OPEN, NOTHING, MISSING), 1, 0.5),
        (trace(SEARCH, SEARCH, SEARCH, SEARCH), 1, 0.25),
        (trace(SEARCH, ("search", {"query": "tuples, dead"}, SEARCH[2])), 1, 0.5),
        (trace(SEARCH, OPEN, ("open", {"id": "vacuum"}, "The next part of it.")), 3, 1.0),
        (trace(SEARCH, before=tuple(MALFORMED)), 1, 0.5),
        (trace(), 1, 0.0),
        (Completion(text="Just an answer."), 1, 0.0),
    ]:
        assert value(completion, "valid_calls", min=minimum) == valid


def test_invented_actions_are_those_that_no_call_did() -> None:
    for text, steps, invented in [
        ("I checked the release notes.", (SEARCH, OPEN), 1),
        ("I checked the release notes.", (SEARCH, OPEN, NOTES), 0),
        ("I checked the release notes.", (SEARCH, MISSING), 1),
        ("I've carefully reviewed the release notes of version 15, and they agree.", (NOTES,), 0),
        ("I've carefully reviewed the release notes of version 16.", (OPEN,), 1),
        ("I searched for dead tuples.", (SEARCH,), 0),
        ("I searched for dead tuples.", (OPEN,), 1),
        ("I searched for zebra, but found nothing.", (NOTHING,), 0),
        ("I searched the documentation thoroughly.", (SEARCH,), 0),
        ("I searched the web and opened the page on vacuum.", (SEARCH,), 1),
        ("I searched the web and opened the page on vacuum.", (SEARCH, OPEN), 0),
        ("We have executed the code.", (SEARCH,), 1),
        ("We ran the code, and it printed 42.", (RUN,), 0),
        ("I executed the benchmark suite.", (RUN,), 1),
        ("After searching the release notes, I found none.", (OPEN,), 1),
        ("After opening the file, the server reads it.", (), 0),
        ("Having verified the release notes, we report this.", (OPEN,), 1),
        ("First, I then looked up the zebra.", (SEARCH,), 1),
        ("- It is so.\n- I contacted the authors.", (SEARCH,), 1),
        ("I googled it.", (("web_search", {"q": "it"}, "hits"),), 0),
        ("I googled it.", (("openWebPage", {"q": "it"}, "hits"),), 1),
    ]:
        assert value(trace(*steps, text=text), "invented_actions") == invented


def test_invented_actions_leaves_negations_conditions_and_quotations() -> None:
    for text in [
        "I did not search.",
        "I didn't check the release notes.",
        "I have not checked the release notes.",
        "I never opened the release notes.",
        "I could have searched the web.",
        "I would have checked the release notes.",
        "I will search the web.",
        "I hardly searched the web.",
        "I neither searched nor opened anything.",
        "If I searched the web, I would find it.",
        "Have I searched the web?",
        "The author says: “I searched the web for a year.”",
        "> I searched the web for a year, and another one.",
        "Write `I searched the web` there.",
        "```\nI searched the web.\n```",
        "The release notes were searched.",
        "The server opened a file and ran a query.",
        "A searched document, an opened file.",
        "I have carefully checked my answer.",
        "",
    ]:
        assert value(trace(text=text), "invented_actions") == 0
        assert value(Completion(text=text), "invented_actions") == 0


def test_invented_actions_takes_the_documents_of_the_prompt_as_read_and_not_as_run() -> None:
    given = Prompt.of("q", documents=(Document(id="notes", title="Release notes", text="Nothing changed."),))
    assert value(Completion(text="I read the release notes."), "invented_actions", given) == 0
    assert value(Completion(text="I read the manual of zebras."), "invented_actions", given) == 1
    assert value(Completion(text="I executed the release notes."), "invented_actions", given) == 1


def test_actions_checks_take_hostile_texts() -> None:
    broken = Message(role="assistant", content="", tool_calls=(ToolCall(name="", arguments="{]" * 2000),))
    answers = (Message(role="tool", content="[" * 5000), Message(role="tool", content="\ue000", tool_call_id="?"))
    for text in (
        "I searched " * 5000, "I " * 10_000, "I have " * 5000 + "searched", "and I, then " * 3000, "“I ran" * 2000,
    ):  # fmt: skip
        completion = Completion(messages=(broken, *answers, Message(role="assistant", content=text)))
        assert value(completion, "invented_actions") in (0, 1) and value(completion, "valid_calls") == 1.0
