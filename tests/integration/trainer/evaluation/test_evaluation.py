"""Evaluations in a run, with baselines."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from threading import Event
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import Reward
from rubricsvc.errors import InvalidError, UnavailableError
from tests.model.trainer.held_out import HELD_OUT, CountingRewards, eval_config, evaluation, evaluator, length
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.data.tasks import Task, tasks_of_step
from trainer.evaluation import FOLDER, LINES, Evaluation, Evaluator, read_baselines, run_baselines, saved_best
from trainer.loop import sample_tasks, train
from trainer.monitors.measures import measures
from trainer.policies.policy import Policy
from trainer.recording import History, Metrics
from trainer.recording import read as read_metrics
from trainer.rewards import CallableRewards, RewardSource, ScoredRollout

REWARDS = CallableRewards(share_of_a)


def run(config: TrainConfig, given: Evaluation | None = None, **options: Any) -> History:
    return train(tiny_policy(), TASKS, REWARDS, config, evaluation=given or evaluation(config), **options)


def timeless(lines: list[Metrics]) -> list[Metrics]:
    lines = sorted(lines, key=lambda line: int(line["step"]))
    return [{name: value for name, value in line.items() if name != "eval_time"} for line in lines]


def test_train_evaluates_start_intervals_and_end(tmp_path: Path) -> None:
    history = run(eval_config(tmp_path, steps=5))
    lines = read_metrics(tmp_path, LINES)
    assert [line["step"] for line in lines] == [0, 2, 4, 5] and history.evaluations == lines
    first, *_, last = lines
    assert (first["prompts"], first["k"], first["gold"], first["best"]) == (6, 3, "gold", True)
    assert set(first["scores"]) == {"reward", "gold"}
    assert first["prompt_digests"] == [task.prompt.digest for task in HELD_OUT]
    assert first["rubric_digests"] == [task.rubric.digest for task in HELD_OUT]
    assert "mean_difference" not in first["scores"]["gold"]
    difference = last["scores"]["reward"]["mean_difference"]
    means = [line["scores"]["reward"]["mean"]["value"] for line in (first, last)]
    assert difference["value"] == pytest.approx(means[1] - means[0])
    assert difference["low"] < difference["value"] < difference["high"]
    assert last["scores"]["reward"]["worst_of_k"]["value"] <= means[1] <= last["scores"]["reward"]["max_at_k"]["value"]


class StoppedAt(CountingRewards):
    """A judge of the evaluation that is interrupted when it is asked about the policy of one step."""

    def __init__(self, step: int, error: BaseException) -> None:
        super().__init__(length)
        self.step, self.error = step, error

    def score(self, tasks: Any, completions: Any) -> Any:
        if completions[0].step == self.step:
            raise self.error
        return super().score(tasks, completions)


@pytest.mark.parametrize(("checkpoint_every", "at"), [(1, 0), (0, 2), (3, 4), (1, 5)])
def test_train_interrupted_in_an_evaluation_misses_and_repeats_none(
    tmp_path: Path, checkpoint_every: int, at: int
) -> None:
    whole = run(eval_config(tmp_path / "whole", steps=5, checkpoint_every=checkpoint_every))
    config = eval_config(tmp_path / "cut", steps=5, checkpoint_every=checkpoint_every)
    with pytest.raises(KeyboardInterrupt):
        run(config, evaluation(config, StoppedAt(at, KeyboardInterrupt())))
    gold = CountingRewards(length)
    resumed = run(config, evaluation(config, gold), resume=True)
    assert timeless(resumed.evaluations) == timeless(whole.evaluations)
    assert timeless(read_metrics(tmp_path / "cut", LINES)) == timeless(whole.evaluations)
    assert [step for step, _ in gold.calls] == [step for step in (0, 2, 4, 5) if step >= at]


def test_train_refuses_held_out_prompts_that_are_trained_on() -> None:
    config = eval_config()
    with pytest.raises(InvalidError) as caught:
        train(tiny_policy(), [*TASKS, HELD_OUT[1]], REWARDS, config, evaluation=evaluation(config))
    assert caught.value.path == "eval" and HELD_OUT[1].name in caught.value.message


def test_train_stops_where_the_evaluation_has_too_few_scores(tmp_path: Path) -> None:
    config = eval_config(tmp_path)
    down = CountingRewards(lambda *_: None)
    with pytest.raises(UnavailableError, match=r"24 of 24"):
        run(config, evaluation(config, down))
    assert read_metrics(tmp_path, LINES) == []
    assert [line["step"] for line in run(config, resume=True).evaluations] == [0, 2, 4, 6]


class GoldBySteps(RewardSource):
    """A judge whose scores depend on the step of the policy alone."""

    def __init__(self, **by_step: float) -> None:
        self.by_step = by_step

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        value = self.by_step[f"step{completions[0].step}"]
        return CallableRewards(lambda *_: value).score(tasks, completions)


def test_evaluation_keeps_the_best_policy_by_gold(tmp_path: Path) -> None:
    config = eval_config(tmp_path, steps=8)
    policy = tiny_policy()
    gold = GoldBySteps(step0=0.5, step2=0.4, step4=0.7, step6=0.7, step8=0.6)
    kept: dict[int, torch.Tensor] = {}

    def on_step(step: Metrics) -> None:
        kept[step["step"]] = next(policy.model.parameters()).detach().clone()

    history = train(policy, TASKS, REWARDS, config, evaluation=evaluation(config, gold), on_step=on_step)
    assert [line["best"] for line in history.evaluations] == [True, False, True, False, False]
    best = saved_best(tmp_path)
    assert best is not None and (best["step"], best["gold"], best["value"]) == (4, "gold", pytest.approx(0.7))
    assert [path.name for path in (tmp_path / "best").iterdir()] == ["step-000004"]
    model = AutoModelForCausalLM.from_pretrained(Path(best["folder"]) / "model")
    assert torch.equal(next(model.parameters()), kept[4])


class RisingRewards(CallableRewards):
    """Rewards that rise with the steps of the policy."""

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        return [ScoredRollout(Reward((one.step or 0) / 20, 1.0, "steps")) for one in completions]


def test_train_stops_once_where_the_reward_diverges_from_gold(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = eval_config(tmp_path, steps=9, every=3, stop_on_divergence=True, checkpoint_every=0)
    scorers = {"reward": RisingRewards(length), "gold": CallableRewards(lambda _prompt, _text: 0.5)}
    with caplog.at_level(logging.WARNING):
        stopped = run(config, Evaluation(Evaluator(config, HELD_OUT, scorers), tmp_path, config.steps))
    assert stopped.stopped and stopped.steps[-1]["step"] == 3 and checkpoint.steps(tmp_path) == [3]
    assert "to step 3" in stopped.stop_reason and stopped.stop_reason in caplog.text
    resumed = run(config, Evaluation(Evaluator(config, HELD_OUT, scorers), tmp_path, config.steps), resume=True)
    assert not resumed.stopped and len(resumed.steps) == 9


STEPS = 8


def baselines(config: Any, given: Evaluator | None = None, **options: Any) -> list[Metrics] | None:
    policies = tiny_policy, tiny_policy
    return run_baselines(config, policies, TASKS, REWARDS, given or evaluator(config), **options)


def mean(line: Metrics, score: str = "reward") -> float:
    value: float = line["scores"][score]["mean"]["value"]
    return value


def test_baselines_are_evaluated_on_the_same_prompts(tmp_path: Path) -> None:
    config = eval_config(tmp_path, steps=STEPS, every=STEPS)
    history = train(tiny_policy(), TASKS, REWARDS, config, evaluation=evaluation(config))
    lines = baselines(config)
    assert lines is not None and lines == read_baselines(tmp_path)
    start, best_of_n, supervised = lines
    assert [line["baseline"] for line in lines] == ["start", "best_of_n", "best_of_n_supervised"]
    assert {line["setup"] for line in lines} == {history.evaluations[0]["setup"]}
    assert start["scores"] == history.evaluations[0]["scores"], "the run's own evaluation is used again"
    assert (best_of_n["generated"], supervised["step"]) == (6 * 3 * 4, STEPS)
    assert mean(best_of_n) > mean(start) and mean(supervised) > mean(start)
    assert best_of_n["scores"]["gold"]["mean_difference"]["value"] == pytest.approx(
        mean(best_of_n, "gold") - mean(start, "gold")
    )


def test_supervised_baseline_learns_the_best_samples_of_the_starting_policy() -> None:
    """The first step learns the best of each group; later groups are those of the starting policy as well."""
    config = tiny_config(steps=2, algorithm="best_of_n_supervised", optim={"lr": 1e-3, "updates_per_batch": 3})
    seen: list[list[str]] = []

    class Recording(RewardSource):
        def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
            seen.append([one.text for one in completions])
            return REWARDS.score(tasks, completions)

    history = train(tiny_policy(), TASKS, Recording(), config)
    expected = [
        list(sample_tasks(tiny_policy(), tasks_of_step(TASKS, step, config), config, step).texts) for step in range(2)
    ]
    assert seen == expected
    assert all("kl/start" not in step for step in history.steps)
    assert history.steps[0]["loss"] > 0, "a mean negative log-likelihood"

    policy = tiny_policy()
    train(policy, TASKS, REWARDS, config.model_copy(update={"steps": 1}))
    rollouts = sample_tasks(tiny_policy(), tasks_of_step(TASKS, 0, config), config, 0)
    rewards = torch.tensor([share_of_a(TASKS[0].prompt, text) for text in rollouts.texts]).view(2, 4)
    best = rollouts.select(rewards.argmax(-1) + torch.tensor([0, 4]))
    assert likelihood(policy, best) > likelihood(tiny_policy(), best)


def likelihood(policy: Policy, rollouts: Any) -> float:
    with torch.no_grad():
        return float(policy.logprobs(rollouts, 1.0)[0].sum())


def test_baselines_continue_where_they_were_stopped(tmp_path: Path) -> None:
    config = eval_config(tmp_path, steps=STEPS, every=STEPS)
    stop = Event()

    def on_step(step: Metrics) -> None:
        if step["step"] == 3:
            stop.set()

    assert baselines(config, on_step=on_step, stop=stop) is None
    assert [line["baseline"] for line in read_baselines(tmp_path)] == ["start", "best_of_n"]
    gold = CountingRewards(length)
    steps: list[int] = []
    lines = baselines(config, evaluator(config, gold), on_step=lambda step: steps.append(step["step"]))
    assert lines is not None and len(lines) == 3
    assert steps == [4, 5, 6, 7, 8]
    assert [step for step, _ in gold.calls] == [8], "what is recorded is not evaluated again"
    trained = tmp_path / FOLDER / "best-of-n-supervised"
    assert [line["step"] for line in read_metrics(trained, LINES)] == [0, 8]
    assert checkpoint.steps(trained)[-1] == 8
    assert json.loads((trained / "config.json").read_text())["algorithm"] == "best_of_n_supervised"
    assert baselines(config) == lines


def test_evaluation_records_the_monitors_of_each_prompt() -> None:
    """Of its sampled completions alone, not of the greedy one."""
    line, completions = evaluator(eval_config(steps=2)).evaluate(tiny_policy(), 0)
    monitors = line["monitors"]
    for place in range(len(HELD_OUT)):
        own = [one for one in completions if one.prompt == place and not one.greedy]
        assert monitors["completions/mean_length"][place] == pytest.approx(fmean(one.tokens for one in own))
        repeated = fmean(measures("", one.completion.text)["repetition"] for one in own)
        assert monitors["monitors/repetition"][place] == pytest.approx(repeated)
    assert {len(values) for values in monitors.values()} == {len(HELD_OUT)}
