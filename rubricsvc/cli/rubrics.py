"""`rubricsvc rubrics`: write, import, list, review, compare, analyse, fit, generate and export rubrics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from sqlalchemy.orm import Session

from rubricsvc import presets
from rubricsvc.cli import output
from rubricsvc.cli.importing import By, File, Format, SkipInvalid, edit_of, import_and_report, input_file
from rubricsvc.cli.jobs import Budget, Wait, end
from rubricsvc.cli.options import command
from rubricsvc.cli.output import (
    MAX_SEED,
    Json,
    Out,
    PromptFilter,
    Seed,
    counted,
    echo,
    estimate_cells,
    print_data,
    print_json,
    print_table,
    progress_bar,
    show,
    show_list,
)
from rubricsvc.cli.rubric_checks import lint_, propose, specification_of, test
from rubricsvc.cli.rubric_targets import find_stored, target_of
from rubricsvc.cli.service import database, local, service
from rubricsvc.core.generation import MAX_REDRAWS, Generation, Method
from rubricsvc.core.judge import Sampling
from rubricsvc.core.rubric import Criterion, RubricExample, Source
from rubricsvc.core.rubric_analysis import FitTo, Signs
from rubricsvc.core.states import ReviewAction
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.formats import InputFile, Record, writing
from rubricsvc.queries import MAX_LIMIT, ImportQuery, RubricFilters
from rubricsvc.schemas import RubricEvent, StoredRubric, StoredRubricTest
from rubricsvc.schemas.methods import request
from rubricsvc.services.importing import RECORDS, import_prompts
from rubricsvc.services.rubric_changes import changes
from rubricsvc.services.rubrics import stored_records, submit_generation
from rubricsvc.stats import RESAMPLES
from rubricsvc.store import judges, rubrics
from rubricsvc.store import prompts as stored_prompts
from rubricsvc.store.session import PUBLISHED, every
from rubricsvc.store.tables import RubricRow

if TYPE_CHECKING:
    from rubricsvc.core.rubric_analysis import RubricAnalysis
    from rubricsvc.formats.record import Row

app = output.group("Rubrics: weighted criteria for completions.")

MOST_ROWS = 20
NEXT = "rubricsvc rubrics lint"

Ref = Annotated[
    str, typer.Argument(help="Id, name (newest approved version), name@version, or 8 or more digits of the digest.")
]
RefOrFile = Annotated[str, typer.Argument(help="Id, name (newest approved version), name@version, digest, or a file.")]


def import_(
    file: File,
    *,
    format: Format = None,
    name: Annotated[str | None, typer.Option(help="Name of the only rubric in the file.")] = None,
    min_coverage: output.MinCoverage = None,
    skip_invalid: SkipInvalid = False,
    mapping: Annotated[Path | None, typer.Option(help="Mapping file of the format (docs/formats.md).")] = None,
    parent: Annotated[str | None, typer.Option(help="Version that the only rubric was edited from.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Add it even if --parent has been edited already.")] = False,
    draft: Annotated[bool, typer.Option("--draft", help="Add the rubrics as drafts, to be reviewed.")] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Import rubrics, prompts and completions.

    A file is imported whole or not at all. Importing it again changes nothing. If the --parent has been edited already,
    the rubric is kept as a draft, and the error says what both edits change.
    """
    query = request(
        ImportQuery,
        format=format,
        rubric_name=name,
        min_coverage=min_coverage,
        skip_invalid=skip_invalid,
        parent=parent,
        force=force,
        draft=draft,
    )
    import_and_report(file, query, as_json, kinds=(RECORDS,), by=by, mapping=mapping)


