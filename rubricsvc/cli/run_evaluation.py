"""The evaluations of `rubricsvc runs`: their judges, what is printed of them, and the baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

from rubricsvc.cli.db import database
from rubricsvc.cli.models import fetch_if_embedded
from rubricsvc.cli.output import Json, counted, echo, print_data, print_json, print_table
from rubricsvc.cli.run_rewards import stored_judge
from rubricsvc.cli.run_samples import read_evaluations
from rubricsvc.cli.run_views import Run, find
from rubricsvc.core.estimate import MIN_CLUSTERS
from rubricsvc.core.judge import Judge
from rubricsvc.core.run_evaluation import REWARD, column_of, in_order, measure_rows
from rubricsvc.errors import NotFoundError
from workers.engines.local.weights import with_adapter_fields

if TYPE_CHECKING:
    from trainer.config import EvalConfig, RunConfig, ServiceJudge
    from trainer.data.tasks import Task
    from trainer.evaluation.evaluation import Evaluation
    from trainer.evaluation.evaluator import Evaluator
    from trainer.history import Metrics
    from trainer.recording.recorder import EvaluationRecorder
    from trainer.rewards.source import RewardSource

BY_PROMPT = ("values", "prompt_digests", "rubric_digests")
"""The entries of an evaluation with a value for each prompt."""

SourceOf = Callable[[Any], Any]
"""Opens the reward source of a judge."""


def with_eval_judges(config: RunConfig) -> RunConfig:
    """Return the run with the judges of its evaluation in place of their names: the record has all of them.

    Those that the queue asks are stored under their names.
    """
    if config.eval is None:
        return config
    found: list[Judge | ServiceJudge] = []
    for judge in config.eval.judges:
        if isinstance(judge, str) or (isinstance(judge, Judge) and config.scored_by == "celery"):
            with database() as db:
                found.append(stored_judge(db, judge).value)
        else:
            found.append(with_adapter_fields(judge) if isinstance(judge, Judge) else judge)
    return config.model_copy(update={"eval": config.eval.model_copy(update={"judges": tuple(found)})})


def print_evaluation_plan(config: RunConfig, held_out: Sequence[Task]) -> None:
    """Print what is evaluated, and fetch the embedded model where a judge of the evaluation is it."""
    if config.eval is None:
        return
    settings = config.eval
    greedy = " and a greedy one" if settings.greedy else ""
    prompts = f"{counted(len(held_out), 'held-out prompt')}, {counted(settings.samples, 'sample')}{greedy} each"
    scores = f"scored by {', '.join(settings.score_names)}; best checkpoint by {settings.gold_name}"
    echo(f"evaluation every {counted(settings.every, 'step')}: {prompts}, {scores}")
    for warning in _gold_warnings(settings, held_out):
        echo(f"warning: {warning}")
    for judge in settings.judges:
        if isinstance(judge, Judge):
            fetch_if_embedded(judge)


def _gold_warnings(settings: EvalConfig, held_out: Sequence[Task]) -> Iterator[str]:
    """Yield why the gold score of a run's evaluations cannot show that its reward is fooled."""
    from trainer.config import CHECKS

    gold = settings.gold_name
    if settings.stop_on_divergence and gold == REWARD:
        yield "stop_on_divergence has no effect: the gold score is the reward; name judges, or set checks"
    if gold == CHECKS and all(criterion.check for task in held_out for criterion in task.rubric.criteria):
        yield "the gold score is by checks, and so is the whole reward: it cannot diverge from itself"
    elif gold != REWARD and len(held_out) < MIN_CLUSTERS:
        yield f"divergence from gold is not tested: that needs {MIN_CLUSTERS} held-out prompts"


@contextmanager
def evaluator_of(
    config: RunConfig,
    held_out: Sequence[Task],
    rewards: RewardSource,
    source_of: SourceOf,
    *,
    on_progress: Callable[[str], None],
    stop: Event,
) -> Iterator[Evaluator | None]:
    """Open what evaluates a run; None without [eval]. ``rewards`` are those that it is trained on."""
    if config.eval is None:
        yield None
        return
    from trainer.config import CHECKS, judge_name
    from trainer.evaluation.evaluator import Evaluator
    from trainer.rewards.checks import CheckRewards

    with ExitStack() as opened:
        scorers: dict[str, RewardSource] = {REWARD: rewards}
        for judge in config.eval.judges:
            scorers[judge_name(judge)] = opened.enter_context(source_of(judge))
        if config.eval.checks:
            scorers[CHECKS] = opened.enter_context(CheckRewards(held_out))
        yield Evaluator(config, held_out, scorers, on_progress=on_progress, stop=stop)


