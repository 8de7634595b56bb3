from __future__ import annotations

import os
from pathlib import Path

import pytest

from rubricsvc.cli.output import (
    cell,
    clean,
    open_output,
    print_table,
    progress_bar,
    replaced,
    show,
)
from rubricsvc.errors import ConflictError, NotFoundError


def test_clean_replaces_control_characters() -> None:
    assert clean("a\x1b[2Jb\x07\u202ec\x9bd\nline\ttab") == "a\ufffd[2Jb\ufffd\ufffdc\ufffdd\nline\ttab"
    assert "\x1b" not in cell("\x1b]0;title\x07")


def test_print_table_keeps_whole_cells_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "text"], [["1", "x" * 300], ["22", "y\nz"]])
    assert capsys.readouterr().out == "A   TEXT\n1   " + "x" * 300 + "\n22  y z\n"


def test_empty_columns_and_fields_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "why", "b"], [["1", "", "x"], ["2", "", ""]])
    assert capsys.readouterr().out == "A  B\n1  x\n2\n"
    show({"rewards": 0, "mean": None, "reasons": {}, "note": ""}, as_json=False)
    assert capsys.readouterr().out == "rewards  0\nmean     -\n"


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


def test_replaced_refuses_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    for out, folder in ((tmp_path / "file", True), (tmp_path / "folder", False), (tmp_path / "no" / "file", False)):
        with pytest.raises((ConflictError, NotFoundError)), replaced(out, folder=folder):
            pytest.fail("the block must not run")


def test_progress_bar_prints_the_end_once_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("job 1") as bar:
        bar.update(1, 2, "")
        bar.update(2, 2, "done")
        bar.update(2, 2, "done")
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert printed.out == "" and line.startswith("job 1 2/2 ") and line.endswith(" done")