@command(app, "show")
def show_(
    query: RubricFilters,
    *,
    ref: Annotated[
        str | None,
        typer.Argument(help="Id, name (newest approved version), name@version or digest.", show_default="list rubrics"),
    ] = None,
    prompt_id: PromptFilter = None,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print the native format, to edit it.")] = False,
    provenance: Annotated[bool, typer.Option("--provenance", help="Show how it was generated, as JSON.")] = False,
    as_json: Json = False,
) -> None:
    """Show one rubric, or list them; --provenance has model, template, reply and gate's findings of a generated one."""
    columns = ("id", "name", "version", "state", "digest", "prompt_id", "origin")
    with service() as s:
        if ref is None:
            if query.prompt_id is not None:
                query = query.model_copy(update={"prompt_id": s.prompts.get(str(query.prompt_id)).id})
            empty = "no rubrics; write an example to import with `rubricsvc rubrics init`"
            show(s.rubrics.page(query), as_json, columns=(*columns, "rubric.formula"), empty=empty)
            return
        if provenance:
            show(s.rubrics.provenance(ref), as_json=True)
            return
        found = s.rubrics.get(ref)
        if as_yaml:
            prompt = s.prompts.get(found.prompt_id) if found.prompt_id is not None else None
            text, id_ = (prompt.prompt, prompt.external_id) if prompt is not None else (None, None)
            record = Record(text, found.rubric, id=id_, name=found.name)
            writing.write_text([writing.plain(record)], sys.stdout, "yaml")
            return
    show(found, as_json, columns=columns)
    if not as_json:
        print_data("")
        names = ("key", "weight", "kind", "group", "text", "sources")
        output.print_table(names, map(_criterion_cells, found.rubric.criteria))
        if examples := found.rubric.examples:
            print_data("")
            output.print_table(["example", "expected", "reward", "text"], map(_example_cells, examples))


def _criterion_cells(criterion: Criterion) -> list[Any]:
    kind = f"check {criterion.check.name}" if criterion.check else criterion.scale.kind
    required = " (required)" if criterion.required else ""
    sources = "; ".join(map(_source_cell, criterion.sources or ()))
    return [criterion.key, criterion.weight, kind + required, "/".join(criterion.group), criterion.text, sources]


def _example_cells(one: RubricExample) -> list[Any]:
    verdicts = ", ".join(f"{key} {expected}" for key, expected in (one.verdicts or {}).items())
    return [one.key, verdicts, "" if one.reward is None else one.reward, output.shorten(one.text, 100)]


def _source_cell(source: Source) -> str:
    dates = [f"as of {source.as_of}" if source.as_of else "", f"expires {source.expires}" if source.expires else ""]
    passage = f'"{output.shorten(source.passage, 60)}"' if source.passage else ""
    return ", ".join(filter(None, (source.document, source.clause, passage, *dates)))


