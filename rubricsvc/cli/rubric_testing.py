"""`rubricsvc rubrics test`: a rubric's examples, and faults planted into them, by a judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc.cli import output
from rubricsvc.cli.db import database
from rubricsvc.cli.importing import By, edit_of
from rubricsvc.cli.models import ApiKeyEnv, ask, without_outage
from rubricsvc.cli.output import Json, echo, print_data, print_json, print_table, progress_bar, shorten
from rubricsvc.cli.rubric_targets import OfSeveral, RubricTarget, Target, targets_of
from rubricsvc.cli.score import JudgeOption, Model, judge_of, no_judge
from rubricsvc.core.states import APPROVED, DRAFT, IN_REVIEW
from rubricsvc.errors import InvalidError
from rubricsvc.store import rubrics

if TYPE_CHECKING:
    from rubricsvc.core.audit import Rate
    from rubricsvc.core.judge import Judge
    from rubricsvc.core.rubric_test import CriterionFaults, ExampleTest, FaultReport, RubricTest, TestOutcome
    from workers.authoring.planted_faults import FaultOptions

MOST_MISSED = 10
_RATES = ("caught", "95%", "false alarms", "95%", "noticed", "95%")
_EXIT = {"failed": output.WITH_FAILURES, "unmeasured": output.UNAVAILABLE, "passed": output.OK}
"""The exit codes, that of the gravest outcome first."""
_MARK = {True: "pass", False: "FAIL", None: "not measured"}

_FAULTS = "Plant faults by rule into good examples, and count those that are caught."
_FAULTS_BY = "Judge whose model writes the faults instead."
_MIN_CATCH = "Least catch rate of each criterion that passes."


def test(
    target: Target,
    *,
    judge: JudgeOption = None,
    faults: Annotated[bool, typer.Option("--faults", help=_FAULTS)] = False,
    faults_by: Annotated[str | None, typer.Option(help=_FAULTS_BY, show_default=False)] = None,
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
    options = None
    if faults or faults_by is not None or min_catch is not None:
        from workers.authoring.planted_faults import FaultOptions

        options = FaultOptions(_writer(faults_by, api_key_env), min_catch)
    outcomes: set[TestOutcome] = set()
    with output.ignore_broken_pipe():
        for found, one in zip(targets, judges, strict=True):
            result = _run(found, one.map_leaves(without_outage), options)
            outcomes.add(result.outcome)
            _report(found, result, _store(found, result, by), as_json)
    raise typer.Exit(next(code for outcome, code in _EXIT.items() if outcome in outcomes))


def _writer(name: str | None, api_key_env: str | None) -> Judge | None:
    return judge_of(name, None, "written", api_key_env).map_leaves(without_outage) if name is not None else None


def _run(found: RubricTarget, judge: Judge, faults: FaultOptions | None) -> RubricTest:
    from workers.authoring.planted_faults import RubricTestRun

    return RubricTestRun(found.rubric, found.prompt, judge, ask=ask, progress=_progress).run(faults)


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
