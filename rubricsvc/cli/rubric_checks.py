"""`rubricsvc rubrics lint`, `test`, `try` and `propose`: a rubric before it is published."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rubricsvc.cli import output
from rubricsvc.cli.importing import By, Format, edit_of, input_file, print_notes
from rubricsvc.cli.models import ApiKeyEnv, ask, without_outage
from rubricsvc.cli.output import (
    MAX_SEED,
    Json,
    counted,
    echo,
    print_data,
    print_json,
    print_table,
    progress_bar,
    shorten,
    show_list,
)
from rubricsvc.cli.rubric_targets import OfSeveral, RubricTarget, Target, find_stored, targets_of
from rubricsvc.cli.score import (
    JudgeOption,
    Model,
    file_or_text,
    judge_of,
    no_judge,
    text_of,
)
from rubricsvc.cli.service import database
from rubricsvc.core.base import storable
from rubricsvc.core.generation import AuthoringTask, Contrast, Generation, Specification
from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.states import APPROVED, DRAFT, IN_REVIEW
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.formats import InvalidFileError, Record, stream
from rubricsvc.formats.writing import plain, write_text
from rubricsvc.lint import SEVERITIES, Severity, lint, rules_of
from rubricsvc.schemas.methods import request
from rubricsvc.store import rubrics
from workers import checks

if TYPE_CHECKING:
    from rubricsvc.core.audit import Rate
    from rubricsvc.core.rubric_analysis import CriterionFaults, ExampleTest, FaultReport, RubricTest, TestOutcome
    from workers.authoring.proposals import Proposal

Names = list[str] | None
MOST_ROWS = 20


def lint_(
    target: Annotated[
        str | None, typer.Argument(metavar="FILE|NAME", help="File (- is stdin), or a stored rubric.")
    ] = None,
    *,
    format: Format = None,
    rule: Annotated[Names, typer.Option(help="Apply this rule only; repeatable.", show_default="all")] = None,
    ignore: Annotated[Names, typer.Option(help="Leave out this rule; repeatable.")] = None,
    severity: Annotated[Severity, typer.Option(help="Least severity to print.")] = "info",
    fail_on: Annotated[
        Literal["error", "warning", "info", "never"], typer.Option(help="Least severity that exits with 1.")
    ] = "error",
    explain: Annotated[str | None, typer.Option(metavar="RULE", help="Explain a rule, or `all`, and exit.")] = None,
    as_json: Json = False,
) -> None:
    """Check a file or a stored rubric: list all errors, and what is wrong with the rubrics.

    Exits with 2 if the file has errors, and with 1 if there are findings of the severity --fail-on or above. With
    --json an error is an object with file, line, column, path, code and message, and a finding one with rule,
    severity, rubric, criterion, message and fix. No model is asked.
    """
    if explain is not None:
        for one in rules_of(() if explain == "all" else [explain]):
            output.show(output.fields_of(one, "name", "severity", "summary", "why", "fix", "bad", "good"), as_json)
        return
    if target is None:
        raise InvalidError("no file and no rubric is named", hint="rubricsvc rubrics lint FILE, or - for stdin")
    rules = rules_of(rule or (), ignore or (), severity)
    bad, records = False, list[Record]()
    if (stored := find_stored(target)) is not None:
        records = [stored[0]]
    else:
        bad, records = _read_records(target, format, as_json)
    count, failed = 0, False
    for record in records:
        if record.rubric is None:
            continue
        found = lint(record.rubric, record.prompt, rules=rules, empty_value=checks.value_of_empty)
        count += len(found)
        if fail_on != "never":
            failed |= any(SEVERITIES.index(one.severity) <= SEVERITIES.index(fail_on) for one in found)
        if as_json:
            show_list(({"rubric": record.name, **one.model_dump()} for one in found), True)
        elif found:
            print_data(f"\n{output.clean(record.name)}")
            for finding in found:
                where = f"  {finding.criterion}" if finding.criterion is not None else ""
                message = " ".join(finding.message.split())
                print_data(output.clean(f"  {finding.severity:<7}  {finding.rule}{where}: {message}"))
                print_data(output.clean(f"           fix: {finding.fix}"))
    if not as_json:
        more = "; `rubricsvc rubrics lint --explain RULE` says why a rule matters" if count else ""
        echo(f"{counted(count, 'finding')}{more}" if count else "no findings")
    raise typer.Exit(output.BAD_INPUT if bad else output.WITH_FAILURES if failed else output.OK)


def _read_records(target: str, format: str | None, as_json: bool) -> tuple[bool, list[Record]]:
    """Print the errors of a file; return whether it has any, and its valid records."""
    source, records, hint = input_file(target), list[Record](), ""
    try:
        records = list(stream(source, format, skip_invalid=True, check=checks.validate))
    except InvalidFileError as error:  # no record is valid, or the file cannot be read to its end
        if not source.errors.count:
            source.errors.add(*error.errors)
        hint = error.hint
    errors, rows = source.errors, [_summary(record) for record in records]
    if as_json:
        show_list([*map(asdict, errors.errors), *(asdict(one) | {"note": True} for one in errors.notes), *rows], True)
    else:
        print_notes(errors)
        for one in errors.errors:
            echo(f"error: {one}")
        if errors.count > len(errors.errors):
            echo(f"… and {errors.count - len(errors.errors)} more errors")
        if rows:
            show_list(rows[:MOST_ROWS])
        invalid = f"{errors.invalid} invalid: {counted(errors.count, 'error')}" if errors.count else "no errors"
        echo(f"{counted(len(records), 'valid record')}, {invalid}")
        if hint:
            echo(f"hint: {hint}")
    return bool(errors.count), records


def _summary(record: Record) -> dict[str, Any]:
    criteria = record.rubric.criteria if record.rubric else ()
    return {
        "name": record.name,
        "criteria": len(criteria),
        "pitfalls": sum(criterion.weight < 0 for criterion in criteria),
        "checked": sum(criterion.kind == "checked" for criterion in criteria),
        "formula": record.rubric.formula if record.rubric else None,
        "completions": len(record.completions),
    }


MOST_MISSED = 10
_RATES = ("caught", "95%", "false alarms", "95%", "noticed", "95%")
_EXIT = {"failed": output.WITH_FAILURES, "unmeasured": output.UNAVAILABLE, "passed": output.OK}
"""The exit codes, that of the gravest outcome first."""
_MARK = {True: "pass", False: "FAIL", None: "not measured"}

_FAULTS = "Plant faults by rule into good examples, and count those that are caught."
_MIN_CATCH = "Least catch rate of each criterion that passes."


def test(
    target: Target,
    *,
    judge: JudgeOption = None,
    faults: Annotated[bool, typer.Option("--faults", help=_FAULTS)] = False,
    min_catch: Annotated[float | None, typer.Option(min=0, max=1, help=_MIN_CATCH, show_default=False)] = None,
    name: OfSeveral = None,
    model: Model = None,
    mode: Annotated[str, typer.Option(help="readout or written.")] = "readout",
    api_key_env: ApiKeyEnv = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Test a rubric by its examples: whether a judge gives them the verdicts and rewards that they must get.

    Tests each rubric of a file that has examples. Of a stored rubric the result is stored: a version with examples is
    approved only after it passed. Exits with 1 if anything fails, and with 3 if nothing fails and something could not
    be measured.
    """
    targets = [one for one in targets_of(target, name) if one.rubric.examples]
    if not targets:
        raise InvalidError(f"{target} has no examples", hint="add some: docs/testing-rubrics.md", path="examples")
    given = judge_of(judge, model, mode, api_key_env) if judge is not None else None
    judges = [given or no_judge(found.rubric) for found in targets]
    from workers.authoring.planted_faults import run_tests

    outcomes: set[TestOutcome] = set()
    with output.ignore_broken_pipe():
        for found, one in zip(targets, judges, strict=True):
            asked = one.map_leaves(without_outage)
            subject: dict[str, Any] = {"judge": asked, "rubric": found.rubric, "prompt": found.prompt}
            result = ask(asked, partial(run_tests, **subject, progress=_progress, faults=faults, min_catch=min_catch))
            outcomes.add(result.outcome)
            _report(found, result, _store(found, result, by), as_json)
    raise typer.Exit(next(code for outcome, code in _EXIT.items() if outcome in outcomes))


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    with progress_bar(what) as bar:
        yield bar.counter(total)


