from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc.formats.completions import fits, read
from rubricsvc.formats.errors import Faults
from rubricsvc.formats.source import Source


def read_all(path: Path, text: str) -> tuple[list[object], Faults]:
    path.write_text(text)
    faults = Faults()
    return list(read(Source.of(path), faults)), faults


def test_the_ways_to_say_it(tmp_path: Path) -> None:
    lines = [
        '{"prompt": "Q", "completion": "A", "policy": "p", "step": 3, "sampling": {"temperature": 1}, "id": "x"}',
        '{"prompt_id": 7, "text": ""}',
        '{"prompt_id": "ext", "messages": [{"role": "assistant", "content": "last"}]}',
    ]
    answers, faults = read_all(tmp_path / "c.jsonl", "\n".join(lines))
    assert not faults.count
    texts = [answer.completion.text for answer in answers]  # type: ignore[attr-defined]
    refs = [answer.prompt_id for answer in answers]  # type: ignore[attr-defined]
    assert texts == ["A", "", "last"]
    assert refs == [None, 7, "ext"]
    assert fits(Source.of(tmp_path / "c.jsonl"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"completion": "A"}', "expected prompt or prompt_id, found neither"),
        ('{"prompt": "Q", "prompt_id": 1, "completion": "A"}', "expected prompt or prompt_id, found both"),
        ('{"prompt": "Q"}', "expected completion (or text, or messages), found none"),
        ('{"prompt": "Q", "completion": "A", "text": "B"}', "found completion and text"),
        ('{"prompt": "Q", "completion": 5}', "completion: expected text, found 5"),
        ('{"prompt": "Q", "completion": "A", "step": 1.5}', "step: expected a whole number"),
        ('{"prompt_id": true, "completion": "A"}', "prompt_id: expected an id, found true"),
        ('{"prompt": "Q", "completion": "A", "polcy": "x"}', "polcy: unknown field; did you mean 'policy'?"),
        ('{"prompt": "Q", "messages": [{"role": "assistant"}]}', "messages[0].content: is missing"),
        (
            '{"prompt": "Q", "messages": [{"role": "assistant", "content": "", "tool_calls": [{"name": 3}]}]}',
            "messages[0].tool_calls[0].name: expected text, found 3",
        ),
        ('"x"', "expected a mapping"),
    ],
)
def test_faults(tmp_path: Path, line: str, words: str) -> None:
    answers, faults = read_all(tmp_path / "c.jsonl", line)
    assert answers == []
    assert any(words in str(fault) and ":1:" in str(fault) for fault in faults.kept), faults.kept


def test_a_trace_as_openai_writes_it(tmp_path: Path) -> None:
    line = """{"prompt": "Q", "messages": [
      {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{\\"q\\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "hit"}]},
      {"role": "assistant", "content": "Done."}]}""".replace("\n", "")
    (answer,), faults = read_all(tmp_path / "c.jsonl", line)
    assert not faults.count
    completion = answer.completion  # type: ignore[attr-defined]
    assert completion.text == "Done."
    assert [message.text for message in completion.messages] == ['[calls search({"q": 1})]', "hit", "Done."]
