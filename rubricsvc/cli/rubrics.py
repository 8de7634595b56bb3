"""`rubricsvc rubrics`: write, import, list, review, compare, analyse, fit and export rubrics."""

from collections import Counter
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from rubricsvc import presets
from rubricsvc.cli import output
from rubricsvc.cli.authoring import generate, lint_, propose, test
from rubricsvc.cli.commands import command, service
from rubricsvc.cli.importing import By, File, Format, import_and_report, only_one, record_of, targets_of, versions_of
from rubricsvc.cli.output import Json, Out, echo, print_data, print_json, progress_bar, show
from rubricsvc.core.rubric import Criterion, Numeric
from rubricsvc.core.rubric_analysis import ComparedRubric
from rubricsvc.core.states import APPROVED, ReviewAction, RubricState
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.formats import writing
from rubricsvc.queries import ALL, MAX_LIMIT, AnalysisQuery, FitQuery, ImportQuery, RubricFilters
from rubricsvc.schemas.base import every_row
from rubricsvc.schemas.rubrics import NewReview
from rubricsvc.services.versions import STEPS, changes

app = output.group("Rubrics: weighted criteria for completions.")

MOST_ROWS = 20

RefOrFile = Annotated[str, typer.Argument(help="Id, name (newest approved version), name@version, digest, or a file.")]


