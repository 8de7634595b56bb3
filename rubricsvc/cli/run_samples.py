"""The evaluations of a training run and their completions: from its record, or else from its folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rubricsvc.cli.run_folders import is_run, stored_name
from rubricsvc.core.prompt import Message
from rubricsvc.core.run_evaluation import BASELINES, BEFORE, EQUAL_COMPUTE, OTHER, REWARD, STEP, StoredEvaluation
from rubricsvc.core.run_report import RunReport, Sample, Transcript, transcripts_of

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.session import Database

T = TypeVar("T")

MOST_ROWS = 1_000_000
SHOWN = 5
"""Samples with the highest reward, and as many with the largest gap."""
SHOWN_PROMPTS = 8
TRANSCRIPTS = 3
_BEST = EQUAL_COMPUTE[1]


@dataclass(frozen=True)
class RunEvaluations:
    """The evaluations of a run by step, and its baselines.

    ``recorded`` are the ids of those on record of the run ``run_id``, and ``folder`` is the run's, if it is here.
    """

    lines: Sequence[dict[str, Any]]
    baselines: Sequence[dict[str, Any]]
    run_id: int | None = None
    recorded: Mapping[str, int] = field(default_factory=dict)
    folder: Path | None = None


def read_evaluations(db: Database, found: int | Path) -> RunEvaluations:
    """Return the evaluations of a run on record, or of one that is a folder only."""
    if isinstance(found, Path):
        return RunEvaluations(*_in_folder(found), folder=found)
    from rubricsvc.services import run_evaluations
    from rubricsvc.store import runs

    with db.read() as session:
        row = runs.get(session, found)
        stored = run_evaluations.page(session, found, limit=MOST_ROWS)
        folder = Path(row.folder)
        is_here = is_run(folder) and stored_name(folder) == row.key
    steps, baselines = _comparable(stored)
    lines, baseline_lines = [one.line for one in steps], [one.line for one in baselines]
    if is_here and not (lines and baseline_lines):
        of_folder, others = _in_folder(folder)
        lines = lines or of_folder
        baseline_lines = baseline_lines or [
            one for one in others if not lines or one["setup"] == lines[-1]["setup"] or one["baseline"] in OTHER
        ]
    recorded = {_column(one.line): one.id for one in (*steps, *baselines)}
    return RunEvaluations(lines, baseline_lines, found, recorded, folder if is_here else None)


def _comparable(stored: Sequence[StoredEvaluation]) -> tuple[list[StoredEvaluation], list[StoredEvaluation]]:
    """Return the evaluations by step, and the baselines, with the setup of the newest; other prompts have their own."""
    of_steps = [one for one in stored if one.name == STEP]
    newest = max(of_steps or stored, key=lambda one: one.id, default=None)
    same = [one for one in stored if newest is not None and one.line.get("setup") == newest.line.get("setup")]
    steps = sorted((one for one in same if one.name == STEP), key=lambda one: one.step)
    elsewhere = [one for one in stored if one.name in OTHER]
    baselines = [one for one in same if one.name in BASELINES and one.name not in OTHER] + elsewhere
    return steps, sorted(baselines, key=lambda one: BASELINES.index(one.name))


def _in_folder(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    from trainer.evaluation.baselines import read_baselines
    from trainer.evaluation.evaluation import LINES
    from trainer.history import read

    return sorted(read(folder, LINES), key=lambda line: int(line["step"])), read_baselines(folder)


def _column(line: Mapping[str, Any]) -> str:
    """Return the name of an evaluation in a report."""
    return str(line.get("baseline", f"step {line['step']}")).replace("_", " ")


def with_evaluations(report: RunReport, db: Database, found: int | Path, transcripts: int = TRANSCRIPTS) -> RunReport:
    """Add the evaluations and baselines of a run, and the completions and so many transcripts to read of them."""
    evaluations = read_evaluations(db, found)
    lines = evaluations.lines
    report = replace(report, evaluations=lines, baselines=evaluations.baselines)
    if not lines:
        return report
    gold = str(lines[-1]["gold"])
    named = {line.get("baseline"): line for line in evaluations.baselines}
    shown = [*filter(None, (named.get(BEFORE),)), *lines, *filter(None, (named.get(_BEST),))]
    with db.read() as session:
        samples = {_column(line): _samples(session, evaluations, line) for line in shown}
        after_start = [one for line in lines[1:] for one in samples[_column(line)]]
        of_policy = [one for line in lines for one in samples[_column(line)]]
        widest = [] if gold == REWARD else _by((REWARD, gold), after_start)
        by_prompt = _side_by_side(samples)
        trajectories = _transcripts(by_prompt, _column(shown[0]), _column(lines[-1]), gold, transcripts)
        side_by_side = dict(list(by_prompt.items())[:SHOWN_PROMPTS])
        of_pages = [one for each in side_by_side.values() for one in each.values()]
        verdicts = _verdicts(session, [*widest, *of_pages, *(one for each in trajectories for one in each.samples)])
    return replace(
        report,
        highest=report.highest or _by((REWARD,), of_policy),
        widest=[verdicts(one) for one in widest],
        columns=list(samples),
        transcripts=[replace(each, samples=tuple(map(verdicts, each.samples))) for each in trajectories],
        samples={prompt: {name: verdicts(one) for name, one in each.items()} for prompt, each in side_by_side.items()},
    )


def _transcripts(
    by_prompt: Mapping[str, Mapping[str, Sample]], first: str, last: str, gold: str, most: int
) -> list[Transcript]:
    """Return transcripts of two evaluations, given the completions of each prompt by evaluation."""
    before, after = (
        {prompt: each[name] for prompt, each in by_prompt.items() if name in each} for name in (first, last)
    )
    return transcripts_of(before, after, gold, most)


def _verdicts(session: Session, shown: Iterable[Sample]) -> Callable[[Sample], Sample]:
    """Return the function that adds the verdicts on record to one of the samples that are shown."""
    from rubricsvc.services import run_evaluations

    rows = {one.evaluation_row for one in shown if one.evaluation_row is not None}
    found = run_evaluations.training_verdicts(session, rows)
    return lambda one: replace(one, verdicts=found.get(one.evaluation_row or 0, ()))


def _samples(session: Session, evaluations: RunEvaluations, line: Mapping[str, Any]) -> list[Sample]:
    """Return the completions of an evaluation: those on record, or those in the folder if there are none."""
    name = _column(line)
    evaluation_id, run_id = evaluations.recorded.get(name), evaluations.run_id
    stored = list(_on_record(session, run_id, evaluation_id, name)) if run_id and evaluation_id else []
    if stored or evaluations.folder is None:
        return stored
    baseline = line.get("baseline")
    path = f"baselines/{baseline}.jsonl" if baseline else f"eval/step-{line['step']:06d}.jsonl"
    return list(of_completions_file(evaluations.folder / path, name))


def _on_record(session: Session, run_id: int, evaluation_id: int, name: str) -> Iterator[Sample]:
    from rubricsvc.services import run_evaluations
    from rubricsvc.store import completions, prompts

    rows = run_evaluations.completions(session, run_id, evaluation_id=evaluation_id, limit=MOST_ROWS, verdicts=False)
    texts = completions.many(session, {row.completion_id for row in rows})
    questions = prompts.many(session, {row.prompt_id for row in rows})
    for row in rows:
        yield Sample(
            questions[row.prompt_id].text,
            texts[row.completion_id][1].text,
            f"{name}, {'greedy' if row.greedy else 'sampled'}, rubric {row.rubric}",
            {one.score: one.reward for one in row.rewards},
            truncated=row.truncated,
            greedy=row.greedy,
            evaluation_row=row.id,
            messages=texts[row.completion_id][1].messages,
        )


def of_completions_file(path: Path, name: str) -> Iterator[Sample]:
    """Return the completions of an evaluation's file."""
    if not path.is_file():
        return
    for line in path.read_bytes().splitlines():
        row = json.loads(line)
        where = f"{name}, {'greedy' if row['greedy'] else 'sampled'}, held-out prompt {row['prompt']}"
        prompt = row.get("prompt_text") or row["prompt"]
        marks = {"truncated": row["truncated"], "greedy": row["greedy"]}
        messages = tuple(Message.model_validate(one) for one in row.get("messages", ()))
        yield Sample(prompt, row["text"], where, row["rewards"], messages=messages, **marks)


