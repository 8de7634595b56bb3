"""Detection of the format of a file, and files that can be read once."""

from __future__ import annotations

import io
from pathlib import Path

from rubricsvc.formats import InputFile, detect, stream
from tests.unit.rubricsvc.formats.test_load import GOOD, invalid, write


def test_detect_uses_ending_and_fields(tmp_path: Path) -> None:
    for name, content, format in [
        ("r.jsonl", GOOD, "native"),
        ("r.yaml", "prompt: x\n", "native"),
        ("r.txt", GOOD, "native"),
        ("h.jsonl", '{"prompt_id": "1", "prompt": [], "rubrics": []}\n', "healthbench"),
        ("m.jsonl", '{"prompt_id": "1", "binary_labels": [], "rubric": "x"}\n', "healthbench"),
        ("criteria.jsonl", '{"id": 1, "criterions": {}, "dimension_weight": {}}\n', "deep_research_bench"),
    ]:
        file = InputFile(write(tmp_path, name, content))
        assert detect(file) == format
        assert len(list(file.entries)) == 1  # the record that was looked at is not lost


def test_detect_names_a_misspelt_field_beside_a_rubric(tmp_path: Path) -> None:
    file = write(tmp_path, "a.jsonl", '{"prompt": "Q?", "rubric": "r", "completion": "A"}\n')
    assert [(one.path, one.line) for one in invalid(file, None).errors] == [("completion", 1)]


def test_detect_rejects_unknown_formats(tmp_path: Path) -> None:
    file = write(tmp_path, "r.jsonl", '{"question": "x", "answer": "y"}\n')
    error = invalid(file, None)
    assert error.errors[0].code == "unknown_format" and "native" in error.hint
    assert invalid(tmp_path, None).errors[0].code == "unknown_format"  # the folder of that file
    (tmp_path / "empty").mkdir()
    assert invalid(tmp_path / "empty", None).errors[0].code == "is_folder"


class Once(io.BytesIO):
    """A stream that cannot be rewound, as stdin."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: object) -> int:
        raise AssertionError("rewound")


def test_stream_reads_a_file_once() -> None:
    for name in ["stdin", "a.yaml", "a.json"]:
        buffer = io.BufferedReader(Once(GOOD.encode()))  # type: ignore[arg-type]  # as sys.stdin.buffer
        assert len(list(stream(InputFile(name, stream=buffer, name="<stdin>")))) == 1
        assert not buffer.closed
