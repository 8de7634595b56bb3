"""Baselines: what a run has to beat on its held-out prompts.

At equal compute:

- ``start``: the policy that the run starts from.
- ``best_of_n``: of n samples of the starting policy the best by the training reward, n the run's group size. It pays
  at every use what training pays once.
- ``best_of_n_supervised``: the policy after supervised learning of the best of each group, with as many samples of the
  starting policy, judged as often, by the same optimiser in as many steps (`trainer.algorithms.supervised`).

In an environment also ``without_tools`` (the trained policy, whose prompt has no tools), ``empty_results`` (its tools
find nothing) and ``script`` (what a script without a model makes of the search's first document); and with
``eval.other`` the starting and the trained policy on other prompts (``other_start``, ``other``). A run that begins with
demonstrations has the untouched policy as well (``before_demonstrations``).

``out/baselines/evaluations.jsonl`` has a line for each, ``out/baselines/best-of-n-supervised`` is a separate run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.errors import InvalidError
from rubricsvc.schemas.runs import BASELINES, BEFORE, EQUAL_COMPUTE, OF_TOOLS, OTHER, RunEvaluation
from trainer import checkpoint
from trainer.config import SamplingConfig, TrainConfig
from trainer.data.demonstrations import rollouts_of
from trainer.data.tasks import Task
from trainer.environments.scripted import NAME, demonstrate
from trainer.environments.tools import EmptyResults, Research
from trainer.evaluation.evaluation import (
    LINES,
    Evaluation,
    completions_file,
    record_of,
    record_of_file,
    write_completions,
)
from trainer.evaluation.evaluator import Evaluator, prompt_table
from trainer.loop import train
from trainer.policies.policy import Acting, Policy
from trainer.policies.rollouts import Rollouts
from trainer.recording import EvaluationKey, EvaluationRecorder, Metrics, line_of, read, replace_text
from trainer.rewards import RewardSource, StopRequested


def without_tools(policy: Policy) -> Policy:
    """Return a policy without its tools."""
    changed = copy(policy)
    changed.acting = None
    return changed


def with_empty_results(policy: Policy) -> Policy:
    """Return a policy whose tools find nothing."""
    changed, acting = copy(policy), _acting(policy)
    changed.acting = Acting(EmptyResults(acting.environment), acting.limits, acting.max_tokens)
    return changed


class Script(Policy):
    """A script of `research` in the place of a policy, whose tokenizer it uses."""

    def __init__(self, policy: Policy) -> None:
        """Raise an InvalidError unless the policy acts in `research`."""
        super().__init__(policy.model, policy.tokenizer, NAME, _acting(policy))
        environment = _acting(policy).own_environment
        if not isinstance(environment, Research):
            raise InvalidError("the script is one of `research`", hint="remove it", path="eval.baselines")
        self._environment = environment

    def sample(self, prompts: Sequence[Prompt], group_size: int, sampling: SamplingConfig, seed: int) -> Rollouts:
        """Return its completion of each prompt, ``group_size`` times; it has no chance."""
        completions = [self._completion(prompt) for prompt in prompts for _ in range(group_size)]
        return rollouts_of(prompts, completions, self)

    def _completion(self, prompt: Prompt) -> Completion:
        found = demonstrate(self._environment, prompt, _acting(self).limits, informed=False)
        completion = found or Completion(text="", policy=NAME)
        return completion.model_copy(update={"sampling": {**completion.sampling, "truncated": False}})


TOOL_BASELINES: Mapping[str, Callable[[Policy], Policy]] = dict(
    zip(OF_TOOLS, (without_tools, with_empty_results, Script), strict=True)
)
"""What makes a baseline of the trained policy, by name."""


def _acting(policy: Policy) -> Acting:
    if policy.acting is None:
        raise InvalidError("the run has no environment", hint="remove the baseline", path="eval.baselines")
    return policy.acting


FOLDER = "baselines"
FILE = "evaluations.jsonl"
_TRAINED = "best-of-n-supervised"
START, BEST_OF_N, SUPERVISED = EQUAL_COMPUTE
OTHER_START, OTHER_TRAINED = OTHER

Config = TypeVar("Config", bound=TrainConfig)


@dataclass(frozen=True)
class OtherPrompts:
    """Other prompts that the policy is evaluated on, and the environment that it acts in there."""

    evaluator: Evaluator
    acting: Acting | None


@dataclass(frozen=True)
class RunPolicies:
    """What loads the policies of a run: the one that it starts from, and the one that it has trained."""

    start: Callable[[], Policy]
    trained: Callable[[], Policy]


def read_baselines(out: Path) -> list[Metrics]:
    """Return the evaluations of a run's baselines; empty before they are run."""
    return read(out / FOLDER, FILE)


