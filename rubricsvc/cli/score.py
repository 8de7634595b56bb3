"""`rubricsvc score`: completions of one prompt, one rubric and one judge, without a database."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc.cli.commands import service
from rubricsvc.cli.importing import input_file, only_one, targets_of
from rubricsvc.cli.models import ApiKeyEnv, ask, describe_embedded, judge_from, without_outage
from rubricsvc.cli.output import OK, WITH_FAILURES, Json, MinCoverage, exit_with, fields_of, shorten, show
from rubricsvc.core import strict_json
from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.judge import CHECKS, Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Rubric
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.formats.documents import read_all, read_trajectory
from rubricsvc.formats.openai_grader import parse_prompt
from rubricsvc.formats.record import CompletionLine
from rubricsvc.services.exporting import plain_verdict
from workers.engines.local.embedded_model import EMBEDDED
from workers.scoring.completions import score_group

JudgeOption = Annotated[
    str | None, typer.Option(help="embedded, a server's URL, or a judge's name.", show_default="none, for checks")
]
Model = Annotated[str | None, typer.Option(help="Model at the URL.", show_default="the only one served")]

_COMPLETION = "File with a text (trajectory judge: messages); - is stdin; repeatable."
_COMPLETIONS = "File of completions of the prompt: JSONL or CSV (docs/formats.md)."


def score(
    *,
    rubric: Annotated[str, typer.Option(help="Rubric file, in any format, or a stored rubric.")],
    completion: Annotated[list[str] | None, typer.Option(help=_COMPLETION, show_default=False)] = None,
    completions: Annotated[str | None, typer.Option(help=_COMPLETIONS, show_default=False)] = None,
    judge: JudgeOption = None,
    prompt: Annotated[str | None, typer.Option(help="Prompt: file or text.", show_default="that of the rubric")] = None,
    item: Annotated[str | None, typer.Option(help="Item of an OpenAI grader: JSON, or a JSON file.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the rubric in a file with several.")] = None,
    model: Model = None,
    mode: Annotated[str, typer.Option(help="readout, written, comparative or trajectory.")] = "readout",
    api_key_env: ApiKeyEnv = None,
    min_coverage: MinCoverage = None,
    as_json: Json = False,
) -> None:
    """Score completions of one prompt, side by side, by a rubric or an OpenAI grader; nothing is stored.

    Exits with 1 if there is no reward because too little could be judged.
    """
    for option, values in (("prompt", [prompt]), ("completion", completion or []), ("completions", [completions])):
        if any(value is not None and not value.strip() for value in values):
            raise InvalidError(f"--{option} is empty", hint="name a text file")
    target = only_one(rubric, targets_of(rubric, name))
    chosen = judge_of(judge, model, mode, api_key_env) if judge is not None else no_judge(target.rubric)
    given = target.prompt if prompt is None else Prompt.of(file_or_text(prompt))
    if item is not None:
        try:
            given = parse_prompt(strict_json.parse(file_or_text(item)))
        except strict_json.JsonError as error:
            hint = 'name a JSON file, or write JSON: \'{"answer": "4"}\''
            raise InvalidError(f"--item: {error}", hint=hint) from None
    lines = _completions(chosen, completion or [], completions)
    asked = _only_prompt(rubric, given, target.prompt_id if prompt is None else None, [line for _, line in lines])
    judged, texts = chosen.map_leaves(without_outage), [line.completion for _, line in lines]
    verdicts = ask(judged, lambda engine: score_group(engine, judged, target.rubric, asked, texts))
    rewards = [reward_or_null(target.rubric, found, min_coverage=min_coverage) for found in verdicts]
    with exit_with(WITH_FAILURES if any(one.value is None for one in rewards) else OK):
        records: list[dict[str, Any]] = []
        for (title, _), one, found in zip(lines, rewards, verdicts, strict=True):
            summary = fields_of(one, "formula", "coverage", "vetoed_by", "null_reason")
            records.append({"name": title, "reward": one.value, **summary})
            if as_json:
                by = fields_of(chosen, "name", "engine", "model", "digest")
                plain = list(map(plain_verdict, found))
                records[-1] |= {"contributions": one.contributions, "judge": by, "verdicts": plain}
                continue
            records[-1]["verdicts"] = [
                {"criterion": each.criterion}
                | fields_of(target.rubric.by_key[each.criterion], "kind", "weight")
                | {"verdict": each.value if each.value is not None else each.outcome}
                | fields_of(each, "reason", "detail", "rationale")
                | {"quotes": " … ".join(quote.quote for quote in each.evidence if quote.start is not None) or None}
                | {"quotes not found": sum(quote.start is None for quote in each.evidence) or None}
                for each in found
            ]
        show(records if as_json or len(records) > 1 else records[0], as_json)


def _completions(judge: Judge, files: Sequence[str], of_all: str | None) -> list[tuple[str, CompletionLine]]:
    """Return completions with their names: of files with a text each (trajectory judge: messages), and of several."""
    needs_steps = any(leaf.mode == "trajectory" for leaf in judge.leaf_judges)
    values = [read_trajectory(input_file(file)) if needs_steps else Completion(text=text_of(file)) for file in files]
    lines = [(Path(file).name, CompletionLine(completion=value)) for file, value in zip(files, values, strict=True)]
    for n, line in enumerate(read_all(input_file(of_all)) if of_all is not None else (), start=1):
        lines.append((line.completion.id or f"{line.completion.policy} {n}".strip(), line))
    if not lines:
        hint = "name a text with --completion, or a file of several with --completions"
        raise InvalidError("no completion", hint=hint)
    if judge.mode == "comparative" and len(lines) == 1:
        hint = "name several, or submit a file with `rubricsvc jobs submit FILE --judge …`"
        raise InvalidError(f"judge {judge.name!r} compares completions of a prompt, and there is only one", hint=hint)
    return lines


def _only_prompt(rubric: str, given: Prompt | None, given_id: str | None, lines: Sequence[CompletionLine]) -> Prompt:
    """Return the prompt of the rubric or of ``--prompt``, or else that of the completions.

    ``given_id`` is the id of the rubric's prompt in its file.
    """
    prompts = [given] if given is not None else []
    prompts += [line.prompt for line in lines if line.prompt is not None]
    if not prompts:
        raise InvalidError(f"{rubric} has no prompt", hint="add one with --prompt, or the --item of a grader")
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
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return data.decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidError(f"{file} is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None


def judge_of(judge: str, model: str | None = None, mode: str = "readout", api_key_env: str | None = None) -> Judge:
    """Return the embedded judge, a judge at a URL, or a stored one."""
    if judge == EMBEDDED:
        embedded = judge_from(EMBEDDED, model=EMBEDDED, mode=mode)
        describe_embedded([embedded])
        return embedded
    if judge.startswith(("http://", "https://")):
        return judge_from(judge[:MAX_NAME_LENGTH], url=judge, model=model, mode=mode, api_key_env=api_key_env)
    # a stored judge has its own model, mode and key
    with service() as s:
        return s.judges.get(judge).value
