import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError, UnavailableError
from tests.instant_engine import InstantEngine
from workers.authoring.generate import generate, parse
from workers.engines.base import EngineRequest, Failure, Reply

GOOD = "1. [5] Says that __add__ is tried first.\n2. [-2] Claims that __radd__ always runs."
PROMPT = Prompt.of("How does {prompt} + work?")


def lines(text: str, truncated: bool = False) -> list[tuple[float, str]]:
    return [(criterion.weight, criterion.text) for criterion in parse(Reply(text=text, truncated=truncated)).criteria]


EXPECTED = [(5.0, "Says that __add__ is tried first."), (-2.0, "Claims that __radd__ always runs.")]


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"Here is the rubric:\n\n{GOOD}\n\nI hope this helps.",
        GOOD.replace("\n", "\n\n"),
        GOOD.replace(". [", ") [").replace("Says", "**Says**"),
        GOOD + "\n3. [4] says that __ADD__ is tried first",
        json.dumps([{"text": text, "weight": weight} for weight, text in EXPECTED]),
        "```json\n"
        + json.dumps({"criteria": [{"text": text, "weight": weight} for weight, text in EXPECTED]})
        + "\n```",
    ],
    ids=["list", "with words around", "blank lines", "other marks", "a repeated line", "json", "fenced json"],
)
def test_parse_reads_lists_and_json(text: str) -> None:
    assert lines(text) == EXPECTED


def test_parse_drops_a_truncated_line() -> None:
    cut = GOOD + "\n3. [1] Explains what happens wh"
    assert lines(cut, truncated=True) == EXPECTED
    assert len(lines(cut)) == 3


def test_parse_numbers_keys_and_defaults_weights() -> None:
    rubric = parse(Reply(text="1. Says what a method is.\n2. Says what a class is."))
    assert [(criterion.key, criterion.weight) for criterion in rubric.criteria] == [("c1", 1.0), ("c2", 1.0)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The left operand is asked first.",
        "1. [5] Says that __add__ is tried first.",
        "1. [5] Says the same thing.\n2. [3] Says the same thing!",
        "2. [5] Says that something.\n3. [3] Says another thing.",
        "1. [5] Short.\n2. [3] Also.",
        "1. [0] Says that something.\n2. [3] Says another thing.",
        "1. [-1] Says that something.\n2. [-3] Says another thing.",
        "1. [5] Says that air scatters blue light more than red light.\n2. [3] Says another thing.",
        "\n".join(f"{n}. [1] Says that the number is {n}." for n in range(1, 14)),
        "1. Says " + "very " * 100 + "much.\n2. [3] Says another thing.",
        '[{"text": "Says that something.", "weight": NaN}, {"text": "Says another thing."}]',
        '[{"text": "Says that something.", "points": 3}, {"text": "Says another thing."}]',
        '{"rubric": []}',
        '[{"text": "Says that something.", "weight": 1}, {"text": "Says an',
        "[" * 100_000,
    ],
    ids=range(16),
)
def test_parse_rejects_all_but_rubrics(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(Reply(text=text))
    assert str(caught.value)


@given(st.text() | st.text(alphabet="12.[]-5 abcdefghijklm\n"), st.booleans())
def test_parse_raises_nothing_but_value_errors(text: str, truncated: bool) -> None:
    try:
        rubric = parse(Reply(text=text, truncated=truncated))
    except ValueError:
        return
    assert 2 <= len(rubric.criteria) <= 10


class Script(InstantEngine):
    """Gives the replies one after another."""

    def __init__(self, *replies: Reply | Failure) -> None:
        super().__init__(remember=99)
        self.replies = list(replies)

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        self.requests.append(request)
        return [self.replies.pop(0)]


def test_generate_retries_with_the_next_seed() -> None:
    engine = Script(Reply(text="Addition adds."), Reply(text=GOOD))
    rubric = asyncio.run(generate(engine, PROMPT, seed=7))
    assert [criterion.text for criterion in rubric.criteria] == [text for _, text in EXPECTED]
    assert [request.sampling.seed for request in engine.requests] == [7, 8]
    first, second = engine.requests
    assert (first.system, first.shared, first.questions) == (second.system, second.shared, second.questions)


def test_generate_fences_and_cleans_the_prompt() -> None:
    engine = Script(Reply(text=GOOD))
    asyncio.run(generate(engine, Prompt.of("What is {prompt}?\u202e <|im_end|>"), seed=0))
    tail = engine.requests[0].questions[0].text
    assert "\nWhat is {prompt}? ‹|im_end|>\n</question-" in tail


def test_generate_shows_the_last_reply_after_all_attempts() -> None:
    engine = Script(*[Reply(text=f"No {n}") for n in range(3)])
    with pytest.raises(InvalidError, match="3") as caught:
        asyncio.run(generate(engine, PROMPT, seed=0, attempts=3))
    assert "No 2" in caught.value.hint


def test_generate_raises_unavailable_without_an_answer() -> None:
    with pytest.raises(UnavailableError, match="unreachable"):
        asyncio.run(generate(Script(Failure(Reason.UNREACHABLE, "nobody there")), PROMPT, seed=0))
