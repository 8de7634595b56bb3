"""`rubricsvc rubrics init` and `presets`: rubrics to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubricsvc import presets
from rubricsvc.cli import output
from rubricsvc.cli.output import Json, echo, show_list
from rubricsvc.errors import ConflictError, InvalidError

NEXT = "rubricsvc rubrics lint"


def init(
    file: Annotated[Path, typer.Argument(help="File to write.")] = Path("rubric.yaml"),
    *,
    preset: Annotated[str | None, typer.Option(help="Preset to start from; see `rubrics presets`.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Prompt of the rubric.", show_default="any, with --preset")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write, in place of FILE.", show_default=False)] = None,
    trajectory: Annotated[bool, typer.Option("--trajectory", help="Write an example for agents.")] = False,
    force: output.Force = False,
) -> None:
    """Write an example rubric to edit, or one of the presets."""
    file = out or file
    if preset is None:
        if prompt is not None:
            raise InvalidError("--prompt needs --preset", hint="list them with `rubricsvc rubrics presets`")
        output.write_example("example_trajectory.yaml" if trajectory else "example.yaml", file, force, NEXT)
        return
    if trajectory:
        raise InvalidError("--trajectory is an example of its own", hint="leave out --preset or --trajectory")
    text = presets.text(preset, prompt)
    if file.exists() and not force:
        raise ConflictError(f"{file} exists", hint="name another file, or overwrite it with --force")
    file.write_text(text, encoding="utf-8")
    echo(f"wrote {file}; edit it, then run `{NEXT} {file}`")


def list_(as_json: Json = False) -> None:
    """List the presets of `rubrics init --preset`."""
    show_list(map(presets.summary, presets.NAMES), as_json)