@command(app, "import", without=("name", "noun", "replace_labels"))
def import_(
    query: ImportQuery,
    file: File,
    *,
    format: Format = None,
    rubric_name: Annotated[str | None, typer.Option("--name", help="Name of the only rubric in the file.")] = None,
    mapping: Annotated[Path | None, typer.Option(help="Mapping file of the format (docs/formats.md).")] = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Import rubrics, prompts and completions.

    A file is imported whole or not at all. Importing it again changes nothing. If the --parent has been edited already,
    the rubric is kept as a draft, and the error says what both edits change.
    """
    import_and_report(file, query.model_copy(update={"noun": "rubrics"}), as_json, by=by, mapping=mapping)


@command(app, "show")
def show_(
    query: RubricFilters,
    *,
    ref: Annotated[
        str | None,
        typer.Argument(help="Id, name (newest approved version), name@version or digest.", show_default="list rubrics"),
    ] = None,
    provenance: Annotated[bool, typer.Option("--provenance", help="Show how it was generated, as JSON.")] = False,
    history: Annotated[bool, typer.Option("--history", help="Show its tests and the steps of its review.")] = False,
    as_json: Json = False,
) -> None:
    """Show one rubric, or list them; --provenance has model, template, reply and gate's findings of a generated one.

    With --history the steps of its review, of a name those of all its versions, and its tests.
    """
    columns = ("id", "name", "version", "state", "digest", "prompt_id", "origin")
    with service() as s:
        if ref is None:
            empty = "no rubrics; write an example to import with `rubricsvc rubrics init`"
            show(s.rubrics.page(query), as_json, columns=(*columns, "rubric.formula"), empty=empty)
            return
        if history:
            reviews, tests = s.rubrics.history(ref, limit=MAX_LIMIT).data, s.rubrics.tests(ref, limit=MAX_LIMIT).data
            outcomes = [output.fields_of(one, "created_at", "rubric", "by", "outcome") for one in tests]
            show({"reviews": list(reviews), "tests": outcomes}, as_json)
            return
        if provenance:
            show(s.rubrics.provenance(ref), as_json=True)
            return
        found = s.rubrics.get(ref, allow_drafts=True)
        prompt = s.prompts.get(found.prompt_id).prompt if found.prompt_id is not None else None
    criteria = list(map(_row, found.rubric.criteria))
    examples = [
        {"example": one.key, "expected": {key: str(value) for key, value in (one.verdicts or {}).items()}}
        | {"reward": str(one.reward) if one.reward is not None else "", "text": one.text}
        for one in found.rubric.examples or ()
    ]
    about = output.fields_of(found, *columns) | {"note": found.note if found.state != APPROVED else None}
    about["prompt"] = output.shorten(prompt.text, 300) if prompt is not None else None
    about |= {"criteria": criteria, "examples": examples}
    show(found.model_dump(mode="json") | {"prompt": prompt} if as_json else about, as_json)
    if found.state != APPROVED and ref == found.name:
        echo(f"no version of {ref} is approved; this is the newest draft")


def _row(one: Criterion) -> dict[str, object]:
    """Return a criterion in cells: levels or bounds in place of its kind, and of each source what and when it says."""
    kind, sources = f"check {one.check.name}" if one.check else one.scale.kind, []
    if not one.check and (levels := getattr(one.scale, "levels", ())):
        kind = ", ".join(f"{level.label} {level.value:g}" for level in levels)
    elif not one.check and isinstance(one.scale, Numeric):
        kind = f"{one.scale.low:g} to {one.scale.high:g}"
    for source in one.sources or ():
        dates = [f"as of {source.as_of}" if source.as_of else "", f"expires {source.expires}" if source.expires else ""]
        passage = f'"{output.shorten(source.passage, 60)}"' if source.passage else ""
        sources.append(", ".join(filter(None, (source.document, source.clause, passage, *dates))))
    about = {"kind": kind + " (required)" * one.required, "group": "/".join(one.group), "text": one.text}
    return {**output.fields_of(one, "key", "weight"), **about, "sources": "; ".join(sources)}


@app.command()
def diff(
    a: RefOrFile,
    b: RefOrFile,
    on: Annotated[int | None, typer.Option(help="Job whose rewards to compare.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Show in words what changed from A to B, stored rubrics or files; exit with 1 if anything did.

    With --on JOB, show how the rewards and ranks of its completions change. No judge is asked, and nothing is stored.
    """
    sides, reviews = list[ComparedRubric](), list[dict[str, Any]]()
    both = [targets_of(ref, allow_drafts=False) for ref in (a, b)]
    for ref, found, beside in zip((a, b), both, both[::-1], strict=True):
        other = beside[0].stored
        same = [one for one in found if other is not None and one.name == other.name]  # of a file with several
        only = only_one(ref, same if len(same) == 1 else found)
        own = only.stored
        name, prompt_id = (known.name, known.prompt_id) if (known := own or other) is not None else (ref, None)
        sides.append(ComparedRubric(ref=only.name if own else ref, name=name, rubric=only.rubric, prompt_id=prompt_id))
        shown = {"state", "parent_id", "added_by"}
        reviews.append(own.model_dump(include=shown, exclude_none=True) if own is not None else {})
    if on is not None:
        with service() as s:
            compared = s.rubrics.reward_changes(job_id=on, old=sides[0], new=sides[1])
        data: dict[str, Any] = {"old": sides[0].ref, "new": sides[1].ref, "job_id": on} | compared.model_dump()
        if not as_json:
            rows = sorted(data["by_completion"], key=lambda row: -abs(row["change"] or 0.0))
            data["by_completion"] = rows[:MOST_ROWS]
            if len(rows) > MOST_ROWS:
                echo(f"… and {len(rows) - MOST_ROWS} more completions; --json prints all")
        show(data, as_json)
        if compared.new_missing_verdicts and not as_json:
            again = f"rubricsvc jobs rescore {on} --rubric {sides[1].ref}"
            first = f"rubricsvc rubrics import {sides[1].ref}`, then `" if not reviews[1] else ""
            echo(f"hint: `{first}{again}` asks for the missing verdicts")
        return
    differences = changes(sides[0].rubric, sides[1].rubric)
    with output.exit_with(1 if differences else output.OK):
        if as_json:
            named = [{"rubric": side.ref, **review} for side, review in zip(sides, reviews, strict=True)]
            print_json({"old": named[0], "new": named[1], "changes": [asdict(one) for one in differences]})
        elif not differences:
            echo(f"{sides[0].ref} and {sides[1].ref} have the same content")
        else:
            for side, review in zip(sides, reviews, strict=True):
                print_data(f"{side.ref}: {output.cell(review) if review else 'a file'}")
            for change in differences:
                print_data(f"  {output.clean(str(change))}")


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="File to write.")] = Path("rubric.yaml"),
    *,
    preset: Annotated[str | None, typer.Option(help=f"Start from one of {', '.join(presets.NAMES)}.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Prompt of the rubric.", show_default="any, with --preset")] = None,
    force: output.Force = False,
) -> None:
    """Write an example rubric to edit, or one of the presets."""
    if preset is None and prompt is not None:
        raise InvalidError("--prompt needs --preset", hint="see them with `rubricsvc rubrics init --help`")
    example = files("rubricsvc.formats").joinpath("example.yaml")
    text = example.read_text("utf-8") if preset is None else presets.text(preset, prompt)
    if file.exists() and not force:
        raise ConflictError(f"{file} exists", hint="name another file, or overwrite it with --force")
    file.write_text(text, encoding="utf-8")
    echo(f"wrote {file}; edit it, then run `rubricsvc rubrics lint {file}`")