def diff(
    a: RefOrFile,
    b: RefOrFile,
    on: Annotated[int | None, typer.Option(help="Job whose rewards to compare.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Show in words what changed from A to B, stored rubrics or files; exit with 1 if anything did.

    With --on JOB, show how the rewards and ranks of its completions change. No judge is asked, and nothing is stored.
    """
    rows = [_side(a, b), _side(b, a)]
    with database() as db, db.read() as session:
        names = [row.ref if row.id else ref for row, ref in zip(rows, (a, b), strict=True)]
        if on is not None:
            _print_reward_changes(session, on, rows[0], rows[1], names, as_json=as_json)
            return
        reviews = [_review_fields(session, row) for row in rows]
    found = changes(rows[0].value, rows[1].value)
    with output.exit_with(1 if found else output.OK):
        if as_json:
            sides = [{"rubric": name} | review for name, review in zip(names, reviews, strict=True)]
            print_json({"old": sides[0], "new": sides[1], "changes": [asdict(one) for one in found]})
        elif not found:
            echo(f"{names[0]} and {names[1]} have the same content")
        else:
            for name, review in zip(names, reviews, strict=True):
                print_data(f"{name}: {output.cell(review)}" if review else f"{name}: a file")
            for change in found:
                print_data(f"  {output.clean(str(change))}")


def _review_fields(session: Session, row: RubricRow) -> dict[str, Any]:
    """Return state, parent and author of a stored version; nothing of a file."""
    if not row.id:
        return {}
    parent = rubrics.get(session, row.parent_id).ref if row.parent_id else None
    fields = {"state": row.state, "parent": parent, "added_by": row.added_by}
    return {name: value for name, value in fields.items() if value is not None}


def _side(ref: str, other: str) -> RubricRow:
    """Return a stored rubric; or that in a file, named and of the prompt like the ``other`` one, as an unsaved row."""
    beside = find_stored(other, allow_drafts=False)
    stored = beside[1] if beside is not None else None
    found = target_of(ref, of_several=stored.name if stored else None, allow_drafts=False)
    if found.row is not None:
        return found.row
    content = found.rubric.model_dump(mode="json")
    return RubricRow(name=stored.name if stored else ref, prompt_id=stored and stored.prompt_id, content=content)


def _print_reward_changes(
    session: Session, job_id: int, old: RubricRow, new: RubricRow, names: Sequence[str], *, as_json: bool
) -> None:
    from workers.scoring.reward_changes import reward_changes

    changes = reward_changes(session, job_id, old, new)
    data: dict[str, Any] = {"old": names[0], "new": names[1], "job_id": job_id} | asdict(changes)
    if as_json:
        print_json(data)
        return
    rows = sorted(data.pop("by_completion"), key=lambda row: -abs(row["change"] or 0.0))
    people = data.pop("people")
    show_list(row | {"completion_external_id": row["completion_external_id"] or ""} for row in rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        echo(f"… and {len(rows) - MOST_ROWS} more; --json prints all")
    show(data)
    if people:
        print_data("\nAgreement with people's overall scores:")
        sides = [(one, (one.old, one.new, one.difference)) for one in changes.people]
        cells = [
            [one.name, one.n, *(cell for side in each for cell in output.estimate_cells(side))] for one, each in sides
        ]
        output.print_table(("metric", "n", "old", "95%", "new", "95%", "new - old", "95%"), cells)
    if changes.new_missing_verdicts:
        command = (
            f"rubricsvc jobs rescore {job_id} --rubric {names[1]}" if new.id else f"rubricsvc rubrics import {names[1]}"
        )
        echo(f"hint: `{command}`{'' if new.id else ', then `jobs rescore`,'} asks for the missing verdicts")


@app.command()
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


@app.command("presets")
def presets_(as_json: Json = False) -> None:
    """List the presets of `rubrics init --preset`."""
    show_list(map(presets.summary, presets.NAMES), as_json)


_REVIEW = {
    "submit": "Submit a draft for review.",
    "approve": "Approve a version in review or retired: jobs may use it, and its name refers to the newest one.",
    "reject": "Reject a version that is in review: it is a draft again. It needs a --comment.",
    "retire": "Retire an approved version: its name refers to the newest approved version that is left.",
}


def _reviewing(action: ReviewAction) -> Callable[..., None]:
    """Return the command of one step of a review."""

    def run(
        ref: Annotated[str, typer.Argument(help="Id, name@version or digest; or a name, if one version is meant.")],
        comment: Annotated[str | None, typer.Option("--comment", "-m", help="Comment.")] = None,
        by: By = None,
        as_json: Json = False,
    ) -> None:
        _review(ref, action, comment, by, as_json)

    run.__doc__ = _REVIEW[action]
    return run


@app.command()
def comment(
    ref: Ref, text: Annotated[str, typer.Argument(help="Comment.")], by: By = None, as_json: Json = False
) -> None:
    """Comment on a version."""
    _review(ref, "comment", text, by, as_json)


def _review(ref: str, action: ReviewAction, comment: str | None, by: str | None, as_json: bool) -> None:
    with database() as db:
        row = local(db, edit_of(by).by).rubrics.review(ref, action=action, comment=comment)
    show({"id": row.id, "rubric": f"{row.name}@{row.version}", "state": row.state}, as_json)


@app.command()
def history(
    ref: Annotated[str, typer.Argument(help="Id, name (all versions), name@version or digest.")], as_json: Json = False
) -> None:
    """Show who added a version, its tests, and the steps of its review; of a name those of all versions."""
    with service() as s:
        events: tuple[RubricEvent, ...] = s.rubrics.history(ref, limit=MAX_LIMIT).data
        versions: tuple[StoredRubric, ...] = s.rubrics.page(name=ref, limit=MAX_LIMIT).data
        versions = versions or (s.rubrics.get(ref),)
        tests: list[StoredRubricTest] = [
            test for one in versions for test in s.rubrics.tests(one.id, limit=MAX_LIMIT).data
        ]
    rows: list[dict[str, Any]] = []
    for one in versions:
        own = [event for event in events if event.rubric_id == one.id]
        state = own[0].from_state if own else one.state
        added = {"from_state": None, "to_state": state, "by": one.added_by, "comment": None}
        rows.append({"created_at": one.created_at, "rubric": f"{one.name}@{one.version}", **added})
        names = ("created_at", "rubric", "from_state", "to_state", "by", "comment")
        rows += [output.fields_of(event, *names) for event in own]
    tested = [output.fields_of(test, "created_at", "rubric", "by") | {"test": test.outcome} for test in tests]
    rows = sorted([*rows, *tested], key=lambda row: row["created_at"])
    if as_json:
        show_list(({**row, "created_at": row["created_at"].isoformat()} for row in rows), True)
        return
    for row in rows:
        before, after = row.get("from_state"), row.get("to_state")
        step = f"added as {after}" if before is None else "comment" if before == after else f"{before} → {after}"
        row["step"] = f"test {row['test']}" if "test" in row else step.replace("_", " ")
    show_list({key: row.get(key) or "" for key in ("created_at", "rubric", "by", "step", "comment")} for row in rows)


JudgeOfScores = Annotated[
    str | None, typer.Option(help="Judge.", show_default="the job's, or the one with the most completions")
]


@app.command()
def analyse(
    ref: Annotated[str | None, typer.Argument(help="Rubric version; without one, all rubrics of --job.")] = None,
    *,
    job: Annotated[int | None, typer.Option(help="Only what this job scored.")] = None,
    judge: JudgeOfScores = None,
    as_json: Json = False,
) -> None:
    """Analyse the criteria of a rubric from stored verdicts and labels, and advise what to change.

    No judge is asked, and nothing is stored. It needs the extra `judging`.
    """
    from rubricsvc.services.analysing import analyse as analyse_rubrics

    with database() as db, db.read() as session, progress_bar("analysing") as bar:
        found = analyse_rubrics(session, ref, job_id=job, judge=judge, on_progress=bar.update)
    for one in found:
        if as_json:
            show(one, as_json)
        else:
            _print_analysis(one)


def _print_analysis(one: RubricAnalysis) -> None:
    names = ("rubric", "judge", "completions", "prompts", "groups")
    show(output.fields_of(one, *names) | {"mean reward": " ".join(filter(None, estimate_cells(one.reward.mean)))})
    columns = ("criterion", "weight", "n", "failed", "mean", "met", "95%", "var_within", "groups_vary", "share")
    rows = []
    for each in one.criteria:
        kappa, edge = each.agreement.get("weighted_kappa"), each.edge
        shares = (each.variance_within, each.varying_groups, each.variance_share, each.length_correlation)
        met = estimate_cells(each.met)
        mean = output.number(each.mean.value, missing="")
        rows.append(
            [
                *(each.key, each.weight, each.n, each.failed + each.abstained, mean, *met),
                *(output.number(value, missing="") for value in shares),
                *("" if value is None else output.number(value.value, missing="") for value in (kappa, edge)),
            ]
        )
    print_table((*columns, "length_r", "kappa", "edge"), rows)
    if one.redundant:
        pairs = [(pair.a, pair.b, pair.correlation, pair.n) for pair in one.redundant]
        print_table(("redundant", "with", "correlation", "completions"), pairs)
    if one.advice:
        print_table(
            ("criterion", "advice", "evidence"), [(each.criterion, each.action, each.evidence) for each in one.advice]
        )
    else:
        echo("no advice: too few verdicts, or no criterion exceeds a limit of docs/analysing.md")


@app.command()
def fit(
    ref: Annotated[str, typer.Argument(help="Rubric version to fit.", show_default=False)],
    *,
    to: Annotated[FitTo, typer.Option(help="Overall scores, or the pairs of one person that they order.")],
    job: Annotated[int | None, typer.Option(help="Only what this job scored.")] = None,
    judge: JudgeOfScores = None,
    signs: Annotated[Signs, typer.Option(help="Whether weights keep their signs.")] = "keep",
    save: Annotated[bool, typer.Option("--save", help="Store the weights as a draft version.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Store them even if the rubric was edited since.")] = False,
    by: By = None,
    resamples: Annotated[int, typer.Option(min=0, help="Bootstrap draws of intervals; 0: none.")] = RESAMPLES,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit a rubric's weights to people's overall scores (label `overall`) or to their preferences.

    It prints each weight with its interval, and how well new and old weights predict people on prompts that were held
    out. No judge is asked. It needs the extra `judging`.
    """
    from rubricsvc.services import analysing

    options: dict[str, Any] = {"to": to, "job_id": job, "judge": judge, "signs": signs, "seed": seed}
    with database() as db:
        with db.read() as session, progress_bar("fitting") as bar:
            found = analysing.fit(session, ref, **options, resamples=resamples, on_progress=bar.update)
        if save:
            with db.write() as session:
                added = analysing.save(session, found, by=edit_of(by).by, force=force)
            if added.conflict is not None:
                raise added.conflict
            found = found.model_copy(update={"saved": added.row.ref})
    if as_json:
        show(found, as_json)
        return
    show(output.fields_of(found, "rubric", "judge", "to", "n", "prompts", "left_out", "penalty", "saved"))
    weights = [(one.key, one.old, one.new, one.low, one.high, "fixed" if one.kept else "") for one in found.weights]
    print_table(("criterion", "old", "new", "low", "high", "note"), weights)
    metrics = list(found.gain)
    rows = [[one.weights, *(_estimate(one.metrics[name]) for name in metrics)] for one in found.held_out]
    rows.append(["fitted - current", *(_estimate(found.gain[name]) for name in metrics)])
    print_table(("on held-out prompts", *metrics), rows)
    if not found.saved:
        echo("not stored; --save stores the new weights as a draft version")


def _estimate(one: Any) -> str:
    return " ".join(filter(None, estimate_cells(one)))


_FILE = "File with prompts; - is stdin."
_REFERENCES = "Policy whose completions are references too."
_SPECIFICATION = "Principles: file with the specification."
MAX_TOKENS, LOCAL_TOKENS = 4096, 512
"""Maximum tokens of a rubric, of any model and of one that transformers runs in this process, which is slow."""
_TOKENS = "Maximum tokens of a rubric."
_DEFAULT = f"{MAX_TOKENS}; {LOCAL_TOKENS} of transformers_local"


def generate(
    file: Annotated[str | None, typer.Argument(help=_FILE, show_default="all stored")] = None,
    *,
    judge: Annotated[str, typer.Option(help="Judge whose model writes: name or id.")],
    method: Annotated[Method, typer.Option(help="Way of writing a rubric.")] = "one-shot",
    prompts: Annotated[list[str] | None, typer.Option(help="Stored prompt: id, or id in its file; repeatable.")] = None,
    format: Format = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of prompts.")] = None,
    references: Annotated[str | None, typer.Option(help=_REFERENCES)] = None,
    better: Annotated[str | None, typer.Option(help="Contrastive: policy of the better completions.")] = None,
    worse: Annotated[str | None, typer.Option(help="Contrastive: policy of the worse completions.")] = None,
    specification: Annotated[Path | None, typer.Option(help=_SPECIFICATION)] = None,
    collection: Annotated[str | None, typer.Option(help="Grounded: collection of documents to read first.")] = None,
    temperature: Annotated[float, typer.Option(min=0, max=100, help="Sampling temperature.")] = 0.7,
    top_p: Annotated[float, typer.Option(min=1e-6, max=1, help="Nucleus sampling (top-p).")] = 1.0,
    max_tokens: Annotated[int | None, typer.Option(min=1, max=1_000_000, help=_TOKENS, show_default=_DEFAULT)] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed; a redraw has the next one.")] = 0,
    repairs: Annotated[int, typer.Option(min=0, max=2, help="Times that a reply is sent back with its error.")] = 2,
    redraws: Annotated[int, typer.Option(min=0, max=MAX_REDRAWS, help="Further samples if a reply is no rubric.")] = 3,
    gate: Annotated[bool, typer.Option("--gate/--no-gate", help="Try each rubric on bad completions.")] = True,
    gate_judge: Annotated[
        str | None, typer.Option(help="Judge that tries the rubrics: name or id.", show_default="the one that writes")
    ] = None,
    empty_max: Annotated[float, typer.Option(min=0, max=1, help="Maximum reward of an empty completion.")] = 0.1,
    key: Annotated[str | None, typer.Option(help="Idempotency key; the same key gives the same job.")] = None,
    name: Annotated[str, typer.Option(help="Name of the job.")] = "",
    budget: Budget = None,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Generate a rubric for each prompt, as a job: of a file, or stored ones.

    Each rubric is tried at once on an empty completion, on another prompt's, and on others that are known to be bad;
    what speaks against it is stored. It is a draft until it is approved. The same prompts, judge and options give the
    same job.
    """
    options: dict[str, Any] = {"method": method, "repairs": repairs, "redraws": redraws, "references": references}
    options |= {"gate": gate, "gate_judge": gate_judge, "empty_max": empty_max, "better": better, "worse": worse}
    options["research"] = {"collection": collection} if collection is not None else None
    options["specification"] = specification_of(specification) if specification else None
    with database() as db:
        source = input_file(file) if file is not None else None
        with db.write() as session:
            most = max_tokens or _max_tokens(session, judge)
            options["sampling"] = Sampling(temperature=temperature, top_p=top_p, max_tokens=most, seed=seed)
            generation = Generation.model_validate(options)
            ids = _prompt_ids(session, source, format, prompts)[:limit]
            job_id = submit_generation(session, judge, ids, generation, key=key, name=name, budget=budget).id
            is_new = PUBLISHED in session.info
        s = local(db)
        end(s, s.jobs.get(job_id).model_copy(update={"is_new": is_new}), wait, as_json)


def _max_tokens(session: Session, judge_ref: str) -> int:
    return LOCAL_TOKENS if judges.get(session, judge_ref).value.engine == "transformers_local" else MAX_TOKENS


def _prompt_ids(session: Session, file: InputFile | None, format: str | None, refs: list[str] | None) -> list[int]:
    """Return the prompts of the file, or the stored ones of these ids, or all stored ones."""
    if file is not None and refs:
        raise InvalidError("prompts of a file and stored ones are given", hint="name a FILE or --prompts")
    if file is not None:
        return import_prompts(session, file, format)
    if refs:
        return [stored_prompts.get(session, ref).id for ref in refs]
    return [row.id for row in every(stored_prompts.page, session)]


_WRITABLE = ", ".join(writing.WRITERS)


def export(
    refs: Annotated[list[str] | None, typer.Argument(help="Rubrics.", show_default="all")] = None,
    *,
    format: Annotated[str, typer.Option(help=f"{_WRITABLE}.")] = "native",
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Write YAML instead of JSON lines.")] = False,
    out: Out = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written and lost as JSON.")] = False,
) -> None:
    """Write rubrics with their prompts, the newest approved versions by default, and list what the format loses.

    The ending of --out decides between .jsonl, .json, .yaml, .csv and .parquet, as far as the format has them.
    """
    container = _container(format, out, as_yaml=as_yaml)
    if as_json and out is None:
        raise InvalidError("--json needs --out: stdout has the rubrics", hint="name a file with --out", path="out")
    losses = writing.Losses()
    with database() as db, db.read() as session:
        _write_rows(writing.rows(stored_records(session, refs), format, losses), container, out)
        has_drafts = any(rubrics.page(session, limit=1, state=state) for state in rubrics.NOT_APPROVED)
    if as_json:
        lost = dict(sorted(losses.fields.items()))
        print_json({"format": format, "out": str(out), "rubrics": losses.records, "lost": lost})
    if has_drafts and not refs:
        echo("left out: drafts; name them to export them: `rubricsvc rubrics show --state draft`")
    for field, count in sorted(losses.fields.items()):
        echo(f"lost or changed in {format}: {field} of {counted(count, 'rubric')}")


def _container(format: str, out: Path | None, *, as_yaml: bool) -> str:
    if as_yaml and format != "native":
        raise InvalidError(f"--yaml is for the native format, not for {format}", hint="leave out --yaml or --format")
    container = "yaml" if as_yaml else writing.container_of(format, out)
    if container == "parquet" and out is None:
        raise InvalidError("Parquet is written to a file", hint="name it with --out", path="out")
    return container


def _write_rows(rows: Iterable[Row], container: str, out: Path | None) -> None:
    if out is not None and container == "parquet":
        with output.replaced(out) as part:
            writing.write_parquet(rows, part)
        return
    with output.open_output(out) as stream:
        writing.write_text(rows, stream, container)


_COMMANDS: dict[str, Callable[..., None]] = {
    "import": import_,
    "diff": diff,
    "generate": generate,
    "export": export,
    "lint": lint_,
    "test": test,
    "propose": propose,
    **{action: _reviewing(action) for action in get_args(ReviewAction) if action != "comment"},
}

for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)
