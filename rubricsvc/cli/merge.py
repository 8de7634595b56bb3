"""`rubricsvc judges merge`: a judge's base and adapter as one model, for serving."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubricsvc.cli.agreement import JudgeRef
from rubricsvc.cli.db import database
from rubricsvc.cli.models import fetch_if_embedded
from rubricsvc.cli.output import echo, replaced
from rubricsvc.errors import InvalidError
from rubricsvc.formats.documents import dump_passport
from rubricsvc.store import judges


def merge(ref: JudgeRef, *, out: Annotated[Path, typer.Option(help="New folder.", show_default=False)]) -> None:
    """Write a judge's base with its LoRA adapter merged, as a Hugging Face folder for `vllm serve`.

    The tokenizer and the judge's passport are in the folder, too.
    """
    with database() as db, db.read() as session:
        row = judges.get(session, ref)
        judge, passport = row.value, row.passport_value
    if judge.adapter is None:
        hint = "serve its model as it is" if not judge.members else "merge one of its members"
        raise InvalidError(f"judge {judge.name!r} has no adapter", hint=hint)
    from workers.engines.local.models import write_merged
    from workers.engines.local.weights import PASSPORT_FILE, ModelWeights

    fetch_if_embedded(judge)
    with replaced(out, folder=True) as part:
        write_merged(part, ModelWeights(judge.model, judge.revision, judge.adapter, judge.weights_sha256))
        if passport is not None:
            with (part / PASSPORT_FILE).open("w", encoding="utf-8") as stream:
                dump_passport(passport, stream)
    echo(f"serve it with `vllm serve {out}`")
