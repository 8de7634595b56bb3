"""`rubricsvc rubrics lint`: errors of a file, and findings in its rubrics, without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rubricsvc.cli import output
from rubricsvc.cli.db import database
from rubricsvc.cli.importing import Format, edit_of, input_file, print_notes
from rubricsvc.cli.output import Json, Out, counted, echo, print_data, show_list
from rubricsvc.cli.rubric_targets import find_stored
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import APPROVED
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.formats import InputFile, InvalidFileError, Record, stream
from rubricsvc.formats.native import dump
from rubricsvc.lint import RULES, SEVERITIES, Finding, Rule, Severity, lint, rule_named, rules_of
from rubricsvc.lint.rewriting import rewritten
from rubricsvc.services.editing import add_version
from rubricsvc.store.tables import RubricRow
from workers import checks

MOST_ROWS = 20
_YAML = (".yaml", ".yml")

Target = Annotated[
    str | None, typer.Argument(metavar="FILE|NAME", help="File (- is stdin), or a stored rubric.", show_default=False)
]
Names = list[str] | None


def lint_(
    target: Target = None,
    *,
    format: Format = None,
    rule: Annotated[Names, typer.Option(help="Apply this rule only; repeatable.", show_default="all")] = None,
    ignore: Annotated[Names, typer.Option(help="Leave out this rule; repeatable.")] = None,
    severity: Annotated[Severity, typer.Option(help="Least severity to print.")] = "info",
    fail_on: Annotated[
        Literal["error", "warning", "info", "never"], typer.Option(help="Least severity that exits with 1.")
    ] = "error",
    explain: Annotated[str | None, typer.Option(metavar="RULE", help="Explain a rule, or `all`, and exit.")] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Write the rubrics with the rewrites that are safe.")] = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Check a file or a stored rubric: list all errors, and what is wrong with the rubrics, without a model.

    Exits with 2 if the file has errors, and with 1 if there are findings of the severity --fail-on or above. --fix
    writes a new file (--out, by default FILE.fixed.yaml), or the next version of a stored rubric. With --json an error
    is an object with file, line, column, path, code and message, and a finding one with rule, severity, rubric,
    criterion, message and fix.
    """
    if explain is not None:
        _explain(explain, as_json)
        return
    if target is None:
        raise InvalidError("no file and no rubric is named", hint="rubricsvc rubrics lint FILE, or - for stdin")
    if out is not None and not fix:
        raise InvalidError("--out is for --fix", hint="add --fix, or leave out --out")
    rules = rules_of(rule or (), ignore or (), severity)
    if (stored := find_stored(target)) is not None:
        _lint_stored(*stored, rules, fail_on, fix=fix, out=out, as_json=as_json)
    else:
        _lint_file(input_file(target), format, rules, fail_on, fix=fix, out=out, as_json=as_json)


