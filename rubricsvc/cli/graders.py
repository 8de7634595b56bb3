"""`rubricsvc graders`: OpenAI's graders, checked and run without a database."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli.embedded import EMBEDDED
from rubricsvc.cli.importing import input_file
from rubricsvc.cli.judge_probe import score_once
from rubricsvc.cli.output import (
    OK,
    WITH_FAILURES,
    Json,
    cell,
    echo,
    exit_with,
    group,
    print_data,
    print_json,
    print_table,
    shorten,
)
from rubricsvc.cli.score import file_or_text, judge_of, text_of
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.core.prompt import Prompt
    from rubricsvc.core.rubric import Rubric
    from rubricsvc.graders.model import Grader
    from rubricsvc.graders.results import GraderRun

app = group("OpenAI's graders: check and run one, without a database.")

File = Annotated[str, typer.Argument(help="The grader's JSON; - is stdin.", show_default=False)]


@app.command()
def validate(file: File, as_json: Json = False) -> None:
    """Check a grader: its type, its templates, its formula.

    A file of items, each with its grader, is checked by `rubricsvc rubrics lint`.
    """
    from rubricsvc.graders.model import parts_of

    data, grader, _ = _read(file)
    if as_json:
        print_json({"grader": data})
        return
    rows = [[key, part.type, getattr(part, "model", "-")] for key, part in parts_of(grader).items()]
    print_table(["part", "type", "model"], rows)
    echo(f"{grader.label}: no errors")


@app.command()
def run(
    file: File,
    *,
    sample: Annotated[str, typer.Option(help="What is graded: a text, or a file that holds it; - is stdin.")],
    item: Annotated[str | None, typer.Option(help="The row of data: a JSON file, or JSON.")] = None,
    judge: Annotated[
        str | None,
        typer.Option(help="Who is asked: embedded, the URL of an OpenAI-compatible server, or a judge's name."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model at the URL.", show_default="the only one it serves")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(help="readout or written.", show_default="written; readout for the embedded judge"),
    ] = None,
    api_key_env: Annotated[str | None, typer.Option(help="The variable that holds the server's API key.")] = None,
    as_json: Json = False,
) -> None:
    """Run a grader on one sample. With --json the answer is that of OpenAI's API.

    Ends with 1 where there is no reward: a part of the grader failed.
    """
    from rubricsvc.core.prompt import Completion
    from rubricsvc.graders.results import run_of

    _, grader, rubric = _read(file)
    prompt = _item(item)
    text = text_of(sample) if sample == "-" else file_or_text(sample)
    asked = [criterion.key for criterion in rubric.criteria if criterion.custom_prompt]
    way = mode or ("readout" if judge == EMBEDDED else "written")
    chosen = judge_of(judge, model, way, api_key_env) if judge is not None else _nobody(rubric)
    began = time.monotonic()
    verdicts = asyncio.run(score_once(chosen, rubric, prompt, Completion(text=text)))
    models = dict.fromkeys(asked, chosen.model or chosen.name)
    found = run_of(grader, rubric, verdicts, models=models, seconds=time.monotonic() - began)
    with exit_with(WITH_FAILURES if found.reward is None else OK):
        if as_json:
            print_json(found.model_dump(mode="json"))
        else:
            _print(rubric, found)


def _read(file: str) -> tuple[Any, Grader, Rubric]:
    """The one grader of a file, as it stands there and as it is read, and the rubric that it is."""
    from rubricsvc.formats.openai_grader import parse
    from rubricsvc.graders.model import rubric_of
    from workers import checks

    source = input_file(file)
    records = [data for data, _ in source.records()]
    source.errors.raise_if_any()
    if len(records) != 1:
        hint = "import items with their graders: rubricsvc rubrics import FILE --format openai_grader"
        raise InvalidError(f"{file} has {len(records)} records, expected one grader", hint=hint)
    grader = parse(records[0])
    rubric = rubric_of(grader)
    checks.validate(rubric)
    return records[0], grader, rubric


def _item(given: str | None) -> Prompt:
    from rubricsvc.core.strict_json import JsonError, parse
    from rubricsvc.formats.openai_grader import parse_prompt

    try:
        return parse_prompt(parse(file_or_text(given)) if given is not None else {})
    except JsonError as error:
        raise InvalidError(f"--item: {error}", hint='name a JSON file, or write JSON: \'{"answer": "4"}\'') from None


def _nobody(rubric: Rubric) -> Judge:
    """The judge of a grader that asks no model.

    Raises:
        InvalidError: this one does.
    """
    from rubricsvc.store.judges import CHECKS

    wanted = sorted(
        {criterion.custom_prompt.model or "a model" for criterion in rubric.criteria if criterion.custom_prompt}
    )
    if wanted:
        hint = "say who is asked, with --judge: a URL, a judge's name, or embedded"
        raise InvalidError(f"this grader asks {', '.join(wanted)}", hint=hint)
    return CHECKS


def _print(rubric: Rubric, found: GraderRun) -> None:
    details, scores = found.metadata.details, found.metadata.scores
    rows = [[key, cell(scores.get(key)), shorten(details.get(key, ""), 200)] for key in rubric.by_key]
    print_table(["part", "score", "why"], rows)
    print_data(f"\nreward {cell(found.reward)}")
    if formula := details.get("calculate_output"):
        print_data(f"no reward: {formula}")