def names_of_baselines(config: TrainConfig) -> list[str]:
    """Return the baselines of a run: those that are named, or all that it can have."""
    if config.eval is None:
        return []
    if not isinstance(config.eval.baselines, bool):
        return [name for name in BASELINES if name in config.eval.baselines]
    tools = TOOL_BASELINES if config.environment is not None else ()
    script = config.environment is not None and config.environment.name == "research"
    chosen = {*EQUAL_COMPUTE, *tools, *(OTHER if config.eval.other else ())} - (set() if script else {"script"})
    return [name for name in BASELINES if name in chosen]


def missing_baselines(config: TrainConfig, lines: Sequence[Metrics]) -> list[str]:
    """Return the baselines of a run that are not among its evaluations."""
    of_trained = {SUPERVISED, *OF_TOOLS, OTHER_TRAINED}
    done = {line["baseline"] for line in lines if line["baseline"] not in of_trained or line["step"] == config.steps}
    return [name for name in names_of_baselines(config) if name not in done]


class _Baselines:
    """The evaluations of a run's baselines, in its folder and on record."""

    def __init__(self, out: Path, evaluator: Evaluator, recorder: EvaluationRecorder | None) -> None:
        self.out, self.folder, self.recorder = out, out / FOLDER, recorder
        self._setup = evaluator.setup
        self.lines = {line["baseline"]: line for line in read_baselines(out) if self._is_current(line)}

    def _is_current(self, line: Metrics) -> bool:
        return line["setup"] == self._setup or line["baseline"] in OTHER

    def add(self, name: str, line: Metrics) -> None:
        self.lines[name] = line
        self.folder.mkdir(parents=True, exist_ok=True)
        named = ({**self.lines[one], "baseline": one} for one in BASELINES if one in self.lines)
        replace_text(self.folder / FILE, "".join(map(line_of, named)))

    def evaluate(
        self,
        name: str,
        policy: Policy,
        evaluator: Evaluator,
        *,
        step: int = 0,
        best_of: int = 1,
        start: str | None = None,
    ) -> None:
        """Evaluate a policy, and compare it with an earlier baseline ``start``."""
        before = prompt_table(self.lines[start]) if start else None
        found = evaluator.evaluate(policy, step, best_of=best_of, start=before)
        write_completions(self.folder / f"{name}.jsonl", evaluator, found.completions)
        if self.recorder is not None:
            self.recorder.evaluation(record_of(evaluator, found, name))
        self.add(name, found.line)


def evaluate_untouched(
    out: Path, load: Callable[[], Policy], evaluator: Evaluator, recorder: EvaluationRecorder | None = None
) -> None:
    """Evaluate the policy before the demonstrations, and record it, unless that is done."""
    found = _Baselines(out, evaluator, recorder)
    if BEFORE not in found.lines:
        found.evaluate(BEFORE, load(), evaluator)


def run_baselines(
    config: TrainConfig,
    policies: RunPolicies,
    tasks: Sequence[Task],
    rewards: RewardSource,
    evaluator: Evaluator,
    *,
    other: OtherPrompts | None = None,
    on_step: Callable[[Metrics], None] | None = None,
    stop: Event | None = None,
    record: Mapping[str, Any] | None = None,
    recorder: EvaluationRecorder | None = None,
) -> list[Metrics] | None:
    """Run the baselines that are missing, and return their evaluations; None if it was stopped.

    Args:
        config: Settings of the run, with ``out``.
        policies: What loads the policies of the run.
        tasks: The prompts to train on.
        rewards: The training reward.
        evaluator: The run's.
        other: The other prompts, where the run has some.
        on_step: Called with the metrics of each step of the supervised baseline.
        stop: When set, the supervised baseline ends after the current step, and goes on when it is run again.
        record: Plain data for the ``config.json`` of the supervised baseline.
        recorder: Records the baselines as evaluations of the run, also earlier ones that are not on record.
    """
    if config.out is None:
        raise InvalidError("baselines need the folder of the run", hint="set `out`", path="out")
    found = _Baselines(config.out, evaluator, recorder)
    _record_kept(found, evaluator, other)
    missing = missing_baselines(config, list(found.lines.values()))
    try:
        _evaluate_start(config, policies, evaluator, found, missing)
        _evaluate_trained(config, policies, evaluator, found, [name for name in missing if name in OF_TOOLS])
        if other is not None and OTHER_TRAINED in missing:
            _evaluate_other(config, policies, other, found)
    except StopRequested:
        return None
    if SUPERVISED in missing:
        supervised = supervised_config(config, found.folder)
        trained = found.folder / _TRAINED
        _copy_start(trained, found.lines[START])
        options: dict[str, Any] = {"on_step": on_step, "stop": stop, "record": record}
        last = _LastEvaluation(config.steps, recorder) if recorder is not None else None
        evaluation = Evaluation(evaluator, trained, config.steps, last)
        resume = checkpoint.has_run(trained)
        history = train(policies.start(), tasks, rewards, supervised, evaluation=evaluation, resume=resume, **options)
        if history.stopped:
            return None
        found.add(SUPERVISED, history.evaluations[-1])
    return read_baselines(config.out)


