"""`rubricsvc prompts`: prompts of the policy."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from rubricsvc.cli import output
from rubricsvc.cli.commands import command, service
from rubricsvc.cli.output import Json, Out, Seed, clean, echo, group, open_output, print_data, progress_bar, show
from rubricsvc.collections import Collection, tasks
from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.errors import InvalidError
from rubricsvc.formats import Record
from rubricsvc.formats.record import rubric_name
from rubricsvc.formats.writing import plain, write_text
from rubricsvc.queries import Paging
from rubricsvc.settings import get_settings

app = group("Prompts of the policy.")

_CAPABILITY = f"{', '.join(tasks.CAPABILITIES)}; repeatable."


@app.command()
def synthesize(
    collection: Annotated[str, typer.Argument(help="Name of the collection.")],
    *,
    capability: Annotated[list[str] | None, typer.Option(help=_CAPABILITY, show_default="all")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of prompts of each.")] = 20,
    documents: Annotated[
        int, typer.Option(min=0, max=50, help="Documents to attach to each prompt; 0: they are to be searched for.")
    ] = 0,
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Make prompts with rubrics of a collection: what answers them is known, and checks decide it where they can.

    Writes JSONL for `rubricsvc rubrics import`.
    """
    if unknown := [name for name in capability or () if name not in tasks.CAPABILITIES]:
        hint = f"expected one of {', '.join(tasks.CAPABILITIES)}"
        raise InvalidError(f"unknown capability {unknown[0]!r}", hint=hint)
    wanted = [name for name in tasks.CAPABILITIES if not capability or name in capability]
    counts: Counter[str] = Counter()

    def records() -> Iterator[Record]:
        with progress_bar("reading pages") as bar:
            on_page = partial(bar.update, note="")
            for task in tasks.synthesize(opened, wanted, limit=limit, documents=documents, seed=seed, on_page=on_page):
                counts[task.prompt.tags[0]] += 1
                yield Record(task.prompt, task.rubric, id=task.id[:MAX_NAME_LENGTH], name=rubric_name(task.id))

    with Collection(get_settings().collections_dir, collection) as opened, open_output(out) as stream:
        write_text(map(plain, records()), stream, "jsonl")
        if not counts:
            made_of = "; ".join(tasks.CAPABILITIES[name].made_of for name in wanted)
            echo(f"no page of {collection} has what these prompts are made of: {made_of}")
            raise typer.Exit(1)  # in the block: a file that is there already stays as it is
    echo(", ".join(output.counted(counts[name], f"{name} prompt") for name in wanted))


@command(app, "show")
def show_(
    query: Paging,
    ref: Annotated[str | None, typer.Argument(help="Id, or id in the file.", show_default="list prompts")] = None,
    as_json: Json = False,
) -> None:
    """Show one prompt with its rubrics, or list prompts."""
    empty = "no prompts; import some with `rubricsvc rubrics import FILE` or `completions import FILE`"
    with service() as s:
        if ref is None:
            show(s.prompts.page(query), as_json, columns=("id", "external_id", "prompt.text"), empty=empty)
            return
        found = s.prompts.get(ref)
        versions = s.rubrics.page(prompt_id=found.id).data
    show(found, as_json, columns=("id", "external_id", "digest"))
    if not as_json:
        show({"rubrics": [f"{one.name}@{one.version} ({one.state})" for one in versions]})
        print_data(f"\n{clean(found.prompt.text)}")
