"""`rubricsvc score`: one completion, one rubric, one judge, no database."""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubricsvc.cli.embedded import EMBEDDED, warn_of_embedded
from rubricsvc.cli.judge_add import judge_from_options
from rubricsvc.cli.judge_probe import score_once
from rubricsvc.cli.output import OK, WITH_FAILURES, Json, cell, exit_with, print_data, print_json, print_table, shorten
from rubricsvc.cli.verdicts import why
from rubricsvc.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.core.prompt import Completion, Prompt
    from rubricsvc.core.reward import Reward
    from rubricsvc.core.rubric import Rubric
    from rubricsvc.core.verdict import Verdict


def score(
    *,
    rubric: Annotated[Path, typer.Option(help="The rubric, in any format.")],
    completion: Annotated[
        str, typer.Option(help="A text file with the answer, or JSON messages for a trajectory judge; - is stdin.")
    ],
    judge: Annotated[
        str | None,
        typer.Option(
            help="embedded, the URL of an OpenAI-compatible server, or a judge's name.",
            show_default="none is needed where every criterion has a check",
        ),
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="File or text; else the one beside the rubric.")] = None,
    name: Annotated[str | None, typer.Option(help="Which rubric, where the file has several.")] = None,
    model: Annotated[str | None, typer.Option(help="The model at the URL; else the only one it serves.")] = None,
    mode: Annotated[str, typer.Option(help="readout, written or trajectory.")] = "readout",
    api_key_env: Annotated[str | None, typer.Option(help="The variable that holds the server's API key.")] = None,
    as_json: Json = False,
) -> None:
    """Score one completion, without a database.

    Ends with 1 where there is no reward: too little could be judged.
    """
    from rubricsvc.core.prompt import Prompt
    from rubricsvc.core.reward import fold
    from workers import checks

    _refuse_empty(completion=completion, prompt=prompt)
    looked_for, beside = _rubric(rubric, name)
    checks.validate(looked_for)
    asked = Prompt.of(file_or_text(prompt)) if prompt is not None else beside
    if asked is None:
        raise InvalidError(f"{rubric} has no prompt beside its rubric", hint="give one with --prompt FILE or TEXT")
    chosen = judge_of(judge, model, mode, api_key_env) if judge is not None else _nobody(looked_for)
    answer = _answer(chosen, completion)
    verdicts = asyncio.run(score_once(chosen, looked_for, asked, answer))
    found = fold(looked_for, verdicts)
    with exit_with(WITH_FAILURES if found.value is None else OK):
        _print(looked_for, chosen, verdicts, found, as_json)


def _answer(judge: Judge, file: str) -> Completion:
    """What the judge is shown of the file: a text, or the steps of a trace.

    Raises:
        InvalidError: the judge compares several answers; or it follows steps, and there are none.
    """
    from rubricsvc.core.prompt import Completion
    from rubricsvc.formats.trajectory import parse_trajectory

    if judge.mode == "comparative":
        raise InvalidError(
            f"judge {judge.name!r} compares two or more completions of a prompt, and here is one",
            hint="submit a job with several (`rubricsvc jobs submit FILE --judge …`), or take another judge",
        )
    text = text_of(file)
    follows = any(leaf.mode == "trajectory" for leaf in judge.leaf_judges)
    return parse_trajectory(text, file) if follows else Completion(text=text)


def _nobody(rubric: Rubric) -> Judge:
    """The judge of a rubric that asks no model.

    Raises:
        InvalidError: this one does.
    """
    from rubricsvc.store.judges import CHECKS

    judged = [criterion.key for criterion in rubric.criteria if criterion.kind == "judged"]
    if judged:
        hint = "say who judges, with --judge: a URL, a judge's name, or embedded"
        raise InvalidError(
            f"{shorten(', '.join(judged), 200)}: no check decides this, and no judge is named", hint=hint
        )
    return CHECKS


