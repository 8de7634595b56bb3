"""Files of results: JSON lines, CSV, Parquet, and folders for Hugging Face's ``datasets``.

Each function takes pages of rows as `exporting.result_pages` yields them, and holds one page at a time.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

from rubricsvc.core import strict_json
from rubricsvc.errors import InvalidError
from rubricsvc.formats.csv_cells import neutralized
from rubricsvc.formats.parquet_records import write_card

ResultFormat = Literal["jsonl", "csv", "parquet", "datasets"]

ROWS_PER_SHARD = 50_000
"""Rows of one Parquet file of a folder."""

Pages = Iterable[list[dict[str, Any]]]

_FIELDS = {
    **dict.fromkeys(("job_id", "prompt_id"), "int64"),
    "prompt_external_id": "string",
    "completion_id": "int64",
    "completion_external_id": "string",
    "policy": "string",
    "step": "int64",
    **dict.fromkeys(("rubric", "rubric_digest", "judge", "judge_digest", "state"), "string"),
    **dict.fromkeys(("reward", "coverage", "min_coverage"), "float64"),
    **dict.fromkeys(("formula", "vetoed_by", "null_reason", "prompt", "completion"), "string"),
}
"""Columns of every row, in order, with Arrow's types."""

_VERDICT_FIELDS = {
    **dict.fromkeys(("kind", "outcome"), "string"),
    **dict.fromkeys(("value", "contribution", "gain", "probability", "calibrated", "answer_mass", "spread"), "float64"),
    **dict.fromkeys(("reason", "detail", "rationale", "fingerprint"), "string"),
}
"""Further columns of a verdict. Votes, token counts and raw replies are in JSON lines only."""


def write_json_lines(pages: Pages, stream: TextIO) -> None:
    """Write a line of JSON for each row."""
    for page in pages:
        for row in page:
            stream.write(strict_json.dump(row) + "\n")


def write_csv(pages: Pages, stream: TextIO, *, long: bool) -> None:
    """Write a CSV with a header. Text that a spreadsheet would take for a formula gets a single quote before it.

    A row of a completion has its values and contributions by criterion as JSON, since rubrics differ.
    """
    own = [*_VERDICT_COLUMNS, "evidence"] if long else ["values", "contributions", "failed"]
    table = csv.DictWriter(stream, [*_FIELDS, *own], extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for page in pages:
        for row in page:
            cells = {**row, **(_evidence_cell(row) if long else _verdict_cells(row))}
            table.writerow({name: neutralized(value) for name, value in cells.items()})


_VERDICT_COLUMNS = ("criterion", "criterion_text", "weight", *_VERDICT_FIELDS)


def _evidence_cell(row: dict[str, Any]) -> dict[str, str]:
    return {"evidence": strict_json.dump(row["evidence"])} if "evidence" in row else {}


def _verdict_cells(row: dict[str, Any]) -> dict[str, str]:
    found = row["verdicts"]
    return {
        "values": strict_json.dump({verdict["criterion"]: verdict.get("value") for verdict in found}),
        "contributions": strict_json.dump({verdict["criterion"]: verdict["contribution"] for verdict in found}),
        "failed": " ".join(f"{verdict['criterion']}:{verdict['reason']}" for verdict in found if "reason" in verdict),
    }


def write_parquet(pages: Pages, path: Path, *, long: bool) -> None:
    """Write one Parquet file with a row group for each page.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        InvalidError: A row does not fit the types of the columns.
    """
    with _parquet_file(path, long=long) as write:
        for page in pages:
            write(page)


def write_dataset(pages: Pages, folder: Path, *, long: bool, title: str) -> None:
    """Write a folder that ``datasets.load_dataset`` reads: Parquet files of up to about `ROWS_PER_SHARD` rows.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        InvalidError: A row does not fit the types of the columns.
    """
    (folder / "data").mkdir(parents=True)
    remaining = iter(pages)
    for number, page in enumerate(remaining):
        with _parquet_file(folder / "data" / f"train-{number:05}.parquet", long=long) as write:
            rows = len(page)
            write(page)
            while rows < ROWS_PER_SHARD and (following := next(remaining, None)) is not None:
                write(following)
                rows += len(following)
    write_card(folder, title, "jobs export --format datasets")


@contextmanager
def _parquet_file(path: Path, *, long: bool) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    import pyarrow as pa
    from pyarrow import parquet

    schema = _schema(pa, long=long)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:

        def write(rows: list[dict[str, Any]]) -> None:
            try:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise InvalidError(f"a row does not fit into Parquet: {error}", hint="write JSON lines") from error

        yield write


def _schema(pa: Any, *, long: bool) -> Any:
    """Return the Arrow schema of the rows."""
    quote = pa.struct({"quote": pa.string(), "start": pa.int64(), "end": pa.int64()})
    verdict = {"weight": pa.float64(), **_typed(pa, _VERDICT_FIELDS), "evidence": pa.list_(quote)}
    fields = _typed(pa, _FIELDS)
    if long:
        return pa.schema({**fields, "criterion": pa.string(), "criterion_text": pa.string(), **verdict})
    function = pa.struct({"name": pa.string(), "arguments": pa.string()})
    call = pa.struct({"id": pa.string(), "type": pa.string(), "function": function})
    texts = dict.fromkeys(("role", "content", "name", "tool_call_id"), pa.string())
    messages = pa.list_(pa.struct({**texts, "tool_calls": pa.list_(call)}))
    verdicts = pa.list_(pa.struct({"criterion": pa.string(), "text": pa.string(), **verdict}))
    return pa.schema({**fields, "prompt_messages": messages, "completion_messages": messages, "verdicts": verdicts})


def _typed(pa: Any, columns: dict[str, str]) -> dict[str, Any]:
    return {name: getattr(pa, type_)() for name, type_ in columns.items()}
