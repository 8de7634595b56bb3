"""The configuration of a run as fields by path, and the choice of transcripts."""

from __future__ import annotations

from rubricsvc.core.prompt import Message
from rubricsvc.schemas.runs import Sample, Transcript
from rubricsvc.services.runs import transcripts_of


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
