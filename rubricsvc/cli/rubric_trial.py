"""`rubricsvc rubrics try`: a rubric on a few completions side by side, before it is published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubricsvc.cli.models import ApiKeyEnv
from rubricsvc.cli.output import Json
from rubricsvc.cli.rubric_targets import OfSeveral, Target, target_of
from rubricsvc.cli.score import (
    JudgeOption,
    Model,
    completions_of,
    file_or_text,
    judge_of,
    no_judge,
    only_prompt,
    score_and_print,
)
from rubricsvc.core.prompt import Prompt

_TABLES = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")

_COMPLETIONS = "Files with a text each (- is stdin), or of several completions (JSONL, CSV)."


def try_(
    target: Target,
    completions: Annotated[list[str], typer.Argument(help=_COMPLETIONS, show_default=False)],
    *,
    judge: JudgeOption = None,
    prompt: Annotated[str | None, typer.Option(help="Prompt: file or text.", show_default="that of the rubric")] = None,
    name: OfSeveral = None,
    model: Model = None,
    mode: Annotated[str, typer.Option(help="readout, written, comparative or trajectory.")] = "readout",
    api_key_env: ApiKeyEnv = None,
    as_json: Json = False,
) -> None:
    """Judge a rubric on a few completions side by side; nothing is stored.

    Prints a table of criteria and completions with the rewards. Exits with 1 if a reward is missing.
    """
    found = target_of(target, name)
    judge_value = judge_of(judge, model, mode, api_key_env) if judge is not None else no_judge(found.rubric)
    several = [file for file in completions if Path(file).suffix.lower() in _TABLES]
    lines = completions_of(judge_value, [file for file in completions if file not in several], several)
    given = Prompt.of(file_or_text(prompt)) if prompt is not None else found.prompt
    prompt_id = found.prompt_id if prompt is None else None
    prompt_value = only_prompt(found.name, given, prompt_id, [line for _, line in lines])
    score_and_print(judge_value, found.rubric, prompt_value, lines, as_json=as_json)
