"""What commands print: data to stdout as a table or as JSON lines, everything else to stderr."""

import io
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from rubricsvc import errors
from rubricsvc.errors import ConflictError, NotFoundError, UnavailableError

OK, WITH_FAILURES, BAD_INPUT, UNAVAILABLE, NOT_PASSED, INTERNAL_ERROR, INTERRUPTED = 0, 1, 2, 3, 4, 70, 130

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
MAX_SEED = 2**32 - 1  # the largest seed that NumPy, scikit-learn and torch take
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Random seed.")]
MinCoverage = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Share of weight that must be judged for a reward.", show_default="the rubric's"),
]
Out = Annotated[Path | None, typer.Option(help="Output file.", show_default="stdout")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file.")]

counted = errors.counted
LINE_SECONDS = 12.0  # seconds between two progress lines where stderr is no terminal
_WIDTH_WITHOUT_TERMINAL = 100_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


class _Group(TyperGroup):
    """A group whose help has the whole first sentence of each command, wrapped, with other names of two of them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Accept `list` for `show`, and of labels `template` for `export --blind`."""
        other = {"list": ["show"], "template": ["export", "--blind"]}.get(args[0], [""])
        if args[0] not in self.commands and other[0] in self.commands:
            args = [*other, *args[1:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(1000)) for name, one in self.commands.items()])


def group(help: str) -> typer.Typer:
    """Return an empty group of commands."""
    return typer.Typer(cls=_Group, help=help, no_args_is_help=True)


def echo(text: str) -> None:
    """Print a message to stderr. It is discarded once the reader of stderr has closed it: the work goes on."""
    try:
        print(clean(text), file=sys.stderr, flush=True)  # noqa: T201
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def print_data(text: str) -> None:
    """Print a line of data to stdout."""
    print(text)  # noqa: T201


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Discard further output once the reader of stdout has closed it (``| head``)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def exit_with(code: int) -> Iterator[None]:
    """Run the block, then end the command with ``code``, even if stdout was closed before."""
    with ignore_broken_pipe():
        yield
    raise typer.Exit(code)


@contextmanager
def continue_hint(kept: str, command: str = "the same command again") -> Iterator[None]:
    """Print after an interrupt what is ``kept`` and how to continue; add it to the error of what is unreachable."""
    try:
        yield
    except KeyboardInterrupt:
        echo(f"\ninterrupted; {kept}. Run {command} to continue.")
        raise typer.Exit(INTERRUPTED) from None
    except UnavailableError as error:
        if command not in error.hint:
            error.hint = "; ".join(filter(None, (error.hint, f"{kept}; run {command} to continue")))
        raise


def print_json(data: Any, stream: TextIO | None = None) -> None:
    """Print plain data, models and dataclasses as one line of JSON, to stdout by default."""
    from pydantic_core import to_jsonable_python

    from rubricsvc.core import strict_json

    print(strict_json.dump(to_jsonable_python(data, by_alias=False)), file=stream)


def clean(text: str) -> str:
    """Replace control characters: text that a model wrote cannot command the terminal or hide."""
    return _CONTROL.sub("\ufffd", text)


def show(data: Any, as_json: bool = False, *, columns: Sequence[str] = (), empty: str = "nothing to list") -> None:
    """Print a record (a model, dataclass or dict), or a page, list or iterator of them.

    As JSON, each record is a line. Otherwise a list is a table; a record has a line for each field with a value, then a
    section for each of its lists and inner records. How to list further rows of a page goes to stderr.

    ``columns`` are the fields to print where it is not JSON, also of inner values (``prompt.text``); by default all.
    """
    from pydantic import TypeAdapter

    from rubricsvc.schemas.base import Page

    is_list = isinstance(data, Page | Iterator | list | tuple)
    records: list[dict[str, Any]] = []
    for row in data if is_list else [data]:
        if as_json:
            print_json(row)
            continue
        cells = {}
        for path in columns:  # the name of an inner column is the last part of its path, unless it is taken
            value = row
            for name in path.split("."):
                value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
            cells[path if (last := path.rpartition(".")[2]) in cells else last] = value
        records.append(TypeAdapter(Any).dump_python(cells if columns else row))
    if records:
        _print_rows(records) if is_list else _print_record(records[0])
        for reason, found in groupby(sorted(set(_without_interval(records))), itemgetter(0)):
            echo(f"without an interval: {', '.join(name for _, name in found)}: {reason}")
    elif is_list and not as_json:
        echo(empty)
    if isinstance(data, Page) and data.next is not None:
        echo(f"more rows follow: continue with --after {data.next}, or raise --limit")


