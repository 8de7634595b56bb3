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
        assert completions.add_samples(session, SETTINGS, [(one, sample(0, "a")), (one, sample(1, "a"))]) == 2
        again = [(one, sample(1, "another text")), (one, sample(2, "b")), (two, sample(1, "c"))]
        assert completions.add_samples(session, SETTINGS, again) == 2
        add_completion(session, Completion(text="imported", policy="p"), one)
        add_completion(session, sample(7, "hotter", temperature=2.0), one)
    with each_db.read() as session:
        assert completions.samples(session, [one, two], SETTINGS) == {(one, 0), (one, 1), (one, 2), (two, 1)}
        assert completions.samples(session, [two], SETTINGS) == {(two, 1)}