@command(app)
def review(
    new: NewReview,
    *,
    refs: Annotated[list[str], typer.Argument(metavar="REF...", help="Id, name@version, name, or names with *.")],
    action: Annotated[ReviewAction, typer.Argument(help="What is done.", show_default=False)],
    comment: Annotated[str | None, typer.Option("--comment", "-m", help="Comment; reject and comment need it.")] = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Submit, approve, reject or retire a version, or comment on it.

    A version in review or retired is approved: jobs may use it, and its name refers to the newest approved one. What is
    rejected is a draft again. Of several it prints why some did not pass, and exits with 1 then.
    """
    rows = list[dict[str, Any]]()
    with service(by) as s, progress_bar(new.action) as bar:
        before = STEPS[new.action][0][:1] if new.action in STEPS else get_args(RubricState)
        versions = versions_of(s, refs, before)
        on_done = bar.counter(len(versions)) if len(versions) > 1 else lambda: None
        for ref in versions:
            try:
                row = s.rubrics.review(ref, new)
                rows.append({"id": row.id, "rubric": f"{row.name}@{row.version}", "state": row.state, "note": row.note})
            except (ConflictError, InvalidError, NotFoundError) as error:
                if len(versions) == 1:
                    raise
                rows.append({"rubric": ref, "refused": f"{error.message}; {error.hint}"})
            on_done()
    refused = [row["refused"] for row in rows if "refused" in row]
    with output.exit_with(output.WITH_FAILURES if refused else output.OK):
        show(rows if len(rows) > 1 else rows[0], as_json, columns=("id", "rubric", "state"))
        for text in [*refused, *(row["note"] for row in rows if row.get("note"))] if not as_json else ():
            echo(text)
        if len(rows) > 1:
            echo(f"{new.action}: {len(rows) - len(refused)} passed, {len(refused)} did not")


@command(app)
def analyse(
    query: AnalysisQuery,
    ref: Annotated[str | None, typer.Argument(help="Rubric version; without one, all of --job, pooled.")] = None,
    as_json: Json = False,
) -> None:
    """Analyse the criteria of a rubric from stored verdicts and labels, and advise what to change.

    No judge is asked, and nothing is stored. It needs the extra `judging`.
    """
    with service() as s:
        found = s.rubrics.analyse(ref or ALL, query)
    show(found, as_json)
    if not found.advice and not as_json:
        echo("no advice: pools, too few verdicts, or no criterion exceeds a limit of docs/analysing.md")


@command(app)
def fit(
    query: FitQuery,
    ref: Annotated[str | None, typer.Argument(help="Rubric version; without one, all of --job, pooled.")] = None,
    as_json: Json = False,
) -> None:
    """Fit a rubric's weights to people's overall scores (label `overall`) or to their preferences.

    It prints each weight with its interval, and how well new and old weights predict people on prompts that were held
    out. No judge is asked. It needs the extra `judging`.
    """
    with service() as s:
        found = s.rubrics.fit(ref or ALL, query)
    show(found, as_json)
    if not found.saved and not as_json and ref is not None:
        echo("not stored; --save stores the new weights as a draft version")


@app.command()
def export(
    refs: Annotated[list[str] | None, typer.Argument(help="Rubrics.", show_default="all")] = None,
    *,
    format: Annotated[str, typer.Option(help=f"{', '.join(writing.WRITERS)}.")] = "native",
    out: Out = None,
) -> None:
    """Write rubrics with their prompts, by default the newest approved versions.

    The ending of --out decides between .jsonl, .json, .yaml and .csv, as far as the format has them; docs/formats.md
    says what each format loses.
    """
    container = writing.container_of(format, out)
    with service() as s:
        if refs:
            stored = (s.rubrics.get(ref) for ref in refs)
        else:
            stored = (one for one in {one.name: one for one in every_row(s.rubrics.page, state=APPROVED)}.values())
        lost = Counter[str]()
        rows = writing.rows((record_of(s, one) for one in stored), format, lost)
        with output.open_output(out) as stream:
            writing.write_text(rows, stream, container)
        has_drafts = any(s.rubrics.page(limit=1, state=state).data for state in ("draft", "in_review"))
    for name, count in lost.items() if format != "openai_grader" else ():
        echo(f"{format} does not carry {name} (of {count} rubrics); --format native does")
    if has_drafts and not refs:
        echo("left out: drafts; name them to export them: `rubricsvc rubrics show --state draft`")


app.command("lint")(lint_)
app.command("test")(test)
command(app, without=("name", "key", "repairs", "redraws", "empty_max"))(generate)
app.command("propose")(propose)