def _evaluate_start(
    config: TrainConfig, policies: RunPolicies, evaluator: Evaluator, found: _Baselines, missing: Sequence[str]
) -> None:
    """Evaluate the starting policy, which the others are compared with, and best-of-n of it, where they are missing."""
    if START not in found.lines:
        known = [line for line in read(found.out, LINES) if line["step"] == 0 and line["setup"] == evaluator.setup]
        if known:
            if found.recorder is not None:
                path = completions_file(found.out, 0)
                found.recorder.evaluation(record_of_file(evaluator, known[0], path, START))
            found.add(START, known[0])
        else:
            found.evaluate(START, policies.start(), evaluator)
    if BEST_OF_N in missing:
        best_of = config.sampling.group_size
        found.evaluate(BEST_OF_N, policies.start(), evaluator, best_of=best_of, start=START)


def _evaluate_trained(
    config: TrainConfig, policies: RunPolicies, evaluator: Evaluator, found: _Baselines, missing: Sequence[str]
) -> None:
    for name in missing:
        policy = TOOL_BASELINES[name](policies.trained())
        found.evaluate(name, policy, evaluator, step=config.steps, start=START)


def _evaluate_other(config: TrainConfig, policies: RunPolicies, other: OtherPrompts, found: _Baselines) -> None:
    for name, load, step in ((OTHER_START, policies.start, 0), (OTHER_TRAINED, policies.trained, config.steps)):
        policy = load()
        policy.acting = other.acting
        found.evaluate(name, policy, other.evaluator, step=step, start=OTHER_START if step else None)


def _record_kept(found: _Baselines, evaluator: Evaluator, other: OtherPrompts | None) -> None:
    """Record the baselines that were evaluated, and are not on record."""
    recorder = found.recorder
    known = recorder.recorded_evaluations() if recorder is not None and found.lines else None
    if recorder is None or known is None:
        return
    for name, line in found.lines.items():
        of_evaluator = other.evaluator if other is not None and name in OTHER else evaluator
        if (name, line["step"], line["setup"]) not in known and line["setup"] == of_evaluator.setup:
            path = found.folder / f"{name}.jsonl"
            if name == SUPERVISED:
                path = completions_file(found.folder / _TRAINED, line["step"])
            elif name == START and not path.is_file():
                path = completions_file(found.out, 0)
            recorder.evaluation(record_of_file(of_evaluator, line, path, name))


def supervised_config(config: Config, folder: Path) -> Config:
    """Return the settings of the supervised baseline of a run."""
    changes = {"algorithm": SUPERVISED, "out": folder / _TRAINED, "evolve": None, "demonstrations": None}
    return config.model_copy(update=changes)


def _copy_start(trained: Path, start: Metrics) -> None:
    """Give a run the evaluation of its starting policy, where it has none."""
    if not read(trained, LINES):
        trained.mkdir(parents=True, exist_ok=True)
        line = {name: value for name, value in start.items() if name != "baseline"}
        replace_text(trained / LINES, line_of(line))


class _LastEvaluation:
    """Records the last evaluation of the supervised baseline's own run as that of the baseline."""

    def __init__(self, steps: int, recorder: EvaluationRecorder) -> None:
        self._steps, self._recorder = steps, recorder

    def evaluation(self, evaluation: RunEvaluation) -> None:
        if evaluation.step == self._steps:
            line = {**evaluation.line, "baseline": SUPERVISED}
            self._recorder.evaluation(evaluation.model_copy(update={"name": SUPERVISED, "line": line}))

    def recorded_evaluations(self) -> set[EvaluationKey] | None:
        return None
