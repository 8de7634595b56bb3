"""How a trace that goes in circles is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.prompt import Completion, Message, ToolCall, steps_of
from workers.repetitions import Cycle, distinct_share, repetitions


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def called(query: str, result: str = "nothing") -> list[Message]:
    call = ToolCall(name="search", arguments=f'{{"q": "{query}"}}')
    return [Message(role="assistant", content="", tool_calls=(call,)), Message(role="tool", content=result)]


def trace(*messages: Message) -> Completion:
    return Completion(messages=messages)


def cycles(letters: str) -> list[Cycle]:
    return repetitions(steps_of(trace(*(said(letter) for letter in letters)))).cycles


@pytest.mark.parametrize(
    ("letters", "found"),
    [
        ("", []), ("abcdef", []), ("aab", []), ("baaac", [Cycle(2, 1, 3)]), ("aaaaa", [Cycle(1, 1, 5)]),
        ("ababab", [Cycle(1, 2, 3)]), ("xababababy", [Cycle(2, 2, 4)]), ("abab", []), ("abcabcabc", [Cycle(1, 3, 3)]),
        ("aaabbb", [Cycle(1, 1, 3), Cycle(4, 1, 3)]),
    ],
)  # fmt: skip
def test_cycles_of_examples(letters: str, found: list[Cycle]) -> None:
    assert cycles(letters) == found if letters else repetitions(((said(""),),)).cycles == []


@given(st.text("ab", min_size=1, max_size=30))
def test_cycles_never_overlap_and_repeat_exactly(letters: str) -> None:
    last = 0
    for cycle in cycles(letters):
        block = letters[cycle.first - 1 :][: cycle.period]
        assert letters[cycle.first - 1 :].startswith(block * cycle.rounds) and cycle.first > last
        last = cycle.first + cycle.period * cycle.rounds - 1


def test_cycles_exclude_polling_with_changing_results() -> None:
    polling = repetitions(steps_of(trace(*called("a", "not yet"), *called("a", "soon"), *called("a", "here"))))
    assert (polling.cycles, polling.share) == ([], 0.0)
    stuck = repetitions(steps_of(trace(*called("a") * 4)))
    assert stuck.share == 0.75 and 'search({"q": "a"})' in stuck.text
    assert repetitions(steps_of(trace(*called("a"), *called("b")))).text == ""


def test_distinct_share_is_the_share_of_different_ngrams() -> None:
    assert distinct_share("abcdef", 4) == 1.0 and distinct_share("ababab", 2) == pytest.approx(2 / 5)
    assert distinct_share("aaaaa", 4) == 0.5 and distinct_share("ab", 4) == 1.0
    assert distinct_share("", 4) == 1.0
