"""`rubricsvc env`: environments that policies act in."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from rubricsvc import telemetry
from rubricsvc.cli.importing import input_file
from rubricsvc.cli.models import fetch_embedded
from rubricsvc.cli.output import (
    Json,
    Seed,
    echo,
    first_names,
    group,
    print_data,
    print_json,
    progress_bar,
    replaced,
    shorten,
    show,
)
from rubricsvc.cli.runs import print_trajectory
from rubricsvc.cli.score import (
    file_or_text,
)
from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
from rubricsvc.formats import load, native, stream
from rubricsvc.formats.record import Record
from rubricsvc.settings import get_settings

if TYPE_CHECKING:
    from trainer.policies.policy import Acting

app = group("Environments: tools that a policy may call.")


@app.command("try")
def try_(
    name: Annotated[str, typer.Argument(help="research, calculator, or a run's TOML file.", show_default=False)],
    *,
    prompt: Annotated[str | None, typer.Option(help="File or text.")] = None,
    file: Annotated[Path | None, typer.Option(help="File with prompts.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Number of prompts of --file.")] = 3,
    collection: Annotated[str | None, typer.Option(help="Collection that `research` searches.")] = None,
    policy: Annotated[str, typer.Option(help="embedded, a folder, or a name on the hub.")] = "embedded",
    max_turns: Annotated[int, typer.Option(min=1, help="Turns of the policy.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=2, help="Tokens of the episode, results included.")] = 1024,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a turn.")] = 128,
    temperature: Annotated[float, typer.Option(min=0.01, help="Sampling temperature.")] = 0.7,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Sample a trajectory of a policy for each prompt, and print it turn by turn.

    Of a run's file the tables [environment] and [tools] are used, in place of --collection, --max-turns and
    --max-tokens.
    """
    from trainer.config import SamplingConfig
    from trainer.policies.policy import Policy

    if (file is None) == (prompt is None):
        raise InvalidError("expected --prompt or --file", hint="name one of them")
    telemetry.configure("WARNING", human=True)
    acting = _acting(name, collection, max_turns, max_tokens)
    if file is not None:
        records = stream(input_file(str(file)))
        tasks = list(islice((one for one in records if one.prompt is not None), limit))
        if not tasks:
            raise _no_prompts(file)
    else:
        tasks = [Record(Prompt.of(file_or_text(prompt or "")), None, name="trajectory")]
    if policy == "embedded":
        fetch_embedded()
    sampling = SamplingConfig(max_new_tokens=max_new_tokens, temperature=temperature)
    asked = [one.prompt for one in tasks if one.prompt is not None]
    rollouts = Policy.load(policy, acting=acting).sample(asked, 1, sampling, seed)
    completions, tokens = rollouts.completions(policy, 0, sampling), rollouts.mask_BT.sum(-1).tolist()
    for task, completion, count in zip(tasks, completions, tokens, strict=True):
        text = task.prompt.text if task.prompt is not None else ""
        if as_json:
            plain = completion.model_dump(mode="json", exclude_defaults=True)
            print_json({"name": task.name, "prompt": text, "tokens": count, **plain})
            continue
        print_data(f"# {text}")
        print_trajectory(completion.messages)
        if not completion.text:
            echo("the episode ended without a report")
        counts: Any = completion.sampling.get("tools", {})
        echo(", ".join(f"{name} {count}" for name, count in counts.items()))


@app.command()
def demonstrate(
    file: Annotated[Path, typer.Argument(help="File with prompts, such as one of `prompts synthesize`.")],
    *,
    out: Annotated[Path, typer.Option(help="File to write (JSONL).", show_default=False)],
    environment: Annotated[
        str, typer.Option(help="research, or the TOML file of a run, whose [environment] is used.")
    ] = "research",
    collection: Annotated[str | None, typer.Option(help="Collection that `research` searches.")] = None,
    max_turns: Annotated[int, typer.Option(min=3, help="Turns of an episode.")] = 8,
    as_json: Json = False,
) -> None:
    """Write demonstrations of `research` by a script, for `demonstrations.path` of a run.

    The script searches, opens and cites, without a model. Prompts that it cannot answer are left out. Results of tools
    are those of a run only with the run's file as --environment.
    """
    from trainer.environments.scripted import demonstrate as play
    from trainer.environments.tools import Research

    acting = _acting(environment, collection, max_turns)
    research = acting.own_environment
    if not isinstance(research, Research):
        raise InvalidError("the script acts in `research` only", hint="name that environment, with a collection")
    records = [one for one in load(file) if one.prompt is not None]
    if not records:
        raise _no_prompts(file)
    left_out: list[str] = []
    with (
        progress_bar("demonstrations") as bar,
        research.collection,
        replaced(out) as part,
        part.open("w", encoding="utf-8") as written,
    ):
        for number, record in enumerate(records):
            bar.update(number, len(records), "")
            assert record.prompt is not None  # noqa: S101 - records without one are left out above
            if (completion := play(research, record.prompt, acting.limits)) is None:
                left_out.append(record.id or shorten(record.prompt.text))
                continue
            plain = completion.model_dump(mode="json", exclude_defaults=True)
            written.write(strict_json.dump(native.plain(Record(record.prompt, None)) | plain) + "\n")
        bar.update(len(records), len(records), "")
        if len(left_out) == len(records):
            raise InvalidError("the script reached no report", hint="raise --max-turns, or name other prompts")
    counts = {"prompts": len(records), "demonstrations": len(records) - len(left_out), "file": str(out)}
    show(counts | {"left_out": left_out if as_json else first_names(left_out) if left_out else ""}, as_json)


def _acting(name: str, collection: str | None, max_turns: int, max_tokens: int = 1024) -> Acting:
    """Return an environment by its name, or that of a run's configuration."""
    from pydantic import ValidationError

    from trainer.config import EnvironmentConfig, load_config
    from trainer.environments.registry import make_acting
    from trainer.run import check_local

    folder = get_settings().collections_dir
    if name.endswith(".toml"):
        config = load_config(Path(name))
        if config.environment is None:
            raise InvalidError(f"{name} has no table [environment]", hint="add one (docs/environments.md)")
        check_local(config)
        return make_acting(config.environment, folder, config.tools)
    known = [one for one in get_args(EnvironmentConfig.model_fields["name"].annotation) if one != "mcp"]
    if name not in known:
        what = "`mcp` has only the tools that a run's file names" if name == "mcp" else f"no environment {name!r}"
        hint = f"expected {', '.join(known)}, or the TOML file of a run with [environment] and [tools]"
        raise InvalidError(what, hint=hint)
    given = {"name": name, "collection": collection, "max_turns": max_turns, "max_tokens": max_tokens}
    try:
        return make_acting(EnvironmentConfig.model_validate(given), folder)
    except ValidationError as error:
        message = "; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())
        hint = "expected research --collection NAME; `rubricsvc collections list` names them"
        raise InvalidError(message, hint=hint) from error


def _no_prompts(file: Path) -> InvalidError:
    return InvalidError(f"{file} has no prompts", hint="make some: rubricsvc prompts synthesize COLLECTION --out FILE")