def _by(names: Sequence[str], samples: Iterable[Sample]) -> list[Sample]:
    """Return samples with the largest first score, or the largest excess of it over the second; each text once."""

    def size(one: Sample) -> float | None:
        values = [one.scores.get(name) for name in names]
        return None if None in values else values[0] - sum(value or 0.0 for value in values[1:])  # type: ignore[operator]

    sized = [(value, one) for one in samples if (value := size(one)) is not None]
    ranked = sorted(sized, key=lambda pair: -pair[0])
    unique = {one.text: one for value, one in reversed(ranked) if len(names) == 1 or value > 0}
    return of_several_prompts(list(unique.values())[::-1], lambda one: one.prompt)


def of_several_prompts(ranked: Iterable[T], prompt: Callable[[T], Hashable]) -> list[T]:
    """Return the first of each prompt, then the second of each, and so on: an easy prompt must not hide others."""
    places: Counter[Hashable] = Counter()
    rounds: list[tuple[int, T]] = []
    for one in ranked:
        rounds.append((places[prompt(one)], one))
        places[prompt(one)] += 1
    return [one for _, one in sorted(rounds, key=lambda pair: pair[0])][:SHOWN]


def _side_by_side(samples: Mapping[str, Sequence[Sample]]) -> dict[str, dict[str, Sample]]:
    """Return for each prompt one completion of each policy: the greedy one, else the first."""
    found: dict[str, dict[str, Sample]] = {}
    for name, each in samples.items():
        for one in each:
            columns = found.setdefault(one.prompt, {})
            if name not in columns or one.greedy:
                columns[name] = one
    return found
