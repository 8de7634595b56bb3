"""Prompts to train on and held-out ones: apart by content, whatever their ids."""

from __future__ import annotations

import pytest

from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
from tests.model.trainer.tiny import RUBRIC
from trainer.data.tasks import Task, check_apart, content_key, hold_out, page_key


def tasks(*texts: str) -> list[Task]:
    return [Task(Prompt.of(text), RUBRIC, f"id-{place}") for place, text in enumerate(texts)]


def test_check_apart_names_overlapping_prompts() -> None:
    check_apart(tasks("one", "two"), tasks("three"))
    with pytest.raises(InvalidError) as caught:
        check_apart(tasks("one", "two", "three"), tasks("four", "ONE ", "two"))
    assert caught.value.path == "eval"
    assert "2 of 3" in caught.value.message
    assert "id-1, id-2" in caught.value.message


def test_hold_out_depends_on_content_and_seed_only() -> None:
    given = tasks(*(f"prompt {number}" for number in range(20)), "Prompt 3")
    train, held_out = hold_out(given, 0.25, seed=0)
    assert (len({content_key(task.prompt) for task in held_out}), len(train) + len(held_out)) == (5, 21)
    check_apart(train, held_out)
    assert [given.index(task) for task in train] == sorted(given.index(task) for task in train)
    again = hold_out(given[::-1], 0.25, seed=0)[1]
    assert {task.prompt.text for task in again} == {task.prompt.text for task in held_out}
    assert hold_out(given, 0.25, seed=1)[1] != held_out


def of_page(text: str, *pages: str, source: str | None = None, digest: str = "d") -> Task:
    item = {"digest": digest, "pages": [[id_] for id_ in pages], **({"source": source} if source else {})}
    return Task(Prompt.of(text, item=item), RUBRIC, text)


def test_hold_out_keeps_the_prompts_of_a_page_on_one_side() -> None:
    given = [of_page(f"{page} {number}", f"page {page}", "any") for page in range(12) for number in range(3)]
    given += [of_page(f"section {page}", "target", source=f"page {page}") for page in range(12)]
    train, held_out = hold_out(given, 0.25, seed=0)
    assert (len(train), len(held_out)) == (36, 12)
    assert not {page_key(one.prompt) for one in train} & {page_key(one.prompt) for one in held_out}


def test_hold_out_names_shares_that_fit() -> None:
    cases = [(4, 0.1, "0.25 to 0.75"), (4, 0.9, "0.25 to 0.75"), (1, 0.5, "add")]
    for count, share, fits in cases:
        with pytest.raises(InvalidError) as caught:
            hold_out(tasks(*map(str, range(count))), share, seed=0)
        assert caught.value.path == "eval.share"
        assert fits in caught.value.message
