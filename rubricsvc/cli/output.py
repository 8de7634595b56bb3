"""What commands print: data to stdout as a table or as JSON lines, everything else to stderr."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any, Protocol, TextIO, TypeVar

import typer

Row = TypeVar("Row")

OK, WITH_FAILURES, BAD_INPUT, UNAVAILABLE, NOT_PASSED, INTERNAL_ERROR, INTERRUPTED = 0, 1, 2, 3, 4, 70, 130

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
MOST_ROWS = 1_000_000_000
Limit = Annotated[int, typer.Option(min=1, max=MOST_ROWS, help="How many at most; stderr says if there are more.")]
After = Annotated[int, typer.Option(min=0, help="Only those with ids above this one.")]


def group(help: str) -> typer.Typer:
    """A group of commands about one noun."""
    return typer.Typer(help=help, no_args_is_help=True)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


def echo(text: str) -> None:
    """A line for the person at the terminal."""
    print(clean(text), file=sys.stderr, flush=True)  # noqa: T201


def print_data(text: str) -> None:
    """A line of data."""
    print(text)  # noqa: T201


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Print within. Once whoever reads has gone (``| head``), which is no error of ours, no more is printed."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def exit_with(code: int) -> Iterator[None]:
    """Print within; the command then ends with ``code``, whether or not it was read to the end."""
    with ignore_broken_pipe():
        yield
    raise typer.Exit(code)


def print_json(data: Any) -> None:
    """One JSON object as one line of data."""
    print_data(json.dumps(data, ensure_ascii=False, allow_nan=False))


def clean(text: str) -> str:
    """Without the characters that command a terminal or hide text: what models wrote stays text."""
    return _CONTROL.sub("\ufffd", text)


def show(data: dict[str, Any], as_json: bool) -> None:
    """One thing: JSON, or a line for each field that holds something."""
    if as_json:
        print_json(data)
        return
    data = {name: value for name, value in data.items() if value not in ("", {}, [])}
    width = max(map(len, data), default=0)
    for name, value in data.items():
        print_data(f"{name.ljust(width)}  {cell(value)}")


def show_list(rows: Iterable[dict[str, Any]], as_json: bool, *, empty: str = "nothing there") -> None:
    """Many things: JSON lines, or a table whose columns are the fields of the first."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    table = list(rows)
    if not table:
        echo(empty)
        return
    print_table(list(table[0]), [[cell(value) for value in row.values()] for row in table])


def show_page(
    fetch: Callable[[int], Sequence[Row]],
    told: Callable[[Row], dict[str, Any]],
    limit: int,
    as_json: bool,
    *,
    empty: str,
) -> None:
    """One page of what ``fetch(limit)`` finds, as ``told``, with an ``id``. stderr says where more would follow."""
    rows = fetch(limit + 1)
    shown = [told(row) for row in rows[:limit]]
    show_list(shown, as_json, empty=empty)
    if len(rows) > limit:
        echo(f"there are more: --after {shown[-1]['id']} lists the next ones, --limit sets how many")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns; the last one is cut to the terminal's width, and whole where stdout is no terminal.

    A column in which no row has anything is left out.
    """
    filled = [i for i in range(len(columns)) if not rows or any(row[i] for row in rows)]
    columns = [columns[i] for i in filled]
    rows = [[re.sub(r"\s+", " ", row[i]) for i in filled] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in rows)) for i, name in enumerate(columns)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in ([name.upper() for name in columns], *rows):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        print_data(line if room is None or len(line) <= room else line[: room - 1] + "…")


def cell(value: Any) -> str:
    """A value as a person reads it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return clean(str(value))


def shorten(text: str, length: int = 70) -> str:
    """One line of at most ``length`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


@contextmanager
def open_output(out: Path | None) -> Iterator[TextIO]:
    """stdout, or a file that is there only once it is whole."""
    if out is None:
        yield sys.stdout
        return
    part = out.with_name(out.name + ".part")
    try:
        with part.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        part.replace(out)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    echo(f"wrote {out}")


class ProgressBar(Protocol):
    """Shows how far a long task is."""

    def update(self, done: int, total: int, note: str) -> None: ...


@contextmanager
def progress_bar(what: str) -> Iterator[ProgressBar]:
    """A progress bar with the time left, on a terminal; elsewhere a line on stderr every ``TELL_SECONDS``."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        lines, over = _Lines(what), Event()
        teller = Thread(target=lines.tell_until, args=(over,), daemon=True)
        teller.start()
        try:
            yield lines
        finally:
            over.set()
            teller.join()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    texts = (TextColumn("{task.fields[pace]}"), TextColumn("{task.fields[note]}"))
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), *texts)
    with Progress(*columns, console=Console(stderr=True), transient=False) as progress:
        yield _Bar(progress, what)


TELL_SECONDS = 12.0


class Pace:
    """The time left as text, at the pace since the first ``update``; until that can be known, the time spent.

    ``clock`` gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self._first: int | None = None
        self._last = -1
        self._end: float | None = None

    def update(self, done: int, total: int) -> None:
        if self._first is None:
            self._first, self._began = done, self._clock()
        elif done > max(self._first, self._last):
            now = self._clock()
            self._end = now + (now - self._began) / (done - self._first) * (total - done)
        self._last = done

    def __str__(self) -> str:
        if self._end is None:
            return f"{self._clock() - self._began:.0f} s so far"
        left = max(self._end - self._clock(), 5)
        return f"about {left / 60:.0f} min left" if left >= 100 else f"about {5 * math.ceil(left / 5)} s left"


class _Bar:
    def __init__(self, progress: Any, what: str) -> None:
        self._progress, self._pace = progress, Pace()
        self._task = progress.add_task(what, total=None, note="", pace=self._pace)

    def update(self, done: int, total: int, note: str) -> None:
        self._pace.update(done, total)
        pace = "" if done == total else self._pace
        self._progress.update(self._task, completed=done, total=total, note=note, pace=pace)


class _Lines:
    def __init__(self, what: str) -> None:
        self._what, self._pace = what, Pace()
        self._now: tuple[int, int, str] | None = None

    def update(self, done: int, total: int, note: str) -> None:
        before, self._now = self._now, (done, total, note)
        self._pace.update(done, total)
        if done == total and self._now != before:
            self._tell()

    def tell_until(self, over: Event) -> None:
        while not over.wait(TELL_SECONDS):
            self._tell()

    def _tell(self) -> None:
        done, total, note = self._now or (0, 0, "")
        parts = [f"{done}/{total}" if total else "", "" if total and done == total else str(self._pace), note]
        echo(f"{self._what}: {', '.join(filter(None, parts))}")
