"""The preflight of a run: what was measured of its judge, and what its reward does to samples of the policy."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import combinations
from math import hypot, isfinite
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field, ValidationError
from scipy.stats import chi2
from transformers import AutoConfig, AutoModelForCausalLM

from rubricsvc.core.audit import Audit
from rubricsvc.core.base import Value
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import TRAINED, UNTRAINED, Passport
from rubricsvc.core.prompt import Completion
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.formats.documents import load_passport
from rubricsvc.schemas.runs import REWARD
from rubricsvc.services.local import LocalService
from rubricsvc.services.runs import agreement_on_record
from rubricsvc.stats import OnProgress
from rubricsvc.stats.agreement import MIN_LABELS
from rubricsvc.stats.estimates import over_prompts
from rubricsvc.stats.paired import chosen_mean, tau_within
from rubricsvc.stats.reports import CriterionAgreement
from trainer.alarms import LONGER, MOSTLY_CUT
from trainer.algorithms import SUPERVISED
from trainer.config import CHECKS, TrainConfig
from trainer.data.tasks import Task, names_of, stream_seed
from trainer.environments.episodes import Acting
from trainer.environments.tools import make_acting
from trainer.monitors.measures import measures
from trainer.policies.lora import adapted_layers
from trainer.policies.policy import Policy, context_of, prompt_ids
from trainer.recording import replace_text
from trainer.rewards import (
    NOT_SCORED,
    CheckRewards,
    Rewards,
    RewardSource,
    ScoredRollout,
    require_scored,
    score_sound,
    service,
)
from workers.engines.local.embedded_model import EMBEDDED
from workers.engines.local.models import default_device, loading, model_path, open_tokenizer
from workers.engines.local.weights import PASSPORT_FILE, SHIPPED

if TYPE_CHECKING:
    from trainer.run import Run


class PreflightCheck(Value):
    """A check of a run before it starts.

    Only a check that ``refuses`` keeps a run from starting where it is not passed; others are warnings.
    """

    name: str = Field(description="Name of the check.")
    value: str = Field(description="What was measured, with its interval where it has one.")
    limit: str = Field(description="What passes.")
    passed: bool | None = Field(description="Whether it was passed; null where nothing was measured.")
    refuses: bool = Field(default=False, description="Whether a run does not start where it was not passed.")
    advice: str = Field(default="", description="What to do where it was not passed or not measured.")

    @property
    def is_refusal(self) -> bool:
        """Whether it keeps a run from starting."""
        return self.refuses and self.passed is False


class StoredPreflight(Value):
    """The sampled checks of a run, as its folder keeps them. ``identity`` names what they hold for."""

    identity: str
    created_at: datetime
    checks: tuple[PreflightCheck, ...]


PREFLIGHT = "preflight"
_FEATURES = [name for name in measures("", "") if name != "shortness"]


@dataclass
class PreviewSamples:
    """Scored samples, by prompt: rewards, gold (empty without one), features by name, and values of criteria by key.

    The judge of the reward gave ``verdicts`` for these tokens and dollars; the reward took ``score_seconds``.
    """

    rewards: list[list[float]] = field(default_factory=list)
    gold: list[list[float]] = field(default_factory=list)
    features: dict[str, list[list[float]]] = field(default_factory=dict)
    criteria: dict[str, list[list[float | None]]] = field(default_factory=dict)
    completions: int = 0
    truncated: int = 0
    verdicts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0
    sample_seconds: float = 0.0
    score_seconds: float = 0.0


def sample_preview(
    policy: Policy,
    tasks: Sequence[Task],
    rewards: RewardSource,
    gold: RewardSource | None,
    config: TrainConfig,
    *,
    samples: int,
    on_progress: OnProgress,
) -> PreviewSamples:
    """Sample completions of prompts as in training, and score them; prompts with fewer than two scores are left out."""
    found = PreviewSamples(features={name: [] for name in _FEATURES})
    found.criteria = {criterion.key: [] for task in tasks for criterion in task.rubric.criteria}
    sources = [one.of_evaluation(PREFLIGHT) for one in (rewards, gold) if one is not None]
    asked = [list[ScoredRollout]() for _ in sources]
    for place, task in enumerate(tasks):
        start = time.perf_counter()
        seed = stream_seed(config.seed, PREFLIGHT, place)
        rollouts = policy.sample([task.prompt], samples, config.sampling, seed)
        completions = rollouts.completions(policy.name, 0, config.sampling)
        found.sample_seconds += time.perf_counter() - start
        start = time.perf_counter()
        scored: list[list[ScoredRollout]] = []
        for source, known in zip(sources, asked, strict=True):
            scored.append(score_sound(source, [task] * len(completions), completions))
            known += [one for one in scored[-1] if one is not NOT_SCORED]
            found.score_seconds += time.perf_counter() - start if len(scored) == 1 else 0.0
        found.completions += len(completions)
        found.truncated += int(rollouts.truncated_B.sum())
        _add(found, task, completions, scored)
        on_progress(place + 1, len(tasks), "")
    for results, whose in zip(asked, ("judge of the reward", "gold score"), strict=False):
        require_scored(results, config.max_unscored, f"run the preflight again: its {whose} failed")
    return found


def _add(
    found: PreviewSamples, task: Task, completions: Sequence[Completion], scored: Sequence[Sequence[ScoredRollout]]
) -> None:
    """Add what a prompt took, and its samples that have all scores."""
    judged = {criterion.key for criterion in task.rubric.criteria if criterion.check is None}
    for verdict in (one for each in scored[0] for one in each.verdicts if one.criterion in judged):
        found.verdicts += 1
        if (usage := verdict.usage) is not None:
            found.prompt_tokens += usage.prompt
            found.completion_tokens += usage.completion
            found.dollars += usage.cost
    known = [n for n in range(len(completions)) if all(each[n].reward.value is not None for each in scored)]
    if len(known) < 2:
        return
    for values, each in zip((found.rewards, found.gold), scored, strict=False):
        values.append([each[n].reward.value or 0.0 for n in known])
    measured = [measures(task.prompt.text, completions[n].text) for n in known]
    for name in _FEATURES:
        found.features[name].append([one[name] for one in measured])
    verdicts = [{one.criterion: one.value for one in scored[0][n].verdicts} for n in known]
    for key, column in found.criteria.items():
        column.append([each.get(key) for each in verdicts])


CHANCE = 0.5


def accuracy(
    found: CriterionAgreement | None, where: str, audit: Audit | None, passport: Passport | None, scorer: str = TRAINED
) -> tuple[Estimate, str] | None:
    """Return the accuracy of a judge, of which 0.5 is chance, with its interval, and what it is by; the first of these.

    Of labels the share of pairs of completions of a prompt that are ordered as labelled, else the AUROC. Of an audit
    the balanced accuracy on completions that were not attacked (the suites ``plain`` and ``missed``), whose interval
    combines the Wilson intervals of both rates (MOVER; Newcombe, Stat. Med. 17, 1998). Of a passport the AUROC of the
    judge, or of its untrained base, on its main test set.
    """
    for name, what in (("pairwise_accuracy", "pairs of a prompt in the right order"), ("auroc", "AUROC")):
        if found is not None and found.metrics[name].low is not None:
            return found.metrics[name], f"{what}, {found.pairs} labels {where}"
    suites = {suite.name: suite for suite in audit.suites} if audit is not None else {}
    if [suites[name].measure for name in ("plain", "missed") if name in suites] == ["met", "missed"]:
        rates = [suites[name].rate for name in ("plain", "missed")]
        known = [(one.value, one.low, one.high) for one in rates]
        if sum(one.n for one in rates) >= MIN_LABELS and not any(None in one for one in known):
            (p, p_low, p_high), (m, m_low, m_high) = ([float(part or 0.0) for part in one] for one in known)
            value = 1 - (p + m) / 2
            low, high = value - hypot(p_high - p, m_high - m) / 2, value + hypot(p - p_low, m - m_low) / 2
            return Estimate(value, low, high), f"balanced accuracy, {sum(one.n for one in rates)} findings of its audit"
    table = next((one for one in passport.tables if one.whole), None) if passport is not None else None
    row = next((one for one in table.whole if one.scorer == scorer), None) if table is not None else None
    if table is None or row is None or row["auroc"].low is None:
        return None
    figure = Estimate(row["auroc"].value, row["auroc"].low, row["auroc"].high)
    return figure, f"AUROC, {row.n} questions of {table.name!r}"


Values = Sequence[Sequence[float]]
Known = Sequence[Sequence[float | None]]
"""Values of which some are not known."""
PERMUTATIONS = 500


@dataclass(frozen=True, slots=True)
class Preview:
    """What the reward does to samples.

    The rewards of ``with_signal`` of ``groups`` deviate by more than the judge's noise does in 95 % of such groups.
    ``features`` and ``criteria`` have Kendall's tau with the reward within prompts, of those that vary; ``by_chance``
    is what the largest of features exceeds in 5 % of the random orders of rewards. ``reward_gain`` and ``gold_gain``
    are those of the best of ``best_of`` samples by the reward less their mean; gold is None without a gold score.
    ``order`` has differences of the reward with the share of pairs that it orders as gold does (`right_orders`).
    """

    groups: int
    with_signal: int
    features: dict[str, Estimate]
    criteria: dict[str, Estimate]
    by_chance: float
    best_of: int
    reward_gain: float
    gold_gain: Estimate | None
    order: Sequence[tuple[float, float]] = ()


MIN_ORDERS = 20
"""Pairs that the share of right orders at a difference is measured on."""


def right_orders(rewards: Values, gold: Values) -> list[tuple[float, float]]:
    """Return up to four mean differences of rewards within prompts, each with the share of pairs ordered as by gold.

    Each is of as many pairs, of different gold; equal rewards count half.
    """
    found = (
        (abs(one - other), 0.5 if one == other else float((one > other) == (above > below)))
        for values in zip(rewards, gold, strict=True)
        for (one, above), (other, below) in combinations(zip(*values, strict=True), 2)
        if above != below
    )
    pairs = sorted(found, key=lambda pair: pair[0])
    parts = np.array_split(np.array(pairs), min(4, len(pairs) // MIN_ORDERS)) if len(pairs) >= MIN_ORDERS else []
    return [(float(gap), float(right)) for gap, right in (part.mean(0).round(4) for part in parts)]


def preview(
    rewards: Values, features: Mapping[str, Values], criteria: Mapping[str, Known], gold: Values | None, noise: float
) -> Preview:
    """Return the preview of samples, of which each prompt has two at least; criteria may lack values."""
    sizes = [len(group) for group in rewards]
    noises = [noise * math.sqrt(float(chi2.ppf(0.95, size - 1)) / (size - 1)) for size in sizes]
    gains = []
    for values in (rewards, gold or rewards):
        arrays = [
            (np.asarray(one, float), np.asarray(other, float)) for one, other in zip(rewards, values, strict=True)
        ]
        gains.append([chosen_mean(proxy, found, len(proxy)) - float(found.mean()) for proxy, found in arrays])
    taus: list[dict[str, Estimate]] = []
    for measured in (features, criteria):
        found = {}
        for name, groups in measured.items():
            rows = [
                (reward, value, place)
                for place, pair in enumerate(zip(rewards, groups, strict=True))
                for reward, value in zip(*pair, strict=True)
                if value is not None
            ]
            found[name] = tau_within([one[0] for one in rows], [one[1] for one in rows], [one[2] for one in rows])
        taus.append({name: one for name, one in found.items() if one.value is not None})
    return Preview(
        groups=len(rewards),
        with_signal=sum(stdev(group) > limit for group, limit in zip(rewards, noises, strict=True)),
        features=taus[0],
        criteria=taus[1],
        by_chance=largest_by_chance(rewards, list(features.values())),
        best_of=max(sizes),
        reward_gain=fmean(gains[0]),
        gold_gain=over_prompts(gains[1]) if gold is not None else None,
        order=right_orders(rewards, gold) if gold is not None else (),
    )


def largest_by_chance(rewards: Values, features: Sequence[Values]) -> float:
    """Return what the largest |tau| of features exceeds in 5 % of random orders of the rewards within prompts.

    The test of the largest of several correlations (max-statistic permutation test): of rewards that have nothing to do
    with any of the features, one in 20 has a correlation beyond it, however many features there are.
    """
    if not features:
        return 0.0
    draws = np.random.default_rng(0)
    net = np.zeros((PERMUTATIONS, len(features)))  # concordant less discordant pairs; those without ties stay the same
    in_rewards, in_features = 0.0, np.zeros(len(features))
    for place, group in enumerate(rewards):
        values = np.array([group, *(feature[place] for feature in features)], float)
        order, *others = np.sign(values[:, :, None] - values[:, None, :])  # which of each two values is larger
        orders = np.array(others)
        in_rewards += float(np.abs(order).sum())
        in_features += np.abs(orders).sum((1, 2))
        at = draws.random((PERMUTATIONS, len(group))).argsort(1)
        net += np.einsum("fij,pij->pf", orders, order[at[:, :, None], at[:, None, :]])
    scale = np.sqrt(in_rewards * in_features)
    return float(np.quantile((np.abs(net) / np.where(scale > 0, scale, np.inf)).max(1), 0.95))


PROMPTS = 8
"""Maximum number of prompts that are sampled."""
SHARE = 0.1
"""Share of the completions of a run that it samples for its preflight without being asked."""
MAX_ECE = 0.1
MIN_SIGNAL = 0.25
MAX_TAU = 0.3
ACCURACY = "accuracy"


class RefusedError(ConflictError, code="refused", status=409):
    """The preflight refuses a run."""


class Preflight:
    """The checks of a run before it starts."""

    def __init__(self, run: Run) -> None:
        self.run = run
        measured = run.judge.stored.repeatability if run.judge.stored is not None else None
        self.noise = (measured.reward.value if measured is not None else None) or 0.0
        """Standard deviation of a reward if the judge is asked again; 0 if it was not measured."""
        self.file = run.out.with_name(f"{run.out.name}.preflight.json")
        """The sampled checks, beside the run's folder."""

    def require_passed(self, *, force: bool, sample: bool | None) -> list[str]:
        """Return the checks that would refuse the run, if it is forced.

        What is sampled and not stored yet is sampled if ``sample`` is set; None does so where that is a small part of
        the run. A control has no reward to preview, and a policy before its demonstrations has nothing to show.
        """
        from trainer.loop import is_warmed_up

        run, judged, sampled = self.run.config, self.of_judge(), self.stored()
        if sample is None:
            prompts = min(PROMPTS, len(self.run.tasks.train))
            is_small = prompts <= SHARE * run.steps * run.sampling.prompts_per_step
            sample = is_small and run.control is None and is_warmed_up(run)
        if not sampled and sample and (force or not any(one.is_refusal for one in judged)):
            sampled = self.sample()
        refused = [one for one in (*judged, *sampled) if one.is_refusal]
        for check in refused:
            text = f"{check.value}; passes: {check.limit}. Advice: {check.advice}"
            self.run.progress.message(f"preflight: {check.name}: {text}")
        if refused and not force:
            names = ", ".join(check.name for check in refused)
            hint = "start it nevertheless with --force, which its record will show"
            raise RefusedError(f"the preflight refuses the run: {names}", hint=hint)
        return [check.name for check in refused]

    def of_judge(self) -> list[PreflightCheck]:
        """Return the checks of the judge by what is stored of it; none where no criterion is judged."""
        tasks = [*self.run.tasks.train, *self.run.tasks.held_out]
        if all(criterion.check is not None for task in tasks for criterion in task.rubric.criteria):
            return []
        judge, status, stored = self.run.judge.value, self.run.judge, self.run.judge.stored
        audit = status.audit.audit if status.audit is not None and status.current is not False else None
        agreement, where, passport, scorer = None, "", None, TRAINED
        asked = judge if isinstance(judge, Judge) else stored.judge if stored is not None else None
        # the shipped figures of the bare model are of its adapter's template, and stand for all readouts
        if asked is not None and (asked.model, asked.adapter, asked.mode) == (EMBEDDED, None, "readout"):
            passport, scorer = load_passport(SHIPPED / PASSPORT_FILE), UNTRAINED
        if stored is not None:
            with service() as s:
                if passport is None and stored.has_passport:
                    passport = s.judges.passport(stored.id)
                if isinstance(s, LocalService) and stored.judge is not None:
                    digests = [task.prompt.digest for task in tasks]
                    agreement, where = agreement_on_record(s.db, stored.judge, digests)
                elif stored.judge is not None:
                    with suppress(InvalidError):  # there are no labels
                        pooled = s.judges.agreement(stored.id).pooled
                        agreement, where = (pooled if pooled.pairs >= MIN_LABELS else None), "on all prompts"
        return judge_checks(
            judge.name, agreement, where, audit=audit, passport=passport, scorer=scorer, noise=self.noise or None
        )

    def sample(self, prompts: int = PROMPTS, samples: int | None = None) -> list[PreflightCheck]:
        """Return the checks of sizes, and of completions that are sampled and scored; the latter are stored.

        Raises:
            UnavailableError: A judge failed on more than the share ``max_unscored`` of the completions.
        """
        sizes = self._sizes()
        checks = list(self._sampled(prompts, samples)) if sizes.passed else []
        if checks:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            found = StoredPreflight(identity=self.identity(), created_at=datetime.now(UTC), checks=tuple(checks))
            replace_text(self.file, found.model_dump_json(indent=1))
        return [sizes, *checks]

    def stored(self) -> list[PreflightCheck]:
        """Return the sampled checks that were stored for this run as it is configured now."""
        if not self.file.is_file():
            return []
        try:
            found = StoredPreflight.model_validate_json(self.file.read_bytes())
        except ValidationError as error:
            hint = "run `rubricsvc runs preflight` again, or delete the file"
            raise InvalidError(f"{self.file} is damaged: {error.error_count()} invalid fields", hint=hint) from error
        if found.identity != self.identity():
            self.run.progress.message(f"{self.file} is of another configuration: run `rubricsvc runs preflight` again")
            return []
        return list(found.checks)

    def identity(self) -> str:
        """Return the digest of what sampled checks hold for."""
        run = self.run.config
        judge, gold_judge = (
            one.digest if isinstance(one, Judge) else one and [one.service, one.name]
            for one in (self.run.judge.value, run.gold_judge)
        )
        asked, gold = [judge, self.noise], [] if run.eval is None else [run.eval.gold_name, gold_judge]
        included: Any = {"policy": {"model"}, "sampling": True, "environment": True, "demonstrations": True}
        fields = run.model_dump(mode="json", include=included)
        tasks = [[one.prompt.digest, one.rubric.digest] for one in self.run.tasks.train]
        return digest("preflight", asked, gold, fields, tasks)

    def _sizes(self) -> PreflightCheck:
        """Check that prompts fit into the context, and the training into memory and disk."""
        name, limit = "sizes", "prompts fit the context, training fits memory and disk"
        run, tasks = self.run.config, self.run.tasks
        try:
            memory = check_sizes(run, [*tasks.train, *tasks.held_out], make_acting(run.environment, run.tools))
        except InvalidError as error:
            return _check(name, error.message, limit, False, error.hint, refuses=True)
        of = f" of {memory.available / GB:.1f}" if isfinite(memory.available) else ""
        value = f"weights and optimiser take {memory.needed / GB:.1f}{of} GB on {memory.device}"
        return _check(name, f"{value}; activations come on top", limit, True, refuses=True)

    def _sampled(self, prompts: int, samples: int | None) -> Iterator[PreflightCheck]:
        from trainer.loop import is_warmed_up

        run, every = self.run.config, self.run.tasks.train
        warmed_up = is_warmed_up(run)
        most = min(prompts, len(every))  # evenly: the domains of a mixture stand one after the other
        tasks = [every[len(every) * n // most] for n in range(most)]
        with ExitStack() as opened:
            sources = self.run.rewards(opened)
            rewards = sources.open()
            gold = self._gold(rewards, sources, opened)
            bar = opened.enter_context(self.run.progress.task("preflight"))
            policy = self.run.load_policy(None if warmed_up else run.policy.model)
            bar.update(0, len(tasks), "")
            size = samples or run.sampling.group_size
            found = sample_preview(policy, tasks, rewards, gold, run, samples=size, on_progress=bar.update)
        seen = None
        if found.rewards:
            seen = preview(found.rewards, found.features, found.criteria, found.gold or None, self.noise)
        several = any(len(task.rubric.criteria) > 1 for task in tasks)
        yield from preview_checks(seen, self.noise, warmed_up=warmed_up, several=several)
        cut = found.truncated / max(1, found.completions)
        limit = f"less than {MOSTLY_CUT:.0%}"
        yield _check("cut_off", f"{cut:.0%} of {found.completions} completions", limit, cut < MOSTLY_CUT, LONGER)
        yield from self._costs(found)

    def _gold(self, rewards: RewardSource, sources: Rewards, opened: ExitStack) -> RewardSource | None:
        """Open the gold score of the run's evaluations; None where it is the reward."""
        from trainer.evaluation import check_gold

        settings = self.run.config.eval
        if settings is not None and settings.gold_name == CHECKS:
            try:
                return opened.enter_context(CheckRewards(self.run.tasks.train))
            except InvalidError:  # rubrics of held-out prompts have checks, these have none
                return None
        judge = self.run.config.gold_judge
        if settings is None or judge is None:
            return None
        gold = sources.open(judge)
        check_gold(settings.gold_name, self.run.tasks.train, {REWARD: rewards, settings.gold_name: gold})
        return gold

    def _costs(self, found: PreviewSamples) -> Iterator[PreflightCheck]:
        """Yield what training and evaluations will take, by what the samples took."""
        run, judge = self.run.config, self.run.judge.value
        trained, evaluated = run.steps * run.sampling.prompts_per_step * run.sampling.group_size, 0
        if (settings := run.eval) is not None:
            evaluations = 1 + -(-run.steps // settings.every)
            evaluated = evaluations * len(self.run.tasks.held_out) * (settings.samples + settings.greedy)
        scale = (trained + evaluated) / max(1, found.completions)
        minutes = (found.sample_seconds * scale / 60, found.score_seconds * scale / 60)
        completions = f"{trained} completions in training and {evaluated} in evaluations"
        took = f"{minutes[0]:.0f} minutes to sample and {minutes[1]:.0f} to score them, without updates and gold"
        yield _check("time", f"{completions}: {took}", "none", True)
        priced = isinstance(judge, Judge) and not judge.unpriced
        dollars = f"{found.dollars * scale:.2f} US dollars" if priced else "its price is not known"
        prompt, completion = found.prompt_tokens * scale, found.completion_tokens * scale
        tokens = f"{prompt:.0f} prompt and {completion:.0f} completion tokens"
        yield _check(
            "cost", f"{found.verdicts * scale:.0f} verdicts by {judge.name}, {tokens}: {dollars}", "none", True
        )


def _check(
    name: str, value: str, limit: str, passed: bool | None, advice: str = "", *, refuses: bool = False
) -> PreflightCheck:
    """Return a check, with its advice where it was not passed."""
    advice = "" if passed else advice
    return PreflightCheck(name=name, value=value, limit=limit, passed=passed, refuses=refuses, advice=advice)


def judge_checks(
    judge: str,
    agreement: CriterionAgreement | None = None,
    where: str = "",
    *,
    audit: Audit | None = None,
    passport: Passport | None = None,
    scorer: str = TRAINED,
    noise: float | None = None,
) -> list[PreflightCheck]:
    """Return a check for each property of a judge.

    ``where`` says whose labels the agreement is with; ``scorer`` is its row in the passport, which may be its base's.
    ``noise`` is the standard deviation of a reward if it is asked again; None if that was not measured.
    """
    found = accuracy(agreement, where, audit, passport, scorer)
    passed, value = None, "not measured"
    advice = f"import labels and run `rubricsvc judges agreement {judge}`, or `rubricsvc judges audit {judge}`"
    if found is not None:
        one, source = found
        passed, value = (one.low or 0.0) > CHANCE, f"{one.value:.3f} [{one.low:.2f}, {one.high:.2f}] ({source})"
        advice = "train the judge (`rubricsvc judges train`), or choose another"
    checks = [_check(ACCURACY, value, "interval above 0.5", passed, advice, refuses=True)]
    passed, value, advice = None, "no audit", f"run `rubricsvc judges audit {judge}`"
    if audit is not None:
        failed = ", ".join(f"{suite.name} {suite.rate.value or 0.0:.2f}" for suite in audit.failed_suites)
        passed, value = audit.passed, f"over the limit: {failed}" if failed else "no suite over its limit"
        advice = "watch for these in the samples of the run: it will find them"
    checks.append(_check("attacks", value, "every suite within its limit", passed, advice))
    error = agreement.metrics["ece"].value if agreement is not None else None
    passed, value, advice = None, "no labels", "import labels of these prompts"
    if error is not None:
        passed, value = error <= MAX_ECE, f"ECE {error:.3f} on labels {where}"
        advice = f"calibrate it on labels: `rubricsvc judges calibrate {judge}`"
    checks.append(_check("calibration", value, f"ECE of at most {MAX_ECE:g}", passed, advice))
    value = f"rewards deviate by {noise:.4f}" if noise is not None else "not measured"
    limit, advice = (
        "measured: it is the floor of the standard deviation",
        f"run `rubricsvc judges repeatability {judge}`",
    )
    return [*checks, _check("repeatability", value, limit, True if noise is not None else None, advice)]


def preview_checks(seen: Preview | None, noise: float, *, warmed_up: bool, several: bool) -> Iterator[PreflightCheck]:
    """Yield whether the reward has a signal, what it follows, and whether gold follows it.

    ``seen`` is None where no prompt has two samples with rewards, ``several`` whether a rubric has several criteria.
    """
    value, limit = "no prompt has two samples with rewards", f"a share of at least {MIN_SIGNAL:g}"
    advice = "raise sampling.group_size or sampling.temperature, or use criteria that tell completions apart"
    if not warmed_up:
        advice = "the policy has not learned its demonstrations yet; run this again after the warm-up"
    if seen is None:
        yield _check("signal", value, limit, False, advice, refuses=warmed_up)
        return
    value = f"rewards of {seen.with_signal} of {seen.groups} prompts deviate by more than {noise:.4f}"
    yield _check("signal", value, limit, seen.with_signal >= MIN_SIGNAL * seen.groups, advice, refuses=warmed_up)
    yield from _correlations(seen)
    if several:
        top = sorted(seen.criteria.items(), key=lambda one: -abs(one[1].value or 0.0))
        passed = len(top) > 1 and abs(top[1][1].value or 0.0) > MAX_TAU / 3
        shown = ", ".join(f"{name} {one.value:.2f}" for name, one in top[:3])
        value = f"Kendall's tau of the reward with {shown}" if top else "no criterion varies"
        advice = "the reward is one criterion's: change weights or wording of the others"
        yield _check("criteria", value, "more than one criterion decides", passed, advice)
    yield _gold_check(seen)
    value = f"pairwise_accuracy = {[list(one) for one in seen.order]} by gold" if seen.order else "not measured"
    yield _check("order", value, "none: a table for `[optim]`", True if seen.order else None)


def _correlations(seen: Preview) -> Iterator[PreflightCheck]:
    """Yield a check of the reward's correlation with the length, and with the form of the text.

    All are tested at once: chance alone takes one of them beyond the limit in 5 % of preflights at most.
    """
    most = max(MAX_TAU, seen.by_chance)
    for name, advice in (
        ("length", "expect the length to change; add a criterion or a limit against it"),
        ("form", "expect more or less of it; look at the samples of the run"),
    ):
        values = {one: tau for one, tau in seen.features.items() if (one == "length") == (name == "length")}
        order = sorted(values, key=lambda one: -abs(values[one].value or 0.0))
        beyond = [one for one in order if abs(values[one].value or 0.0) > most]
        shown = []
        for one in beyond or order[:1]:
            tau = values[one]
            interval = f" [{tau.low:.2f}, {tau.high:.2f}]" if tau.low is not None else ""
            shown.append(f"{one} {tau.value:.2f}{interval}")
        value = ", ".join(shown) or "does not vary"
        limit = f"Kendall's tau within ±{most:.2f} (at least ±{MAX_TAU:g}, and what chance gives)"
        yield _check(name, value, limit, not beyond, advice)


def _gold_check(seen: Preview) -> PreflightCheck:
    """Check that choosing by the reward does not lower the gold score."""
    gain = seen.gold_gain
    limit = "the interval of the change of gold is not below 0"
    reward = f"best of {seen.best_of}: reward {seen.reward_gain:+.3f}"
    if gain is None or gain.value is None:
        advice = "name a judge that is not trained on, or checks, in [eval]"
        return _check("gold", f"{reward}, no gold", limit, None, advice)
    interval = f" [{gain.low:.3f}, {gain.high:.3f}]" if gain.low is not None else ""
    advice = "what the reward prefers, gold does not: change the rubric or the judge"
    value = f"{reward}, gold {gain.value:+.3f}{interval}"
    return _check("gold", value, limit, gain.high is None or gain.high >= 0, advice, refuses=True)


MASTER_BYTES = 16
"""Bytes a weight of the optimiser: the float32 copy, its gradient and Adam's two moments."""
SAVED_BYTES = 12
"""Of these, the bytes that a checkpoint has."""
GB = 1e9


class Memory(NamedTuple):
    """Bytes that weights, copies and optimiser take, without activations, and the bytes of the device."""

    needed: float
    available: float
    device: str


def check_sizes(config: TrainConfig, tasks: Sequence[Task], acting: Acting | None = None) -> Memory:
    """Check that all prompts, held-out ones included, and the policy's training fit; return the memory it takes.

    With ``acting`` a prompt has the descriptions of the tools, and a completion is an episode.
    """
    with loading(config.policy.model):
        model = AutoConfig.from_pretrained(model_path(config.policy.model))
        with torch.device("meta"):
            empty = AutoModelForCausalLM.from_config(model)
            weights = trained = sum(param.numel() for param in empty.parameters())
    copies = 2 if config.optim.kl_beta or config.optim.kl_every or config.algorithm == SUPERVISED else 1
    if (lora := config.policy.lora) is not None:  # the start is the model without the adapter
        layers, copies = adapted_layers(empty, lora).values(), 1
        trained = sum(lora.rank * (one.in_features + one.out_features) for one in layers)
    device, context = config.policy.device or default_device(), context_of(model)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        message = f"device {device!r} cannot be used: {str(error).splitlines()[0]}"
        raise InvalidError(message, hint="choose cpu or cuda, or remove it", path="policy.device") from error
    size = 2 if config.policy.dtype == "bfloat16" else 4
    available = math.inf  # where it is not known
    if device.startswith("cuda") and torch.cuda.is_available():
        available = float(torch.cuda.get_device_properties(device).total_memory)
    else:
        with suppress(ValueError, OSError):
            available = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    memory = Memory(weights * size * copies + trained * MASTER_BYTES, available, device)
    problems: list[str] = []
    name, new = "sampling.max_new_tokens", config.sampling.max_new_tokens
    if acting is not None:
        name, new = "environment.max_tokens", acting.max_tokens
    if new >= context:
        problems.append(f"{name}: {new} of a context of {context:.0f} tokens; at most {context - 1:.0f} fit")
    else:
        tokenizer, tools = open_tokenizer(config.policy.model), acting.tools if acting else ()
        given, fold = (tools, config.policy.chat_template_kwargs or {}), config.policy.fold_system
        counts = ((task, len(prompt_ids(tokenizer, task.prompt, *given, fold_system=fold))) for task in tasks)
        lengths = {task.prompt.digest: (count, task) for task, count in counts}
        if long := [(length, task) for length, task in lengths.values() if length + new > context]:
            longest = max(length for length, _ in long)
            fits = context - longest
            change = f"at most {fits:.0f} fit" if fits >= 1 else f"the longest prompt alone has {longest} tokens"
            beside = f"{len(long)} of {len(lengths)} prompts in a context of {context:.0f} tokens"
            problems.append(f"{name}: {new} beside {beside}; {change} ({names_of([task for _, task in long])})")
    if memory.needed > memory.available:
        fits = memory.available * weights / memory.needed / GB
        take = f"{weights / GB:.2f} billion weights take {_size(memory.needed)} to train on {device}"
        problems.append(f"policy.model: {take}, which has {_size(memory.available)}; at most {fits:.2f} billion fit")
    if config.out is not None:
        problems += _disk_problems(config, weights * size + trained * SAVED_BYTES, config.out)
    if problems:
        raise InvalidError("\n".join(problems), hint="change the named settings", path="policy.model")
    return memory


def _disk_problems(config: TrainConfig, size: int, out: Path) -> Iterator[str]:
    """Yield whether checkpoints of ``size`` bytes do not fit beside those that are there."""
    place = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    saved = len(list((out / "checkpoints").glob("step-*")))
    needed = size * max(1, config.keep_checkpoints + 1 - saved)
    free = shutil.disk_usage(place).free
    if needed > free:
        fit = int(free / size) - 1 + saved
        change = f"keep_checkpoints = {fit} fits" if fit >= 1 else "no checkpoint fits; choose another `out`"
        yield (
            f"keep_checkpoints: {config.keep_checkpoints} and one that is being written take {_size(needed)}, "
            f"and {place} has {_size(free)} free; {change}"
        )


def _size(count: float) -> str:
    """Return a number of bytes in GB, or in MB where it is less."""
    return f"{count / GB:.1f} GB" if count >= GB else f"{count / 1e6:.3g} MB"
