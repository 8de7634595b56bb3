"""`rubricsvc env`: environments that policies act in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rubricsvc.cli.models import ApiKeyEnv, fetch_embedded
from rubricsvc.cli.output import Json, echo, group, print_data, print_json, progress_bar, replaced, show
from rubricsvc.cli.rubric_targets import OfSeveral, target_of
from rubricsvc.cli.score import JudgeOption, Model, file_or_text, judge_of, no_judge, score_and_print
from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.errors import InvalidError
from rubricsvc.formats import load, native
from rubricsvc.formats.completions import CompletionLine
from rubricsvc.formats.record import Record
from rubricsvc.settings import get_settings

app = group("Environments: tools that a policy may call.")


@app.command("try")
def try_(
    name: Annotated[str, typer.Argument(help="Environment: research or calculator.", show_default=False)],
    *,
    prompt: Annotated[str | None, typer.Option(help="File or text.", show_default="that of the rubric")] = None,
    rubric: Annotated[str | None, typer.Option(help="File with a rubric, or a stored rubric.")] = None,
    name_of_rubric: OfSeveral = None,
    collection: Annotated[str | None, typer.Option(help="Collection that `research` searches.")] = None,
    policy: Annotated[str, typer.Option(help="embedded, a folder, or a name on the hub.")] = "embedded",
    max_turns: Annotated[int, typer.Option(min=1, help="Turns of the policy.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=2, help="Tokens of the episode, results included.")] = 1024,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a turn.")] = 128,
    temperature: Annotated[float, typer.Option(min=0.01, help="Sampling temperature.")] = 0.7,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    judge: JudgeOption = None,
    model: Model = None,
    mode: Annotated[str, typer.Option(help="readout, written, comparative or trajectory.")] = "readout",
    api_key_env: ApiKeyEnv = None,
    as_json: Json = False,
) -> None:
    """Sample one trajectory of a policy, and print it turn by turn, with its reward by criterion.

    Exits with 1 if the reward is missing.
    """
    from trainer.config import SamplingConfig
    from trainer.environments.registry import make_acting
    from trainer.policies.policy import Policy

    target = target_of(rubric, name_of_rubric) if rubric is not None else None
    asked = Prompt.of(file_or_text(prompt)) if prompt is not None else target.prompt if target else None
    if asked is None:
        raise InvalidError("no prompt", hint="name one with --prompt, or a rubric that has one with --rubric")
    scored_by = None
    if target is not None:
        scored_by = judge_of(judge, model, mode, api_key_env) if judge else no_judge(target.rubric)
    acting = make_acting(_environment(name, collection, max_turns, max_tokens), get_settings().collections_dir)
    if policy == "embedded":
        fetch_embedded()
    sampling = SamplingConfig(max_new_tokens=max_new_tokens, temperature=temperature)
    rollouts = Policy.load(policy, acting=acting).sample([asked], 1, sampling, seed)
    (completion,) = rollouts.completions(policy, 0, sampling)
    if as_json:
        print_json({"tokens": int(rollouts.mask_BT.sum()), **completion.model_dump(mode="json", exclude_defaults=True)})
    else:
        _print(completion)
    if target is not None and scored_by is not None:
        line = CompletionLine(completion=completion)
        score_and_print(scored_by, target.rubric, asked, [("trajectory", line)], as_json=as_json)


@app.command()
def demonstrate(
    file: Annotated[Path, typer.Argument(help="File with prompts, such as one of `prompts synthesize`.")],
    *,
    collection: Annotated[str, typer.Option(help="Collection to search.", show_default=False)],
    out: Annotated[Path, typer.Option(help="File to write (JSONL).", show_default=False)],
    max_turns: Annotated[int, typer.Option(min=3, help="Turns of an episode.")] = 8,
    max_result_chars: Annotated[int, typer.Option(min=1, help="Characters of a tool's result.")] = 2000,
    as_json: Json = False,
) -> None:
    """Write demonstrations of `research` by a script, for `data.demonstrations` of a run.

    The script searches, opens and cites, without a model. Prompts that it cannot answer are left out.
    """
    from trainer.environments.episodes import EpisodeLimits
    from trainer.environments.research import Research
    from trainer.environments.scripted import demonstrate as play

    environment = Research(get_settings().collections_dir, collection)
    limits = EpisodeLimits(max_turns, max_result_chars)
    prompts = [record.prompt for record in load(file) if record.prompt is not None]
    if not prompts:
        raise InvalidError(
            f"{file} has no prompts", hint="make some: rubricsvc prompts synthesize COLLECTION --out FILE"
        )
    written = 0
    with (
        progress_bar("demonstrations") as bar,
        environment.collection,
        replaced(out) as part,
        part.open("w", encoding="utf-8") as stream,
    ):
        for number, prompt in enumerate(prompts):
            bar.update(number, len(prompts), "")
            if (completion := play(environment, prompt, limits)) is not None:
                written += 1
                plain = completion.model_dump(mode="json", exclude_defaults=True)
                stream.write(strict_json.dump(native.plain(Record(prompt, None)) | plain) + "\n")
        bar.update(len(prompts), len(prompts), "")
        if not written:
            raise InvalidError("the script reached no report", hint="raise --max-turns, or name other prompts")
    show({"prompts": len(prompts), "demonstrations": written, "file": str(out)}, as_json)


def _environment(name: str, collection: str | None, max_turns: int, max_tokens: int) -> Any:
    from pydantic import ValidationError

    from trainer.environments.config import EnvironmentConfig

    given = {"name": name, "collection": collection, "max_turns": max_turns, "max_tokens": max_tokens}
    try:
        return EnvironmentConfig.model_validate(given)
    except ValidationError as error:
        message = "; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())
        hint = "`rubricsvc env try research --collection NAME`; `rubricsvc collections list` names them"
        raise InvalidError(message, hint=hint) from error


def _print(completion: Completion) -> None:
    for message in completion.messages:
        print_data(f"[{message.role}{f' {message.name}' if message.name else ''}]")
        print_data(message.text)
    if not completion.text:
        echo("the episode ended without a report")
    counts: Any = completion.sampling.get("tools", {})
    echo(", ".join(f"{name} {count}" for name, count in counts.items()))