def _store(found: RubricTarget, result: RubricTest, by: str | None) -> int | None:
    """Store the result of a stored version with examples, and return its id."""
    if found.row is None or not found.rubric.examples:
        return None
    with database() as db, db.write() as session:
        return rubrics.add_test(session, found.row.id, result, by=edit_of(by).by or "").id


def _report(found: RubricTarget, result: RubricTest, stored: int | None, as_json: bool) -> None:
    if as_json:
        head = {"rubric": found.name, "outcome": result.outcome, "stored": stored}
        print_json(head | result.model_dump(mode="json"))
    else:
        _print(result)
        _print_next(found, result)


def _print(result: RubricTest) -> None:
    rows = [row for one in result.examples for row in _example_rows(one)]
    print_table(("example", "criterion", "expected", "found", "result", "reason"), rows)
    if (report := result.faults) is not None:
        print_data("")
        columns = ("criterion", "faults", *_RATES, "not measured", "note")
        print_table(columns, [*map(_fault_row, report.criteria), _total_row(report)])
        missed = [one for one in report.faults if one.caught is False]
        for one in missed[:MOST_MISSED]:
            print_data(f"missed: {one.criterion} in {one.example} ({one.kind}): {output.clean(shorten(one.text, 160))}")
        if len(missed) > MOST_MISSED:
            echo(f"… and {len(missed) - MOST_MISSED} more missed faults; --json prints all")


