"""`rubricsvc rubrics lint`: errors of a file, and findings in its rubrics, without a model or with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from rubricsvc.cli import output
from rubricsvc.cli.db import database
from rubricsvc.cli.importing import Format, edit_of, input_file, print_notes
from rubricsvc.cli.model_lint import ask_judge, askable_judge
from rubricsvc.cli.models import ApiKeyEnv
from rubricsvc.cli.output import Json, Out, counted, echo, print_data, shorten, show_list
from rubricsvc.cli.rubric_targets import find_stored
from rubricsvc.cli.score import Model
from rubricsvc.core.judge import Judge
from rubricsvc.core.states import APPROVED
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.formats import InputFile, InvalidFileError, Record, stream
from rubricsvc.formats.native import dump
from rubricsvc.lint import RULES, SEVERITIES, Finding, Rule, Severity, lint, rule_named, rules_of
from rubricsvc.lint.registry import Subject
from rubricsvc.lint.rewriting import rewritten
from rubricsvc.services.editing import add_version
from rubricsvc.store.tables import RubricRow
from workers import checks

if TYPE_CHECKING:
    from workers.authoring.model_lint import Unmeasured

MOST_ROWS = 20
_YAML = (".yaml", ".yml")

Target = Annotated[
    str | None, typer.Argument(metavar="FILE|NAME", help="File (- is stdin), or a stored rubric.", show_default=False)
]
Names = list[str] | None

_WITH_MODEL = "Judge that decides more rules: embedded, a server's URL, or a name."


class _Linted(NamedTuple):
    """What is wrong with a rubric, and what its judge could not decide."""

    name: str
    findings: list[Finding]
    unmeasured: list[Unmeasured]


class _Linter(NamedTuple):
    """What is applied to the rubrics, and how the result is reported."""

    rules: Sequence[Rule]
    judge: Judge | None
    fail_on: str
    as_json: bool

    def lint(self, records: Sequence[Record]) -> list[_Linted]:
        """Apply the rules to each rubric, then ask the judge, if there is one."""
        named = [(one.name, Subject(one.rubric, one.prompt)) for one in records if one.rubric is not None]
        found = [
            _Linted(name, lint(one.rubric, one.prompt, rules=self.rules, empty_value=checks.value_of_empty), [])
            for name, one in named
        ]
        if self.judge is not None:
            by_model = ask_judge(self.judge, self.rules, [one for _, one in named])
            for linted, one in zip(found, by_model, strict=True):
                linted.findings.extend(one.findings)
                linted.unmeasured.extend(one.unmeasured)
        return found

    def exit_code(self, linted: Sequence[_Linted]) -> int:
        """Return 1 with findings that --fail-on names, and 3 if it names what could not be measured."""
        if any(self._fails(one) for some in linted for one in some.findings):
            return output.WITH_FAILURES
        unmeasured = any(self._fails(one.rule) for some in linted for one in some.unmeasured)
        return output.UNAVAILABLE if unmeasured else output.OK

    def _fails(self, one: Finding | Rule) -> bool:
        least: Sequence[str] = ("never", *SEVERITIES)
        return 0 < least.index(one.severity) <= least.index(self.fail_on)


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
    with_model: Annotated[str | None, typer.Option(metavar="JUDGE", help=_WITH_MODEL, show_default="none")] = None,
    model: Model = None,
    api_key_env: ApiKeyEnv = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Check a file or a stored rubric: list all errors, and what is wrong with the rubrics.

    Exits with 2 if the file has errors, and with 1 if there are findings of the severity --fail-on or above. --fix
    writes a new file (--out, by default FILE.fixed.yaml), or the next version of a stored rubric. With --json an error
    is an object with file, line, column, path, code and message, and a finding one with rule, severity, rubric,
    criterion, message and fix. No model is asked unless --with-model names a judge; with --json its findings have the
    value and the probability, too, and `not_measured` names a rule that it could not decide.
    """
    if explain is not None:
        _explain(explain, as_json)
        return
    if target is None:
        raise InvalidError("no file and no rubric is named", hint="rubricsvc rubrics lint FILE, or - for stdin")
    if out is not None and not fix:
        raise InvalidError("--out is for --fix", hint="add --fix, or leave out --out")
    from workers.authoring.model_lint import MODEL_RULES

    rules = rules_of(rule or (), ignore or (), severity, known=RULES | MODEL_RULES)
    if with_model is None and (of_model := MODEL_RULES.keys() & set(rule or ())):
        raise InvalidError(f"a model decides {', '.join(sorted(of_model))}", hint="add --with-model JUDGE", path="rule")
    judge = askable_judge(with_model, model, api_key_env) if with_model is not None else None
    linter = _Linter(rules, judge, fail_on, as_json)
    if (stored := find_stored(target)) is not None:
        _lint_stored(*stored, linter, fix=fix, out=out)
    else:
        _lint_file(input_file(target), format, linter, fix=fix, out=out)


