"""The prompts of a run: read from files or the database, divided, and checked before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rubricsvc.cli.db import database
from rubricsvc.cli.importing import input_file
from rubricsvc.cli.output import counted, echo
from rubricsvc.cli.run_policy import acting_of
from rubricsvc.core.estimate import MIN_CLUSTERS
from rubricsvc.errors import InvalidError
from rubricsvc.formats import load
from rubricsvc.formats.completions import read_all
from rubricsvc.formats.record import Record
from rubricsvc.services.rubric_records import stored_records
from workers import checks

if TYPE_CHECKING:
    from trainer.config import RunConfig
    from trainer.data.config import DataSource
    from trainer.data.tasks import Task


@dataclass(frozen=True, slots=True)
class RunTasks:
    """The prompts to train on, and those that are held out.

    ``demonstrated`` are those to train on that have demonstrations, with these; ``other`` are prompts of another
    collection.
    """

    train: list[Task]
    held_out: list[Task]
    demonstrated: list[Task] = field(default_factory=list)
    other: list[Task] = field(default_factory=list)


def run_tasks(config: RunConfig) -> RunTasks:
    """Return the prompts of a run.

    Raises:
        InvalidError: A source has no prompt with a rubric, or a held-out prompt is trained on.
        NotFoundError: A stored rubric does not exist.
    """
    from trainer.data.config import DataSource
    from trainer.data.tasks import check_apart, hold_out, names_of, on_both_sides

    train = data_tasks(config)
    held_out: list[Task] = []
    other: list[Task] = []
    if config.eval is not None:
        if config.eval.share is not None:
            tasks, (train, held_out) = train, hold_out(train, config.eval.share, config.seed)
            hint = "change eval.share or seed, or name held-out prompts with eval.path"
            _check_domains(tasks, train, config, hint, "eval.share")
        else:
            held_out = _tasks(config.eval, "eval")
        check_apart(train, held_out)
        if shared := on_both_sides(train, held_out):
            count = f"{len(shared)} of {counted(len(held_out), 'held-out prompt')}"
            echo(f"warning: contamination: pages of {count} are those of training prompts: {names_of(shared)}")
        if len(held_out) < MIN_CLUSTERS:
            echo(f"warning: {counted(len(held_out), 'held-out prompt')}; intervals need {MIN_CLUSTERS}")
        if config.eval.other is not None:
            other = _tasks(DataSource(path=config.eval.other.path), "eval.other")
    train = _selected(train, config)
    return RunTasks(train, held_out, _demonstrated(train, config), other)


def data_tasks(config: RunConfig) -> list[Task]:
    """Return all prompts of the data of a run, those of domains with the names of these."""
    if not config.data.domains:
        return _tasks(config.data, "data")
    return [
        replace(task, domain=name)
        for name, source in config.data.domains.items()
        for task in _tasks(source, f"data.domains.{name}")
    ]


def _demonstrated(tasks: list[Task], config: RunConfig) -> list[Task]:
    """Return the prompts with ``demonstrations``, with these; none if the run has none."""
    if config.demonstrations is None:
        return []
    from trainer.data.demonstrations import with_demonstrations

    if (path := config.demonstrations.path) is None:
        chosen = _scripted(tasks, config)
    else:
        chosen = with_demonstrations(tasks, read_all(input_file(str(path))))
    count = sum(len(task.demonstrations) for task in chosen)
    echo(f"{counted(count, 'demonstration')} of {len(chosen)} of {counted(len(tasks), 'prompt')}")
    return chosen


def _scripted(tasks: list[Task], config: RunConfig) -> list[Task]:
    """Return the prompts that the script of `research` answers, with its trajectories."""
    from trainer.environments.research import Research
    from trainer.environments.scripted import demonstrate

    acting = acting_of(config)
    assert acting is not None  # noqa: S101 - the configuration was checked
    research = acting.own_environment
    assert isinstance(research, Research)  # noqa: S101 - see above
    played = [(task, demonstrate(research, task.prompt, acting.limits)) for task in tasks]
    chosen = [replace(task, demonstrations=(one,)) for task, one in played if one is not None]
    if not chosen:
        hint = "raise environment.max_turns, or set demonstrations.path"
        raise InvalidError("the script answers no prompt of the data", hint=hint, path="demonstrations")
    return chosen


def _selected(tasks: list[Task], config: RunConfig) -> list[Task]:
    """Leave out what is too easy or too hard by ``data.difficulty``."""
    if config.data.difficulty is None:
        return tasks
    from trainer.data.difficulty import read_difficulties, select

    kept, counts = select(tasks, read_difficulties(config.data.difficulty), config.data)
    kinds = ", ".join(f"{counts[kind]} {kind.replace('_', ' ')}" for kind in sorted(counts))
    echo(f"difficulty by {config.data.difficulty}: {kinds}")
    _check_domains(tasks, kept, config, "change data.min_pass_rate", "data.difficulty")
    return kept


def _check_domains(before: list[Task], after: list[Task], config: RunConfig, hint: str, path: str) -> None:
    """Check that a setting left a prompt of each domain that is trained on."""
    lost = {task.domain for task in before} - {task.domain for task in after}
    if config.prompts is not None and config.prompts.weights:
        lost &= set(config.prompts.weights)
    if lost:
        raise InvalidError(f"no prompt of {', '.join(sorted(lost))} is left", hint=hint, path=path)


def _tasks(source: DataSource, table: str) -> list[Task]:
    from trainer.data.tasks import tasks_of

    records = list(_records(source))
    tasks = tasks_of(records)
    origin = source.path if source.path is not None else ", ".join(source.store)
    if not tasks:
        path = f"{table}.{source.given[0]}"
        raise InvalidError(f"no prompt with a rubric in {origin}", hint="give each prompt its criteria", path=path)
    if len(tasks) < len(records):
        echo(f"skipped {len(records) - len(tasks)} of {len(records)} records of {origin} without a prompt or a rubric")
    for task in tasks:
        checks.validate(task.rubric)
    return tasks


def _records(source: DataSource) -> Iterable[Record]:
    if source.path is not None:
        return load(source.path, source.format)
    with database() as db, db.read() as session:
        return list(stored_records(session, source.store))