def _example_rows(one: ExampleTest) -> Iterator[list[Any]]:
    for verdict in one.verdicts:
        reason = shorten(verdict.reason or "", 120)
        yield [one.example, verdict.criterion, verdict.expected, verdict.found, _MARK[verdict.passed], reason]
    if one.expected_reward is not None:
        reason = shorten(one.null_reason or "", 120)
        yield [one.example, "(reward)", one.expected_reward, one.reward, _MARK[one.reward_passed], reason]


def _fault_row(one: CriterionFaults) -> list[Any]:
    rates = [cell for found in (one.caught, one.false_alarms, one.noticed) for cell in _cells(found)]
    return [one.criterion, one.caught.n + one.unmeasured, *rates, one.unmeasured or "", one.skipped or ""]


def _total_row(report: FaultReport) -> list[Any]:
    rates = [cell for found in (report.caught, report.false_alarms, report.noticed) for cell in _cells(found)]
    return ["all", len(report.faults), *rates, sum(one.unmeasured for one in report.criteria) or "", ""]


def _cells(rate: Rate) -> tuple[str, str]:
    return (f"{rate.hits} of {rate.n}" if rate.n else "", f"[{rate.low:.2f}, {rate.high:.2f}]" if rate.n else "")


def _print_next(found: RubricTarget, result: RubricTest) -> None:
    echo(f"{found.name}: {result.outcome}")
    if found.row is None:
        return
    if result.outcome == "failed" and found.row.state == APPROVED:
        echo(f"{found.name} is approved; retire it with `rubricsvc rubrics retire {found.name}`")
    elif result.outcome == "passed" and found.row.state in (DRAFT, IN_REVIEW):
        step = "approve" if found.row.state == IN_REVIEW else "submit"
        echo(f"next: `rubricsvc rubrics {step} {found.name}`")


