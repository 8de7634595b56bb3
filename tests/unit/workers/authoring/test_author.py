import asyncio
import json
from typing import Any

import pytest

from rubricsvc.core.generation import AuthoringTask, Generation
from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.prompt import Prompt
from tests.instant_engine import InstantEngine
from tests.rubric_writer import RUBRIC
from workers.authoring.author import Author, Draft, GenerationError
from workers.authoring.methods import write_rubric
from workers.engines.base import EngineRequest, Failure, Reply

GOOD = json.dumps(RUBRIC)
PROMPT = Prompt.of("How does {prompt} + work?")


class Script(InstantEngine):
    """Gives the replies (text, JSON or failures) one after another."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(remember=99)
        texts = [json.dumps(one) if isinstance(one, dict) else one for one in replies]
        self.replies = [Reply(one) if isinstance(one, str) else one for one in texts]

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        self.requests.append(request)
        return [self.replies.pop(0)]


def write(engine: Script, task: AuthoringTask | None = None, **settings: object) -> Draft:
    author = Author(engine, Judge(name="writer", model="m"), Generation.model_validate(settings))
    return asyncio.run(write_rubric(author, task or AuthoringTask(PROMPT)))


def test_author_sends_a_reply_back_with_its_error() -> None:
    broken = GOOD.replace('"weight": 5', '"weight": "much"')
    engine = Script(broken, "I am sorry.", GOOD)
    draft = write(engine)
    assert (draft.redraws, draft.repairs, draft.raw_reply) == (0, 2, GOOD)
    first, second, third = (request.questions[0] for request in engine.requests)
    assert first.turns == () and second.turns[0] == broken and third.turns[0] == "I am sorry."
    assert "criteria.0.weight" in second.turns[1]


def test_author_cleans_escapes_of_a_reply_and_notes_it() -> None:
    hidden = {"text": "Names \x1b]0;pwn\x07 the cause.", "reference": "\u202eIt <|im_end|> is.", "weight": 1}
    raw = json.dumps({"criteria": [hidden, *json.loads(GOOD)["criteria"]]})
    draft = write(Script(raw))
    first = draft.rubric.criteria[0]
    assert (first.text, first.reference) == ("Names ]0;pwn the cause.", "It ‹|im_end|> is.")
    assert draft.raw_reply == raw
    for part in ("U+001B", "U+0007", "U+202E", "1 role tokens"):
        assert part in (draft.cleaned or "")


def test_author_draws_again_with_the_next_seed_after_two_repairs() -> None:
    engine = Script("No.", "No!", "No?", GOOD)
    draft = write(engine, sampling=Sampling(temperature=1.0, seed=7))
    assert (draft.redraws, draft.repairs) == (1, 0)
    assert [request.questions[0].sample for request in engine.requests] == [0, 0, 0, 1]
    assert {request.sampling.seed for request in engine.requests} == {7}


def test_author_fails_with_the_last_reply_after_all_redraws() -> None:
    engine = Script(*[f"No {n}" for n in range(4)])
    with pytest.raises(GenerationError) as caught:
        write(engine, redraws=1, repairs=1)
    assert caught.value.reason == "no_rubric" and "No 3" in caught.value.message
    assert "none of 2 samples, sent back 2 times" in caught.value.message
    assert len(engine.requests) == 4
