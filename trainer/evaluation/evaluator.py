"""One evaluation: completions of held-out prompts, their scores and measures, and the estimates."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import groupby, product
from statistics import fmean
from threading import Event
from typing import Any, NamedTuple

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.schemas.runs import REWARD
from rubricsvc.stats.policy_scores import PromptValues, over_prompts, policy_scores, prompt_values
from trainer.config import EvalConfig, TrainConfig, stream_seed
from trainer.data.tasks import Task
from trainer.monitors.registry import metrics_by_prompt, observed_of
from trainer.policies.policy import Policy
from trainer.recording import Metrics
from trainer.rewards import RewardSource, ScoredRollout, StepScorer, StopRequested, items_at, judge_of, of_evaluation
from workers import checks

TOOL_USE = "tool_use"
"""Share of completions that call a tool."""


def _measured(key: str, name: str, **args: str) -> Criterion:
    return Criterion(key=key, text=key, check=Check(name=name, args={**args}))


_CALLS = Rubric(criteria=(_measured("valid_calls", "valid_calls"),))
_CITATIONS = Rubric(
    criteria=tuple(
        _measured(f"citation_{measure}", "cites_pages", measure=measure) for measure in ("recall", "precision")
    )
)


class Judged(NamedTuple):
    """A completion of the prompt at a place, with the verdicts of the training reward."""

    place: int
    completion: Completion
    verdicts: Sequence[Verdict]


def behaviour(tasks: Sequence[Task], judged: Iterable[Judged]) -> dict[str, Estimate]:
    """Return the use of tools, the share of valid calls, and recall and precision of the pages that are cited.

    A completion without a call has no valid calls: its value is 0. Empty without a prompt that names its pages and
    without a completion that calls a tool.
    """
    values = ((one.place, _behaviour(tasks[one.place].prompt, one.completion)) for one in judged)
    found = _over_prompts(len(tasks), ((place, key, value) for place, each in values for key, value in each))
    return found if len(found) > 2 or (found and found[TOOL_USE].value) else {}


def criteria(tasks: Sequence[Task], judged: Iterable[Judged]) -> dict[str, Estimate]:
    """Return the mean value of each criterion, over the prompts whose rubrics have one of this key."""
    values = ((one.place, verdict) for one in judged for verdict in one.verdicts if verdict.value is not None)
    found = _over_prompts(len(tasks), ((place, verdict.criterion, verdict.value) for place, verdict in values))
    return dict(sorted(found.items()))


def _behaviour(prompt: Prompt, completion: Completion) -> Iterator[tuple[str, float | None]]:
    yield TOOL_USE, float(any(message.tool_calls for message in completion.messages))
    for rubric in (_CALLS, *([_CITATIONS] if "pages" in (prompt.item or {}) else [])):
        for verdict in checks.run(rubric, prompt, completion):
            yield verdict.criterion, verdict.value


def _over_prompts(prompts: int, values: Iterable[tuple[int, str, float | None]]) -> dict[str, Estimate]:
    """Return the estimate of each key, from its values at the places of prompts."""
    found: dict[str, list[list[float | None]]] = defaultdict(lambda: [[] for _ in range(prompts)])
    for place, key, value in values:
        found[key][place].append(value)
    return {key: over_prompts(prompt_values(samples, None).mean) for key, samples in found.items()}


GREEDY_TOP_P = 1e-9
"""A nucleus of one token: the most probable one."""

_ADDRESSES: Any = {"judges": {"__all__": {"endpoint", "service", "timeout_s"}}}
_NOT_MEASURED = {"path", "format", "store", "share", "every", "baselines", "other", "stop_on_divergence"}


@dataclass
class EvalCompletion:
    """A completion of a held-out prompt. ``prompt`` is its place; ``scored`` are the results by score."""

    prompt: int
    completion: Completion
    tokens: int
    greedy: bool
    scored: dict[str, ScoredRollout] = field(default_factory=dict)

    @property
    def rewards(self) -> dict[str, float | None]:
        """The rewards by score, None where unscored."""
        return {score: result.reward.value for score, result in self.scored.items()}


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The line of an evaluation, as plain data, and its completions."""

    line: Metrics
    completions: list[EvalCompletion]

    @property
    def gold(self) -> float | None:
        """The mean by the gold score."""
        value: float | None = self.line["scores"][self.line["gold"]]["mean"]["value"]
        return value


def setup_of(settings: EvalConfig, config: TrainConfig, tasks: Sequence[Task]) -> str:
    """Return the digest of what evaluations must share to be compared: ``settings``, prompts, sampling, environment."""
    plain: dict[str, Any] = {"mode": "json", "exclude_none": True}  # later settings must not change the digest
    measured = settings.model_dump(**plain, exclude=_NOT_MEASURED | {"judges"})
    judges = settings.model_dump(**plain, include={"judges"}, exclude=_ADDRESSES)
    sampling = config.sampling.model_dump(mode="json", include={"max_new_tokens", "temperature", "top_p"})
    if config.environment is not None:
        measured |= {"environment": config.environment.model_dump(**plain)}
    prompts = [[task.prompt.digest, task.rubric.digest] for task in tasks]
    return digest("evaluation", measured, judges, sampling, config.seed, prompts)


