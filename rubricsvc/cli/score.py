"""`rubricsvc score`: completions of one prompt, one rubric and one judge, without a database."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.importing import input_file
from rubricsvc.cli.models import ApiKeyEnv, embedded_judge, score_all, served_judge
from rubricsvc.cli.output import (
    OK,
    WITH_FAILURES,
    Json,
    MinCoverage,
    cell,
    exit_with,
    fields_of,
    print_data,
    print_json,
    print_table,
    shorten,
)
from rubricsvc.cli.rubric_targets import target_of_file
from rubricsvc.cli.verdicts import reason_of
from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import Reward, reward_or_null
from rubricsvc.core.rubric import Rubric, check_min_coverage
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.formats.documents import CompletionLine, read_all, read_trajectory
from rubricsvc.services.exporting import plain_verdict
from rubricsvc.store import judges
from rubricsvc.store.judges import CHECKS
from workers.engines.local.embedded_model import EMBEDDED

JudgeOption = Annotated[
    str | None, typer.Option(help="embedded, a server's URL, or a judge's name.", show_default="none, for checks")
]
Model = Annotated[str | None, typer.Option(help="Model at the URL.", show_default="the only one served")]

MOST_COLUMNS = 8
"""Completions side by side in a table."""

_COMPLETION = "File with a text (trajectory judge: messages); - is stdin; repeatable."
_COMPLETIONS = "File of completions of the prompt: JSONL or CSV (docs/formats.md)."


def score(
    *,
    rubric: Annotated[Path, typer.Option(help="Rubric file, in any format.")],
    completion: Annotated[list[str] | None, typer.Option(help=_COMPLETION, show_default=False)] = None,
    completions: Annotated[str | None, typer.Option(help=_COMPLETIONS, show_default=False)] = None,
    judge: JudgeOption = None,
    prompt: Annotated[str | None, typer.Option(help="Prompt: file or text.", show_default="that of the rubric")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the rubric in a file with several.")] = None,
    model: Model = None,
    mode: Annotated[str, typer.Option(help="readout, written, comparative or trajectory.")] = "readout",
    api_key_env: ApiKeyEnv = None,
    min_coverage: MinCoverage = None,
    as_json: Json = False,
) -> None:
    """Score completions of one prompt, without a database.

    Exits with 1 if there is no reward because too little could be judged.
    """
    for option, values in (("prompt", [prompt]), ("completion", completion or []), ("completions", [completions])):
        if any(value is not None and not value.strip() for value in values):
            raise InvalidError(f"--{option} is empty", hint="name a text file")
    check_min_coverage(min_coverage)
    _, rubric_value, rubric_prompt, prompt_id, _ = target_of_file(str(rubric), name)
    judge_value = judge_of(judge, model, mode, api_key_env) if judge is not None else no_judge(rubric_value)
    if prompt is not None:
        rubric_prompt, prompt_id = Prompt.of(file_or_text(prompt)), None
    lines = completions_of(judge_value, completion or [], [completions] if completions is not None else [])
    prompt_value = only_prompt(str(rubric), rubric_prompt, prompt_id, [line for _, line in lines])
    score_and_print(judge_value, rubric_value, prompt_value, lines, min_coverage=min_coverage, as_json=as_json)


def score_and_print(
    judge: Judge,
    rubric: Rubric,
    prompt: Prompt,
    lines: Sequence[tuple[str, CompletionLine]],
    *,
    min_coverage: float | None = None,
    as_json: bool,
) -> None:
    """Score completions of one prompt, print verdicts and rewards, and exit: with 1 if a reward is missing."""
    verdicts = score_all(judge, rubric, prompt, [line.completion for _, line in lines])
    scored = [
        Scored(name, found, reward_or_null(rubric, found, min_coverage=min_coverage))
        for (name, _), found in zip(lines, verdicts, strict=True)
    ]
    asked = fields_of(judge, "name", "engine", "model", "digest")
    with exit_with(WITH_FAILURES if any(one.reward.value is None for one in scored) else OK):
        if as_json:
            for one in scored:
                fields = asdict(one.reward)
                plain = [plain_verdict(verdict) for verdict in one.verdicts]
                record = {"name": one.name, "reward": fields.pop("value"), **fields}
                print_json(record | {"judge": asked, "verdicts": plain})
        elif len(scored) == 1:
            _print_one(rubric, scored[0])
        else:
            _print_several(rubric, scored)


def completions_of(judge: Judge, files: Sequence[str], of_all: Sequence[str]) -> list[tuple[str, CompletionLine]]:
    """Return completions with their names: of files with a text each (trajectory judge: messages), and of several."""
    needs_steps = any(leaf.mode == "trajectory" for leaf in judge.leaf_judges)
    values = [read_trajectory(input_file(file)) if needs_steps else Completion(text=text_of(file)) for file in files]
    lines = [(Path(file).name, CompletionLine(completion=value)) for file, value in zip(files, values, strict=True)]
    for file in of_all:
        read = enumerate(read_all(input_file(file)), start=1)
        lines += [(line.completion.id or f"{line.completion.policy} {n}".strip(), line) for n, line in read]
    if not lines:
        raise InvalidError(
            "no completion", hint="name a text with --completion, or a file of several with --completions"
        )
    if judge.mode == "comparative" and len(lines) == 1:
        hint = "name several, or submit a file with `rubricsvc jobs submit FILE --judge …`"
        raise InvalidError(f"judge {judge.name!r} compares completions of a prompt, and there is only one", hint=hint)
    return lines


def only_prompt(rubric: str, given: Prompt | None, given_id: str | None, lines: Sequence[CompletionLine]) -> Prompt:
    """Return the prompt of the rubric or of ``--prompt``, or else that of the completions.

    ``given_id`` is the id of the rubric's prompt in its file.
    """
    prompts = [given] if given is not None else []
    prompts += [line.prompt for line in lines if line.prompt is not None]
    if not prompts:
        raise InvalidError(f"{rubric} has no prompt", hint="add one with --prompt FILE or TEXT")
    ids = {str(line.prompt_id) for line in lines if line.prompt_id is not None}
    others = sorted(ids - {given_id})
    if len({prompt.digest for prompt in prompts}) > 1 or len(others) + (given_id is not None) > 1:
        which = f": prompt_id {shorten(', '.join(others), 100)}" if others else ""
        hint = "score completions of several prompts with `rubricsvc jobs submit FILE --judge …`"
        raise InvalidError(f"the completions answer another prompt{which}", hint=hint)
    return prompts[0]


def no_judge(rubric: Rubric) -> Judge:
    """Return the judge of a rubric whose criteria are all checked."""
    judged = [criterion for criterion in rubric.criteria if criterion.kind == "judged"]
    if judged:
        models = [one.custom_prompt.model for one in judged if one.custom_prompt and one.custom_prompt.model]
        names = shorten(", ".join(dict.fromkeys(models or [one.key for one in judged])), 200)
        hint = "add --judge with a URL, the name of a judge, or embedded"
        raise InvalidError(f"{'models' if models else 'criteria without a check'} need a judge: {names}", hint=hint)
    return CHECKS


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
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        hint = "name a file, or - and pass the text through stdin"
        raise InvalidError(f"cannot read the file {shorten(file)!r}: {error.strerror}", hint=hint) from None
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


class Scored(NamedTuple):
    """A completion with its verdicts and reward."""

    name: str
    verdicts: list[Verdict]
    reward: Reward


def _print_one(rubric: Rubric, scored: Scored) -> None:
    rows = []
    for verdict in scored.verdicts:
        criterion = rubric.by_key[verdict.criterion]
        reason = shorten(reason_of(verdict), 200)
        rows.append([criterion.key, criterion.kind, criterion.weight, _value(verdict), reason])
    print_table(["criterion", "kind", "weight", "verdict", "reason"], rows)
    reward = scored.reward
    print_data(f"\nreward {cell(reward.value)}  ({reward.formula}, coverage {reward.coverage:.0%})")
    if reward.vetoed_by:
        print_data(f"vetoed by the required criterion {reward.vetoed_by!r}")
    if reward.null_reason:
        print_data(f"no reward: {reward.null_reason}")


def _print_several(rubric: Rubric, scored: Sequence[Scored]) -> None:
    """Print a table of criteria and completions, with a few completions side by side.

    Names that several completions have get the number of the completion.
    """
    names = [shorten(one.name, 20) for one in scored]
    counts = Counter(names)
    names = [name if counts[name] == 1 else f"{number} {name}" for number, name in enumerate(names, start=1)]
    for start in range(0, len(scored), MOST_COLUMNS):
        block = scored[start : start + MOST_COLUMNS]
        values = [{verdict.criterion: _value(verdict) for verdict in one.verdicts} for one in block]
        rows: list[list[Any]] = [
            [criterion.key, criterion.weight, shorten(criterion.text, 50), *(one[criterion.key] for one in values)]
            for criterion in rubric.criteria
        ]
        rows.append(["reward", "", f"({block[0].reward.formula})", *(one.reward.value for one in block)])
        print_table(["criterion", "weight", "text"], rows, names=names[start : start + MOST_COLUMNS])
        print_data("")
    for one in scored:
        if one.reward.vetoed_by:
            print_data(f"{one.name}: vetoed by the required criterion {one.reward.vetoed_by!r}")
        if one.reward.null_reason:
            print_data(f"{one.name}: no reward: {one.reward.null_reason}")


def _value(verdict: Verdict) -> float | str:
    """Return the value, or why there is none."""
    return verdict.value if verdict.value is not None else verdict.reason or verdict.outcome
