"""`rubricsvc graders`: run OpenAI graders, without a database."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rubricsvc.cli import output
from rubricsvc.cli.importing import input_file
from rubricsvc.cli.models import ApiKeyEnv, score_all
from rubricsvc.cli.output import Json, show
from rubricsvc.cli.score import JudgeOption, Model, file_or_text, judge_of, no_judge
from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Completion
from rubricsvc.errors import InvalidError
from rubricsvc.formats.openai_grader import parse_prompt
from rubricsvc.graders.results import run_of
from rubricsvc.services.graders import parse_checked
from workers import checks
from workers.engines.local.embedded_model import EMBEDDED

app = output.group("Run OpenAI graders, without a database.")

File = Annotated[str, typer.Argument(help="JSON file of the grader; - is stdin.", show_default=False)]


@app.command()
def run(
    file: File,
    *,
    sample: Annotated[str, typer.Option(help="Text to grade, or a file with it; - is stdin.")],
    item: Annotated[str | None, typer.Option(help="Item of the data set: JSON, or a JSON file.")] = None,
    judge: JudgeOption = None,
    model: Model = None,
    mode: Annotated[str | None, typer.Option(help="readout or written.", show_default="written, if served")] = None,
    api_key_env: ApiKeyEnv = None,
    as_json: Json = False,
) -> None:
    """Run a grader on one sample. --json prints the response of OpenAI's API.

    Exits with 1 if there is no reward because a part of the grader failed.
    """
    source = input_file(file)
    records = list(source.parse(lambda entry: [entry.data]))
    source.errors.raise_if_any()
    if len(records) != 1:
        hint = "import items with their graders: rubricsvc rubrics import FILE --format openai_grader"
        raise InvalidError(f"{file} has {len(records)} records, expected one grader", hint=hint)
    grader, rubric = parse_checked(records[0], checks.validate)
    try:
        prompt = parse_prompt(strict_json.parse(file_or_text(item)) if item is not None else {})
    except strict_json.JsonError as error:
        raise InvalidError(f"--item: {error}", hint='name a JSON file, or write JSON: \'{"answer": "4"}\'') from None
    mode = mode or ("readout" if judge == EMBEDDED else "written")
    judge_value = judge_of(judge, model, mode, api_key_env) if judge is not None else no_judge(rubric)
    started = time.monotonic()
    (verdicts,) = score_all(judge_value, rubric, prompt, [Completion(text=file_or_text(sample))])
    judged = [criterion.key for criterion in rubric.criteria if criterion.custom_prompt]
    models = dict.fromkeys(judged, judge_value.model or judge_value.name)
    result = run_of(grader, rubric, verdicts, models=models, seconds=time.monotonic() - started)
    with output.exit_with(output.WITH_FAILURES if result.reward is None else output.OK):
        if as_json:
            show(result, as_json)
        else:
            details, scores = result.metadata.details, result.metadata.scores
            parts = [{"part": key, "score": scores.get(key), "reason": details.get(key)} for key in rubric.by_key]
            show({"reward": result.reward, "no reward": details.get("calculate_output"), "parts": parts})