class Evaluator:
    """Samples completions of held-out prompts and has them scored.

    All evaluations of a run use the same random numbers, so that those of two policies are paired.

    Args:
        config: Settings of the run, with ``eval``.
        tasks: The held-out prompts.
        scorers: What scores, by the names of ``EvalConfig.score_names``.
        on_progress: Called with what is done now, in words.
        stop: When set, an evaluation ends without a result.
    """

    def __init__(
        self,
        config: TrainConfig,
        tasks: Sequence[Task],
        scorers: Mapping[str, RewardSource],
        *,
        on_progress: Callable[[str], None] = lambda _text: None,
        stop: Event | None = None,
    ) -> None:
        if config.eval is None:
            raise InvalidError("the configuration has no [eval]", hint="add the table", path="eval")
        if not tasks:
            raise InvalidError("there are no held-out prompts", hint="name prompts with rubrics", path="eval")
        if set(scorers) != set(config.eval.score_names):
            missing = ", ".join(sorted(set(config.eval.score_names) ^ set(scorers)))
            raise InvalidError(f"scorers and [eval] do not agree: {missing}", hint="name each score once", path="eval")
        check_gold(config.eval.gold_name, tasks, scorers)
        self.settings: EvalConfig = config.eval
        self.tasks = tasks
        self.on_progress = on_progress
        self._config, self._stop = config, stop or Event()
        self._scorers = {
            name: StepScorer(of_evaluation(source, name), config, stop) for name, source in scorers.items()
        }
        recorded_at = items_at(scorers[REWARD])
        self._joined = {name for name, source in scorers.items() if items_at(source) == recorded_at}
        self.setup = setup_of(config.eval, config, tasks)

    def check(self, policy: Policy) -> None:
        """Raise an InvalidError if a prompt leaves no room for its completion."""
        for task in self.tasks:
            policy.token_ids(task.prompt, self._config.sampling.max_new_tokens)

    def evaluate(
        self, policy: Policy, step: int, *, name: str = "", best_of: int = 1, start: PromptTable | None = None
    ) -> Evaluated:
        """Evaluate a policy.

        Args:
            policy: The policy.
            step: Its training steps.
            name: Its name in completions; by default its own.
            best_of: Samples of which each counted one is the best by the training reward.
            start: The values of the policy to compare with, by score.
        """
        begun = time.perf_counter()
        completions = list(self._sampled(policy, step, name or policy.name, self.settings.samples * best_of))
        generated = len(completions)
        if best_of > 1:
            self._score(REWARD, completions)
            completions = best_of_groups(completions, best_of)
        elif self.settings.greedy:
            completions += self._sampled(policy, step, name or policy.name, 1, greedy=True)
        completions.sort(key=lambda one: (one.prompt, one.greedy))
        for score in self._scorers:
            if score != REWARD or best_of == 1:
                self._score(score, completions)
        scores, values = self._estimates(completions, start or {})
        judged = [Judged(one.prompt, one.completion, one.scored[REWARD].verdicts) for one in completions]
        line = {
            "step": step,
            "policy": name or policy.name,
            "best_of": best_of,
            "prompts": len(self.tasks),
            "prompt_digests": [task.prompt.digest for task in self.tasks],
            "rubric_digests": [task.rubric.digest for task in self.tasks],
            "k": self.settings.samples,
            "gold": self.settings.gold_name,
            "scores": scores,
            "values": values,
            "generated": generated,
            "completions/mean_length": sum(one.tokens for one in completions) / len(completions),
            "completions/clipped_ratio": _share_truncated(completions),
            "behaviour": _plain_each(behaviour(self.tasks, judged)),
            "criteria": _plain_each(criteria(self.tasks, judged)),
            "monitors": self._monitored([one for one in completions if not one.greedy]),
            **_leak_hits(completions),
            "eval_time": time.perf_counter() - begun,
            "setup": self.setup,
        }
        return Evaluated(line, completions)

    def _sampled(
        self, policy: Policy, step: int, name: str, samples: int, *, greedy: bool = False
    ) -> Iterator[EvalCompletion]:
        """Sample in batches of at most a training step's completions; those of a prompt are adjacent."""
        sampling = self._config.sampling
        most = sampling.prompts_per_step * sampling.group_size
        size = max(1, most // samples)
        how = sampling.model_copy(update={"temperature": 1.0, "top_p": GREEDY_TOP_P}) if greedy else sampling
        shown = sampling.model_copy(update={"temperature": 0.0, "top_p": 1.0}) if greedy else sampling
        for first, part in product(range(0, len(self.tasks), size), range(0, samples, most)):
            self._progress(f"evaluating after {step} steps: sampling, prompt {first + 1} of {len(self.tasks)}")
            prompts = [task.prompt for task in self.tasks[first : first + size]]
            seed = stream_seed(self._config.seed, f"eval {'greedy' if greedy else part}", first)
            rollouts = policy.sample(prompts, min(most, samples - part), how, seed)
            places, lengths = rollouts.prompt_of_B.tolist(), rollouts.lengths.tolist()
            for at, one in enumerate(rollouts.completions(name, step, shown)):
                yield EvalCompletion(first + places[at], one, int(lengths[at]), greedy)

    def _progress(self, text: str) -> None:
        """Report what is done now, unless a stop was requested: what is left is done after a resume."""
        if self._stop.is_set():
            raise StopRequested
        self.on_progress(text)

    def _score(self, score: str, completions: Sequence[EvalCompletion]) -> None:
        self._progress(f"evaluating: scoring {len(completions)} completions by {score}")
        tasks = [self.tasks[one.prompt] for one in completions]
        texts = [one.completion for one in completions]
        scored, _ = self._scorers[score].score(tasks, texts)
        for one, result in zip(completions, scored, strict=True):
            one.scored[score] = result if score in self._joined else replace(result, item_id=None)

    def _monitored(self, completions: Sequence[EvalCompletion]) -> dict[str, list[float | None]]:
        """Return what the monitors measure in the completions of each prompt, and their mean length in tokens."""
        tasks, texts = [self.tasks[one.prompt] for one in completions], [one.completion for one in completions]
        observed = observed_of(tasks, texts, [one.scored[REWARD] for one in completions])
        groups = groupby(completions, key=lambda one: one.prompt)
        lengths: list[float | None] = [fmean(one.tokens for one in group) for _, group in groups]
        return metrics_by_prompt(observed) | {"completions/mean_length": lengths}

    def _estimates(self, completions: Sequence[EvalCompletion], start: PromptTable) -> tuple[Metrics, Metrics]:
        """Return the estimates by score, and the values by prompt that they are computed from."""
        scores, values = {}, {}
        for score in self._scorers:
            samples: list[list[float | None]] = [[] for _ in self.tasks]
            greedy: list[float | None] = []
            for one in completions:
                (greedy if one.greedy else samples[one.prompt]).append(one.rewards[score])
            decoded = greedy or None
            before = start.get(score)
            found = policy_scores(samples, decoded, before)
            named = {one.name: getattr(found, one.name) for one in fields(found)}
            scores[score] = {name: _plain(value) for name, value in named.items() if value is not None}
            values[score] = asdict(prompt_values(samples, decoded))
        return scores, values


def check_gold(gold: str, tasks: Sequence[Task], scorers: Mapping[str, RewardSource]) -> None:
    """Check that the judge of the gold score is not the judge of the training reward under another name."""
    by_gold, trained = (judge_of(tasks, scorers[name]) for name in (gold, REWARD))
    if gold == REWARD or by_gold is None or trained is None or by_gold.digest is None:
        return
    if by_gold.digest == trained.digest:
        raise InvalidError(
            f"the gold score is by {by_gold.name}, which is the judge of the training reward, {trained.name} "
            f"(digest {by_gold.digest[:8]})",
            hint='name another judge in eval.judges, or checks; `gold = "reward"` needs no judge of its own',
            path="eval.gold",
        )


PromptTable = Mapping[str, PromptValues]
"""The values of each prompt, by score."""


def prompt_table(line: Metrics) -> PromptTable:
    """Return the values of the prompts in the line of an evaluation."""
    return {score: PromptValues(one["mean"], one["greedy"]) for score, one in line["values"].items()}


def best_of_groups(completions: Sequence[EvalCompletion], n: int) -> list[EvalCompletion]:
    """Return the best by the training reward of each n neighbours; of equal ones the first, of unscored ones too."""

    def reward(one: EvalCompletion) -> float:
        value = one.rewards[REWARD]
        return float("-inf") if value is None else value

    return [max(completions[at : at + n], key=reward) for at in range(0, len(completions), n)]


def _share_truncated(completions: Sequence[EvalCompletion]) -> float:
    return sum(bool(one.completion.sampling["truncated"]) for one in completions) / len(completions)


def _leak_hits(completions: Sequence[EvalCompletion]) -> Metrics:
    """Return the number of leaks, where tools are guarded against them."""
    tools = [one.completion.sampling.get("tools") for one in completions]
    hits = [one["leak_hits"] for one in tools if isinstance(one, dict) and "leak_hits" in one]
    return {"leak_hits": sum(hits)} if hits else {}


def _plain_each(values: Mapping[str, Estimate]) -> Metrics:
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Estimate | float) -> Any:
    """Return an estimate as plain data, without the reason where there is none."""
    if not isinstance(value, Estimate):
        return value
    plain = asdict(value)
    return plain if value.null_reason else {name: plain[name] for name in ("value", "low", "high")}