def evaluation_of(evaluator: Evaluator | None, config: RunConfig, recorder: EvaluationRecorder) -> Evaluation | None:
    """Return the evaluations of a run; None without [eval]."""
    from trainer.evaluation.evaluation import Evaluation

    return Evaluation(evaluator, config.out, config.steps, recorder) if evaluator is not None else None


def is_evaluated(config: RunConfig) -> bool:
    """Return whether the last evaluation of a run and its baselines are done, or it has none."""
    from trainer.evaluation.baselines import missing_baselines, read_baselines
    from trainer.evaluation.evaluation import LINES
    from trainer.history import read

    if config.eval is None:
        return True
    if config.eval.baselines and missing_baselines(config, read_baselines(config.out)):
        return False
    return any(line["step"] == config.steps for line in read(config.out, LINES))


def has_diverged(config: RunConfig) -> bool:
    """Return whether a run stopped where its reward diverges from gold: one of several is not resumed past it."""
    from rubricsvc.stats.divergence import first_divergence
    from trainer.evaluation.evaluation import LINES
    from trainer.history import read

    if config.eval is None or not config.eval.stop_on_divergence:
        return False
    lines = sorted(read(config.out, LINES), key=lambda line: int(line["step"]))
    found = first_divergence(lines)
    return found is not None and found.step == lines[-1]["step"]


def evaluations(run: Run, as_json: Json = False) -> None:
    """Show the evaluations of a run and its baselines on held-out prompts."""
    with database() as db:
        found = read_evaluations(db, find(db, run))
    if not found.lines:
        hint = "add a table [eval] to its configuration (docs/training.md)"
        raise NotFoundError(f"no evaluations of the run {run}", hint=hint)
    show_evaluations([*found.lines, *found.baselines], as_json)
    if found.folder is not None and (found.folder / "best").is_dir():
        from trainer.evaluation.evaluation import saved_best

        if (best := saved_best(found.folder)) is not None:
            echo(f"best by {best['gold']}: {best['folder']}")


def show_evaluations(lines: Sequence[Metrics], as_json: bool) -> None:
    """Print a row for each evaluation and score, or each evaluation as JSON."""
    if as_json:
        for line in lines:
            print_json({name: value for name, value in line.items() if name not in BY_PROMPT})
        return
    columns = ("policy", "step", "score", "mean", "difference", "max_at_k", "worst_of_k", "greedy", "unscored")
    print_table(columns, [row for line in lines for row in _rows(line)])
    ordered = in_order(lines)
    if measures := measure_rows(ordered):
        print_data("")
        print_table(("mean", *map(column_of, ordered)), [[name, *map(_cell, row)] for name, row in measures])
    if suites := [(column_of(line), line["regression"]) for line in ordered if "regression" in line]:
        passed = (f"{name}: {sum(not one['failed'] for one in suite.values())}" for name, suite in suites)
        echo(f"small requests passed, of {len(suites[0][1])}: {', '.join(passed)}")
    if guarded := [line["leak_hits"] for line in lines if "leak_hits" in line]:
        echo(f"leak_hits: {sum(guarded)}")


def _rows(line: Metrics) -> Iterator[list[Any]]:
    for score, found in line["scores"].items():
        mark = " (gold)" if score == line["gold"] else ""
        estimates = [_cell(found.get(name)) for name in ("mean", "mean_difference", "max_at_k", "worst_of_k", "greedy")]
        name = line.get("baseline", line["policy"])
        yield [name, line["step"], score + mark, *estimates, found["unscored_fraction"]]


def _cell(estimate: Mapping[str, Any] | None) -> str:
    if estimate is None or estimate["value"] is None:
        return ""
    interval = "" if estimate["low"] is None else f" [{estimate['low']:.3f}, {estimate['high']:.3f}]"
    return f"{estimate['value']:.3f}{interval}"
