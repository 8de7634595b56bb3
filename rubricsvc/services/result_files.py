"""Files of results: JSON lines, CSV, Parquet, and folders for Hugging Face's ``datasets``.

Each function takes pages of rows as `exporting.result_pages` and `training_examples.example_pages` yield them, and
holds one page at a time.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TextIO

from rubricsvc.core import strict_json
from rubricsvc.formats.containers import neutralized, write_card, writer

ResultFormat = Literal["jsonl", "csv", "parquet", "datasets"]

RowKind = Literal["completion", "verdict", "sft", "dpo", "kto", "pairs"]
"""What a row is: a completion, a verdict, or an example for a trainer (`training_examples`)."""

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


_FROM = {
    "prompt_id": "int64",
    **dict.fromkeys(("prompt_external_id", "rubric", "formula", "judge"), "string"),
}
_ONE = {"reward": "float64", **_FROM, "completion_id": "int64", "policy": "string"}
_TWO = {
    **dict.fromkeys(("margin", "chosen_reward", "rejected_reward"), "float64"),
    **_FROM,
    **dict.fromkeys(("chosen_completion_id", "rejected_completion_id"), "int64"),
}
_EXAMPLES = {
    "sft": {"prompt": "messages", "completion": "messages", **_ONE},
    "kto": {"prompt": "messages", "completion": "messages", "label": "bool_", **_ONE},
    **{kind: {"prompt": "messages", "chosen": "messages", "rejected": "messages", **_TWO} for kind in ("dpo", "pairs")},
}
"""Columns of examples."""


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


def write_parquet(pages: Pages, path: Path, *, kind: RowKind) -> None:
    """Write one Parquet file with a row group for each page.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        InvalidError: A row does not fit the types of the columns.
    """
    with writer(path, _schema(kind)) as write:
        for page in pages:
            write(page)


def write_dataset(pages: Pages, folder: Path, *, kind: RowKind, title: str) -> None:
    """Write a folder that ``datasets.load_dataset`` reads: Parquet files of up to about `ROWS_PER_SHARD` rows.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        InvalidError: A row does not fit the types of the columns.
    """
    schema = _schema(kind)
    (folder / "data").mkdir(parents=True)
    remaining = iter(pages)
    for number, page in enumerate(remaining):
        with writer(folder / "data" / f"train-{number:05}.parquet", schema) as write:
            rows = len(page)
            write(page)
            while rows < ROWS_PER_SHARD and (following := next(remaining, None)) is not None:
                write(following)
                rows += len(following)
    write_card(folder, title, "jobs export --format datasets")


def _schema(kind: RowKind) -> Any:
    """Return the Arrow schema of the rows."""
    import pyarrow as pa

    function = pa.struct({"name": pa.string(), "arguments": pa.string()})
    call = pa.struct({"id": pa.string(), "type": pa.string(), "function": function})
    texts = dict.fromkeys(("role", "content", "name", "tool_call_id"), pa.string())
    messages = pa.list_(pa.struct({**texts, "tool_calls": pa.list_(call)}))

    def typed(columns: dict[str, str]) -> dict[str, Any]:
        return {name: messages if of == "messages" else getattr(pa, of)() for name, of in columns.items()}

    if kind in _EXAMPLES:
        return pa.schema(typed(_EXAMPLES[kind]))
    quote = pa.struct({"quote": pa.string(), "start": pa.int64(), "end": pa.int64()})
    verdict = {"weight": pa.float64(), **typed(_VERDICT_FIELDS), "evidence": pa.list_(quote)}
    fields = typed(_FIELDS)
    if kind == "verdict":
        return pa.schema({**fields, "criterion": pa.string(), "criterion_text": pa.string(), **verdict})
    verdicts = pa.list_(pa.struct({"criterion": pa.string(), "text": pa.string(), **verdict}))
    return pa.schema({**fields, "prompt_messages": messages, "completion_messages": messages, "verdicts": verdicts})