def specification_of(path: Path) -> Specification:
    """Return the specification in a file, by the file's name."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    return request(Specification, name=path.name, text=storable(text))


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
    choose: Annotated[int | None, typer.Option(min=1, help=_CHOOSE, show_default="none")] = None,
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

    task = _proposal_task(prompt, good, bad, specification)
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
        _proposal_print(proposals, as_json)
        if usable and choose is None:
            echo(f"write one to a file with --choose {usable[0]} --out FILE; the same --seed proposes the same")
        elif usable and choose is not None:
            _proposal_write(proposals, choose, task.prompt, author, out=out, force=force)


def _proposal_task(prompt: str, good: str | None, bad: str | None, specification: Path | None) -> AuthoringTask:
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


def _proposal_rewards(one: Proposal) -> dict[str, float | None]:
    """Return what a candidate gives to a good, a bad and an empty completion; None where it was not measured."""
    found = one.tried.probes if one.tried is not None else {}
    values = {name: probe.reward for name, probe in found.items()}
    good = values.get("reference", values.get("better"))
    return {"good": good, "bad": values.get("off_topic", values.get("worse")), "empty": values.get("empty")}


def _proposal_print(proposals: Sequence[Proposal], as_json: bool) -> None:
    if as_json:
        for number, one in enumerate(proposals, start=1):
            print_json(_proposal_plain(number, one))
        return
    for number, one in enumerate(proposals, start=1):
        print_data(f"candidate {number}" + (f": {output.clean(one.reason)}" if one.reason else ""))
        for line in _proposal_lines(one):
            print_data(line)
        print_data("")
    columns = ("candidate", "criteria", "checks", "pitfalls", "findings", "good", "bad", "empty", "refused by")
    print_table(columns, [_proposal_row(number, one) for number, one in enumerate(proposals, start=1) if one.draft])


def _proposal_lines(one: Proposal) -> Iterator[str]:
    for criterion in one.draft.rubric.criteria if one.draft else ():
        check = f" (check {criterion.check.name})" if criterion.check else ""
        levels = "" if criterion.scale.kind == "binary" else f" ({criterion.scale.kind})"
        yield output.clean(f"  {criterion.key:<4} {criterion.weight:>5g}  {criterion.text}{check}{levels}")
    for finding in one.findings:
        where = f" {finding.criterion}" if finding.criterion else ""
        yield output.clean(f"  {finding.severity}: {finding.rule}{where}: {' '.join(finding.message.split())}")


def _proposal_row(number: int, one: Proposal) -> list[Any]:
    criteria = one.draft.rubric.criteria if one.draft else ()
    counts = [len(criteria), sum(c.check is not None for c in criteria), sum(c.weight < 0 for c in criteria)]
    refused = ", ".join(one.tried.refused_by) or "nothing" if one.tried else "not measured"
    return [number, *counts, len(one.findings), *_proposal_rewards(one).values(), refused]


def _proposal_plain(number: int, one: Proposal) -> dict[str, Any]:
    data: dict[str, Any] = {"candidate": number, "reason": one.reason} | _proposal_rewards(one)
    data["findings"] = [finding.model_dump() for finding in one.findings]
    data["refused_by"] = list(one.tried.refused_by) if one.tried else None
    data["probes"] = {name: probe.reward for name, probe in one.tried.probes.items()} if one.tried else None
    data["rubric"] = one.draft.rubric.model_dump(mode="json") if one.draft else None
    return data


def _proposal_write(
    proposals: Sequence[Proposal], number: int, prompt: Prompt, author: Judge, *, out: Path, force: bool
) -> None:
    draft = proposals[number - 1].draft if number <= len(proposals) else None
    if draft is None:
        raise InvalidError(f"candidate {number} is no rubric", hint="choose another one", path="choose")
    if out.exists() and not force:
        raise ConflictError(f"{out} exists", hint="name another file with --out, or overwrite it with --force")
    name = f"rubric-{sha256(prompt.text.encode()).hexdigest()[:8]}"
    with output.open_output(out) as file:
        file.write(
            f"# Proposed by {' '.join(author.model.split())}, template {draft.template.name}. Read and edit it.\n"
        )
        write_text([plain(Record(prompt, draft.rubric, name=name))], file, "yaml")
    echo(f"next: edit it, then `rubricsvc rubrics lint {out}` and `rubricsvc rubrics import {out} --draft`")
