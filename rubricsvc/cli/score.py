"""`rubricsvc score`: one completion, one rubric and one judge, without a database."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.importing import input_file
from rubricsvc.cli.models import EMBEDDED, ApiKeyEnv, embedded_judge, score_once, served_judge
from rubricsvc.cli.output import (
    OK,
    WITH_FAILURES,
    Json,
    MinCoverage,
    cell,
    exit_with,
    print_data,
    print_json,
    print_table,
    shorten,
)
from rubricsvc.cli.verdicts import reason_of
from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Reward, reward_or_null
from rubricsvc.core.rubric import Rubric, check_min_coverage
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.formats import load
from rubricsvc.formats.completions import read_trajectory
from rubricsvc.services.exporting import plain_verdict
from rubricsvc.store import judges
from rubricsvc.store.judges import CHECKS
from workers import checks

JudgeOption = Annotated[
    str | None, typer.Option(help="embedded, a server's URL, or a judge's name.", show_default="none, for checks")
]
Model = Annotated[str | None, typer.Option(help="Model at the URL.", show_default="the only one served")]


def score(
    *,
    rubric: Annotated[Path, typer.Option(help="Rubric file, in any format.")],
    completion: Annotated[str, typer.Option(help="File with the text (trajectory judge: messages); - is stdin.")],
    judge: JudgeOption = None,
    prompt: Annotated[str | None, typer.Option(help="Prompt: file or text.", show_default="that of the rubric")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the rubric in a file with several.")] = None,
    model: Model = None,
    mode: Annotated[str, typer.Option(help="readout, written or trajectory.")] = "readout",
    api_key_env: ApiKeyEnv = None,
    min_coverage: MinCoverage = None,
    as_json: Json = False,
) -> None:
    """Score one completion, without a database.

    Exits with 1 if there is no reward because too little could be judged.
    """
    for option, value in (("completion", completion), ("prompt", prompt)):
        if value is not None and not value.strip():
            raise InvalidError(f"--{option} is empty", hint="name a text file")
    check_min_coverage(min_coverage)
    rubric_value, rubric_prompt = _rubric(rubric, name)
    checks.validate(rubric_value)
    prompt_value = Prompt.of(file_or_text(prompt)) if prompt is not None else rubric_prompt
    if prompt_value is None:
        raise InvalidError(f"{rubric} has no prompt", hint="add one with --prompt FILE or TEXT")
    judge_value = judge_of(judge, model, mode, api_key_env) if judge is not None else no_judge(rubric_value)
    verdicts = score_once(judge_value, rubric_value, prompt_value, _completion(judge_value, completion))
    reward = reward_or_null(rubric_value, verdicts, min_coverage=min_coverage)
    with exit_with(WITH_FAILURES if reward.value is None else OK):
        _print(rubric_value, judge_value, verdicts, reward, as_json)


def _completion(judge: Judge, file: str) -> Completion:
    """Read a text, or the messages of a trajectory for a trajectory judge."""
    if judge.mode == "comparative":
        hint = "submit several with `rubricsvc jobs submit FILE --judge …`, or use another judge"
        raise InvalidError(f"judge {judge.name!r} compares completions of a prompt, and there is only one", hint=hint)
    needs_steps = any(leaf.mode == "trajectory" for leaf in judge.leaf_judges)
    return read_trajectory(input_file(file)) if needs_steps else Completion(text=text_of(file))


def no_judge(rubric: Rubric) -> Judge:
    """Return the judge of a rubric whose criteria are all checked."""
    judged = [criterion for criterion in rubric.criteria if criterion.kind == "judged"]
    if judged:
        models = [one.custom_prompt.model for one in judged if one.custom_prompt and one.custom_prompt.model]
        names = shorten(", ".join(dict.fromkeys(models or [one.key for one in judged])), 200)
        hint = "add --judge with a URL, the name of a judge, or embedded"
        raise InvalidError(f"{'models' if models else 'criteria without a check'} need a judge: {names}", hint=hint)
    return CHECKS


def _rubric(path: Path, name: str | None) -> tuple[Rubric, Prompt | None]:
    """Return the only rubric of a file, or the named one, and its prompt."""
    records = [(record.name, record.rubric, record.prompt) for record in load(path) if record.rubric is not None]
    matches = [(rubric, prompt) for own, rubric, prompt in records if name in (None, own)]
    if len(matches) == 1:
        return matches[0]
    what = "rubrics" if name is None else f"rubrics named {name!r}"
    names = shorten(", ".join(own for own, _, _ in records), 200)
    hint = f"choose one with --name: {names}" if records else "a rubric needs criteria"
    raise InvalidError(f"{path} has {len(matches)} {what}, expected one", hint=hint)


_PATH = re.compile(r"\S+\.(txt|md|jsonl?|html|py)")


def file_or_text(argument: str) -> str:
    """Return the text of the file of this name (- is stdin), or the argument itself unless it looks like a path."""
    try:
        is_file = Path(argument).is_file()
    except OSError:  # too long for a file name
        is_file = False
    if not is_file and _PATH.fullmatch(argument):
        hint = "correct the path; pass a text that looks like a path through stdin (-)"
        raise NotFoundError(f"no file {argument!r}", hint=hint, path=argument)
    return text_of(argument) if is_file or argument == "-" else argument


def text_of(file: str) -> str:
    """Read a file, or stdin for ``-``, without its last line break."""
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidError(f"{file} is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None
    return text.removesuffix("\n")


def judge_of(judge: str, model: str | None, mode: str, api_key_env: str | None) -> Judge:
    """Return the embedded judge, a judge at a URL, or a stored one."""
    if judge == EMBEDDED:
        return embedded_judge(EMBEDDED, mode)
    if judge.startswith(("http://", "https://")):
        return served_judge(judge[:MAX_NAME_LENGTH], judge, model, mode, api_key_env)
    with database() as db, db.read() as session:
        return judges.get(session, judge).value


def _print(rubric: Rubric, judge: Judge, verdicts: list[Verdict], reward: Reward, as_json: bool) -> None:
    if as_json:
        fields = asdict(reward)
        asked = {name: getattr(judge, name) for name in ("name", "engine", "model", "digest")}
        verdict_fields = [plain_verdict(verdict) for verdict in verdicts]
        print_json({"reward": fields.pop("value"), **fields, "judge": asked, "verdicts": verdict_fields})
        return
    rows = []
    for verdict in verdicts:
        criterion = rubric.by_key[verdict.criterion]
        value = verdict.value if verdict.value is not None else verdict.outcome
        rows.append([criterion.key, criterion.kind, criterion.weight, value, shorten(reason_of(verdict), 200)])
    print_table(["criterion", "kind", "weight", "verdict", "reason"], rows)
    print_data(f"\nreward {cell(reward.value)}  ({reward.formula}, coverage {reward.coverage:.0%})")
    if reward.vetoed_by:
        print_data(f"vetoed by the required criterion {reward.vetoed_by!r}")
    if reward.null_reason:
        print_data(f"no reward: {reward.null_reason}")