def _print_record(record: dict[str, Any], title: str = "") -> None:
    """Print a line for each plain field, then sections of the others, named ``title.field``."""
    record = {name: value for name, value in record.items() if value not in (None, "", {}, [], ())}
    plain = {name: value for name, value in record.items() if _is_plain(value)}
    width = max(map(len, plain), default=0)
    if title and plain:
        print_data(f"\n{title}")
    for name, value in plain.items():
        print_data(f"{name.ljust(width)}  {cell(value)}")
    for name, value in record.items():
        section = f"{title}.{name}" if title else name
        if name in plain:
            continue
        if isinstance(value, dict) and not all(isinstance(one, dict) and _is_plain(one) for one in value.values()):
            _print_record(value, section)
            continue
        rows = value
        if isinstance(value, dict):
            rows = [{"name": key} | ({"value": one} if _is_estimate(one) else one) for key, one in value.items()]
        if all(isinstance(row, dict) for row in rows):
            print_data(f"\n{section}")
            _print_rows(rows, section)


def _print_rows(rows: Sequence[dict[str, Any]], title: str = "") -> None:
    """Print records as a table, in which estimates by name are columns, then the lists of records in each of them."""
    table: list[dict[str, Any]] = []
    for row in rows:
        table.append({})
        for name, value in row.items():
            if isinstance(value, dict) and value and all(map(_is_estimate, value.values())):
                several = f"{name}." if any(map(_is_estimate, table[-1].values())) else ""
                table[-1] |= {several + key: one | {"null_reason": None} for key, one in value.items()}  # a long text
            elif _is_plain(value):
                table[-1][name] = shorten(value, 200 if title else 70) if isinstance(value, str) else value
    names = list(dict.fromkeys(name for row in table for name, value in row.items() if value not in (None, "", {}, [])))
    print_table(names, [[row.get(name, "") for name in names] for row in table])
    for number, row in enumerate(rows, start=1):
        inner = {name: value for name, value in row.items() if isinstance(value, list | tuple) and not _is_plain(value)}
        if inner:
            _print_record(inner, f"{title}.{row.get('name', number)}".removeprefix("."))


def _is_estimate(value: Any) -> bool:
    return isinstance(value, dict) and {"value", "low", "high"} <= value.keys()


