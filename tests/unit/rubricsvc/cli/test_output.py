from __future__ import annotations

import os
from pathlib import Path

import pytest

from rubricsvc.cli.output import (
    cell,
    clean,
    open_output,
    print_table,
    replaced,
)
from rubricsvc.errors import ConflictError


def test_clean_replaces_control_characters() -> None:
    assert clean("a\x1b[2Jb\x07\u202ec\x9bd\nline\ttab") == "a\ufffd[2Jb\ufffd\ufffdc\ufffdd\nline\ttab"
    assert "\x1b" not in cell("\x1b]0;title\x07")


def test_print_table_keeps_whole_cells_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "text"], [["1", "x" * 300], ["22", "y\nz"]])
    assert capsys.readouterr().out == "A   TEXT\n1   " + "x" * 300 + "\n22  y z\n"


def test_open_output_leaves_no_partial_file(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with pytest.raises(RuntimeError), open_output(out) as stream:
        stream.write("half")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with open_output(out) as stream:
        stream.write("whole")
    assert out.read_text() == "whole"


def test_open_output_writes_into_a_pipe(tmp_path: Path) -> None:
    """A device or a pipe, such as /dev/null, must not be replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # an open reader, so that opening to write does not block
    with open_output(pipe) as stream:
        stream.write("text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(ConflictError), replaced(pipe):
        pass


def test_replaced_writes_a_folder_as_a_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), replaced(out, folder=True) as part:
        part.mkdir()
        (part / "half").write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    with replaced(out, folder=True) as part:
        part.mkdir()
        (part / "file").write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(ConflictError), replaced(out, folder=True):
        pass
    assert (out / "file").read_text() == "whole"