def _lint_stored(
    record: Record,
    stored: RubricRow,
    rules: Sequence[Rule],
    fail_on: str,
    *,
    fix: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    fixed, done = rewritten(stored.value) if fix else (stored.value, [])
    if done and out is not None:
        _write([replace(record, rubric=fixed)], out)
    elif done:
        edit = edit_of(parent=stored.id, draft=stored.state != APPROVED)
        with database() as db, db.write() as session:
            fields = output.fields_of(stored, "name", "prompt_id", "origin")
            addition = add_version(session, fixed, edit, **fields)
            ref = addition.row.ref
        if addition.conflict is not None:
            raise addition.conflict
        echo(f"stored {ref}")
    findings = _findings(fixed, record.prompt, rules)
    with output.exit_with(_exit_code(findings, fail_on)):
        _print_done([(record.name, done)] if fix else [])
        _print(record.name, findings, as_json)
        if not as_json:
            _print_counts(findings)


def _lint_file(
    source: InputFile,
    format: str | None,
    rules: Sequence[Rule],
    fail_on: str,
    *,
    fix: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    records, hint = list[Record](), ""
    try:
        records = list(stream(source, format, skip_invalid=True, check=checks.validate))
    except InvalidFileError as error:  # no record is valid, or the file cannot be read to its end
        if not source.errors.count:
            source.errors.add(*error.errors)
        hint = error.hint
    fixes = list[tuple[str, list[str]]]()
    if fix:
        source.errors.raise_if_any("correct the errors first; --fix writes whole files")
        records, fixes = _fixed(records)
        if any(done for _, done in fixes):
            _write(records, out or _beside(source))
    by_record = [(one.name, _findings(one.rubric, one.prompt, rules)) for one in records if one.rubric is not None]
    findings = [finding for _, some in by_record for finding in some]
    rows = [_summary(record) for record in records]
    with output.exit_with(output.BAD_INPUT if source.errors.count else _exit_code(findings, fail_on)):
        if as_json:
            notes = [asdict(one) | {"note": True} for one in source.errors.notes]
            show_list([*map(asdict, source.errors.errors), *notes, *rows], as_json)
        else:
            _print_records(source, rows, hint)
        _print_done(fixes)
        for name, some in by_record:
            _print(name, some, as_json)
        if not as_json:
            _print_counts(findings)


def _findings(rubric: Rubric, prompt: Prompt | None, rules: Sequence[Rule]) -> list[Finding]:
    return lint(rubric, prompt, rules=rules, empty_value=checks.value_of_empty)


def _exit_code(findings: Sequence[Finding], fail_on: str) -> int:
    if fail_on == "never":
        return output.OK
    least = [*SEVERITIES].index(fail_on)  # type: ignore[arg-type]
    failing = any(SEVERITIES.index(one.severity) <= least for one in findings)
    return output.WITH_FAILURES if failing else output.OK


def _fixed(records: Sequence[Record]) -> tuple[list[Record], list[tuple[str, list[str]]]]:
    written, fixes = list[Record](), list[tuple[str, list[str]]]()
    for record in records:
        if record.rubric is not None:
            fixed, done = rewritten(record.rubric)
            gone = record.rubric.by_key.keys() - fixed.by_key.keys()
            labels = tuple(one for one in record.labels if one.criterion not in gone)
            fixes.append((record.name, done))
            written.append(replace(record, rubric=fixed, labels=labels))
        else:
            written.append(record)
    return written, fixes


def _beside(source: InputFile) -> Path:
    if source.is_stream or source.is_folder:
        raise InvalidError("--fix needs a file to write", hint="add --out FILE.yaml or FILE.jsonl")
    ending = source.path.suffix if source.path.suffix in _YAML else ".jsonl"
    path = source.path.with_name(f"{source.path.stem}.fixed{ending}")
    if path.exists():
        raise ConflictError(f"{path} exists", hint="remove it, or name another file with --out")
    return path


def _write(records: Sequence[Record], out: Path) -> None:
    with output.open_output(out) as file:
        dump(records, file, yaml=out.suffix in _YAML)


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


def _print_records(source: InputFile, rows: Sequence[dict[str, Any]], hint: str) -> None:
    """Print the errors of a file, and its first records."""
    errors = source.errors
    print_notes(errors)
    for one in errors.errors:
        echo(f"error: {one}")
    if errors.count > len(errors.errors):
        echo(f"… and {errors.count - len(errors.errors)} more errors")
    if rows:
        show_list(rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        echo(f"… and {len(rows) - MOST_ROWS} more")
    invalid = f"{errors.invalid} invalid: {counted(errors.count, 'error')}"
    echo(f"{counted(len(rows), 'valid record')}, {invalid if errors.count else 'no errors'}")
    if hint:
        echo(f"hint: {hint}")


def _print(name: str, findings: Sequence[Finding], as_json: bool) -> None:
    if as_json:
        show_list(({"rubric": name, **one.model_dump()} for one in findings), as_json)
        return
    if findings:
        print_data(f"\n{output.clean(name)}")
    for line in _lines(findings):
        print_data(output.clean(line))


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    for one in findings:
        where = f"  {one.criterion}" if one.criterion is not None else ""
        yield f"  {one.severity:<7}  {one.rule}{where}: {' '.join(one.message.split())}"
        yield f"           fix{' (--fix)' if one.fixable else ''}: {one.fix}"


def _print_done(fixes: Sequence[tuple[str, list[str]]]) -> None:
    for name, done in fixes:
        for line in done:
            echo(f"fixed {name}: {line}")
    if fixes and not any(done for _, done in fixes):
        echo("nothing to fix mechanically")


def _print_counts(findings: Sequence[Finding]) -> None:
    counts = Counter(one.rule for one in findings)
    if counts:
        rules = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        echo(f"{counted(len(findings), 'finding')}: {rules}")
        echo("`rubricsvc rubrics lint --explain RULE` says why a rule matters")
    else:
        echo("no findings")


def _explain(name: str, as_json: bool) -> None:
    rules = list(RULES.values()) if name == "all" else [rule_named(name)]
    fields = ("name", "severity", "summary", "why", "fix", "bad", "good")
    for number, one in enumerate(rules):
        data = output.fields_of(one, *fields)
        if number and not as_json:
            print_data("")
        output.show(data, as_json)