def _lint_stored(record: Record, stored: RubricRow, linter: _Linter, *, fix: bool, out: Path | None) -> None:
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
    linted = linter.lint([replace(record, rubric=fixed)])
    with output.exit_with(linter.exit_code(linted)):
        _print_done([(record.name, done)] if fix else [])
        _print(linted, linter.as_json)


def _lint_file(source: InputFile, format: str | None, linter: _Linter, *, fix: bool, out: Path | None) -> None:
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
    linted = linter.lint(records)
    rows = [_summary(record) for record in records]
    with output.exit_with(output.BAD_INPUT if source.errors.count else linter.exit_code(linted)):
        if linter.as_json:
            notes = [asdict(one) | {"note": True} for one in source.errors.notes]
            show_list([*map(asdict, source.errors.errors), *notes, *rows], True)
        else:
            _print_records(source, rows, hint)
        _print_done(fixes)
        _print(linted, linter.as_json)


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


def _print(linted: Sequence[_Linted], as_json: bool) -> None:
    for one in linted:
        if as_json:
            show_list(_rows(one), as_json)
        elif one.findings or one.unmeasured:
            print_data(f"\n{output.clean(one.name)}")
            for line in _lines(one):
                print_data(output.clean(line))
    if not as_json:
        _print_counts(linted)


def _rows(linted: _Linted) -> Iterator[dict[str, Any]]:
    for one in linted.findings:
        yield {"rubric": linted.name, **one.model_dump()}
    for rule, criterion, reason in linted.unmeasured:
        yield {"rubric": linted.name, "not_measured": rule.name, "criterion": criterion, "reason": reason}


def _lines(linted: _Linted) -> Iterator[str]:
    for rule, criterion, reason in linted.unmeasured:
        yield f"  not measured  {rule.name}  {criterion}: {shorten(reason, 120)}"
    for one in linted.findings:
        where = f"  {one.criterion}" if one.criterion is not None else ""
        yield f"  {one.severity:<7}  {one.rule}{where}: {' '.join(one.message.split())}"
        yield f"           fix{' (--fix)' if one.fixable else ''}: {one.fix}"


def _print_done(fixes: Sequence[tuple[str, list[str]]]) -> None:
    for name, done in fixes:
        for line in done:
            echo(f"fixed {name}: {line}")
    if fixes and not any(done for _, done in fixes):
        echo("nothing to fix mechanically")


def _print_counts(linted: Sequence[_Linted]) -> None:
    counts = Counter(finding.rule for one in linted for finding in one.findings)
    if counts:
        rules = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        echo(f"{counted(counts.total(), 'finding')}: {rules}")
        echo("`rubricsvc rubrics lint --explain RULE` says why a rule matters")
    elif linted:
        echo("no findings")
    if unmeasured := sum(len(one.unmeasured) for one in linted):
        echo(f"not measured: {counted(unmeasured, 'verdict')}")


def _explain(name: str, as_json: bool) -> None:
    from workers.authoring.model_lint import MODEL_RULES, ModelRule

    known = RULES | MODEL_RULES
    rules = list(known.values()) if name == "all" else [rule_named(name, known)]
    for number, one in enumerate(rules):
        asked = ("asks", "threshold") if isinstance(one, ModelRule) else ()
        data = output.fields_of(one, "name", "severity", "summary", *asked, "why", "fix", "bad", "good")
        if number and not as_json:
            print_data("")
        output.show(data, as_json)
