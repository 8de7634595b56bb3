"""`rubricsvc runs preflight`, and what `runs start` does of it: the checks that sample completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rubricsvc import telemetry
from rubricsvc.cli.output import NOT_PASSED, Json, echo, progress_bar, show_list
from rubricsvc.cli.preview_checks import preview_checks
from rubricsvc.cli.run_checks import checks_of_judge, gold_judge, noise_of, preflight_file, store_checks
from rubricsvc.cli.run_policy import acting_of, load_policy, load_untouched
from rubricsvc.cli.run_preparation import PreparedRun, prepare, print_plan
from rubricsvc.core.judge import Judge
from rubricsvc.core.preflight import PreflightCheck, refusing
from rubricsvc.core.run_evaluation import REWARD
from rubricsvc.errors import InvalidError

PROMPTS = 8
"""Maximum number of prompts that are sampled."""
SHARE = 0.1
"""Share of the completions of a run that `runs start` samples for its preflight without being asked."""

if TYPE_CHECKING:
    from trainer.data.tasks import Task
    from trainer.evaluation.preview import PreviewSamples
    from trainer.rewards.source import RewardSource


def preflight(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Training configuration (docs/training.md).")],
    *,
    prompts: Annotated[int, typer.Option(min=1, help="Maximum number of prompts to sample.")] = PROMPTS,
    samples: Annotated[
        int | None, typer.Option(min=2, help="Completions of each prompt.", show_default="sampling.group_size")
    ] = None,
    allow_drafts: Annotated[bool, typer.Option("--allow-drafts", help="Use rubrics that are not approved.")] = False,
    as_json: Json = False,
) -> None:
    """Check a run before it starts: its judge, its sizes, and what its reward does to samples of the policy.

    Exits with 4 if a check refuses the run. The result is stored beside the run's folder; `runs start` uses it.
    """
    from trainer.config import load_config

    telemetry.configure("WARNING", human=True)
    prepared = prepare(load_config(config), allow_drafts)
    print_plan(prepared, resume=False)
    checks = [*checks_of_judge(prepared), *sampled_checks(prepared, prompts, samples)]
    show_list([check.model_dump(mode="json") for check in checks], as_json)
    if (file := preflight_file(prepared.config.out)).is_file():
        echo(f"stored in {file}")
    if refused := refusing(checks):
        echo(f"the run is refused by: {', '.join(check.name for check in refused)}")
        raise typer.Exit(NOT_PASSED)


def is_due(prepared: PreparedRun, wanted: bool | None) -> bool:
    """Return whether a run that starts samples its preflight: ``wanted``, else where that is a small part of it.

    A control has no reward to preview, and a policy that has not learned its demonstrations nothing to show.
    """
    from trainer.warm_up import is_warmed_up

    run = prepared.config
    if wanted is not None:
        return wanted
    if run.control is not None or (run.demonstrations is not None and not is_warmed_up(run)):
        return False
    prompts = min(PROMPTS, len(prepared.tasks.train))
    return prompts <= SHARE * run.steps * run.sampling.prompts_per_step


def sampled_checks(prepared: PreparedRun, prompts: int = PROMPTS, samples: int | None = None) -> list[PreflightCheck]:
    """Return the checks of sizes, and of completions that are sampled and scored; the latter are stored."""
    sizes = _sizes(prepared)
    checks = list(_sampled(prepared, prompts, samples)) if sizes.passed else []
    if checks:
        store_checks(prepared, checks)
    return [sizes, *checks]


def _sizes(prepared: PreparedRun) -> PreflightCheck:
    """Check that prompts fit into the context, and the training into memory and disk."""
    from trainer.sizes import GB, check_sizes

    name, limit = "sizes", "prompts fit the context, training fits memory and disk"
    tasks = prepared.tasks
    try:
        memory = check_sizes(prepared.config, [*tasks.train, *tasks.held_out], acting_of(prepared.config))
    except InvalidError as error:
        return PreflightCheck(
            name=name, value=error.message, limit=limit, passed=False, refuses=True, advice=error.hint
        )
    of = f" of {memory.available / GB:.1f}" if isfinite(memory.available) else ""
    value = f"weights and optimiser take {memory.needed / GB:.1f}{of} GB on {memory.device}; activations come on top"
    return PreflightCheck(name=name, value=value, limit=limit, passed=True, refuses=True)


def _sampled(prepared: PreparedRun, prompts: int, samples: int | None) -> Iterator[PreflightCheck]:
    from rubricsvc.stats.preview import preview
    from trainer.evaluation.preview import sample_preview
    from trainer.warm_up import is_warmed_up

    run = prepared.config
    warmed_up = run.demonstrations is None or is_warmed_up(run)
    tasks = _spread(prepared.tasks.train, prompts)
    with ExitStack() as opened:
        rewards = opened.enter_context(prepared.rewards())
        gold = _gold(prepared, rewards, opened)
        bar = opened.enter_context(progress_bar("preflight"))
        policy = load_policy(run) if warmed_up else load_untouched(run)
        found = sample_preview(
            policy,
            tasks,
            rewards,
            gold,
            run,
            samples=samples or run.sampling.group_size,
            on_prompt=bar.counter(len(tasks)),
        )
    noise = noise_of(prepared)
    seen = None
    if found.rewards:
        seen = preview(found.rewards, found.features, found.criteria, found.gold or None, noise)
    several = any(len(task.rubric.criteria) > 1 for task in tasks)
    yield from preview_checks(seen, noise, warmed_up=warmed_up, several=several)
    yield from _costs(prepared, found)


def _spread(tasks: Sequence[Task], most: int) -> list[Task]:
    """Return at most so many tasks, evenly from all: the domains of a mixture stand one after the other."""
    count = min(most, len(tasks))
    return [tasks[len(tasks) * n // count] for n in range(count)]


def _gold(prepared: PreparedRun, rewards: RewardSource, opened: ExitStack) -> RewardSource | None:
    """Open the gold score of the run's evaluations; None where it is the reward."""
    from trainer.config import CHECKS
    from trainer.evaluation.evaluator import check_gold
    from trainer.rewards.checks import CheckRewards

    settings = prepared.config.eval
    if settings is not None and settings.gold_name == CHECKS:
        try:
            return opened.enter_context(CheckRewards(prepared.tasks.train))
        except InvalidError:  # rubrics of held-out prompts have checks, these have none
            return None
    judge = gold_judge(prepared.config)
    if settings is None or judge is None:
        return None
    gold = opened.enter_context(prepared.rewards(judge))
    check_gold(settings.gold_name, prepared.tasks.train, {REWARD: rewards, settings.gold_name: gold})
    return gold


