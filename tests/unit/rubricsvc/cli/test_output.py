from __future__ import annotations

import time
from pathlib import Path

import pytest

from rubricsvc.cli import output
from rubricsvc.cli.output import Pace, cell, clean, open_output, print_table, progress_bar, shorten, show


def test_untrusted_text_commands_no_terminal() -> None:
    assert clean("a\x1b[2Jb\x07\u202ec\x9bd\nline\ttab") == "a\ufffd[2Jb\ufffd\ufffdc\ufffdd\nline\ttab"
    assert "\x1b" not in cell("\x1b]0;title\x07")


def test_cells() -> None:
    assert [cell(x) for x in (None, True, 0.5, 1.0, 0.123456, {"a": 1.0})] == ["-", "yes", "0.5", "1", "0.1235", "a 1"]


def test_short_is_one_line() -> None:
    assert shorten("a\n b" + "x" * 100, 10) == "a bxxxxxx…"


def test_tables_are_whole_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "text"], [["1", "x" * 300], ["22", "y\nz"]])
    assert capsys.readouterr().out == "A   TEXT\n1   " + "x" * 300 + "\n22  y z\n"


def test_what_is_empty_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "why", "b"], [["1", "", "x"], ["2", "", ""]])
    assert capsys.readouterr().out == "A  B\n1  x\n2\n"
    show({"rewards": 0, "mean": None, "reasons": {}, "note": ""}, as_json=False)
    assert capsys.readouterr().out == "rewards  0\nmean     -\n"


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with pytest.raises(RuntimeError), open_output(out) as stream:
        stream.write("half")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with open_output(out) as stream:
        stream.write("whole")
    assert out.read_text() == "whole"


def test_progress_without_a_terminal_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("job 1") as bar:
        bar.update(1, 2, "")
        bar.update(2, 2, "done")
        bar.update(2, 2, "done")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "job 1: 2/2, done\n")


def test_there_is_no_silence_while_nothing_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "TELL_SECONDS", 0.01)
    said = ""
    with progress_bar("training") as bar:
        bar.update(0, 2, "loading")
        while said.count("\n") < 2:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert said.startswith("training: 0/2, 0 s so far, loading\n")


def test_the_time_left_is_told_at_the_pace_since_the_first_look() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    pace.update(5, 20)  # a run that is resumed has its first five steps from before
    now = 18.0
    assert str(pace) == "18 s so far"
    pace.update(6, 20)
    assert str(pace) == "about 4 min left"
    now = 36.0
    pace.update(7, 20)
    pace.update(7, 20)
    now = 200.0
    assert str(pace) == "about 70 s left"
    now = 1000.0
    assert str(pace) == "about 5 s left"
