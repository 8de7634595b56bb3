"""`rubricsvc rubrics lint`, `test`, `generate` and `propose`: a rubric before it is published."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rubricsvc.cli import importing, output
from rubricsvc.cli.commands import service
from rubricsvc.cli.jobs import Wait, end
from rubricsvc.cli.models import ask, without_outage
from rubricsvc.cli.output import MAX_SEED, Json, counted, echo, print_data, progress_bar, show
from rubricsvc.cli.score import JudgeOption, file_or_text, judge_of, no_judge, text_of
from rubricsvc.core.base import storable
from rubricsvc.core.generation import AuthoringTask, Contrast, Generation, Method, Research, Specification
from rubricsvc.core.judge import CHECKS, Sampling
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric, nearest_level
from rubricsvc.core.rubric_analysis import RubricTest, TestOutcome
from rubricsvc.core.scale_values import written_value
from rubricsvc.core.states import APPROVED, DRAFT, IN_REVIEW
from rubricsvc.errors import InvalidError
from rubricsvc.formats import InvalidFileError, Record, stream
from rubricsvc.formats.writing import plain, write_text
from rubricsvc.lint import CHECKED, SEVERITIES, Finding, Placed, Severity, by_rule, lint, rules_of
from rubricsvc.queries import ImportQuery
from rubricsvc.schemas.base import every_row, request
from rubricsvc.schemas.rubrics import NewGeneration
from workers import checks
from workers.authoring.gate import OFF_TOPIC, contradictions, proposals
from workers.engines.base import Engine
from workers.event_loop import all_of

Names = list[str] | None

MOST_TRUE = 5  # pairs of which most may contradict each other; a judge that says so of more says it of everything


def lint_(
    target: Annotated[
        str | None, typer.Argument(metavar="FILE|NAME", help="File (- is stdin), or a stored rubric.")
    ] = None,
    *,
    format: importing.Format = None,
    rule: Annotated[Names, typer.Option(help="Apply this rule only; repeatable.", show_default="all")] = None,
    ignore: Annotated[Names, typer.Option(help="Leave out this rule; repeatable.")] = None,
    severity: Annotated[Severity, typer.Option(help="Least severity to print.")] = "info",
    fail_on: Annotated[
        Literal["error", "warning", "info", "never"], typer.Option(help="Least severity that exits with 1.")
    ] = "error",
    judge: Annotated[str | None, typer.Option(help="Also ask this judge which criteria contradict each other.")] = None,
    as_json: Json = False,
) -> None:
    """Check a file or a stored rubric: list all errors, and what is wrong with the rubrics. Without one, explain rules.

    Exits with 2 if the file has errors, and with 1 if there are findings of the severity --fail-on or above. With
    --json an error is an object with file, line, column, path, code and message, and a finding one with rule,
    severity, rubric, criterion, message and fix. Only with --judge a model is asked.
    """
    rules = rules_of(rule or (), ignore or (), severity)
    if target is None:
        for each in rules:
            show(output.fields_of(each, "name", "severity", "summary", "why", "fix", "bad", "good"), as_json)
        echo("name a file, a stored rubric or - (stdin) to check it: `rubricsvc rubrics lint FILE`")
        return
    if (stored := importing.find_stored(target)) is not None:
        bad, records = False, [Record(stored.prompt, stored.rubric, name=stored.name)]
    else:
        bad, records = _read_records(target, format, as_json)
    given = [(one.name, one.rubric, one.prompt) for one in records if one.rubric is not None]
    found = [
        (name, one)
        for name, rubric, prompt in given
        for one in lint(rubric, prompt, rules=rules, empty_value=checks.value_of_empty)
    ]
    if judge is not None:
        asked = judge_of(judge).map_leaves(without_outage)
        by_judge, counts = ask(asked, lambda engine: contradictions(engine, asked, [one for _, one, _ in given]))
        echo(f"contradictions: {output.cell(counts)}")
        if counts["asked"] > MOST_TRUE and 2 * len(by_judge) > counts["asked"]:
            echo(f"{asked.name} finds that most pairs contradict each other, which is left out: ask another judge")
        else:
            found += [(given[place][0], one) for place, one in by_judge]
    least = SEVERITIES.index(fail_on) if fail_on != "never" else -1
    failed = any(SEVERITIES.index(one.severity) <= least for _, one in found)
    if as_json:
        show([{"rubric": name, **one.model_dump()} for name, one in found], True)
    else:
        _print_findings(found, [(name, rubric) for name, rubric, _ in given])
    for name, rubric, prompt in given[:20] if severity != "info" and not rule and not ignore else ():
        for one in lint(rubric, prompt, rules=rules_of(("unchecked-language",), (), "info")):
            echo(f"{name}: {one.message}")
    raise typer.Exit(output.BAD_INPUT if bad else output.WITH_FAILURES if failed else output.OK)


def _print_findings(found: list[Placed], given: list[tuple[str, Rubric]]) -> None:
    """Print the findings of one rubric by rule; of several, ten to look at first, and each rule with two examples."""
    rubrics, texts = len(given), {(name, one.key): one.text for name, rubric in given for one in rubric.criteria}

    def line(name: str, one: Finding) -> str:
        where = " ".join(filter(None, (name if rubrics > 1 else None, one.criterion)))
        text = f"  ({output.shorten(texts[name, one.criterion])})" if rubrics > 1 and one.criterion else ""
        return output.clean(f"{where}: {' '.join(one.message.split())}{text}".removeprefix(": "))

    first, groups = by_rule(found, rubrics)
    first = first[:10] if rubrics > 1 else []
    head = [f"Look at these first ({len(first)} of {counted(len(found), 'finding')}):"] if first else []
    for text in (*head, *(f"  {one.severity:<7}  {one.rule}  {line(name, one)}" for name, one in first)):
        print_data(text)
    for number, hits in enumerate(groups):
        count = len({name for name, _ in hits})
        of = f" in {count} of {rubrics} rubrics ({count / rubrics:.0%})" if rubrics > 1 else ""
        one, gap = hits[0][1], "\n" if first or number else ""
        print_data(f"{gap}{one.severity}  {one.rule}: {counted(len(hits), 'finding')}{of}. {one.fix}")
        unlike = {texts.get((name, one.criterion or ""), name): (name, one) for name, one in reversed(hits)}
        for name, one in hits if rubrics == 1 else [hit for hit in reversed(unlike.values()) if hit not in first][:2]:
            print_data(f"  {line(name, one)}")
    wording = f"wording is checked in {', '.join(one.name for one in CHECKED)}"
    more = "; `rubricsvc rubrics lint --rule RULE` says why a rule matters" + ", --json lists all" * (rubrics > 1)
    if rubrics:
        echo(f"{counted(len(found), 'finding')}{more}; {wording}" if found else f"no findings ({wording})")


def _read_records(target: str, format: str | None, as_json: bool) -> tuple[bool, list[Record]]:
    """Print the errors of a file; return whether it has any, and its valid records."""
    source, records, hint = importing.input_file(target), list[Record](), ""
    try:
        records = list(stream(source, format, skip_invalid=True, check=checks.validate))
    except InvalidFileError as error:  # no record is valid, or the file cannot be read to its end
        if not source.errors.count:
            source.errors.add(*error.errors)
        hint = error.hint
    errors = source.errors
    if as_json:
        show([*map(dict, errors.errors), *(dict(one) | {"note": True} for one in errors.notes)], True)
        return bool(errors.count), records
    importing.print_problems("note:", errors.notes, errors.note_count)
    importing.print_problems("error:", errors.errors, errors.count)
    invalid = f"{errors.invalid} invalid: {counted(errors.count, 'error')}" if errors.count else "no errors"
    echo(f"{counted(len(records), 'valid record')}, {invalid}")
    if hint:
        echo(f"hint: {hint}")
    return bool(errors.count), records


_EXIT = {"failed": output.WITH_FAILURES, "unmeasured": output.UNAVAILABLE, "passed": output.OK}
"""The exit codes, that of the most severe outcome first."""
_FAULTS = "Plant faults by rule into good examples, and count those that are caught."
_MIN_CATCH = "Least catch rate of each criterion that passes."


def test(
    targets: Annotated[list[str], typer.Argument(metavar="FILE|NAME...", help="File, stored rubric, or drafts by *.")],
    *,
    judge: JudgeOption = None,
    faults: Annotated[bool, typer.Option("--faults", help=_FAULTS)] = False,
    min_catch: Annotated[float | None, typer.Option(min=0, max=1, help=_MIN_CATCH, show_default=False)] = None,
    name: Annotated[str | None, typer.Option(help="Name of the rubric in a file with several.")] = None,
    as_json: Json = False,
) -> None:
    """Test a rubric by its examples: whether a judge gives them the verdicts and rewards that they must get.

    Tests each rubric of a file that has examples. Of a stored rubric the result is stored: a version with examples is
    approved only after it passed. Exits with 1 if anything fails, and with 3 if nothing fails and something could not
    be measured.
    """
    if any("*" in one for one in targets):
        with service() as s:
            targets = importing.versions_of(s, targets, (DRAFT, IN_REVIEW))
    tested = [one for target in targets for one in importing.targets_of(target, name) if one.rubric.examples]
    if not tested:
        hint = "add some: docs/testing-rubrics.md"
        raise InvalidError(f"{', '.join(targets)} has no examples", hint=hint, path="examples")
    given = judge_of(judge) if judge is not None else None
    asked = [(given or no_judge(one.rubric)).map_leaves(without_outage) for one in tested][-1]  # all are the same
    from workers.authoring.planted_faults import run_tests

    def progress(total: int, part: str) -> Callable[[], None]:
        if len(tested) == 1:
            return bar.counter(total, part)
        return on_done if part == "examples" else lambda: None

    async def run(engine: Engine, one: importing.RubricTarget) -> tuple[RubricTest, int | None]:
        options: dict[str, Any] = {"faults": faults, "min_catch": min_catch}
        result = await run_tests(engine, asked, one.rubric, one.prompt, progress, **options)
        if one.stored is None:
            return result, None
        with service() as s:
            if asked.name not in {each.name for each in every_row(s.judges.page)}:
                s.judges.add(judge=given or CHECKS)  # a result is of a stored judge
            return result, s.rubrics.add_test(one.stored.id, result).id

    outcomes: set[TestOutcome] = set()
    with output.ignore_broken_pipe():
        with progress_bar("testing") as bar:
            on_done = bar.counter(sum(len(one.rubric.examples or ()) for one in tested), "examples")
            results = ask(asked, lambda engine: all_of(run(engine, one) for one in tested))
        for one, (result, stored) in zip(tested, results, strict=True):
            outcomes.add(result.outcome)
            head = {"rubric": one.name, "outcome": result.outcome, "stored": stored}
            show(head | (result.model_dump(mode="json") if as_json else _in_words(result, one.rubric)), as_json)
            state = one.stored.state if one.stored is not None and not as_json else None
            if result.outcome == "failed" and state == APPROVED:
                echo(f"{one.name} is approved; retire it with `rubricsvc rubrics review {one.name} retire`")
            elif result.outcome == "passed" and state in (DRAFT, IN_REVIEW):
                step = "approve" if state == IN_REVIEW else "submit"
                echo(f"next: `rubricsvc rubrics review {one.name} {step}`")
    raise typer.Exit(next(code for outcome, code in _EXIT.items() if outcome in outcomes))


def _in_words(test: RubricTest, rubric: Rubric) -> dict[str, Any]:
    """Return a row for each expected verdict and reward, in the words of its scale, and the faults not caught."""
    scales = {one.key: one.scale for one in rubric.criteria}
    rows: list[dict[str, Any]] = []
    for example in test.examples:
        for one in example.verdicts:
            scale, found, number = scales[one.criterion], one.found, one.expected.number
            words = {
                "criterion": one.criterion,
                "expected": str(one.expected) if number is None else written_value(scale, number),
            }
            if found is not None:
                words["found"] = f"{written_value(scale, nearest_level(scale, found))} ({output.cell(found)})"
            why = ("reason",) if one.passed else ("reason", "rationale", "quotes")
            rows.append({"example": example.example} | words | output.fields_of(one, "passed", *why))
        if (expected := example.expected_reward) is not None:
            rows.append({"example": example.example, "criterion": "(reward)", "expected": str(expected)})
            rows[-1] |= {"found": example.reward, "passed": example.reward_passed, "reason": example.null_reason}
    shown: dict[str, Any] = {"judge": test.judge, "examples": rows}
    if (report := test.faults) is not None:
        limit = "not part of the outcome without --min-catch" if report.min_catch is None else report.min_catch
        figures = report.model_dump(mode="json", exclude={"min_catch", "faults"})
        shown["planted faults"] = {"least catch rate": limit} | figures
        shown["not caught"] = [one for one in report.faults if one.caught is False]
    return shown


def specification_of(path: Path) -> Specification:
    """Return the specification in a file, by the file's name."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    specification: Specification = request(Specification, name=path.name, text=storable(text))
    return specification