def _costs(prepared: PreparedRun, found: PreviewSamples) -> Iterator[PreflightCheck]:
    """Yield what training and evaluations will take, by what the samples took."""
    run = prepared.config
    trained = run.steps * run.sampling.prompts_per_step * run.sampling.group_size
    evaluated = 0
    if (settings := run.eval) is not None:
        evaluations = 1 + -(-run.steps // settings.every)
        evaluated = evaluations * len(prepared.tasks.held_out) * (settings.samples + settings.greedy)
    scale = (trained + evaluated) / max(1, found.completions)
    minutes = (found.sample_seconds * scale / 60, found.score_seconds * scale / 60)
    yield PreflightCheck(
        name="time",
        value=f"{trained} completions in training and {evaluated} in evaluations: {minutes[0]:.0f} minutes to sample "
        f"and {minutes[1]:.0f} to score them, without updates and gold",
        limit="none",
        passed=True,
    )
    judge = prepared.judge
    priced = isinstance(judge, Judge) and not judge.unpriced
    dollars = f"{found.dollars * scale:.2f} US dollars" if priced else "its price is not known"
    yield PreflightCheck(
        name="cost",
        value=f"{found.verdicts * scale:.0f} verdicts by {judge.name}, {found.prompt_tokens * scale:.0f} prompt and "
        f"{found.completion_tokens * scale:.0f} completion tokens: {dollars}",
        limit="none",
        passed=True,
    )