def _refuse_empty(**given: str | None) -> None:
    for option, value in given.items():
        if value is not None and not value.strip():
            raise InvalidError(f"--{option} is empty", hint="name a text file")


def _rubric(path: Path, name: str | None) -> tuple[Rubric, Prompt | None]:
    """The rubric of a file that has one, or the named one; and the prompt beside it."""
    from rubricsvc.formats import load

    there = [(record.name, record.rubric, record.prompt) for record in load(path) if record.rubric is not None]
    fitting = [(rubric, prompt) for own, rubric, prompt in there if name in (None, own)]
    if len(fitting) == 1:
        return fitting[0]
    names = shorten(", ".join(own for own, _, _ in there), 200)
    if name is not None:
        raise InvalidError(f"{path} has {len(fitting)} rubrics named {name!r}", hint=f"there are: {names}")
    hint = f"choose one with --name: {names}" if there else "a rubric needs criteria"
    raise InvalidError(f"{path} has {len(there)} rubrics, expected one", hint=hint)


_PATH = re.compile(r"\S+\.(txt|md|jsonl?|html|py)")


def file_or_text(given: str) -> str:
    """What stands in the file of this name; where there is none, the text itself.

    Raises:
        NotFoundError: there is no such file, and the text can hardly be meant as one.
    """
    try:
        there = Path(given).is_file()
    except OSError:  # too long for a file name
        there = False
    if not there and _PATH.fullmatch(given):
        hint = "give a path that is there; a text that looks like one goes through stdin (-)"
        raise NotFoundError(f"no file {given!r}", hint=hint, path=given)
    return text_of(given) if there else given


def text_of(file: str) -> str:
    """What stands in a file, or in stdin for -, without its last line break."""
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidError(f"{file} is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None
    return text.removesuffix("\n")


def judge_of(judge: str, model: str | None, mode: str, api_key_env: str | None) -> Judge:
    """The embedded judge, one at a URL, or one that was added."""
    from rubricsvc.core.base import MAX_NAME_LENGTH

    if judge == EMBEDDED:
        warn_of_embedded()
        return judge_from_options(name=EMBEDDED, engine="transformers_local", model=EMBEDDED, mode=mode)
    if judge.startswith(("http://", "https://")):
        from rubricsvc.cli.served_models import only_served_model

        endpoint = {"base_url": judge, "api_key_env": api_key_env}
        chosen = judge_from_options(name=judge[:MAX_NAME_LENGTH], model=model or "?", mode=mode, endpoint=endpoint)
        return chosen if model else chosen.model_copy(update={"model": only_served_model(chosen.endpoint)})
    from rubricsvc.cli.database import database
    from rubricsvc.store import judges

    with database() as db, db.read() as session:
        return judges.get(session, judge).value


def _print(rubric: Rubric, judge: Judge, verdicts: list[Verdict], found: Reward, as_json: bool) -> None:
    if as_json:
        from rubricsvc.services.exporting import plain_verdict

        fields = asdict(found)
        identity = {"name": judge.name, "engine": judge.engine, "model": judge.model, "digest": judge.digest}
        print_json(
            {
                "reward": fields.pop("value"),
                **fields,
                "judge": identity,
                "verdicts": [plain_verdict(v) for v in verdicts],
            }
        )
        return
    rows = []
    for verdict in verdicts:
        criterion = rubric.by_key[verdict.criterion]
        value = cell(verdict.value) if verdict.value is not None else verdict.outcome
        rows.append([criterion.key, criterion.kind, f"{criterion.weight:g}", value, shorten(why(verdict), 200)])
    print_table(["criterion", "kind", "weight", "verdict", "why"], rows)
    print_data(f"\nreward {cell(found.value)}  ({found.formula}, coverage {found.coverage:.0%})")
    if found.vetoed_by:
        print_data(f"vetoed by the required criterion {found.vetoed_by!r}")
    if found.null_reason:
        print_data(f"no reward: {found.null_reason}")
