"""`rubricsvc runs preflight`: all checks of a run, also those that sample completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rubricsvc import telemetry
from rubricsvc.cli.output import NOT_PASSED, Json, echo, progress_bar, show_list
from rubricsvc.cli.run_policy import acting_of, load_policy, load_untouched
from rubricsvc.cli.run_preflight import checks_of_judge, preflight_file, store_checks
from rubricsvc.cli.run_preparation import PreparedRun, prepare, print_plan
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge
from rubricsvc.core.preflight import PreflightCheck, refusing
from rubricsvc.core.run_evaluation import REWARD
from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from rubricsvc.stats.preview import Preview
    from trainer.evaluation.preview import PreviewSamples
    from trainer.rewards.source import RewardSource

MIN_SIGNAL = 0.25
MAX_TAU = 0.3


def preflight(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Training configuration (docs/training.md).")],
    *,
    prompts: Annotated[int, typer.Option(min=1, help="Maximum number of prompts to sample.")] = 8,
    samples: Annotated[
        int | None, typer.Option(min=2, help="Completions of each prompt.", show_default="sampling.group_size")
    ] = None,
    allow_drafts: Annotated[bool, typer.Option("--allow-drafts", help="Use rubrics that are not approved.")] = False,
    as_json: Json = False,
) -> None:
    """Check a run before it starts: its judge, its sizes, and what its reward does to samples of the policy.

    Exits with 4 if a check refuses the run. The result is stored beside the run's folder, and `runs start` honours it.
    """
    from trainer.config import load_config

    telemetry.configure("WARNING", human=True)
    prepared = prepare(load_config(config), allow_drafts)
    print_plan(prepared, resume=False)
    sizes = _sizes(prepared)
    sampled = [sizes, *(_sampled(prepared, prompts, samples) if sizes.passed else [])]
    store_checks(prepared, sampled)
    checks = [*checks_of_judge(prepared), *sampled]
    show_list([check.model_dump(mode="json") for check in checks], as_json)
    echo(f"stored in {preflight_file(prepared.config.out)}")
    if refused := refusing(checks):
        echo(f"the run is refused by: {', '.join(check.name for check in refused)}")
        raise typer.Exit(NOT_PASSED)


def _sizes(prepared: PreparedRun) -> PreflightCheck:
    """Check that prompts fit into the context, and the training into memory and disk."""
    from trainer.sizes import check_sizes

    name, limit = "sizes", "prompts fit the context, training fits memory and disk"
    tasks = prepared.tasks
    try:
        check_sizes(prepared.config, [*tasks.train, *tasks.held_out], acting_of(prepared.config))
    except InvalidError as error:
        return PreflightCheck(
            name=name, value=error.message, limit=limit, passed=False, refuses=True, advice=error.hint
        )
    return PreflightCheck(name=name, value="all fit", limit=limit, passed=True, refuses=True)


def _sampled(prepared: PreparedRun, prompts: int, samples: int | None) -> Iterator[PreflightCheck]:
    from rubricsvc.stats.preview import preview
    from trainer.evaluation.preview import sample_preview
    from trainer.warm_up import is_warmed_up

    run = prepared.config
    warmed_up = run.demonstrations is None or is_warmed_up(run)
    tasks = prepared.tasks.train[:prompts]
    with ExitStack() as opened:
        rewards, gold = opened.enter_context(prepared.rewards()), _gold(prepared, opened)
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
    if found.rewards:
        measured = prepared.repeatability
        noise = (measured.reward.value if measured is not None else None) or 0.0
        seen = preview(found.rewards, found.features, found.gold or None, noise)
        yield _signal(seen, noise, warmed_up)
        yield from _correlations(seen)
        yield _gold_check(seen)
    yield _time(run, found)


def _gold(prepared: PreparedRun, opened: ExitStack) -> RewardSource | None:
    """Open the gold score of the run's evaluations; None where it is the reward."""
    from trainer.config import CHECKS, judge_name
    from trainer.rewards.checks import CheckRewards

    settings = prepared.config.eval
    name = settings.gold_name if settings is not None else REWARD
    if settings is None or name == REWARD:
        return None
    if name == CHECKS:
        try:
            return opened.enter_context(CheckRewards(prepared.tasks.train))
        except InvalidError:  # rubrics of held-out prompts have checks, these have none
            return None
    judge = next(one for one in settings.judges if judge_name(one) == name)
    assert not isinstance(judge, str)  # noqa: S101 - stored judges are in place of their names
    return opened.enter_context(prepared.rewards(judge))