MAX_TOKENS, LOCAL_TOKENS = 4096, 512
"""Maximum tokens of a rubric, of any model and of one that transformers runs in this process, which is slow."""
_SPECIFICATION = Annotated[
    Path | None, typer.Option("--specification", help="Principles: file with the specification.")
]
_SEED = typer.Option(min=0, max=MAX_SEED, help="Seed; each further sample has the next one.")


def generate(
    new: NewGeneration,
    file: Annotated[str | None, typer.Argument(help="Prompts; - is stdin.", show_default="all stored")] = None,
    *,
    specification_file: _SPECIFICATION = None,
    collection: Annotated[str | None, typer.Option(help="Grounded: collection of documents to read first.")] = None,
    seed: Annotated[int, _SEED] = 0,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Generate a rubric for each prompt, as a job: of a file, or stored ones.

    Each rubric is tried at once on an empty completion, on another prompt's, and on others that are known to be bad;
    what speaks against it is stored. It is a draft until it is approved. The same prompts, judge and options give the
    same job.
    """
    if file is not None and new.prompts:
        raise InvalidError("prompts of a file and stored ones are given", hint="name a FILE or --prompts")
    with service() as s:
        most = LOCAL_TOKENS if s.judges.get(new.judge).value.engine == "transformers_local" else MAX_TOKENS
        fields: dict[str, Any] = {
            "sampling": Sampling(temperature=0.7, max_tokens=most, seed=seed),
            "specification": specification_of(specification_file) if specification_file else None,
            "research": Research(collection=collection) if collection is not None else None,
        }
        if file is not None:
            fields["prompts"] = tuple(importing.import_file(s, file, ImportQuery(noun="prompts")).prompt_ids)
        end(s, s.rubrics.generate(new.model_copy(update=fields)), wait, as_json)


_GOOD = "File with a good completion: a reference for the method, and a text to try the rubrics on."
_BAD = "File with a bad completion to try the rubrics on."


def propose(
    prompt: Annotated[str, typer.Argument(help="Prompt: a text, or a file with one (- is stdin).", show_default=False)],
    *,
    judge: Annotated[str, typer.Option(help="Judge whose model writes: embedded, a server's URL, or a name.")],
    n: Annotated[int, typer.Option("--candidates", "-n", min=1, max=20, help="Candidates.")] = 3,
    good: Annotated[str | None, typer.Option(help=_GOOD, show_default=False)] = None,
    bad: Annotated[str | None, typer.Option(help=_BAD, show_default="a completion of another prompt")] = None,
    specification: _SPECIFICATION = None,
    seed: Annotated[int, _SEED] = 0,
    out: Annotated[Path | None, typer.Option(help="YAML file for all of them.", show_default="none")] = None,
    as_json: Json = False,
) -> None:
    """Propose rubrics for one prompt: lint each, and show what it gives to a good, a bad and an empty completion.

    Nothing is stored; --out has all of them as YAML, to keep one and edit it. Exits with 1 if there is no rubric.
    """
    text = file_or_text(prompt)
    if not text.strip():
        raise InvalidError("the prompt is empty", hint="name a text or a file", path="prompt")
    references, worse = ([text_of(file)] if file is not None else [] for file in (good, bad))
    method: Method = "reference-guided" if references else "one-shot"
    contrast, principles = None, None
    if references and worse:
        contrast, method = Contrast((Completion(text=references[0]),), (Completion(text=worse[0]),)), "contrastive"
    if specification is not None:
        principles, method = specification_of(specification), "principles"
    task = AuthoringTask(
        prompt=Prompt.of(text),
        references=tuple(references),
        other=worse[0] if worse else OFF_TOPIC,
        contrast=contrast,
        specification=principles,
    )
    sampling = Sampling(temperature=1.0, max_tokens=MAX_TOKENS, seed=seed)
    generation = Generation(method=method, sampling=sampling)
    author = judge_of(judge).map_leaves(without_outage)
    with progress_bar("candidates") as bar:
        on_done = bar.counter(n, "tried")
        found = ask(author, lambda engine: proposals(engine, author, generation, task, n=n, on_done=on_done))
    usable = [(one.candidate, one.rubric) for one in found if one.rubric is not None]
    with output.exit_with(output.OK if usable else output.WITH_FAILURES):
        if as_json:
            show(found, as_json)
        else:
            rows = []
            for one in found:
                parts = one.rubric.criteria if one.rubric is not None else ()
                criteria = [output.fields_of(part, "key", "weight", "kind", "text") for part in parts]
                rows.append(one.model_dump(exclude={"rubric"}) | {"criteria": criteria})
            show({"candidates": rows})
        if usable and out is not None:
            name = f"rubric-{sha256(text.encode()).hexdigest()[:8]}"
            records = (Record(task.prompt, one, name=f"{name}-{number}", state=DRAFT) for number, one in usable)
            with output.open_output(out) as file:
                file.write(f"# Proposed by {' '.join(author.model.split())}, {generation.method}. Keep one, edit it.\n")
                write_text(map(plain, records), file, "yaml")
            echo(f"next: edit it, then `rubricsvc rubrics lint {out}` and `rubricsvc rubrics import {out}`")
        elif usable:
            echo("write them to a file with --out FILE; the same --seed proposes the same")
