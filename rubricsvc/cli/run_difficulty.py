"""`rubricsvc runs difficulty`: how hard the prompts of a run are for its policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rubricsvc.cli.db import database
from rubricsvc.cli.output import continue_hint, echo, progress_bar, show_list
from rubricsvc.cli.run_data import data_tasks
from rubricsvc.cli.run_policy import acting_of, load_policy
from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError
from rubricsvc.store import items

if TYPE_CHECKING:
    from trainer.config import RunConfig
    from trainer.data.difficulty import Key, PromptDifficulty
    from trainer.data.tasks import Task


RewardsOf = Callable[[], Any]
"""Opens the training reward."""


@dataclass(frozen=True, slots=True)
class DifficultyOptions:
    """What is measured: ``samples`` completions a prompt, which pass from ``pass_reward`` on; or ``stored`` rewards."""

    samples: int
    pass_reward: float
    stored: bool


def show_difficulty(
    run: RunConfig, rewards_of: RewardsOf, path: Path, options: DifficultyOptions, *, as_json: bool
) -> None:
    """Measure what the file at ``path`` does not have yet, write it, and print it."""
    from trainer.data.difficulty import key_of, read_difficulties, selection, write_difficulties

    tasks = list({key_of(task): task for task in data_tasks(run)}.values())
    before = read_difficulties(path)
    if options.stored:
        found = before | _of_stored(run, tasks, options.pass_reward)
    else:
        found = {key: one for key, one in before.items() if _is_same(one, run, options)}
        left = [task for task in tasks if key_of(task) not in found]
        _measure(run, left, rewards_of, found, path=path, options=options)
    listed = [found[key_of(task)] for task in tasks if key_of(task) in found]
    write_difficulties(path, listed)
    columns = ("prompt", "samples", "pass_rate", "mean", "std")
    rows = [asdict(one) | {"selection": selection(one, run.data)} for one in listed]
    shown = rows if as_json else [{name: row[name] for name in (*columns, "selection")} for row in rows]
    show_list(shown, as_json, empty="no rewards of these prompts are stored")
    counts = Counter(row["selection"] for row in rows)
    kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in sorted(counts.items()))
    missing = f"; {len(tasks) - len(listed)} not measured" if len(listed) < len(tasks) else ""
    echo(f"wrote {path}: {kinds or 'nothing'}{missing}; data.difficulty uses it")


def _is_same(one: PromptDifficulty, run: RunConfig, options: DifficultyOptions) -> bool:
    """Return whether a prompt need not be measured again."""
    same = (one.policy, one.pass_reward) == (run.policy.model, options.pass_reward)
    return same and one.samples >= options.samples


def _measure(
    run: RunConfig,
    tasks: list[Task],
    rewards_of: RewardsOf,
    found: dict[Key, PromptDifficulty],
    *,
    path: Path,
    options: DifficultyOptions,
) -> None:
    """Add the difficulties of tasks; what is measured is in the file after each batch."""
    from trainer.data.difficulty import measure, write_difficulties
    from trainer.sizes import check_sizes

    if not tasks:
        return
    check_sizes(run.model_copy(update={"out": None}), tasks, acting_of(run))
    policy = load_policy(run)
    asked: dict[str, Any] = {"samples": options.samples, "pass_reward": options.pass_reward}
    done = 0
    with (
        continue_hint(f"the prompts measured so far are in {path}"),
        rewards_of() as rewards,
        progress_bar("prompts") as bar,
    ):
        bar.update(0, len(tasks), "")
        for batch in measure(policy, tasks, rewards, run, **asked):
            found |= {one.key: one for one in batch}
            write_difficulties(path, found.values())
            bar.update(done := done + len(batch), len(tasks), "")


def _of_stored(run: RunConfig, tasks: list[Task], pass_reward: float) -> dict[Key, PromptDifficulty]:
    """Return the difficulties by rewards that are stored in this database."""
    from trainer.data.difficulty import difficulty_of, key_of

    if not isinstance(run.judge, Judge):
        hint = "sample instead, or run this where the database of the service is"
        raise InvalidError("the rewards of a judge of a service are stored there", hint=hint, path="judge")
    policy = run.policy.model
    with database() as db, db.read() as session:
        digests = (task.prompt.digest for task in tasks)
        known = items.rewards_of_prompts(session, digests, policy=policy, judge=run.judge.digest)
    return {
        key: difficulty_of(task, known[key], pass_reward=pass_reward, policy=policy, source="stored")
        for task in tasks
        if (key := key_of(task)) in known
    }
