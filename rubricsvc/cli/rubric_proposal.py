"""`rubricsvc rubrics propose`: candidates of a rubric for one prompt, tried, and one of them written to a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.models import ApiKeyEnv, ask, without_outage
from rubricsvc.cli.output import MAX_SEED, Json, echo, print_data, print_json, print_table, progress_bar
from rubricsvc.cli.rubric_generation import specification_of
from rubricsvc.cli.score import Model, file_or_text, judge_of, text_of
from rubricsvc.core.authoring import AuthoringTask, Contrast
from rubricsvc.core.generation import Generation
from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.formats import Record
from rubricsvc.formats.native import dump

if TYPE_CHECKING:
    from workers.authoring.author import Draft
    from workers.authoring.proposals import Proposal

_METHODS = ("one-shot", "reference-guided", "contrastive", "principles")
_METHOD = f"{', '.join(_METHODS)}; see docs/generating.md."
_CHOOSE = "Candidate to write to --out."
_GOOD = "File with a good completion: a reference for the method, and a text to try the rubrics on."
_BAD = "File with a bad completion to try the rubrics on."


def propose(
    prompt: Annotated[str, typer.Argument(help="Prompt: a text, or a file with one (- is stdin).", show_default=False)],
    *,
    judge: Annotated[str, typer.Option(help="Judge whose model writes: embedded, a server's URL, or a name.")],
    n: Annotated[int, typer.Option("--candidates", "-n", min=1, max=20, help="Candidates.")] = 3,
    method: Annotated[str, typer.Option(help=_METHOD, show_default="by what is given")] = "",
    good: Annotated[str | None, typer.Option(help=_GOOD, show_default=False)] = None,
    bad: Annotated[str | None, typer.Option(help=_BAD, show_default="a completion of another prompt")] = None,
    specification: Annotated[Path | None, typer.Option(help="Principles: file with the specification.")] = None,
    gate_judge: Annotated[
        str | None, typer.Option(help="Judge that tries the rubrics.", show_default="the one that writes")
    ] = None,
    temperature: Annotated[float, typer.Option(min=0, max=100, help="Sampling temperature.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, max=1_000_000, help="Maximum tokens of a rubric.")] = 4096,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed; each candidate has others.")] = 0,
    choose: Annotated[int | None, typer.Option(min=1, help=_CHOOSE, show_default="asks in a terminal")] = None,
    out: Annotated[Path, typer.Option(help="YAML file to write.")] = Path("rubric.yaml"),
    force: output.Force = False,
    model: Model = None,
    api_key_env: ApiKeyEnv = None,
    as_json: Json = False,
) -> None:
    """Propose rubrics for one prompt: lint each, and show what it gives to a good, a bad and an empty completion.

    Nothing is stored; the chosen one is written as YAML, to be read and edited. Exits with 1 if there is no rubric.
    """
    from workers.authoring.gate import judge_of_gate

    task = _task(prompt, good, bad, specification)
    sampling = Sampling(temperature=temperature, max_tokens=max_tokens, seed=seed)
    chosen_method = method or _method_of(task)
    if chosen_method not in _METHODS:
        hint = f"choose one of {', '.join(_METHODS)}; others need stored data: `rubrics generate`"
        raise InvalidError(f"unknown method {chosen_method!r}", hint=hint, path="method")
    generation = Generation.model_validate({"method": chosen_method, "sampling": sampling})
    author = judge_of(judge, model, "readout", api_key_env).map_leaves(without_outage)
    given = judge_of(gate_judge, None, "readout", api_key_env) if gate_judge is not None else author
    tried_by = judge_of_gate(given).map_leaves(without_outage)
    if choose is not None and out.exists() and not force:
        raise ConflictError(f"{out} exists", hint="name another file with --out, or overwrite it with --force")
    proposals = _proposals(author, tried_by, generation, task, n)
    usable = [number for number, one in enumerate(proposals, start=1) if one.draft is not None]
    with output.exit_with(output.OK if usable else output.WITH_FAILURES):
        _print(proposals, as_json)
        if usable:
            number = _chosen(usable, as_json) if choose is None else choose
            if number is not None:
                _write(_draft(proposals, number), task.prompt, author, out, force)


def _task(prompt: str, good: str | None, bad: str | None, specification: Path | None) -> AuthoringTask:
    from workers.authoring.proposals import OFF_TOPIC

    text = file_or_text(prompt)
    if not text.strip():
        raise InvalidError("the prompt is empty", hint="name a text or a file", path="prompt")
    good_text, bad_text = (text_of(file) if file is not None else None for file in (good, bad))
    contrast = None
    if good_text is not None and bad_text is not None:
        contrast = Contrast(better=(Completion(text=good_text),), worse=(Completion(text=bad_text),))
    return AuthoringTask(
        prompt=Prompt.of(text),
        references=(good_text,) if good_text is not None else (),
        other=OFF_TOPIC if bad_text is None else bad_text,
        contrast=contrast,
        specification=specification_of(specification) if specification is not None else None,
    )


def _method_of(task: AuthoringTask) -> str:
    if task.specification is not None:
        return "principles"
    return "contrastive" if task.contrast else "reference-guided" if task.references else "one-shot"


def _proposals(author: Judge, tried_by: Judge, generation: Generation, task: AuthoringTask, n: int) -> list[Proposal]:
    from workers.authoring.proposals import try_proposals, write_proposals

    with progress_bar("candidates") as bar:
        on_written = bar.counter(n, "written")
        proposals = ask(
            author, lambda engine: write_proposals(engine, author, generation, task, n=n, on_done=on_written)
        )
        drafts = sum(one.draft is not None for one in proposals)
        if not drafts:
            return proposals
        on_tried = bar.counter(drafts, "tried")
        return ask(
            tried_by,
            lambda engine: try_proposals(engine, tried_by, generation, task, proposals, on_done=on_tried),
        )


def _rewards(one: Proposal) -> dict[str, float | None]:
    """Return what a candidate gives to a good, a bad and an empty completion; None where it was not measured."""
    found = one.tried.probes if one.tried is not None else {}
    values = {name: probe.reward for name, probe in found.items()}
    good = values.get("reference", values.get("better"))
    return {"good": good, "bad": values.get("off_topic", values.get("worse")), "empty": values.get("empty")}


def _print(proposals: Sequence[Proposal], as_json: bool) -> None:
    if as_json:
        for number, one in enumerate(proposals, start=1):
            print_json(_plain(number, one))
        return
    for number, one in enumerate(proposals, start=1):
        print_data(f"candidate {number}" + (f": {output.clean(one.reason)}" if one.reason else ""))
        for line in _lines(one):
            print_data(line)
        print_data("")
    columns = ("candidate", "criteria", "checks", "pitfalls", "findings", "good", "bad", "empty", "refused by")
    print_table(columns, [_row(number, one) for number, one in enumerate(proposals, start=1) if one.draft])


def _lines(one: Proposal) -> Iterator[str]:
    for criterion in one.draft.rubric.criteria if one.draft else ():
        check = f" (check {criterion.check.name})" if criterion.check else ""
        levels = "" if criterion.scale.kind == "binary" else f" ({criterion.scale.kind})"
        yield output.clean(f"  {criterion.key:<4} {criterion.weight:>5g}  {criterion.text}{check}{levels}")
    for finding in one.findings:
        where = f" {finding.criterion}" if finding.criterion else ""
        yield output.clean(f"  {finding.severity}: {finding.rule}{where}: {' '.join(finding.message.split())}")


def _row(number: int, one: Proposal) -> list[Any]:
    criteria = one.draft.rubric.criteria if one.draft else ()
    counts = [len(criteria), sum(c.check is not None for c in criteria), sum(c.weight < 0 for c in criteria)]
    refused = ", ".join(one.tried.refused_by) or "nothing" if one.tried else "not measured"
    return [number, *counts, len(one.findings), *_rewards(one).values(), refused]


def _plain(number: int, one: Proposal) -> dict[str, Any]:
    data: dict[str, Any] = {"candidate": number, "reason": one.reason} | _rewards(one)
    data["findings"] = [finding.model_dump() for finding in one.findings]
    data["refused_by"] = list(one.tried.refused_by) if one.tried else None
    data["probes"] = {name: probe.reward for name, probe in one.tried.probes.items()} if one.tried else None
    data["rubric"] = one.draft.rubric.model_dump(mode="json") if one.draft else None
    return data


def _chosen(usable: Sequence[int], as_json: bool) -> int | None:
    """Ask which candidate to write, if this is a terminal."""
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        echo(
            f"write one to a file with --choose {usable[0]} --out FILE; the same --seed proposes the same where it can"
        )
        return None
    while True:
        answer = typer.prompt("Write which candidate? (none: empty)", default="", show_default=False, err=True).strip()
        if not answer:
            return None
        if answer.isdecimal() and int(answer) in usable:
            return int(answer)
        echo(f"expected one of {', '.join(map(str, usable))}")


def _draft(proposals: Sequence[Proposal], number: int) -> Draft:
    draft = proposals[number - 1].draft if number <= len(proposals) else None
    if draft is None:
        raise InvalidError(f"candidate {number} is no rubric", hint="choose another one", path="choose")
    return draft


def _write(draft: Draft, prompt: Prompt, author: Judge, out: Path, force: bool) -> None:
    if out.exists() and not force:
        raise ConflictError(f"{out} exists", hint="name another file with --out, or overwrite it with --force")
    name = f"rubric-{sha256(prompt.text.encode()).hexdigest()[:8]}"
    with output.open_output(out) as file:
        file.write(
            f"# Proposed by {' '.join(author.model.split())}, template {draft.template.name}. Read and edit it.\n"
        )
        dump([Record(prompt, draft.rubric, name=name)], file, yaml=True)
    echo(f"next: edit it, then `rubricsvc rubrics lint {out}` and `rubricsvc rubrics import {out} --draft`")
