"""`rubricsvc completions`: completions of prompts."""

from itertools import islice
from typing import Annotated

import typer

from rubricsvc.cli import output
from rubricsvc.cli.commands import command, service
from rubricsvc.cli.importing import File, Format, import_and_report, import_file
from rubricsvc.cli.models import ask, served_models
from rubricsvc.cli.score import Model, judge_of
from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.judge import Sampling
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.queries import CompletionFilters, ImportQuery
from rubricsvc.schemas.base import every_row
from workers.authoring.completions import CompletionSampler, SamplingResult

app = output.group("Completions of prompts.")

_COLUMNS = ("id", "prompt_id", "completion.id", "completion.policy", "completion.step")


@command(app, "import", without=ImportQuery.model_fields.keys() - {"format", "skip_invalid"})
def import_(query: ImportQuery, file: File, format: Format = None, as_json: output.Json = False) -> None:
    """Import completions and prompts, without rubrics.

    A file is imported whole or not at all. Importing it again changes nothing.
    """
    import_and_report(file, query.model_copy(update={"noun": "completions"}), as_json)


@command(app, "show")
def show_(
    query: CompletionFilters,
    completion_id: Annotated[int | None, typer.Argument(help="Id.", show_default="list completions")] = None,
    as_json: output.Json = False,
) -> None:
    """Show one completion, or list completions."""
    empty = "no completions; add some with `rubricsvc completions import` or `rubricsvc completions generate`"
    with service() as s:
        if completion_id is None:
            output.show(s.completions.page(query), as_json, columns=(*_COLUMNS, "completion.text"), empty=empty)
            return
        found = s.completions.get(completion_id)
    output.show(found, as_json, columns=_COLUMNS)
    if not as_json:
        output.print_data(f"\n{output.clean(found.completion.text)}")


_PROMPTS = "File with prompts, in any format; - is stdin."
_SEED = "Seed of the first sample of each prompt; the next samples have the next seeds."


@command(app)
def generate(
    sampling: Sampling,
    *,
    judge: Annotated[str, typer.Option(help="Judge whose model is sampled: embedded, a server's URL, or a name.")],
    prompts: Annotated[str | None, typer.Option(help=_PROMPTS, show_default="all stored")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of prompts.")] = None,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=10_000, help="Completions of each prompt.")] = 4,
    temperature: Annotated[float, typer.Option(min=0, max=100, help="Sampling temperature.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=output.MAX_SEED, help=_SEED)] = 0,
    policy: Annotated[str | None, typer.Option(help="Policy of the completions.", show_default="the model")] = None,
    model: Model = None,
    as_json: output.Json = False,
) -> None:
    """Sample completions of prompts from the model of a judge, and store them.

    Each completion is stored when it arrives. The same command continues after an interrupt: it asks only for samples
    that are not stored with the same policy, model and sampling options. Exits with 1 if a sample failed, and with 3 if
    the server stopped answering.
    """
    import httpx2

    asked = judge_of(judge, model, "written").model_copy(update={"sampling": sampling})
    if asked.members:
        raise InvalidError(f"judge {judge!r} has members, and no model of its own", hint="name one of them")
    name = policy or asked.model[:MAX_NAME_LENGTH]
    with service() as s:
        sampler = CompletionSampler(
            asked,
            policy=name,
            n=samples,
            prompt=lambda id_: s.prompts.get(id_).prompt,
            store=lambda new: len(s.completions.add_samples(completions=tuple(new)).ids),
        )
        if prompts is None:
            ids = [one.id for one in islice(every_row(s.prompts.page), limit)]
        else:
            ids = import_file(s, prompts, ImportQuery(noun="prompts")).prompt_ids[:limit]
        if not ids:
            raise InvalidError("no prompts", hint="name a file with --prompts, or import it: rubricsvc rubrics import")
        if asked.engine == "openai_http":
            try:
                served_models(asked.endpoint)
            except UnavailableError as error:  # a server that lists no models is reachable
                if isinstance(error.__cause__, httpx2.TransportError):
                    raise
        with output.continue_hint("the completions so far are stored"), output.progress_bar("completions") as bar:

            def update(result: SamplingResult) -> None:
                failed = result.reasons.total()
                bar.update(result.existing + result.stored + failed, result.total, f"{failed} failed" if failed else "")

            stored = every_row(s.completions.page, policy=name)
            result = ask(asked, lambda engine: sampler.run(engine, ids, stored, update))
    for failed in result.failures:
        detail = output.shorten(failed.failure.detail, 200)
        output.echo(f"prompt {failed.prompt_id}, sample {failed.sample}: {failed.failure.reason}: {detail}")
    counts = {"policy": name, "prompts": len(ids), **output.fields_of(result, "stored", "existing", "truncated")}
    counts["failed"] = {str(reason): count for reason, count in result.reasons.items()}
    counts["completion_tokens"] = round(result.tokens)
    with output.ignore_broken_pipe():
        output.show(counts, as_json)
    if result.stopped is not None:
        missing = output.counted(result.total - result.existing - result.stored, "completion")
        why = f"{result.stopped.reason}: {result.stopped.detail}"
        raise UnavailableError(f"stopped, {missing} missing: {why}", hint="run the same command again to continue")
    if result.reasons:
        output.echo("hint: run the same command again to ask for what is missing")
        raise typer.Exit(output.WITH_FAILURES)
    output.echo(f"next: rubricsvc jobs submit --judge NAME --policy {name}")
