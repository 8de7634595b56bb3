"""The training loop: sample -> score -> advantages -> loss -> step -> record.

::

    config = load_config(Path("run.toml"))                    # trainer.config; or TrainConfig(steps=50, …)
    policy = Policy.load("embedded")                          # trainer.policies.policy
    with JudgeRewards(judge) as rewards:                      # trainer.rewards; or CallableRewards(function)
        history = train(policy, tasks, rewards, config, on_step=print)

``history.steps`` has one dict of metrics for each step, the lines of ``out/metrics.jsonl``. ``policy`` is trained in
place. The random numbers of a step depend on the seed and the step's number alone, so that a resumed run equals the run
that was never interrupted.

Shapes in names: G prompts (groups) a step, M completions a group, B = G·M, T tokens.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import formula_for, reward_or_null
from rubricsvc.errors import InvalidError
from rubricsvc.schemas.runs import RolloutGroup, RunStep
from trainer import checkpoint, metrics
from trainer.alarms import monitor_alarms
from trainer.algorithms import SUPERVISED
from trainer.algorithms.advantages import GroupRewards, best_rows, counted_rewards, group_statistics
from trainer.algorithms.credit import token_advantages
from trainer.algorithms.custom import Algorithm, algorithm_of
from trainer.algorithms.losses import TokenBatch, Totals, kl_estimate, likelihood
from trainer.algorithms.losses import loss as built_in_loss
from trainer.config import DemonstrationsConfig, Identity, TrainConfig
from trainer.data.demonstrations import demonstrated
from trainer.data.tasks import Task, check_apart, other_tasks, stream_seed, tasks_of_step
from trainer.divergence import first_divergence
from trainer.environments.episodes import log_leaks
from trainer.monitors.measures import MONITORS, WITH_CRITERIA
from trainer.optim import MasterAdamW
from trainer.policies.policy import Policy
from trainer.policies.rollouts import Rollouts, join
from trainer.recording import (
    NO_TRACKING,
    History,
    Metrics,
    RunRecorder,
    Tracking,
    recorded,
    rollout_groups,
    write_config,
)
from trainer.rewards import ControlRewards, RewardSource, ScoredRollout, StepScorer, StopRequested, judge_of

if TYPE_CHECKING:
    from trainer.evaluation import Evaluation
    from trainer.evolution import OnlineEvolution


def check_start(
    policy: Policy,
    tasks: Sequence[Task],
    config: TrainConfig,
    *,
    resume: bool,
    evolution: OnlineEvolution | None,
    evaluation: Evaluation | None,
) -> None:
    """Check the arguments of `trainer.loop.train` against its configuration."""
    if not tasks:
        raise InvalidError("there are no tasks to train on", hint="give prompts with rubrics")
    pairs = (("evolve", config.evolve, "evolution", evolution), ("eval", config.eval, "evaluation", evaluation))
    for name, settings, argument, given in pairs:
        if (settings is None) != (given is None):
            hint = "give both, or neither"
            raise InvalidError(f"`config.{name}` and `{argument}` do not agree", hint=hint, path=name)
    if config.environment is not None and policy.acting is None:
        hint = "load it with one: Policy.load(…, acting=make_acting(…))"
        raise InvalidError("the policy has no environment", hint=hint, path="environment")
    if evolution is not None:
        evolution.check(tasks)
    if evaluation is not None:
        check_apart(tasks, evaluation.evaluator.tasks)
    if config.out:
        checkpoint.check_folder(config.out, resume=resume)
    for task in (*tasks, *(evaluation.evaluator.tasks if evaluation is not None else ())):
        policy.token_ids(task.prompt, config.sampling.max_new_tokens)


log = logging.getLogger(__name__)


def train(
    policy: Policy,
    tasks: Sequence[Task],
    rewards: RewardSource,
    config: TrainConfig,
    *,
    on_step: Callable[[Metrics], None] | None = None,
    stop: Event | None = None,
    resume: bool = False,
    record: Mapping[str, Any] | None = None,
    evolution: OnlineEvolution | None = None,
    recorder: RunRecorder | None = None,
    evaluation: Evaluation | None = None,
    tracking: Tracking = NO_TRACKING,
) -> History:
    """Train ``policy`` and return the metrics of every step, with which ``on_step`` is called.

    A resumed run gets the policy that it started from, and continues from the newest intact checkpoint in
    ``config.out``; without any, from the first step. When ``stop`` is set, it ends after the current step, or in a
    pause at once, with a checkpoint. ``record`` is plain data to write into ``config.json`` beside the configuration;
    ``evolution`` and ``evaluation`` are needed with ``config.evolve`` and ``config.eval``.
    """
    check_start(policy, tasks, config, resume=resume, evolution=evolution, evaluation=evaluation)
    constants = metrics.judge_metrics(judge := judge_of(tasks, rewards), config.optim)
    floor, of_tasks = constants["std_floor"], digest([task.digests for task in tasks])
    identity = config.identity(of_tasks, floor, judge.digest if judge else None, policy.base[1])
    control = config.control
    trained_on = rewards if control is None else ControlRewards(rewards, control.reward, config.seed)
    scorer = StepScorer(trained_on, config, stop or Event(), recorder)
    optimizer = MasterAdamW(policy.model, config.optim)
    needs_start = config.optim.kl_beta > 0 or config.optim.kl_every > 0 or config.algorithm == SUPERVISED
    reference = policy.start() if needs_start else None
    algorithm = algorithm_of(config.algorithm, config.optim)
    state = TrainState(policy, reference, optimizer, config, floor, evolution, algorithm)
    first = saved = done = checkpoint.resume(config, optimizer, identity) if resume else 0
    repeatability = judge.repeatability.model_dump(mode="json") if judge and judge.repeatability else None
    of_judge = constants | {"judge_repeatability": repeatability}
    content = write_config(config.out, config, of_judge | dict(record or {}))
    history = History(config.out, done)
    with closing(optimizer), recorded(recorder, content, judge, history), tracking.running(content, history.steps):
        try:
            saved = _watch(evaluation, state, history, tracking, done, saved=saved, identity=identity, begin=True)
            while done < config.steps and not history.stopped:
                step, groups = _step(state, tasks, scorer, done)
                done += 1
                line = history.add({"step": done, **step, **constants})
                for alarm in monitor_alarms(history.steps):
                    if alarm.step == done:
                        log.warning("step %d: %s", done, alarm.text)
                tracking.log(line)
                if recorder is not None:
                    recorder.send(RunStep(step=done, metrics=line, groups=groups))
                if config.checkpoint_every and done % config.checkpoint_every == 0:
                    checkpoint.save(config, done, policy.save, optimizer, identity)
                    saved = done
                if on_step:
                    on_step(line)
                history.stopped = stop is not None and stop.is_set() and done < config.steps
                saved = _watch(evaluation, state, history, tracking, done, saved=saved, identity=identity)
        except StopRequested:
            history.stopped = True
        finally:
            # an error or Ctrl-C while sampling or scoring costs no step; one within an update leaves no whole state
            if done > saved and optimizer.updates == (done - first) * config.optim.updates_per_batch:
                checkpoint.save(config, done, policy.save, optimizer, identity)
    return history


def _watch(
    evaluation: Evaluation | None,
    state: TrainState,
    history: History,
    tracking: Tracking,
    done: int,
    *,
    saved: int,
    identity: Identity,
    begin: bool = False,
) -> int:
    """Evaluate the policy if that is due, warn of alarms of monitors, and return the number of steps that are saved.

    Where the reward diverges from gold for the first time, warn, save the state, and stop if so configured.
    """
    if evaluation is None or history.stopped:
        return saved
    start = state.policy if done == 0 else state.reference
    if begin:  # what a stopped run left out
        evaluation.begin(done)
        if start is not None:
            evaluation.run(start, 0, state.policy.name)
    line = evaluation.run(state.policy, done, state.policy.name)
    lines = history.evaluations = evaluation.lines
    for each in lines:  # trackers skip those that they have
        tracking.log(each)
    if line is None:
        return saved
    for alarm in monitor_alarms((), lines):
        if alarm.step == done:
            log.warning("%s", alarm.text)
    if (found := first_divergence(lines)) is None or found.step != done:
        return saved
    log.warning("%s", found.text)
    if saved < done:
        checkpoint.save(state.config, done, state.policy.save, state.optimizer, identity)
    if state.config.eval is not None and state.config.eval.stop_on_divergence and done < state.config.steps:
        history.stopped, history.stop_reason = True, found.text
    return done


def _step(
    state: TrainState, tasks: Sequence[Task], scorer: StepScorer, step: int
) -> tuple[Metrics, tuple[RolloutGroup, ...]]:
    """Take a step (from 0), and return its metrics and its rollouts."""
    start, clock = time.perf_counter(), dict[str, float]()
    authored = tasks_of_step(tasks, step, state.config)
    rollouts = sample_tasks(state.sampler, authored, state.config, step)
    clock["sample_time"] = time.perf_counter() - start
    used = state.evolution.tasks(step, authored) if state.evolution is not None else authored
    batch, how_scored = _scored(state, scorer, used, rollouts, step)
    clock["score_time"] = time.perf_counter() - start - clock["sample_time"]
    evolved: Metrics = {}
    if state.evolution is not None:
        authored_of_B = [authored[prompt] for prompt in rollouts.prompt_of_B.tolist()]
        evolve_start = time.perf_counter()
        evolved = state.evolution.evolve(step, authored_of_B, batch.completions, batch.scored)
        evolved["evolve_time"] = time.perf_counter() - evolve_start
    batch, resampled = _resampled(state, tasks, scorer, batch, step=step, clock=clock)
    train_start = time.perf_counter()
    updated = update(state, batch.rollouts, batch.group_rewards(state.std_floor), step)
    end = time.perf_counter()
    measured = (updated.advantages_B, batch.rollouts.lengths, updated.logprob_sums_B)
    numbers = zip(*(tensor.tolist() for tensor in measured), strict=True)
    task_of_B = [batch.tasks[prompt] for prompt in batch.rollouts.prompt_of_B.tolist()]
    groups = rollout_groups(task_of_B, batch.completions, batch.scored, numbers)
    return {
        **metrics.reward_metrics(batch.rewards_GM, state.std_floor, batch.tasks, batch.counted_GM),
        **metrics.rollout_metrics(batch.rollouts),
        **metrics.verdict_metrics(batch.scored, state.config.criterion_metrics),
        **metrics.monitor_metrics(
            metrics.observed_of(task_of_B, batch.completions, batch.scored),
            WITH_CRITERIA if state.config.criterion_metrics else MONITORS,
        ),
        **updated.metrics,
        **evolved,
        **how_scored,
        **resampled,
        **clock,
        "train_time": end - train_start,
        "step_time": end - start,
    }, groups


def _scored(
    state: TrainState, scorer: StepScorer, tasks: list[Task], rollouts: Rollouts, step: int
) -> tuple[ScoredBatch, Metrics]:
    """Score the completions of tasks, and return how that was done as well."""
    completions = rollouts.completions(state.policy.name, step, state.config.sampling)
    task_of_B = [tasks[prompt] for prompt in rollouts.prompt_of_B.tolist()]
    log_leaks(state.config.out, task_of_B, completions)
    scored, how = scorer.score(task_of_B, completions)
    values = [math.nan if result.reward.value is None else result.reward.value for result in scored]
    rewards_GM = torch.tensor(values, dtype=torch.float64).view(-1, state.config.sampling.group_size)
    limit, rule = state.config.sampling.max_new_tokens, state.config.overlong
    counted_GM = counted_rewards(rewards_GM, rollouts.truncated_B, rollouts.lengths, limit, rule)
    return ScoredBatch(tasks, rollouts, completions, scored, rewards_GM, counted_GM), how


def _resampled(
    state: TrainState, tasks: Sequence[Task], scorer: StepScorer, batch: ScoredBatch, *, step: int, clock: Metrics
) -> tuple[ScoredBatch, Metrics]:
    """Replace groups without a signal by those of other prompts, if the settings say so; return how many."""
    config, used, sampled, kept, rounds = state.config, list(batch.tasks), 0, 0, 0
    if config.prompts is None or not config.prompts.max_resamples:
        return batch, {}
    for number in range(1, config.prompts.max_resamples + 1):
        without = [group for group, signal in enumerate(batch.has_signal) if not signal]
        others = other_tasks(tasks, step, number, used, config)[: len(without)] if without else []
        if not others:
            break
        start = time.perf_counter()
        rollouts = sample_tasks(state.sampler, others, config, step, number)
        clock["sample_time"] += (end := time.perf_counter()) - start
        fresh, _ = _scored(state, scorer, others, rollouts, step)
        clock["score_time"] += time.perf_counter() - end
        rounds, sampled, used = number, sampled + len(others), used + others
        better = [group for group, signal in enumerate(fresh.has_signal) if signal]
        kept += len(better)
        if better:
            left = sorted({*range(len(batch.tasks))} - set(without[: len(better)]))
            parts = [batch.select(left), fresh.select(better)] if left else [fresh.select(better)]
            batch = ScoredBatch(
                [task for part in parts for task in part.tasks],
                join([part.rollouts for part in parts]),
                [completion for part in parts for completion in part.completions],
                [scored for part in parts for scored in part.scored],
                torch.cat([part.rewards_GM for part in parts]),
                torch.cat([part.counted_GM for part in parts]),
            )
    return batch, {"resample/rounds": rounds, "resample/sampled_groups": sampled, "resample/kept_groups": kept}


def sample_tasks(policy: Policy, tasks: Sequence[Task], config: TrainConfig, step: int, number: int = 0) -> Rollouts:
    """Return a group of completions for each task; ``number`` counts the rounds of one step."""
    seed = stream_seed(config.seed, f"sample/{number}" if number else "sample", step)
    if tasks[0].demonstrations:
        return demonstrated(policy, tasks, config.sampling.group_size, seed)
    return policy.sample([task.prompt for task in tasks], config.sampling.group_size, config.sampling, seed)


WARM_UP_FOLDER = "demonstrations"
"""Folder of the warm-up in that of the run."""


def warmed_up_model(config: TrainConfig) -> Path:
    """Return the folder of the model after the warm-up."""
    if config.out is None or config.demonstrations is None:
        raise InvalidError("a warm-up needs demonstrations, and the folder of the run", hint="set both", path="out")
    return checkpoint.folder(config.out / WARM_UP_FOLDER, config.demonstrations.steps) / "model"


def is_warmed_up(config: TrainConfig) -> bool:
    """Return whether the warm-up of a run is done, or it has none."""
    if config.demonstrations is None:
        return True
    return checkpoint.is_finished(warmed_up_model(config).parents[2], config.demonstrations.steps)


def warm_up(
    config: TrainConfig,
    load: Callable[[], Policy],
    tasks: Sequence[Task],
    rewards: RewardSource,
    *,
    on_step: Callable[[Metrics], None] | None = None,
    stop: Event | None = None,
) -> bool:
    """Have the policy learn demonstrations before it is rewarded, or continue to; return whether it is done.

    A run of its own, before the run: of each prompt's demonstrations the best by reward is learned by its likelihood
    (`trainer.algorithms.losses`), and no judge is asked where none has several. ``load`` returns the untouched policy.
    """
    folder, settings = warmed_up_model(config).parents[2], config.demonstrations or DemonstrationsConfig()
    most = max(2, *(len(task.demonstrations) for task in tasks))  # a group has at least two
    rewards = rewards if any(task.demonstrations[1:] for task in tasks) else ControlRewards(rewards, "frozen", 0)
    off = dict.fromkeys(("demonstrations", "prompts", "control", "evolve", "eval"))
    changes: dict[str, Any] = {
        "algorithm": SUPERVISED,
        "out": folder,
        "steps": settings.steps,
        "keep_checkpoints": 1,
        "overlong": "keep",
        "sampling": config.sampling.model_copy(update={"group_size": min(most, config.sampling.group_size)}),
        "optim": config.optim.model_copy(update={"lr": settings.lr, "kl_beta": 0.0, "kl_every": 0}),
    }
    changed, resume = config.model_copy(update=off | changes), checkpoint.has_run(folder)
    return not train(load(), tasks, rewards, changed, on_step=on_step, stop=stop, resume=resume).stopped


@dataclass(frozen=True)
class ScoredBatch:
    """Scored completions of a step: ``tasks`` [G] of its groups, ``completions`` and ``scored`` [B], ``rewards_GM``.

    ``counted_GM`` are the rewards that are learned from, by the setting ``overlong``.
    """

    tasks: list[Task]
    rollouts: Rollouts
    completions: list[Completion]
    scored: list[ScoredRollout]
    rewards_GM: Tensor
    counted_GM: Tensor

    @property
    def has_signal(self) -> list[bool]:
        """Whether the rewards of each group [G] deviate; a group without a signal teaches nothing."""
        return (group_statistics(self.counted_GM)[1].squeeze(-1) > 0).tolist()

    def group_rewards(self, std_floor: float) -> GroupRewards:
        """Return what advantages are computed from; without verdicts the whole reward is the only part."""
        domains = sorted({task.domain for task in self.tasks})
        members, most = self.rewards_GM.shape[-1], max(len(task.rubric.criteria) for task in self.tasks)
        parts_GKM = torch.full((len(self.tasks), most + 1, members), torch.nan, dtype=torch.float64)
        weights_GK = torch.zeros(parts_GKM.shape[:2], dtype=torch.float64)
        quotes: list[dict[int, tuple[str, ...]]] = []
        for row, scored in enumerate(self.scored):
            group, member = divmod(row, members)
            rubric = self.tasks[group].rubric
            values = {one.criterion: one.value for one in scored.verdicts if one.value is not None}
            explained = reward_or_null(rubric, scored.verdicts).contributions if values else {}
            rest = float(self.counted_GM[group, member]) - math.fsum(explained.values())
            parts_GKM[group, -1, member] = 0.0 if abs(rest) < 1e-9 else rest  # rounding is no part
            weights_GK[group, -1] = 1.0
            weight_of = formula_for(rubric, rubric.formula).weights(rubric) if explained else {}
            quoted = {one.criterion: tuple(each.quote for each in one.evidence) for one in scored.verdicts}
            quotes.append({place: quoted.get(key, ()) for place, key in enumerate(weight_of)})
            for place, (key, weight) in enumerate(weight_of.items()):
                weights_GK[group, place] = weight / (math.fsum(weight_of.values()) or 1.0)
                value = values.get(key, math.nan)
                parts_GKM[group, place, member] = math.copysign(value, rubric.by_key[key].weight)
        domain_of_G = torch.tensor([domains.index(task.domain) for task in self.tasks])
        return GroupRewards(self.counted_GM, std_floor, domain_of_G, parts_GKM, weights_GK, tuple(quotes))

    def select(self, groups: Sequence[int]) -> ScoredBatch:
        """Return some of the groups."""
        size = self.rewards_GM.shape[-1]
        rows = [group * size + member for group in groups for member in range(size)]
        chosen = self.rollouts.select(torch.tensor(rows, device=self.rollouts.ids_BT.device))
        return ScoredBatch(
            [self.tasks[group] for group in groups],
            chosen,
            [self.completions[row] for row in rows],
            [self.scored[row] for row in rows],
            self.rewards_GM[list(groups)],
            self.counted_GM[list(groups)],
        )


@dataclass(frozen=True)
class TrainState:
    """What a run trains, and how.

    ``reference`` is a copy of the starting policy, None where none is needed; ``evolution`` None where rubrics stay.
    """

    policy: Policy
    reference: Policy | None
    optimizer: MasterAdamW
    config: TrainConfig
    std_floor: float
    evolution: OnlineEvolution | None = None
    algorithm: Algorithm = field(default_factory=Algorithm)

    @property
    def sampler(self) -> Policy:
        """The policy that completions are sampled from."""
        return self.policy if self.config.algorithm != SUPERVISED or self.reference is None else self.reference


@dataclass(frozen=True)
class Update:
    """What an update of the policy was: its metrics, and for each completion [B] the advantage and the log-probability.

    The log-probability is the sum over tokens under the policy that sampled; NaN where it was not computed.
    """

    metrics: Metrics
    advantages_B: Tensor
    logprob_sums_B: Tensor


def update(state: TrainState, rollouts: Rollouts, rewards: GroupRewards, step: int) -> Update:
    """Update the policy on one batch of scored completions.

    The first update needs no second forward pass for the old log-probabilities: the policy has not moved yet. A penalty
    in the reward does. Completions whose advantage is 0 move nothing: they are passed through the model only where a
    penalty or a loss of one's own needs them, or, without a gradient, where the distance to the start is due.

    ``rewards`` are those of the rollouts, NaN where there is none; ``step`` counts from 0.
    """
    config, optim, temperature = state.config, state.config.optim, state.config.sampling.temperature

    def gained(rewards: GroupRewards) -> tuple[Tensor, Tensor]:
        """Return the advantages [B], and those of tokens: [B, T] with credit, else [B, 1]."""
        advantages_B = state.algorithm.advantages(rewards, optim).flatten().float().to(state.policy.device)
        given = (advantages_B, rewards, rollouts, state.policy.tokenizer, optim.credit)
        return advantages_B, token_advantages(*given) if optim.credit else advantages_B.unsqueeze(-1)

    if supervised := config.algorithm == SUPERVISED:  # the best of each group is learned, else what is scored
        learned_N = best_rows(rewards.rewards_GM)
    else:
        masked_B = rollouts.truncated_B.cpu() & (config.overlong == "mask_loss")
        learned_N = (~rewards.rewards_GM.isnan().flatten() & ~masked_B).nonzero().flatten()
    rows_N = learned_N.to(state.policy.device)
    limit = config.environment.max_tokens if config.environment is not None else config.sampling.max_new_tokens
    totals = Totals(int(rollouts.lengths[rows_N].sum()), len(rows_N), limit)
    lr = state.optimizer.learning_rate(step)
    due = optim.kl_beta > 0 or (optim.kl_every > 0 and (step + 1) % optim.kl_every == 0)
    reference = None if supervised or not due else state.reference
    advantages_B, gains = gained(rewards)
    idle_N = rows_N[:0]
    if not supervised and not optim.kl_beta and state.algorithm.loss is built_in_loss:
        moves_N = (gains[rows_N] != 0).any(-1)
        rows_N, idle_N = rows_N[moves_N], rows_N[~moves_N]
    size = optim.micro_tokens, state.policy.width
    batches = [(*batch, True) for batch in rollouts.micro_batches(rows_N, *size)]
    if reference is not None:
        batches += [(*batch, False) for batch in rollouts.micro_batches(idle_N, *size)]
    with torch.no_grad():
        ref_logp = [reference.logprobs(part, temperature)[0] for _, part, _ in batches] if reference else []
    if optim.kl_beta and optim.kl_in == "reward" and ref_logp:
        kl_B = torch.zeros(len(rollouts.mask_BT), dtype=rewards.rewards_GM.dtype)
        for (rows, part, _), ref_BT in zip(batches, ref_logp, strict=True):
            with torch.no_grad():
                kl_BT = kl_estimate(state.policy.logprobs(part, temperature)[0], ref_BT, optim.kl)
            kl_B[rows.cpu()] = torch.where(part.written_BT, kl_BT, 0.0).sum(-1).to(kl_B)
        rewards = replace(rewards, rewards_GM=rewards.rewards_GM - optim.kl_beta * kl_B.view_as(rewards.rewards_GM))
        advantages_B, gains = gained(rewards)
    old_logp: list[Tensor] = []
    logprob_sums_B = torch.full_like(advantages_B, math.nan)
    sums: dict[str, float] = defaultdict(float)
    gaps: list[Tensor] = []
    for epoch in range(optim.updates_per_batch):
        for index, (rows, part, moves) in enumerate(batches):
            if epoch and not moves:
                continue
            ref = ref_logp[index] if ref_logp else None
            with torch.set_grad_enabled(moves):
                logp_BT, entropy_BT = state.policy.logprobs(part, temperature)
            if epoch == 0:
                old_logp.append(logp_BT.detach())
                logprob_sums_B[rows] = old_logp[index].float().sum(-1)
                sums["entropy"] += float(entropy_BT.sum())
                sums["computed"] += int(part.written_BT.sum())
                if part.sampled_logp_BT is not None:
                    gaps.append((old_logp[index] - part.sampled_logp_BT)[part.written_BT])
                if ref is not None:
                    kl_BT = kl_estimate(old_logp[index], ref)
                    sums["kl_start"] += float(torch.where(part.written_BT, kl_BT, 0.0).sum())
            if not moves:
                continue
            if supervised:
                loss = likelihood(logp_BT, part.written_BT, totals)
            else:
                penalised = ref if optim.kl_beta and optim.kl_in == "loss" else None
                gain = gains[rows, : logp_BT.shape[1]] if optim.credit else advantages_B[rows]
                given = (logp_BT, old_logp[index], gain, part.written_BT, totals)
                loss = state.algorithm.loss(TokenBatch(*given, penalised, part.sampled_logp_BT), optim)
            torch.autograd.backward(loss.value)
            for name, value in (("loss", loss.value), ("clipped", loss.clipped), ("kl", loss.kl)):
                sums[name] += value.item()
        sums["grad_norm"] += state.optimizer.step(lr)
    update_metrics = metrics.update_metrics(sums, totals.tokens, optim, gaps) | {"learning_rate": lr}
    return Update(update_metrics, advantages_B, logprob_sums_B)