def _without_interval(data: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield why estimates in the data have a value alone, and their names."""
    if _is_estimate(data) and data["value"] is not None and data.get("null_reason"):
        yield data["null_reason"], name
    elif isinstance(data, dict | list | tuple):
        for key, one in data.items() if isinstance(data, dict) else ((name, one) for one in data):
            yield from _without_interval(one, key)


def _is_plain(value: Any) -> bool:
    """Return whether a value fits into one cell: no list or dict has another one in it, but for an estimate."""
    if isinstance(value, list | tuple):
        return not any(isinstance(one, dict | list | tuple) and not _is_estimate(one) for one in value)
    inner = value.values() if isinstance(value, dict) and not _is_estimate(value) else ()
    return not any(isinstance(one, dict | list | tuple) for one in inner)


def print_table(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print aligned columns without the empty ones; on a terminal that is too narrow, a block for each row."""
    from rich.console import Console
    from rich.table import Table

    texts = [[" ".join(cell(value).split()) for value in row] for row in rows]
    filled = [i for i in range(len(columns)) if any(row[i] for row in texts)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    if sum(max(len(text) + 2 for text in (columns[i], *(row[i] for row in texts))) for i in filled[:-1]) > 0.8 * width:
        for number, row in enumerate(texts):
            print_data("\n" * (number > 0) + "\n".join(f"{columns[i]}: {row[i]}" for i in filled if row[i]))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i in filled:
        table.add_column(clean(columns[i].upper()), no_wrap=i != filled[-1])
    for row in texts:
        table.add_row(*(row[i] for i in filled))
    lines = io.StringIO()  # rich would end the process where stdout is closed
    Console(file=lines, width=width, color_system=None, markup=False, emoji=False).print(table)
    for line in lines.getvalue().splitlines():
        print_data(line.rstrip())


def cell(value: Any) -> str:
    """Return a value as text for a table."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:z.4f}".rstrip("0").rstrip(".")
        case {"value": number, "low": low, "high": high}:
            if number is None and value.get("null_reason"):
                return f"- ({value['null_reason']})"
            return cell(number) + ("" if low is None else f" [{cell(low)}, {cell(high)}]")
        case dict():
            return ", ".join(f"{name} {cell(item)}" for name, item in value.items())
        case list() | tuple():
            most = 20 if sys.stdout.isatty() else len(value)
            return ", ".join([*map(cell, value[:most]), *([f"… and {len(value) - most} more"] * (len(value) > most))])
        case datetime():
            value = f"{value:%Y-%m-%d %H:%M}"
    return clean(str(value))


def fields_of(value: object, *names: str) -> dict[str, Any]:
    """Return the attributes of these names."""
    return {name: getattr(value, name) for name in names}


def shorten(text: str, length: int = 70) -> str:
    """Return ``text`` as one line, on a terminal of at most ``length`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length or not sys.stdout.isatty() else line[: length - 1] + "…"


@contextmanager
def open_output(out: Path | None) -> Iterator[TextIO]:
    """Open stdout, a device or a pipe, or a file that is replaced as a whole when the block succeeds."""
    if out is None:
        yield sys.stdout
    elif out.exists() and not out.is_file() and not out.is_dir():
        with out.open("w", encoding="utf-8", newline="") as stream:
            yield stream
    else:
        with replaced(out) as part, part.open("w", encoding="utf-8", newline="") as stream:
            yield stream


@contextmanager
def replaced(out: Path, *, folder: bool = False) -> Iterator[Path]:
    """Name a path to write a file (or a folder) at, which replaces ``out`` as a whole when the block succeeds."""
    if out.exists() and not (out.is_dir() if folder else out.is_file()):
        what = "folder" if folder else "file"
        raise ConflictError(f"{out} is no {what}", hint=f"name a {what}")
    if folder and out.is_dir() and any(out.iterdir()):
        raise ConflictError(f"the folder {out} is not empty", hint="name another one, or remove it")
    if not out.parent.is_dir():
        raise NotFoundError(f"there is no folder {out.parent}", hint=f"create it: mkdir -p {out.parent}")
    # A folder of its own: no name beside `out` can be somebody's. A killed process leaves it.
    with TemporaryDirectory(prefix=f".{out.name[:100]}.", dir=out.parent) as work:
        part = Path(work) / out.name
        yield part
        part.replace(out)
    echo(f"wrote {out}")


class ProgressBar:
    """The progress of one long task."""

    def __init__(self, description: str, *, live: bool) -> None:
        """Create it without showing it."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

        bar = (BarColumn(bar_width=20),) if live else ()
        times = ("elapsed", TimeElapsedColumn(), "left", TimeRemainingColumn())
        columns: tuple[Any, ...] = ("{task.description}", *bar, MofNCompleteColumn(), *times, "{task.fields[note]}")
        width = None if live else _WIDTH_WITHOUT_TERMINAL
        console = Console(stderr=True, width=width, markup=False, emoji=False)
        # training steps may take minutes: the speed is estimated over an hour
        self.rich = Progress(*columns, console=console, speed_estimate_period=3600, disable=not live)
        self._task = self.rich.add_task(description, total=None, note="")
        self._next_line = time.monotonic() + LINE_SECONDS

    def counter(self, total: int, note: str = "") -> Callable[[], None]:
        """Begin a part of ``total`` units, and return what counts one of them as finished."""
        numbers = count(1)
        self.update(0, total, "")
        return lambda: self.update(next(numbers), total, note)

    def note(self, note: str) -> None:
        """Show what is done now, between two units."""
        task = self.rich.tasks[0]
        self.update(int(task.completed), int(task.total or 0), note)

    def update(self, done: int, total: int, note: str) -> None:
        """Show that ``done`` of ``total`` units are finished."""
        if self.rich.finished and done < total:  # another part of the work has a time and a speed of its own
            self.rich.reset(self._task)
        was_finished = self.rich.finished
        self.rich.update(self._task, completed=done, total=total, note=clean(note))
        ends = self.rich.finished and not was_finished
        if self.rich.disable and (ends or time.monotonic() >= self._next_line):
            self._next_line = time.monotonic() + LINE_SECONDS
            with self.rich.console.capture() as line:  # rich would end the process where stderr is closed
                self.rich.console.print(self.rich.get_renderable())
            echo(line.get().rstrip())


@contextmanager
def progress_bar(description: str) -> Iterator[ProgressBar]:
    """Show a progress bar on a terminal; elsewhere updates print a line to stderr, at most every ``LINE_SECONDS``."""
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    bar = ProgressBar(description, live=live)
    with bar.rich if live else nullcontext():  # a bar that is not live would end with an empty line
        yield bar
