from __future__ import annotations

from pathlib import Path

from rubricsvc.formats import InputFile
from rubricsvc.formats.record import CompletionLine, kind_of, read_completion


def read_all(path: Path, text: str) -> tuple[list[CompletionLine], InputFile]:
    path.write_text(text)
    file = InputFile(path)
    return [line for line, _ in file.parse(read_completion)], file


def test_read_accepts_prompts_and_ids(tmp_path: Path) -> None:
    texts = [
        '{"prompt": "Q", "completion": "A", "policy": "p", "step": 3, "sampling": {"temperature": 1}, "id": "x"}',
        '{"prompt_id": 7, "text": ""}',
        '{"prompt_id": "ext", "messages": [{"role": "assistant", "content": "last"}]}',
    ]
    lines, file = read_all(tmp_path / "c.jsonl", "\n".join(texts))
    assert not file.errors.count
    texts = [line.completion.text for line in lines]
    refs = [line.prompt_id for line in lines]
    assert texts == ["A", "", "last"]
    assert refs == [None, 7, "ext"]
    assert kind_of(InputFile(tmp_path / "c.jsonl").first()) == "completions"


def test_read_reports_invalid_lines(tmp_path: Path) -> None:
    for line, path, code in [
        ('{"completion": "A"}', "", "missing"),
        ('{"prompt": "Q", "prompt_id": 1, "completion": "A"}', "", "missing"),
        ('{"prompt": "Q"}', "", "missing"),
        ('{"prompt": "Q", "completion": "A", "text": "B"}', "", "missing"),
        ('{"prompt": "Q", "completion": 5}', "completion", "string_type"),
        ('{"prompt": "Q", "completion": "A", "step": 1.5}', "step", "int_type"),
        ('{"prompt_id": true, "completion": "A"}', "prompt_id", "int_type"),
        ('{"prompt": "Q", "completion": "A", "polcy": "x"}', "polcy", "extra_forbidden"),
        ('{"prompt": "Q", "messages": [{"role": "assistant"}]}', "messages[0].content", "missing"),
        (
            '{"prompt": "Q", "messages": [{"role": "assistant", "content": "", "tool_calls": [{"name": 3}]}]}',
            "messages[0].tool_calls[0].name",
            "string_type",
        ),
        ('"x"', "", "dict_type"),
    ]:
        lines, file = read_all(tmp_path / "c.jsonl", line)
        assert lines == []
        assert (1, path, code) in [(error.line, error.path, error.code) for error in file.errors.errors]


def test_read_accepts_messages_of_openai(tmp_path: Path) -> None:
    text = """{"prompt": "Q", "messages": [
      {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{\\"q\\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "hit"}]},
      {"role": "assistant", "content": "Done."}]}""".replace("\n", "")
    (line,), file = read_all(tmp_path / "c.jsonl", text)
    assert not file.errors.count
    completion = line.completion
    assert completion.text == "Done."
    assert [message.text for message in completion.messages] == ['[calls search({"q": 1})]', "hit", "Done."]
