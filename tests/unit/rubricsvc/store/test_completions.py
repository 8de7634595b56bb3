"""Samples are stored once for each prompt, settings and number."""

from __future__ import annotations

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.store import completions
from rubricsvc.store.session import Database
from tests.rows import add_completion

SETTINGS = Completion(policy="p", sampling={"model": "m", "temperature": 1.0, "seed": None})


def sample(number: int, text: str, **sampling: float) -> Completion:
    return Completion(text=text, policy="p", sampling={**SETTINGS.sampling, "sample": number, **sampling})


def test_add_samples_stores_each_number_once(each_db: Database) -> None:
    with each_db.write() as session:
        one, two = (completions.add_prompt(session, Prompt.of(text)).id for text in ("One?", "Two?"))
        add_completion(session, Completion(text="imported", policy="p"), one)
        add_completion(session, sample(7, "hotter", temperature=2.0), one)
        assert len(completions.add_samples(session, [(one, sample(0, "a")), (one, sample(1, "a"))])) == 2
        cut_off = sample(1, "another text").model_copy(
            update={"sampling": sample(1, "").sampling | {"truncated": True}}
        )
        again = [(one, cut_off), (one, sample(2, "b")), (two, sample(1, "c")), (one, sample(7, "colder"))]
        assert len(completions.add_samples(session, again)) == 3
