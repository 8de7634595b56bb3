"""The configuration of a run as fields by path, and the choice of transcripts."""

from __future__ import annotations

from rubricsvc.core.prompt import Message
from rubricsvc.schemas.runs import Sample, Transcript, flat
from rubricsvc.services.runs import transcripts_of


def test_flat_leaves_out_what_is_not_set() -> None:
    config = {"steps": 2, "policy": {"model": "m"}, "judge": {"name": "j", "voting": None}, "eval": None, "store": []}
    assert dict(flat(config)) == {"steps": 2, "policy.model": "m", "judge.name": "j"}


def test_flat_numbers_tables_in_a_list() -> None:
    config = {"eval": {"judges": [{"name": "j"}, {"name": "k"}]}, "stages": [0.5, 1.0], "names": ["a"]}
    expected = {"eval.judges.0.name": "j", "eval.judges.1.name": "k", "stages": [0.5, 1.0], "names": ["a"]}
    assert dict(flat(config)) == expected


def episode(prompt: str, score: float | None) -> Sample:
    return Sample(
        prompt=prompt,
        text="text",
        where="here",
        scores={"gold": score},
        messages=(Message(role="assistant", content="text"),),
    )


def test_transcripts_of_are_evenly_of_the_order_of_the_rise() -> None:
    ends = {"a": 0.1, "b": 0.5, "c": 0.3, "d": 0.9, "e": None}
    first = {prompt: episode(prompt, 0.2) for prompt in ends}
    last = {prompt: episode(prompt, end) for prompt, end in ends.items()}
    for most, prompts in ((5, "dbcea"), (3, "dca"), (1, "d")):
        assert [one.prompt for one in transcripts_of(first, last, "gold", most)] == list(prompts)
    assert transcripts_of(first, last, "gold", 1) == [Transcript(prompt="d", samples=(first["d"], last["d"]))]


def test_transcripts_of_one_evaluation_show_it_once() -> None:
    only = {"a": episode("a", 0.2)}
    assert transcripts_of(only, only, "gold", 3) == [Transcript(prompt="a", samples=(only["a"],))]


def test_transcripts_of_completions_without_a_trajectory_are_none() -> None:
    plain = {"a": Sample(prompt="a", text="text", where="here", scores={})}
    assert transcripts_of(plain, plain, "gold", 3) == []