def _signal(seen: Preview, noise: float, warmed_up: bool) -> PreflightCheck:
    share = seen.with_signal / seen.groups
    passed = share >= MIN_SIGNAL
    advice = "raise sampling.group_size or sampling.temperature, or use criteria that tell completions apart"
    if not warmed_up:
        advice = "the policy has not learned its demonstrations yet; run this again after the warm-up"
    return PreflightCheck(
        name="signal",
        value=f"rewards of {seen.with_signal} of {seen.groups} prompts deviate by more than {noise:.4f}",
        limit=f"a share of at least {MIN_SIGNAL:g}",
        passed=passed,
        refuses=warmed_up,
        advice="" if passed else advice,
    )


def _correlations(seen: Preview) -> Iterator[PreflightCheck]:
    """Yield a check of the reward's correlation with length, with the form of the text, and with single criteria."""
    from trainer.evaluation.preview import CRITERION

    criteria = {name: one for name, one in seen.correlations.items() if name.startswith(CRITERION)}
    length = {name: one for name, one in seen.correlations.items() if name == "length"}
    form = {name: one for name, one in seen.correlations.items() if name not in criteria and name not in length}
    for name, values, advice in (
        ("length", length, "expect the length to change; add a criterion or a limit against it"),
        ("form", form, "expect more or less of it; look at the samples of the run"),
    ):
        yield _correlation(name, values, advice)
    top = sorted(criteria.items(), key=lambda one: -abs(one[1].value or 0.0))
    if len(criteria) > 1:
        passed = abs(top[1][1].value or 0.0) > MAX_TAU / 3
        shown = ", ".join(f"{name.removeprefix(CRITERION)} {one.value:.2f}" for name, one in top[:3])
        yield PreflightCheck(
            name="criteria",
            value=f"Kendall's tau of the reward with {shown}",
            limit="more than one criterion decides",
            passed=passed,
            advice="" if passed else "the reward is one criterion's: change weights or wording of the others",
        )


def _correlation(name: str, values: Mapping[str, Estimate], advice: str) -> PreflightCheck:
    limit = f"interval of Kendall's tau within ±{MAX_TAU:g}, or with smaller values"
    if not values:
        return PreflightCheck(name=name, value="does not vary", limit=limit, passed=True)
    largest, one = max(values.items(), key=lambda each: abs(each[1].value or 0.0))
    interval = f" [{one.low:.2f}, {one.high:.2f}]" if one.low is not None and one.high is not None else ""
    ends = [one.low if one.low is not None else one.value, one.high if one.high is not None else one.value]
    passed = min(abs(end or 0.0) for end in ends) <= MAX_TAU or (ends[0] or 0.0) * (ends[1] or 0.0) < 0
    return PreflightCheck(
        name=name,
        value=f"{largest} {one.value:.2f}{interval}",
        limit=limit,
        passed=passed,
        advice="" if passed else advice,
    )


def _gold_check(seen: Preview) -> PreflightCheck:
    """Check that choosing by the reward does not lower the gold score."""
    last, first = seen.curve[-1], seen.curve[0]
    limit = "the interval of the change of gold is not below 0"
    reward = f"best of {last.n}: reward {last.reward - first.reward:+.3f}"
    gain = seen.gold_gain
    if gain is None or gain.value is None:
        advice = "name a judge that is not trained on, or checks, in [eval]"
        return PreflightCheck(name="gold", value=f"{reward}, no gold", limit=limit, passed=None, advice=advice)
    interval = f" [{gain.low:.3f}, {gain.high:.3f}]" if gain.low is not None and gain.high is not None else ""
    turn = f", falling from best of {seen.gold_turns_at} on" if seen.gold_turns_at else ""
    passed = gain.high is None or gain.high >= 0
    return PreflightCheck(
        name="gold",
        value=f"{reward}, gold {gain.value:+.3f}{interval}{turn}",
        limit=limit,
        passed=passed,
        refuses=True,
        advice="" if passed else "what the reward prefers, gold does not: change the rubric or the judge",
    )


def _time(run: Any, found: PreviewSamples) -> PreflightCheck:
    sampling = run.sampling
    total = run.steps * sampling.prompts_per_step * sampling.group_size
    scale = total / max(1, found.completions) / 60
    minutes = (found.sample_seconds + found.score_seconds) * scale
    judge = run.judge
    unpriced = not isinstance(judge, Judge) or bool(judge.unpriced)
    cost = "the price of the judge is not known" if unpriced else "the judge is free" if not judge.priced else "priced"
    return PreflightCheck(
        name="time",
        value=f"{total} completions, {minutes:.0f} minutes to sample and score them, without the updates; {cost}",
        limit="none",
        passed=True,
    )
